"""A machine watched while it answers, and its record: it answers the same, and what is no whole record is refused."""

import base64
import json
import os
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor import probes
from gpudoctor.app import pipeline, reading
from gpudoctor.app.commands.record import recorded
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Fact, Known, Rows, Unread
from gpudoctor.core.shipped import modules_of
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.snapshot import Target as Subject
from gpudoctor.diagnosis import rulebook
from gpudoctor.probes import collect
from gpudoctor.target import Answer
from gpudoctor.target.record import Record, from_json, parse, to_json
from gpudoctor.target.recorded import Recorded
from gpudoctor.target.recording import Parts, Recording
from tests.environments import CUBIN, Venv, container, elf, entry
from tests.probes.trees import Tree

_PROBES = [module for module in modules_of(probes) if module.__name__.rpartition(".")[2] not in ("nvml", "libcuda")]


def watched(root: Path, python: str | None = None, **environ: str) -> tuple[Recording, Snapshot]:
    """A tree as a machine, asked everything but what runs on the machine below."""
    target = Recording("quick", root=str(root), environ={"PATH": "/nowhere", **environ})
    target.python = python
    return target, collect(target, _PROBES)


def replayed(record: Record) -> Snapshot:
    with Recorded(record) as target:
        return collect(target, _PROBES)


def told(snapshot: Snapshot) -> Mapping[str, Fact | Rows]:
    """The facts, but for what the machine below adds of itself, and the age of packages, which grows meanwhile."""
    facts = {**snapshot.facts, **snapshot.groups}
    return {name: fact for name, fact in facts.items() if not name.startswith(("fitness.", "space", "package_change"))}


def test_of_a_large_library_only_what_was_read_is_kept(tmp_path: Path) -> None:
    venv = Venv(tmp_path)
    venv.torch("2.9.0+cu128", "12.8")
    entries = [entry(CUBIN, arch, payload=os.urandom(1 << 20)) for arch in (80, 90)]
    library = f"{venv.site}/torch/lib/libtorch_cuda.so"
    venv.write(library, elf({".nv_fatbin": container(*entries)}))
    target, live = watched(tmp_path, venv.python)
    assert live.get("torch.archs") == Known(("sm_80", "sm_90"), f"1 fat binaries in {library}")
    record = recorded(target, pipeline.diagnose(live, rulebook.load()))
    assert told(replayed(record)) == told(live)
    assert record.sparse[library].size > 2 << 20
    assert len(json.dumps(to_json(record))) < 1 << 18


def test_what_was_too_large_is_unread_and_never_missing() -> None:
    raw = {"schema": "gpudoctor-record/1", "host": {"files": {"/etc/os-release": "ID=x"}, "left_out": ["/lib/big"]}}
    with Recorded(from_json({**raw, "host": {**raw["host"], "links": {"/lib/link": "big"}}})) as target:  # type: ignore[dict-item]
        assert target.exists("/lib/big")
        assert target.listing("/lib") == ["big", "link"]
        for path in ("/lib/big", "/lib/link"):
            with pytest.raises(OSError, match="left out of the record"):
                target.read(path)


def test_what_the_machine_refused_stays_refused(tmp_path: Path) -> None:
    Tree(tmp_path).file("/sys/x/secret", "words").file("/sys/x/open", "words")
    target = Recording("quick", root=str(tmp_path), environ={})
    target.seen.denied.add("/sys/x/secret")  # as the kernel would say to somebody without rights
    target.read("/sys/x/open")
    record = recorded(target, pipeline.diagnose(Snapshot(Subject("local", "x"), {}), rulebook.load()))
    with Recorded(record) as replay:
        assert replay.read("/sys/x/open") == "words"
        with pytest.raises(PermissionError):
            replay.read("/sys/x/secret")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is refused to root")
def test_a_refusal_is_noticed(tmp_path: Path) -> None:
    Tree(tmp_path).file("/sys/x/secret", "words", mode=0)
    target = Recording("quick", root=str(tmp_path), environ={})
    with pytest.raises(PermissionError):
        target.read("/sys/x/secret")
    assert target.seen.denied == {"/sys/x/secret"}


