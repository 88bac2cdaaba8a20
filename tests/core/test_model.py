"""Snapshots, samples, diagnoses, fleets go to JSON and back; frozen classes behave as the standard ones."""

import copy
import dataclasses
import json
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, fields
from functools import cached_property

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.core import diagnosis as diagnoses
from gpudoctor.core import sample as samples
from gpudoctor.core import snapshot as snapshots
from gpudoctor.core import versions
from gpudoctor.core.diagnosis import Diagnosis, Evidence, Finding, Unjudged
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.core.fleet import OK, Check, Drain, Fleet, Host, Pairwise, Result, Suspect, from_json
from gpudoctor.core.frozen import field, frozen, mutable, replace
from gpudoctor.core.rule import Fix, Step
from gpudoctor.core.sample import GPU, NUMBERS, Instance, Process, Sample, sample_of
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.probes.children import process_names

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner), max_leaves=6
)
facts = st.builds(Known, values, st.text()) | st.builds(Absent, st.text()) | st.builds(Unread, st.text())
names = st.from_regex(r"[a-z]{1,6}\.[a-z_]{1,8}", fullmatch=True)
columns = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
rows = st.lists(st.dictionaries(columns, facts, max_size=3), max_size=3).map(tuple)
groups = st.dictionaries(columns, rows | st.builds(Absent, st.text()) | st.builds(Unread, st.text()), max_size=3)
machines = st.builds(
    Snapshot,
    st.builds(
        Target, st.just("snapshot"), st.text(), st.none() | st.text(), st.sampled_from(["quick", "standard", "deep"])
    ),
    st.dictionaries(names, facts, max_size=5),
    groups,
)


@settings(max_examples=50)
@given(machines)
def test_a_snapshot_survives_json(machine: Snapshot) -> None:
    assert snapshots.from_json(json.loads(json.dumps(machine.to_json()))) == machine


def test_a_diagnosis_survives_json() -> None:
    finding = Finding(
        "gpu.ecc",
        "gpu",
        "error",
        "cause",
        "likely",
        "title",
        "why",
        (Evidence("gpu.ecc_uncorrected", Known(3, "nvml"), 1), Evidence("torch.hip", Absent("a CUDA build"))),
        ({"gpu": 1, "uuid": "GPU-1"}, {"gpu": 3}),
        ("gpu.xid",),
        (Fix("reset", (Step(("nvidia-smi", "-r"), "now", ("root",), "hardware"),)),),
        ("source",),
        "run it again",
    )
    machine = Snapshot(Target("snapshot", "n"), {"gpu.count": Known(2, "nvml")}, {}, {"probe.nvml": 4.5})
    before = Diagnosis(machine, "broken", (finding,), (Unjudged("nccl.p2p", "no second GPU"),), ("host.no-gpu",), "1.0")
    assert diagnoses.from_json(json.loads(json.dumps(before.to_json()))) == before
    for name in ("severity", "role", "confidence"):
        other = {**before.to_json(), "findings": [{**finding.to_json(), name: "critical"}]}
        with pytest.raises(DocumentError, match=f"{name} is not one of .*: 'critical'"):
            diagnoses.from_json(other)
    with pytest.raises(DocumentError, match=r"verdict is not one of sound, .*: 'fine'"):
        diagnoses.from_json({**before.to_json(), "verdict": "fine"})


@pytest.mark.parametrize("name", ["gpu.ecc", "p2p.gpu", "net.mtu_9000", "xid"])
def test_the_fact_that_a_rule_waits_for_is_named(name: str) -> None:
    assert diagnoses.is_fact_name(name)
    assert not diagnoses.is_fact_name(f"{name} is not read")


def test_a_list_is_no_snapshot() -> None:
    with pytest.raises(DocumentError, match="not a gpudoctor snapshot"):
        snapshots.from_json([])


@pytest.mark.parametrize("text", ["9" * 5000, "12." + "9" * 5000, "", "abc"], ids=["digits", "minor", "none", "word"])
def test_what_nobody_can_count_is_no_version(text: str) -> None:
    assert versions.parse(text) is None


