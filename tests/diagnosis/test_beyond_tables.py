"""Beyond the tables is not broken: what is newer than every row draws no error and no warning by itself."""

from __future__ import annotations

from functools import cache
from itertools import islice

import pytest

from gpudoctor.app import pipeline, reading
from gpudoctor.core.snapshot import Snapshot
from tests.diagnosis.expect.machines import BOOK, machine
from tests.generated import beyond
from tests.generated.beyond import Raised
from tests.sim import scenario


def alarms(machine: Snapshot) -> set[str]:
    """The findings that are more than information."""
    return {one.id for one in pipeline.diagnose(machine, BOOK).findings if one.severity != "info"}


@cache
def profiles() -> dict[str, Snapshot]:
    """Every sound machine that is simulated."""
    return {name: machine(name) for name in scenario.names(scenario.PROFILES)}


def new_alarms(raised: Raised) -> list[str]:
    """What is found on the machine of tomorrow, or in its pasted report, and not on that of today."""
    found = []
    if seen := alarms(raised.after):
        found += [f"machine {one}" for one in seen - alarms(raised.before)]
    if pasted := alarms(reading.snapshot_of(beyond.as_text(raised.after))):
        found += [f"text {one}" for one in pasted - alarms(reading.snapshot_of(beyond.as_text(raised.before)))]
    return [f"{raised.what}: {one}" for one in found]


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 12))])
def test_what_is_newer_than_every_row_is_not_broken(seed: int) -> None:
    """``python -m tests.generated --beyond 20000`` judges as many."""
    found = [new_alarms(raised) for raised in islice(beyond.machines(seed, profiles()), 60)]
    assert [line for lines in found for line in lines] == []


def test_what_is_newer_is_said() -> None:
    sample = list(islice(beyond.machines(1, profiles()), 40))
    noted = [raised for raised in sample if pipeline.diagnose(raised.after, BOOK, "2026-11-22").notes]
    held = [raised for raised in sample if any(part in raised.what for part in ("driver by", "torch by", "python by"))]
    assert [raised.what for raised in held if raised not in noted] == []
