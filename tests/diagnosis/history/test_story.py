"""A node that worked on Monday and does not on Thursday: its log names what was exchanged, when, and by whom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpudoctor.views import schema
from tests.diagnosis.history.machines import DAY, Machine, aged, ago, day, kept, machine, sick

OLD, NEW = "580.95.05-0ubuntu0.24.04.2", "580.105.08-0ubuntu0.24.04.1"
PACKAGES = ("nvidia-driver-580-server-open", "libnvidia-compute-580-server", "nvidia-utils-580-server")
APT = "/var/log/apt/history.log"


def upgrade(when: float, command: str = "/usr/bin/unattended-upgrade", asked: str = "") -> str:
    """A stanza of apt's log: the driver's packages, and one that has nothing to do with it."""
    packages = ", ".join([*(f"{name}:amd64 ({OLD}, {NEW})" for name in PACKAGES), "curl:amd64 (8.5.0-1, 8.5.0-2)"])
    by = f"Requested-By: {asked} (1000)\n" if asked else ""
    return f"\nStart-Date: {ago(when)}\nCommandline: {command}\n{by}Upgrade: {packages}\nEnd-Date: {ago(when - 60)}\n"


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[Machine, Path]:
    """Three days ago it was sound; yesterday its driver was exchanged; now it is asked again."""
    folder = tmp_path_factory.mktemp("story")
    state = folder / "state"
    before = upgrade(30 * DAY, "apt-get install nvidia-driver-580-server-open")
    well = machine("hgx-h100", folder / "well", state, {APT: before}, {})
    ran = well.gpudoctor("check", "--level", "quick")
    assert ran.code == 0
    assert ran.err == ""
    aged(state, 3 * DAY)
    log = before + upgrade(DAY)
    return machine("hgx-h100", folder / "sick", state, {APT: log}, sick("upgraded-hgx-h100")), state


def test_the_finding_says_what_changed_since_it_was_in_order(story: tuple[Machine, Path]) -> None:
    node, _ = story
    ran = node.gpudoctor("check", "--level", "quick")
    assert ran.code == 1
    flat = " ".join(ran.out.split())
    assert f"What changed since it was last in order ({day(3 * DAY)}): driver went from 580.95.05 to 580.105.08" in flat
    assert f"to 580.105.08 on {day(DAY)} by unattended-upgrades ({APT})" in flat
    assert "curl" not in flat
    for form in ("markdown", "html"):
        said = " ".join(node.gpudoctor("check", "--level", "quick", "--format", form).out.split())
        assert "driver went from 580.95.05 to 580.105.08" in said
        assert "by unattended-upgrades" in said


def test_the_document_has_it_and_is_valid(story: tuple[Machine, Path]) -> None:
    node, _ = story
    document: Any = node.gpudoctor("check", "--level", "quick", "--json").document
    jsonschema.validate(document, json.loads(schema.text()))
    (first,) = document["findings"][0]["since"]
    assert (first["what"], first["before"], first["after"]) == ("driver", "580.95.05", "580.105.08")
    assert (first["by"], first["source"]) == ("unattended-upgrades", APT)
    assert first["at"].startswith(ago(DAY, "%Y-%m-%dT"))
    assert first["worked"].startswith(ago(3 * DAY, "%Y-%m-%dT"))


def test_a_diff_against_the_last_good_run_shows_the_packages(story: tuple[Machine, Path]) -> None:
    node, state = story
    good = next(place for place in kept(state) if ".sound." in place.name)
    ran = node.gpudoctor("diff", "--last-good")
    assert ran.code == 1
    assert ran.out.startswith(f"gpudoctor diff: A = run {good.name[:19]} (sound), B = this machine now (broken)")
    flat = " ".join(ran.out.split())
    assert "Only on B: ERROR driver.version-mismatch" in flat
    assert "Packages exchanged between A and B" in flat
    for name in PACKAGES:
        assert f"{name} went from {OLD} to {NEW} on {day(DAY)} by unattended-upgrades" in flat
    assert day(30 * DAY) not in flat


def test_history_lists_the_runs_and_each_can_be_named(story: tuple[Machine, Path]) -> None:
    node, state = story
    node.gpudoctor("check", "--level", "quick")
    listed = node.gpudoctor("history").out.splitlines()
    rows = [line.split() for line in listed if line[:8].isdecimal()]
    assert [row[0] for row in rows] == [place.name[:19] for place in reversed(kept(state))]
    assert rows[0][1:] == ["quick", "broken", "driver.version-mismatch"]
    assert rows[-1][1:] == ["quick", "sound", "-"]
    document = node.gpudoctor("history", "--json").document
    assert document["runs"][0]["findings"][0]["id"] == "driver.version-mismatch"
    ran = node.gpudoctor("diff", rows[-1][0], rows[0][0], "--json")
    assert ran.document["findings"][0]["finding"]["id"] == "driver.version-mismatch"
    assert [one["what"] for one in ran.document["packages"]] == sorted(PACKAGES)


def test_without_a_kept_run_it_is_said_of_the_last_days(tmp_path: Path) -> None:
    log = upgrade(20 * DAY, "dist-upgrade of old") + upgrade(2 * DAY, "apt-get upgrade", asked="maria")
    node = machine("hgx-h100", tmp_path / "node", tmp_path / "state", {APT: log}, sick("upgraded-hgx-h100"))
    flat = " ".join(node.gpudoctor("check", "--level", "quick").out.split())
    assert "What changed within the 14 days before: driver went from 580.95.05 to 580.105.08" in flat
    assert f"on {day(2 * DAY)} by apt-get upgrade (maria) ({APT})" in flat
    assert "of old" not in flat


def test_nothing_is_said_of_what_a_finding_does_not_rest_on(tmp_path: Path) -> None:
    log = f"\nStart-Date: {ago(DAY)}\nCommandline: apt-get upgrade\nUpgrade: docker-ce:amd64 (5:27.1.1-1, 5:28.0.0-1)\n"
    node = machine("hgx-h100", tmp_path / "node", tmp_path / "state", {APT: log}, sick("ecc-uncorrected-h100"))
    document = node.gpudoctor("check", "--level", "quick", "--json").document
    assert document["facts"]["package_change"][0]["name"]["value"] == "docker-ce"
    assert [one.get("since") for one in document["findings"] if one["severity"] != "info"] == [None]
