"""A simulated machine recorded by ``gpudoctor record`` and read elsewhere gives the diagnosis it gave at home."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sim import scenario
from tests.sim.documents import Documents
from tests.sim.root import Machine

_SICK = ["driver-missing-hgx", "secure-boot-laptop", "nouveau-beside-driver"]
"""One machine each without driver, with one that is refused, and with one that another displaced."""

_MACHINES = [scenario.PROFILES / f"{name}.json" for name in scenario.names(scenario.PROFILES)]
_MACHINES += [scenario.SICK / f"{name}.json" for name in _SICK]


@pytest.mark.parametrize("path", _MACHINES, ids=[path.stem for path in _MACHINES])
def test_a_record_read_elsewhere_says_the_same(path: Path, documents: Documents, tmp_path: Path) -> None:
    record, at_home = documents.of(path)
    root = tmp_path / "root"
    root.mkdir()
    made = Machine(record, root).gpudoctor("record", "-o", "/record.json")
    assert made.code == 0, made.err
    read = subprocess.run(
        [sys.executable, "-m", "gpudoctor", "read", "--json", str(root / "record.json")],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    elsewhere = json.loads(read.stdout)
    assert [one["id"] for one in elsewhere["findings"]] == [one["id"] for one in at_home.document["findings"]]
    assert elsewhere["verdict"] == at_home.document["verdict"]
    assert _changed(elsewhere["facts"], at_home.document["facts"]) == set()


def _changed(elsewhere: dict[str, Any], at_home: dict[str, Any]) -> set[str]:
    """Facts whose kind of answer (known, absent, unread; so many rows) is not the same."""
    return {name for name, state in at_home.items() if _kind(elsewhere.get(name)) != _kind(state)}


def _kind(state: Any) -> object:
    return sorted(state) if isinstance(state, dict) else len(state or ())
