"""A simulated machine recorded by ``gpudoctor record`` and read elsewhere gives the diagnosis it gave at home."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Program
from tests.sim import scenario
from tests.sim.documents import Documents, sampled
from tests.sim.root import Machine

_SICK = ["driver-missing-hgx", "secure-boot-laptop", "nouveau-beside-driver"]
"""One machine each without driver, with one that is refused, and with one that another displaced."""

_MACHINES = [scenario.PROFILES / f"{name}.json" for name in scenario.names(scenario.PROFILES)]
_MACHINES += [scenario.SICK / f"{name}.json" for name in _SICK]


@pytest.mark.parametrize("path", sampled(_MACHINES))
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
        timeout=600,
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


@pytest.mark.parametrize(
    "name",
    [
        "docker",
        *(pytest.param(name, marks=pytest.mark.full) for name in ("hgx-h100", "l40s", "wsl2-4080", "dgx-spark")),
    ],
)
def test_a_record_is_a_scenario(name: str, documents: Documents, tmp_path: Path) -> None:
    """Laid out again, over our driver libraries, it answers the unmodified program as the machine did."""
    record, at_home = documents.of(scenario.PROFILES / f"{name}.json")
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    assert Machine(record, first).gpudoctor("record", "-o", "/record.json").code == 0
    again = Machine(scenario.load(first / "record.json"), second).gpudoctor("--json")
    assert again.code == 0, again.err
    assert [one["id"] for one in again.document["findings"]] == [one["id"] for one in at_home.document["findings"]]
    assert _changed(again.document["facts"], at_home.document["facts"]) == set()


def test_this_very_machine_becomes_a_scenario(gpudoctor: Program, tmp_path: Path) -> None:
    made = gpudoctor("record", "-o", str(tmp_path / "record.json"), "--level", "quick")
    assert made.code == 0, made.err
    here = gpudoctor("--json", "--level", "quick").document
    root = tmp_path / "root"
    root.mkdir()
    there = Machine(scenario.load(tmp_path / "record.json"), root).gpudoctor("--json", "--level", "quick")
    assert [one["id"] for one in there.document["findings"]] == [one["id"] for one in here["findings"]]
