"""A driver that hangs, crashes, crawls or lies: an answer in time, no process left behind, a terminal left alone."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.target.record import Record
from tests.processes import command_line, left, within
from tests.sim import scenario
from tests.sim.documents import Documents, sampled
from tests.sim.root import Machine

NAMES = [name for name in scenario.names(scenario.SICK) if name.startswith("nvml-")]
ENDLESS = [
    "nvml-hangs-at-init",
    "nvml-hangs-at-one-getter",
    "nvml-crashes-at-one-getter",
    "nvml-slow",
    "nvml-uninterruptible",
]
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.mark.parametrize("name", ENDLESS)
def test_no_process_is_left_behind(tmp_path: Path, name: str) -> None:
    root = tmp_path.resolve()
    record = scenario.load(scenario.SICK / f"{name}.json")
    ran = Machine(record, root).gpudoctor("--json")
    assert ran.code == record.expect["exit"]
    assert ran.err == ""
    assert left(lambda: list(map(command_line, within(root)))) == []


@pytest.mark.parametrize("path", sampled([scenario.SICK / f"{name}.json" for name in NAMES]))
def test_what_the_driver_did_not_spoil_is_told(documents: Documents, path: Path) -> None:
    """NVML's trouble costs no other probe its facts."""
    _, ran = documents.of(path)
    facts = ran.document["facts"]
    for fact in ("pci.nvidia_count", "driver.module_version", "driver.library_version", "torch.version", "host.kernel"):
        assert "value" in facts[fact], (fact, facts[fact])


NAMED: dict[str, Any] = {
    "profile": "gtx1080ti",
    "machine": {"open": True},
    "nvml": {"every": {"nvmlDeviceGetName": "NVIDIA \x1b[2J\x1b]0;x\x07GeForce\u202e\r\n\x9b31mGTX 1080 Ti"}},
}
"""A finding that names the GPU, whose name would drive the terminal."""


RECORDS = [scenario.expanded(NAMED), scenario.load(scenario.SICK / "nvml-garbage-version.json")]


@pytest.mark.parametrize("record", RECORDS, ids=["name", "version"])
def test_a_terminal_gets_no_control_characters_of_the_drivers(tmp_path: Path, record: Record) -> None:
    ours, theirs = pty.openpty()
    argv = Machine(record, tmp_path).command([sys.executable, "-m", "gpudoctor"])
    child = subprocess.Popen(argv, stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 1 << 16):
            said += part
    except OSError:  # how Linux says that the other end was closed
        pass
    finally:
        os.close(ours)
        child.wait(60)
    text = said.decode().replace("\r\n", "\n")
    assert "gpudoctor" in text
    assert ("GTX 1080 Ti" in text) == (record is RECORDS[0])
    assert not CONTROL.search(text), repr(text)
