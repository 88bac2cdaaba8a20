"""Probes side by side: one may die, hang, lie or contradict another, and every fact still has an answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gpudoctor import probes
from gpudoctor.core.catalog import FactSpec, column, fact
from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.core.shipped import modules_of
from gpudoctor.core.snapshot import Event, Snapshot
from gpudoctor.probes import collect
from gpudoctor.target import Target
from gpudoctor.target.local import Local
from tests.probes.trees import Tree

Said = Iterator[tuple[str, Any]]
VERSION = fact("driver.version", "version", "v")
KIND = fact("driver.kind", "text", "k")
NAME = column("gpu.name", "text", "n")


def a_probe(name: str, said: Any, facts: tuple[FactSpec, ...] = (VERSION, KIND, NAME), **settings: Any) -> ModuleType:
    """A probe module of this name; `said` is its generator function."""
    module = ModuleType(f"gpudoctor.probes.{name}")
    vars(module).update({"FACTS": facts, "probe": said, **settings})
    return module


def of(*entries: tuple[str, Any]) -> Any:
    """A generator function that says just these."""

    def probe(target: Target) -> Said:
        yield from entries

    return probe


def collected(*modules: ModuleType, level: str = "quick") -> Snapshot:
    return collect(Local(level, environ={}), modules)


def test_what_is_said_is_kept_and_timed() -> None:
    row = {"name": Known("H100", "nvml")}
    facts = (VERSION, KIND, NAME, fact("env.*", "text", "a wildcard, which needs no answer"))
    snapshot = collected(a_probe("one", of(("driver.version", Known("570.86", "proc")), ("gpu", (row,))), facts))
    assert set(snapshot.facts) == {"driver.version", "driver.kind"}
    assert snapshot.get("driver.version") == Known("570.86", "proc")
    assert snapshot.rows("gpu") == (row,)
    assert snapshot.get("driver.kind") == Unread("the probe did not say")
    assert set(snapshot.timings_ms) == {"probe.one"}


def test_a_probe_that_is_no_generator_or_raises_half_way() -> None:
    def probe(target: Target) -> Said:
        yield "driver.version", Known("570.86", "proc")
        raise ValueError("half a line")

    snapshot = collected(a_probe("half", probe))
    died = Unread("the probe half died: ValueError: half a line")
    assert snapshot.get("driver.version") == Known("570.86", "proc")
    assert snapshot.get("driver.kind") == died
    assert snapshot.rows("gpu") == died
    assert collected(a_probe("none", lambda _: None)).get("driver.kind") == Unread(
        "the probe none died: TypeError: 'NoneType' object is not iterable"
    )


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), MemoryError("64 GiB"), RecursionError()])
def test_a_probe_ends_nothing_but_itself(error: BaseException) -> None:
    def probe(target: Target) -> Said:
        raise error
        yield  # a generator all the same

    snapshot = collected(a_probe("rude", probe), a_probe("kind", of(("driver.kind", Known("open", "proc")))))
    assert snapshot.get("driver.kind") == Known("open", "proc")
    version = snapshot.get("driver.version")
    assert isinstance(version, Unread)
    assert version.why.startswith(f"the probe rude died: {type(error).__name__}")


@pytest.mark.parametrize(
    "entry", [("driver.version", "570.86"), ("driver.version", ()), ("gpu", Known(1, "x")), ("gpu", [{}])]
)
def test_a_probe_that_yields_no_fact_dies_alone(entry: tuple[str, Any]) -> None:
    kind = ("driver.kind", Known("open", "proc"))
    snapshot = collected(a_probe("odd", of(kind, entry)))
    assert snapshot.get("driver.kind") == kind[1]
    for state in (snapshot.get("driver.version"), snapshot.rows("gpu")):
        assert isinstance(state, Unread)
        assert "not a fact" in state.why


def test_a_probe_that_hangs_is_given_up_and_heard_no_more() -> None:
    freed = threading.Event()
    late = threading.Event()
    events: list[Event] = []

    def probe(target: Target) -> Said:
        yield "driver.version", Known("570.86", "proc")
        freed.wait(600)
        yield "driver.kind", Known("open", "proc")
        late.set()

    slow = a_probe("slow", probe, DEADLINE=0.3)
    quick = a_probe("quick", of(("gpu", ())))
    snapshot = collect(Local("quick", environ={}), [slow, quick], events.append)
    freed.set()
    assert late.wait(60)
    time.sleep(0.05)
    assert snapshot.get("driver.version") == Known("570.86", "proc")
    assert snapshot.get("driver.kind") == Unread("the probe slow was stopped after 0.3 s")
    assert snapshot.rows("gpu") == ()
    assert [event.state for event in events if event.source == "slow"] == ["started", "stopped"]
    assert Event("quick", "done") in events


@pytest.mark.parametrize(("said", "waits"), [("hung", False), ("ok", True)])
def test_nobody_waits_for_what_the_others_have_settled(said: str, waits: bool) -> None:
    freed = threading.Event()

    def probe(target: Target) -> Said:
        freed.wait(0.6 if waits else 60)
        yield "gpu", ()

    first = a_probe("first", of(("driver.kind", Known(said, "proc"))), (KIND,))
    second = a_probe("second", probe, (NAME,), MOOT={"driver.kind": "hung"})
    rows = collected(second, first).rows("gpu")
    freed.set()
    assert rows == (() if waits else Unread("the probe second was stopped because driver.kind is hung"))


def test_probes_run_side_by_side() -> None:
    """Each waits for all others."""
    meeting = threading.Barrier(8)
    met: list[int] = []

    def probe(target: Target) -> Said:
        met.append(meeting.wait(60))
        yield "gpu", ()

    collected(*(a_probe(f"p{number}", probe, DEADLINE=60.0) for number in range(8)))
    assert sorted(met) == list(range(8))


@pytest.mark.parametrize(
    ("first", "second", "winner"),
    [
        (Known("570.86", "proc"), Known("580.95", "nvml"), Known("570.86", "proc")),
        (Absent("not loaded"), Known("580.95", "nvml"), Known("580.95", "nvml")),
        (Known("570.86", "proc"), Absent("no NVML"), Known("570.86", "proc")),
        (Unread("hidden"), Absent("not loaded"), Absent("not loaded")),
        (Unread("one"), Unread("two"), Unread("one")),
    ],
)
def test_two_that_disagree(first: object, second: object, winner: object) -> None:
    one = a_probe("one", of(("driver.version", first)))
    two = a_probe("two", of(("driver.version", second)))
    assert collected(one, two).get("driver.version") == winner


def test_rows_of_two_probes_join_and_a_reason_gives_way_to_rows() -> None:
    one, two = {"name": Known("A", "x")}, {"name": Known("B", "x")}
    joined = collected(a_probe("one", of(("gpu", (one,)))), a_probe("two", of(("gpu", (two,)))))
    assert joined.rows("gpu") == (one, two)
    for reason in (Absent("none"), Unread("hidden")):
        for order in (((one,), reason), (reason, (one,))):
            names = (a_probe(f"p{at}", of(("gpu", rows))) for at, rows in enumerate(order))
            assert collected(*names).rows("gpu") == (one,)


def test_a_probe_of_a_higher_level_is_not_asked() -> None:
    def probe(target: Target) -> Said:
        raise AssertionError("asked")
        yield

    module = a_probe("live", probe, LEVEL="standard")
    snapshot = collected(module)
    assert snapshot.get("driver.version") == Unread("asked from level standard on", asked=False)
    assert snapshot.timings_ms == {}
    assert "died" in str(collected(module, level="deep").get("driver.version"))


def test_the_real_probes_answer_for_everything_they_declare(tmp_path: Path) -> None:
    modules = [module for module in modules_of(probes) if getattr(module, "LEVEL", "quick") == "quick"]
    tree = Tree(tmp_path).linux().gpu("nvidia").driver("580.95.05")
    snapshot = collect(tree.target(PATH=str(tmp_path / "bin")), modules)
    for module in modules:
        for spec in module.FACTS:
            group = spec.name.rpartition(".")[0]
            assert spec.name.endswith("*") or spec.name in snapshot.facts or (spec.group and group in snapshot.groups)
    dead = {name: state for name, state in snapshot.facts.items() if isinstance(state, Unread) and " died" in state.why}
    assert not dead
    assert snapshot.get("driver.version") == Known("580.95.05", "/proc/driver/nvidia/version")
