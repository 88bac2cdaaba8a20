"""Every simulated machine under the unmodified program: what it finds, how it ends, how long it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim import scenario
from tests.sim.root import Machine, Ran

_ALL = [scenario.PROFILES / f"{name}.json" for name in scenario.names(scenario.PROFILES)]
_ALL += [scenario.SICK / f"{name}.json" for name in scenario.names(scenario.SICK)]
_ENDS = 8.0
"""Seconds that no diagnosis of a simulated machine may take, whatever its driver does."""


def told(ran: Ran) -> list[str]:
    """The findings of severity error and warning, in order; `info` ones after them, in brackets."""
    findings = ran.document["findings"]
    loud = [one["id"] for one in findings if one["severity"] != "info"]
    return loud + [f"({one['id']})" for one in findings if one["severity"] == "info"]


@pytest.mark.parametrize("path", _ALL, ids=[path.stem for path in _ALL])
def test_scenario(path: Path, tmp_path: Path) -> None:
    record = scenario.load(path)
    ran = Machine(record, tmp_path).gpudoctor("--json", *record.expect.get("words", ()))
    assert ran.err == ""
    loud = [one for one in told(ran) if not one.startswith("(")]
    assert loud == record.expect["ids"], ran.out
    assert ran.code == record.expect["exit"]
    assert ran.seconds < record.expect.get("seconds", _ENDS)
    for text in record.expect.get("says", ()):
        assert text in ran.out