def test_a_fact_is_read_by_one_typed_call() -> None:
    facts: dict[str, Fact] = {
        "a.count": Known(3, "s"),
        "a.flag": Known(True, "s"),
        "a.far": Known(float("inf"), "s"),
        "a.large": Known(10**400, "s"),
        "a.names": Known(("x", 1), "s"),
        "a.none": Absent("not there"),
        "a.dark": Unread("not looked"),
    }
    snapshot = Snapshot(Target("local", "m"), facts)
    assert (snapshot.number("a.count"), snapshot.text("a.count")) == (3, "3")
    assert snapshot.known("a.count") == Known(3, "s")
    assert snapshot.number("a.large") == 10**400
    assert snapshot.texts("a.names") == ("x", "1")
    for name in ("a.flag", "a.far", "a.names", "a.none", "a.dark", "a.gone"):
        assert snapshot.number(name) is None
    for name in ("a.none", "a.dark", "a.gone"):
        empty = (snapshot.known(name), snapshot.value(name), snapshot.text(name), snapshot.texts(name))
        assert empty == (None, None, "", ())


HOSTS = (Host("node01", "leaf1", 8, "H100"), Host("node02", "leaf1", 8, "H100"), Host("node03", because="timed out"))
CHECKS = (Check("driver", "driver version", "drv"), Check("nccl", "NCCL all-reduce", "nccl"))
PAIRS = Pairwise(
    "NCCL send and receive",
    "GB/s",
    48.0,
    ("node01", "node02"),
    ((None, 46.5), (19.2, None)),
    frozenset({("node02", "node01")}),
    {("node02", "node01"): "2 of 4194304 bytes differ"},
)
FLEET = Fleet(
    "rack a",
    HOSTS,
    CHECKS,
    {"node01": {"driver": OK, "nccl": Result("warning", "41 %", "nccl.slow", 0.41)}, "node02": {"driver": OK}},
    "no-go",
    PAIRS,
    (Suspect("host", ("node01",), "warning", "likely", "node01 is slow", ("every pair at 40 %",), "nccl.slow", "see"),),
    (Drain(("node02",), "slow", ("scontrol", "update", "NodeName=node02")),),
    "2026-11-21T03:02:11Z",
    31.0,
)


def test_what_no_result_speaks_of_was_not_judged_and_sound_is_who_answered() -> None:
    assert FLEET.result("node02", "nccl") == Result("unjudged", "not asked")
    assert FLEET.result("node03", "driver") == Result("unjudged", "timed out")
    assert FLEET.counts == {"ok": 2, "error": 0, "warning": 1, "info": 0, "unjudged": 3}
    assert FLEET.sound == ["node01"]
    fleet = Fleet("", HOSTS[:1], CHECKS, {"node01": {"driver": Result("error")}}, "no-go")
    assert fleet.sound == []
    assert from_json(json.loads(json.dumps(FLEET.to_json()))) == FLEET


def test_a_pair_knows_its_share_and_its_words() -> None:
    pair = PAIRS.pair("node02", "node01")
    assert pair.ratio == pytest.approx(0.4)
    assert (pair.wrong, pair.words) == (True, "2 of 4194304 bytes differ")
    assert PAIRS.pair("node01", "node01").ratio is None


PAIR = {"unit": "GB/s", "expected": 48, "names": [], "measured": []}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": "gpudoctor/1"}, "schema 'gpudoctor/1' is not gpudoctor-fleet/1"),
        ({"verdict": "maybe"}, "verdict is not one of go, no-go, unknown"),
        ({"hosts": 5}, "hosts is not a list"),
        ({"hosts": [{"name": 3}]}, "hosts.0.name is not a text"),
        ({"hosts": [{"name": "a"}] * 16385}, "16385 hosts"),
        ({"results": {"node01": {"driver": "fine"}}}, "results.node01.driver is not one of ok"),
        ({"results": {"node01": {"driver": 3}}}, "results.node01.driver is no object"),
        ({"pairwise": {**PAIR, "names": ["a", "b"]}}, "pairwise.measured is no square of 2"),
        ({"pairwise": {**PAIR, "wrong": [["a"]]}}, "pairwise.wrong is no list of 2 texts each"),
        ({"suspects": [{"kind": "moon"}]}, "suspects.0.kind is not one of host, gpu, link, switch"),
        ({"drain": [{"hosts": "node01"}]}, "drain.0.hosts is not a list of texts"),
    ],
)
def test_what_is_wrong_with_a_document_is_named(change: dict[str, object], words: str) -> None:
    with pytest.raises(DocumentError, match=f"^{words}"):
        from_json({**FLEET.to_json(), **change})


