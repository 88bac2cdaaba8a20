"""The best rate of each GPU and kernel: kept beside the runs, compared under like conditions, told where it falls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.app import pipeline
from gpudoctor.core.fact import Absent, Known, Row
from gpudoctor.core.frozen import replace
from gpudoctor.core.measurement import Measurements
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.history import Shelf
from gpudoctor.diagnosis.history.best import NAME, with_best
from tests import rates

SOUND = rates.sound("H100")
SLOWER = rates.changed(SOUND, [3], "matmul.bf16", rates.slower(0.9))
BOOK = rulebook.load()


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "history" / "node")


def node(found: Measurements, **facts: str) -> Snapshot:
    """The machine with those measurements; facts by name, ``__`` for a dot."""
    snapshot = rates.snapshot("H100", found)
    named = {name.replace("__", "."): Known(value, "a test") for name, value in facts.items()}
    return replace(snapshot, facts={**snapshot.facts, **named})


def behind(snapshot: Snapshot) -> list[Row]:
    """The rows of ``best`` that lost 5 % and more."""
    rows = snapshot.rows("best")
    assert isinstance(rows, tuple)
    return [row for row in rows if float(value(row, "share")) < 0.95]


def value(row: Row, name: str) -> Any:
    state = row[name]
    assert isinstance(state, Known)
    return state.value


def test_the_first_time_there_is_nothing_to_compare_with(shelf: Shelf) -> None:
    assert isinstance(with_best(node(SOUND), shelf).rows("best"), Absent)
    assert len(json.loads((shelf.folder / NAME).read_text())["rates"]) > 8
    assert isinstance(with_best(node(SOUND), None).rows("best"), Absent)


def test_what_is_as_fast_as_ever_is_no_finding(shelf: Shelf) -> None:
    with_best(node(SOUND), shelf)
    again = with_best(node(rates.sound("H100", seed=2, spread=0.01)), shelf)
    assert not [one.id for one in pipeline.diagnose(again, BOOK).findings if one.id == "gpu.below-own-best"]


def test_a_loss_is_told_with_the_date_and_what_has_changed_since(shelf: Shelf) -> None:
    with_best(node(SOUND, driver__version="570.124.06", host__bios="2.1"), shelf)
    later = with_best(node(SLOWER, driver__version="580.95.05", host__bios="2.4"), shelf)
    (row,) = behind(later)
    assert (value(row, "gpu"), value(row, "kernel")) == (3, "matmul.bf16")
    assert value(row, "share") == pytest.approx(0.909)
    assert value(row, "changed") == ("driver 570.124.06 -> 580.95.05", "BIOS 2.1 -> 2.4")
    (finding,) = [one for one in pipeline.diagnose(later, BOOK).findings if one.id == "gpu.below-own-best"]
    assert finding.severity == "info"
    assert "GPU 3 (H100 80GB HBM3): matmul.bf16 reaches" in finding.title
    assert "changed since: driver 570.124.06 -> 580.95.05, BIOS 2.1 -> 2.4" in finding.title


def test_the_same_driver_counts_before_another_one(shelf: Shelf) -> None:
    with_best(node(SLOWER, driver__version="580.95.05"), shelf)
    with_best(node(SOUND, driver__version="570.124.06"), shelf)
    assert not behind(with_best(node(SLOWER, driver__version="580.95.05"), shelf))


def test_the_best_is_kept_not_the_last(shelf: Shelf) -> None:
    with_best(node(SOUND), shelf)
    with_best(node(SLOWER), shelf)
    (row,) = behind(with_best(node(SLOWER), shelf))
    assert value(row, "changed") == ()


def test_runs_at_another_clock_are_not_compared(shelf: Shelf) -> None:
    with_best(node(SOUND), shelf)
    held = rates.changed(SOUND, range(8), "", rates.slower(0.6, sm_clock_mhz=900))
    assert isinstance(with_best(node(held), shelf).rows("best"), Absent)


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "[]",
        '{"schema": "other/1", "rates": {}}',
        '{"schema": "gpudoctor-best-rates/1", "rates": {"GPU|k": {"570": {"value": "many"}}}}',
        '{"schema": "gpudoctor-best-rates/1", "rates": {"GPU|k": {"570": {"value": 1e999, "at": 1, "stack": {}}}}}',
        '{"schema": "gpudoctor-best-rates/1", "rates": [1, 2]}',
        "[" * 100_000,
    ],
)
def test_a_damaged_file_is_as_none(shelf: Shelf, raw: str) -> None:
    shelf.folder.mkdir(parents=True)
    (shelf.folder / NAME).write_text(raw)
    assert isinstance(with_best(node(SOUND), shelf).rows("best"), Absent)
    kept: Mapping[str, Any] = json.loads((shelf.folder / NAME).read_text())
    assert len(kept["rates"]) > 8


def test_kept_runs_and_kept_rates_lie_beside_each_other(shelf: Shelf) -> None:
    with_best(node(SOUND), shelf)
    assert shelf.everything() == []


def test_bench_compares_and_keeps(shelf: Shelf) -> None:
    machine = rates.machine("H100")
    assert pipeline.benched(machine, SOUND, shelf).findings == ()
    found = pipeline.benched(machine, SLOWER, shelf).findings
    assert "gpu.below-own-best" in {one.id for one in found}
