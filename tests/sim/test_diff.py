"""``gpudoctor diff`` between a healthy machine and the same machine sick puts the cause in its first three lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpudoctor.app import cli
from tests.sim import scenario
from tests.sim.documents import Documents

pytestmark = pytest.mark.full

_LEAST = 0.9
"""Share of the scenarios whose cause must be named there."""


def test_the_cause_leads(documents: Documents, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missed = {}
    pairs = 0
    for name in scenario.names(scenario.SICK)[::4]:
        path = scenario.SICK / f"{name}.json"
        raw = json.loads(path.read_text("utf-8"))
        if "profile" not in raw or "words" in raw.get("expect", {}) or not raw["expect"]["ids"]:
            continue
        record, sick = documents.of(path)
        _, healthy = documents.of(scenario.PROFILES / f"{raw['profile']}.json")
        for side, ran in (("healthy", healthy), ("sick", sick)):
            (tmp_path / f"{side}.json").write_text(ran.out, "utf-8")
        pairs += 1
        said = _diff(tmp_path, capsys)
        if record.expect["ids"][0] not in "\n".join(said[:3]):
            missed[name] = said[:3]
    assert pairs >= 15
    assert len(missed) <= (1 - _LEAST) * pairs, missed


def _diff(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert cli.run(["diff", str(folder / "healthy.json"), str(folder / "sick.json")]) == 1
    return [line for line in capsys.readouterr().out.splitlines() if line.strip()]