texts = st.text(min_size=1, max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False)
processes = st.builds(Process, st.integers(1, 1 << 22), st.text(), st.text(), st.none() | st.integers(0, 1 << 20))
instances = st.builds(Instance, st.integers(0, 7), st.text(), st.text(), st.none() | st.integers(0, 1 << 20))
gpus = st.builds(
    GPU,
    index=st.integers(0, 127),
    name=st.text(),
    uuid=st.text(),
    utilization=st.none() | numbers,
    power_w=st.none() | numbers,
    throttle_reasons=st.none() | st.lists(texts, max_size=3).map(tuple),
    instances=st.lists(instances, max_size=2).map(tuple),
    processes=st.none() | st.lists(processes, max_size=2).map(tuple),
    error=st.text(),
    unanswered=st.dictionaries(st.sampled_from(NUMBERS), texts, max_size=3),
)
told = st.builds(
    Sample, st.none() | numbers, st.lists(gpus, max_size=3).map(tuple), st.text(), st.text(), st.booleans()
)


@settings(max_examples=40)
@given(told)
def test_a_sample_survives_json(sample: Sample) -> None:
    assert samples.from_json(json.loads(json.dumps(sample.to_json()))) == sample


NO_GPU: tuple[object, ...] = ({}, {"index": 0, "power_w": "hot"}, {"index": 0, "processes": [{"nobody": 1}]}, 5)
TOLD: dict[str, object] = {"seconds": 1, "gpus": [], "source": "", "trouble": "", "live": True}


@pytest.mark.parametrize(
    "raw", [None, [], {}, {"seconds": 1}, {**TOLD, "seconds": "x"}, *({**TOLD, "gpus": [gpu]} for gpu in NO_GPU)]
)
def test_what_is_no_sample_is_refused(raw: object) -> None:
    with pytest.raises(DocumentError):
        samples.from_json(raw)


def test_a_snapshot_shows_what_its_facts_say_and_why_the_rest_is_not_there() -> None:
    row: Row = {
        "index": Known(3, "NVML"),
        "name": Known("NVIDIA H100 80GB HBM3", "NVML"),
        "power_w": Known(412, "NVML"),
        "temperature_c": Unread("NVML: Unknown Error (code 999)"),
        "retired_double_bit": Absent("this GPU does not report it"),
        "throttle_reasons": Known(("sw_power_cap",), "NVML"),
        "links": Known(18, "NVML"),
        "links_down": Known((4, 5), "NVML"),
    }
    process = {"gpu": Known(3, "NVML"), "pid": Known(41207, "NVML"), "name": Known("python", "NVML")}
    groups: dict[str, Rows] = {"gpu": (row,), "gpu_process": (process, {**process, "kind": Known("graphics", "NVML")})}
    sample = sample_of(Snapshot(Target("report", "x"), {}, groups))
    gpu = sample.gpus[0]
    assert not sample.live
    assert (gpu.index, gpu.power_w, gpu.throttle_reasons, gpu.links_up) == (3, 412, ("sw_power_cap",), 16)
    assert (gpu.temperature_c, gpu.why("temperature_c")) == (None, "NVML: Unknown Error (code 999)")
    assert gpu.why("retired_double_bit") == samples.NOT_REPORTED
    assert gpu.processes == (Process(41207, "python"),)


def test_a_snapshot_without_gpus_says_why() -> None:
    sample = sample_of(Snapshot(Target("local", "x"), {}, {"gpu": Absent("NVML lists no GPU")}))
    assert (sample.gpus, sample.trouble) == ((), "NVML lists no GPU")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["/usr/bin/python3.11", "-u", "/home/a/train.py", "--key", "secret"], "train.py"),
        (["python", "-m", "torch.distributed.run", "train.py"], "-m torch.distributed.run"),
        (["python", "-X", "dev", "-c", "import secrets"], "python"),
        (["/opt/vllm/bin/vllm", "serve"], "vllm"),
        (["ray::worker: idle"], "ray::worker"),
        ([], ""),
    ],
)
def test_a_process_is_named_by_its_program_script_or_module_and_nothing_else(words: list[str], name: str) -> None:
    assert process_names.display_name(words) == name


