"""A node that worked on Monday and does not on Thursday: its log names what was exchanged, when, and by whom."""

import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.sim import scenario
from tests.sim.root import HOST, Machine

DAY = 86400
_BOOTED_AGO = 864_000
_INSTALLED_AGO = 60 * DAY


def machine(profile: str, folder: Path, state: Path, files: Mapping[str, str], patch: Mapping[str, Any]) -> Machine:
    """That profile with these files, booted ten days ago by the clock of these days; its checks are kept in `state`."""
    state.mkdir(exist_ok=True)
    host = {"files": {"/proc/stat": f"btime {int(time.time()) - _BOOTED_AGO}\n", **files}, **patch.get("host", {})}
    words = {**patch.get("machine", {})}
    words["environ"] = {"GPUDOCTOR_HISTORY": "", "GPUDOCTOR_STATE": f"{HOST}{state}", **words.get("environ", {})}
    told = {key: part for key, part in patch.items() if key not in ("host", "machine", "expect", "title", "profile")}
    folder.mkdir()
    made = Machine(scenario.expanded({"profile": profile, "machine": words, "host": host, **told}), folder)
    for record in folder.rglob("*.dist-info/RECORD"):  # installed long ago, not when the machine was laid out
        os.utime(record, (time.time() // DAY * DAY - _INSTALLED_AGO,) * 2)
    return made


def sick(name: str) -> dict[str, Any]:
    """A scenario as it is written, to be laid over its profile."""
    raw: dict[str, Any] = json.loads((scenario.SICK / f"{name}.json").read_text("utf-8"))
    raw.get("host", {}).pop("files", None)
    return raw


def ago(seconds: float, form: str = "%Y-%m-%d  %H:%M:%S") -> str:
    """That long ago, as a log in UTC has it."""
    return time.strftime(form, time.gmtime(time.time() - seconds))


def kept(state: Path) -> list[Path]:
    """The files of kept runs, the oldest first."""
    return sorted(state.glob("history/*/*.gz"))


def aged(state: Path, seconds: float) -> None:
    """Make every kept run so much older, by its name."""
    for place in kept(state):
        stamp = ago(seconds, "%Y%m%d-%H%M%S")
        place.rename(place.with_name(re.sub(r"^\d{8}-\d{6}", stamp, place.name)))


def day(seconds: float) -> str:
    """``3 November 2025``, that long ago."""
    then = time.gmtime(time.time() - seconds)
    return f"{then.tm_mday} {time.strftime('%B %Y', then)}"


OLD, NEW = "580.95.05-0ubuntu0.24.04.2", "580.105.08-0ubuntu0.24.04.1"
PACKAGES = ("nvidia-driver-580-server-open", "libnvidia-compute-580-server", "nvidia-utils-580-server")
APT = "/var/log/apt/history.log"


def upgrade(when: float, command: str = "/usr/bin/unattended-upgrade") -> str:
    """A stanza of apt's log: the driver's packages, and one that has nothing to do with it."""
    packages = ", ".join([*(f"{name}:amd64 ({OLD}, {NEW})" for name in PACKAGES), "curl:amd64 (8.5.0-1, 8.5.0-2)"])
    return f"\nStart-Date: {ago(when)}\nCommandline: {command}\nUpgrade: {packages}\nEnd-Date: {ago(when - 60)}\n"


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


def test_the_document_has_it(story: tuple[Machine, Path]) -> None:
    node, _ = story
    document: Any = node.gpudoctor("check", "--level", "quick", "--json").document
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


def test_nothing_is_said_of_what_a_finding_does_not_rest_on(tmp_path: Path) -> None:
    log = f"\nStart-Date: {ago(DAY)}\nCommandline: apt-get upgrade\nUpgrade: docker-ce:amd64 (5:27.1.1-1, 5:28.0.0-1)\n"
    node = machine("hgx-h100", tmp_path / "node", tmp_path / "state", {APT: log}, sick("ecc-uncorrected-h100"))
    document = node.gpudoctor("check", "--level", "quick", "--json").document
    assert document["facts"]["package_change"][0]["name"]["value"] == "docker-ce"
    assert [one.get("since") for one in document["findings"] if one["severity"] != "info"] == [None]