def test_links_are_kept_and_nothing_lies_below_them_and_a_log_that_is_not_there_is_not_an_empty_one(
    tmp_path: Path,
) -> None:
    tree = Tree(tmp_path).file("/sys/devices/gpu/vendor", "0x10de").link("/sys/bus/pci", "../devices")
    target = Recording("quick", root=str(tree.root), environ={})
    assert target.read("/sys/bus/pci/gpu/vendor") == "0x10de"
    assert target.seen.links == {"/sys/bus/pci": "../devices"}
    assert list(target.seen.files) == ["/sys/devices/gpu/vendor"]
    Tree(tmp_path / "up").file("/opt/1.0/lib/x.so", "x").folder("/opt/1.0/bin").link("/opt/bin", "1.0/bin")
    target = Recording("quick", root=str(tmp_path / "up"), environ={})
    assert target.read("/opt/bin/../lib/x.so") == "x"
    assert list(target.seen.files) == ["/opt/1.0/lib/x.so"], "behind a link .. leads elsewhere"
    target = Recording("quick", root=str(tmp_path / "empty"), environ={})
    target.path("/dev/kmsg")
    assert target.seen.files == {}


@pytest.mark.parametrize(
    ("read", "joined"),
    [
        ([(0, b"ab"), (2, b"cd")], [(0, b"abcd")]),
        ([(4, b"x"), (0, b"ab"), (1, b"bc")], [(0, b"abc"), (4, b"x")]),
        ([(0, b"abcd"), (1, b"b")], [(0, b"abcd")]),
        ([], []),
    ],
)
def test_parts_that_touch_become_one(read: list[tuple[int, bytes]], joined: list[tuple[int, bytes]]) -> None:
    parts = Parts(10)
    for offset, data in read:
        parts.note(offset, data)
    assert parts.joined() == joined


def test_only_variables_that_were_asked_for_are_kept_and_secrets_never(tmp_path: Path) -> None:
    target, live = watched(
        tmp_path,
        CUDA_VISIBLE_DEVICES="0",
        MY_DIARY="dear diary",
        NCCL_TOKEN="hunter2hunter2",
        HF_HOME="/home/jdoe/hf",
        PWD="/home/jdoe/work",
    )
    record = recorded(target, pipeline.diagnose(live, rulebook.load()))
    kept = record.environ
    assert kept["CUDA_VISIBLE_DEVICES"] == "0"
    assert "MY_DIARY" not in kept
    assert "hunter2" not in json.dumps(to_json(record))
    assert "jdoe" not in json.dumps(to_json(record))
    assert kept["PWD"].removesuffix("/work") == kept["HF_HOME"].removesuffix("/hf"), "the same home"


