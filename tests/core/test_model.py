"""Snapshots and diagnoses go to JSON and back, whatever they hold."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.core import diagnosis as diagnoses
from gpudoctor.core import snapshot as snapshots
from gpudoctor.core import versions
from gpudoctor.core.diagnosis import Diagnosis, Evidence, Finding, Unjudged
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Absent, Fact, Known, Unread
from gpudoctor.core.rule import Fix, Step
from gpudoctor.core.snapshot import Snapshot, Target

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