def test_who_is_gone_from_all_gpus_is_forgotten() -> None:
    asked: list[int] = []

    def name(pid: int) -> str:
        asked.append(pid)
        return "job"

    people = process_names.ProcessNames()
    for _ in range(2):
        people.name_and_user(-5, lambda: name(-5))
        people.forget_ended(0, [-5])
    assert asked == [-5]
    people.forget_ended(0, [])
    people.name_and_user(-5, lambda: name(-5))
    assert asked == [-5, -5]


@frozen
class Ours:
    """A class with all that is used of dataclasses."""

    name: str
    size: int = 1
    parts: list[int] = field(default_factory=list)
    secret: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("a size is not negative")


@dataclass(frozen=True, slots=True)
class Theirs:
    """The same by the standard decorator."""

    name: str
    size: int = 1
    parts: list[int] = dataclasses.field(default_factory=list)
    secret: str = dataclasses.field(default="", repr=False)


@frozen
class Alone:
    """One field."""

    name: str


@frozen
class Nothing:
    """No field at all."""


def test_it_is_made_told_and_taken_apart_as_the_standard_one() -> None:
    made: list[tuple[Ours, Theirs]] = [
        (Ours("a"), Theirs("a")),
        (Ours("a", 2, parts=[3]), Theirs("a", 2, parts=[3])),
        (Ours(secret="x", name="b"), Theirs(secret="x", name="b")),
    ]
    for ours, theirs in made:
        assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
        assert asdict(ours) == asdict(theirs)
    assert [one.name for one in fields(Ours)] == [one.name for one in fields(Theirs)]
    assert Ours.__match_args__ == Theirs.__match_args__
    assert Ours("a").parts is not Ours("a").parts


def test_equal_is_what_is_of_one_class_and_has_equal_values() -> None:
    assert Ours("a", 2) == Ours("a", 2) != Ours("a", 3)
    other: object = Theirs("a", 2)
    assert Ours("a", 2) != other
    assert len({Alone("a"), Alone("a"), Alone("b"), Nothing(), Nothing()}) == 3
    with pytest.raises(TypeError, match="unhashable"):
        hash(Ours("a"))


def test_nothing_of_it_can_be_changed_and_a_copy_with_changes_is_checked() -> None:
    one = Ours("a")
    for name in ("name", "other"):
        with pytest.raises(FrozenInstanceError, match=name):
            setattr(one, name, "b")
    with pytest.raises(FrozenInstanceError):
        del one.name
    assert not hasattr(one, "__dict__")
    assert replace(Ours("a"), size=4) == Ours("a", 4)
    with pytest.raises(ValueError, match="negative"):
        replace(Ours("a"), size=-1)
    with pytest.raises(TypeError):
        Ours()  # type: ignore[call-arg]
    one = Ours("a", 2, [3])
    assert copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one
    assert copy.copy(Nothing()) == Nothing()


@frozen(slots=False)
class Open:
    """What keeps what it has worked out."""

    name: str
    size: int = 3

    @cached_property
    def doubled(self) -> list[int]:
        """Twice the size, made once."""
        return [2 * self.size]


@mutable
class Filled:
    """What is filled step by step."""

    name: str
    parts: list[int] = field(default_factory=list)


def test_without_slots_it_keeps_what_was_worked_out() -> None:
    one = Open("a")
    assert one.doubled is one.doubled == [6]
    assert replace(one, size=5).doubled == [10]
    assert one == Open("a", 3)
    with pytest.raises(FrozenInstanceError):
        one.name = "b"  # type: ignore[misc]


def test_a_mutable_one_is_filled_and_not_hashed() -> None:
    one = Filled("a")
    one.parts.append(1)
    one.name = "b"
    assert one == Filled("b", [1])
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
    with pytest.raises(AttributeError):
        one.other = 1  # type: ignore[attr-defined]


def test_a_default_that_all_would_share_is_refused() -> None:
    defaults: list[object] = [[], dataclasses.field(default_factory=list)]
    for default in defaults:
        with pytest.raises(TypeError, match=r"Wrong\.parts"):
            frozen(type("Wrong", (), {"__annotations__": {"parts": "list[int]"}, "parts": default}))