def test_an_interpreter_is_the_one_that_a_check_would_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name on PATH, or by the folder of its environment."""
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    for asked in ("python", "venv", "venv/bin/python"):
        target = Recording("quick", asked, environ={"PATH": str(tmp_path / "venv/bin")})
        assert target.python == str(tmp_path / "venv/bin/python")


def told_by(lines: list[dict[str, Any]], status: int | None = 0, argv: str = "") -> Answer:
    out = "".join(f"@gpudoctor {json.dumps(line)}\n" for line in lines)
    return Answer(("python", "/x/ask_nvml.py", argv), status, out, "", 1.0)


@pytest.mark.parametrize("status", [-11, None])
def test_what_a_child_did_not_survive_is_a_fault_of_the_record(status: int | None) -> None:
    target = Recording("quick", environ={})
    target.seen.answers = [
        told_by(
            [
                {"gpu": None, "call": "library", "is": "libnvidia-ml.so.1"},
                {"gpu": None, "call": "nvmlInit", "is": 0},
                {"gpu": None, "call": "nvmlDeviceGetCount", "is": 2},
                {"gpu": 1, "call": "nvmlDeviceGetName", "is": "A100"},
                {"gpu": 1, "call": "nvmlDeviceGetUUID", "is": "GPU-8b0e7153-bf7c-3706-d85c-524e44006655"},
                {"gpu": 1, "call": "nvmlDeviceGetSerial", "is": "1654022003158"},
                {"gpu": 1, "call": "nvmlDeviceGetMigMode", "code": 15, "text": "GPU is lost"},
                {"ask": "nvmlDeviceGetTemperature(0)", "gpu": 1},
            ],
            status,
        )
    ]
    record = recorded(target, pipeline.diagnose(Snapshot(Subject("local", "x"), {}), rulebook.load()))
    assert record.nvml
    assert record.nvml["system"] == {"nvmlDeviceGetCount": 2}
    assert record.nvml["gpus"][1] == {
        "nvmlDeviceGetName": "A100",
        "nvmlDeviceGetUUID": "GPU-00000001-f000-4f00-8f00-000000000001",
        "nvmlDeviceGetSerial": "0000000000001",
        "nvmlDeviceGetMigMode": {"code": 15, "text": "GPU is lost"},
        "nvmlDeviceGetTemperature(0)": {"code": 999},
    }
    do = "hang" if status is None else "crash"
    assert record.nvml["faults"] == [{"call": "nvmlDeviceGetTemperature", "gpu": 1, "do": do}]
    with Recorded(record) as replay:
        first = replay.run(("python", "/y/ask_nvml.py", "/z"), timeout=5)
        assert first.status == status
        assert first.out.splitlines()[-1].endswith('{"ask": "nvmlDeviceGetTemperature(0)", "gpu": 1}')
        left_out = json.dumps({"left_out": [[1, "nvmlDeviceGetTemperature(0)"]]})
        second = replay.run(("python", "/y/ask_nvml.py", "/z", left_out), timeout=5)
        assert second.ok
        assert second.out.splitlines()[-1] == '@gpudoctor {"done": true}'


_FIRST = list(modules_of(probes))[:3]


_DATA = base64.b64encode(zlib.compress(b"\x7fELF")).decode()


HOST: dict[str, Any] = {
    "files": {"/etc/os-release": "ID=ubuntu\n"},
    "links": {"/lib": "usr/lib"},
    "sparse": {"/usr/lib/x.so": {"size": 100, "parts": [[0, 4]], "data": _DATA}},
}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sparse": {"/x": {"size": 1 << 50, "parts": [], "data": ""}}}, "outside of its size"),
        ({"sparse": {"/x": {"size": 9, "parts": [[5, 5]], "data": ""}}}, "outside of its size"),
        ({"sparse": {"/x": {"size": 9, "parts": [[-1, 5]], "data": ""}}}, "outside of its size"),
        ({"sparse": {"/x": {"size": 9, "parts": [0], "data": ""}}}, "outside of its size"),
        ({"sparse": {"/x": {"size": 9, "parts": [[0, 4]], "data": "!"}}}, "not base64"),
        ({"sparse": {"/x": {"size": 9, "parts": [[0, 4]], "data": "AAAA"}}}, "not compressed"),
        ({"sparse": {"/x": {"size": 9, "parts": [[0, 3]], "data": _DATA}}}, "other than"),
        ({"sparse": {"/x": {"size": 1 << 30, "parts": [[0, 1 << 30]], "data": ""}}}, "bytes in its parts"),
        ({"sparse": {"../x": {"size": 9, "parts": [], "data": ""}}}, "not an absolute path"),
        ({"left_out": ["/etc/os-release"]}, "there twice"),
        ({"files": {"/lib/x": ""}}, "below"),
    ],
)
def test_a_hostile_record_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(DocumentError, match=says):
        reading.snapshot_of(json.dumps({"schema": "gpudoctor-record/1", "host": {**HOST, **change}}), "file")


def _children(child: object) -> dict[str, Any]:
    return {"host": {}, "kernels": {"children": child}}


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({}, "it has no host"),
        ({"host": {}, "machine": {"driver": None}}, "'machine' is no part of a record"),
        ({"host": {}, "level": "thorough"}, "level"),
        ({"host": {}, "level": 3}, "level"),
        ({"host": {}, "kernels": []}, "kernels is not an object"),
        (_children({"ask": 1}), "kernels: children is not a list"),
        ({"host": {}, "kernels": 0}, "kernels is not an object"),
        (_children(""), "kernels: children is not a list"),
        (_children([7]), "kernels.children is not an object"),
        (_children([{"ask": {}, "out": "no", "status": 0}]), "kernels.children: out is not a list"),
        (_children([{"ask": {}, "out": [], "status": "0"}]), "kernels.children: a status is not a whole number"),
        (
            {"host": {}, "kernels": {"meanwhile": [{"kernel": "a", "gpu": 0, "power_w": "hot"}]}},
            "power_w is not a number",
        ),
    ],
)
def test_what_is_no_whole_record_is_not_diagnosed(raw: dict[str, Any], says: str) -> None:
    with pytest.raises(DocumentError, match=says):
        parse(json.dumps({"schema": "gpudoctor-record/1", **raw}))


_VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.lists(st.integers(), max_size=2)


@settings(max_examples=30)
@given(
    st.sampled_from(
        ["files", "bytes", "links", "folders", "devices", "denied", "space", "times", "sparse", "left_out", "commands"]
    ),
    st.recursive(_VALUES, lambda inner: st.dictionaries(st.text(max_size=9).map("/".__add__), inner, max_size=2)),
)
def test_anything_in_any_part_of_a_record(part: str, entry_: Any) -> None:
    raw = {"schema": "gpudoctor-record/1", "host": {"files": {}, part: entry_}}
    try:
        replay = Recorded(parse(json.dumps(raw)))
    except DocumentError:
        return
    with replay as target:
        assert target.listing("/") is not None
        assert isinstance(collect(target, _FIRST[:3]).get("nothing.asked"), Unread)


def test_an_answer_that_is_an_empty_object_is_no_failure_and_an_object_where_a_list_belongs_no_list() -> None:
    raw = {
        "schema": "gpudoctor-record/1",
        "host": {},
        "nvml": {"system": {"nvmlSystemGetDriverVersion": {}}, "gpus": []},
    }
    diagnosis = reading.read(json.dumps(raw))
    assert not [fact for fact in diagnosis.snapshot.facts.values() if isinstance(fact, Unread) and "died" in fact.why]
    answers = {"nvmlDeviceGetComputeRunningProcesses": {"pid": 1}}
    nvml = {"system": {"nvmlDeviceGetCount": 1}, "every": answers, "gpus": [{}]}
    diagnosis = reading.read(json.dumps({"schema": "gpudoctor-record/1", "host": {}, "nvml": nvml}))
    assert isinstance(diagnosis.snapshot.rows("gpu_process"), Unread)
    assert diagnosis.snapshot.facts["nvml.state"] == Known("ok", diagnosis.snapshot.facts["nvml.state"].source)  # type: ignore[union-attr]


def test_the_children_of_a_ladder_answer_the_same_question_and_no_other() -> None:
    ask = {"family": "driver", "device": "cuda:0", "kernels": ["driver.add"], "seed": 1}
    children = [{"ask": ask, "out": [{"opened": {}}, {"done": True}], "err": "", "status": 0}, {}]
    record = from_json({"schema": "gpudoctor-record/1", "host": {}, "kernels": {"children": children}})
    assert from_json(to_json(record)) == record
    with Recorded(record) as target:
        same = target.run(["/elsewhere/python", "/elsewhere/__main__.py", json.dumps({**ask, "seed": 2})])
        assert '"opened"' in same.out
        other = target.run(["/elsewhere/python", "/elsewhere/__main__.py", json.dumps({**ask, "device": "cuda:1"})])
        assert '{"closed": "the record has no answer to this", "failed": false}' in other.out
