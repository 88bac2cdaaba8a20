"""A driver that hangs, crashes, lies or goes: an answer in time, nothing left behind; what asking does to a machine."""

import copy
import ctypes
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

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


GOES = {
    "NVML: not loaded any more": ({"nvml": {"call": "nvmlDeviceGetMemoryInfo", "do": 9}}, {"nvml.failed"}, 1),
    "NVML: library replaced": ({"nvml": {"call": "nvmlInit", "do": 18}}, {"driver.version-mismatch"}, 1),
    "NVML before, CUDA after the library was replaced": ({"cuda": {"call": "cuInit", "do": 803}}, None, 1),
    "CUDA: the first call answers, then none": ({"cuda": {"call": "cuDeviceGet", "do": 999}}, set(), 3),
    "CUDA: asked for its name, it is gone": ({"cuda": {"call": "cuDeviceGetName", "do": 999}}, set(), 0),
}
"""Faults by library, the findings of severity error (None: one at least), the exit code. torch is not installed."""


@pytest.mark.parametrize(("faults", "ids", "code"), GOES.values(), ids=GOES)
def test_a_driver_that_goes_between_two_calls(
    tmp_path: Path, faults: Mapping[str, Any], ids: set[str] | None, code: int
) -> None:
    record = scenario.expanded({"profile": "a10", "machine": {"torch": None}})
    sections = {name: copy.deepcopy(getattr(record, name)) for name in ("nvml", "cuda")}
    for name, fault in faults.items():
        sections[name]["faults"] = [fault]
    ran = Machine(replace(record, **sections), tmp_path).gpudoctor("--json")
    found = {one["id"] for one in ran.document["findings"] if one["severity"] == "error"}
    assert "Traceback" not in ran.err
    assert (ran.code, found == ids if ids is not None else bool(found)) == (code, True), found


GPU = "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
RESUMING = (
    f"{GPU}/config",
    f"{GPU}/current_link_speed",
    f"{GPU}/current_link_width",
    f"{GPU}/max_link_width",
    "/proc/driver/nvidia/gpus/0000:01:00.0/information",
)
"""Files whose reading resumes a suspended GPU."""
CHANGES = ("modprobe nvidia", "nvidia-modprobe", "mknod /dev/nvidiactl", "resume")


class Watch:
    """Tells which of these files were read since it was made, by whichever process (inotify)."""

    ACCESS = 1

    def __init__(self, files: Iterable[Path]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._queue = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._queue >= 0, os.strerror(ctypes.get_errno())
        self._files = {libc.inotify_add_watch(self._queue, os.fsencode(file), self.ACCESS): file for file in files}
        assert -1 not in self._files, os.strerror(ctypes.get_errno())

    def read(self) -> set[Path]:
        try:
            events = os.read(self._queue, 1 << 16)
        except BlockingIOError:
            return set()
        found, at = set(), 0
        while at < len(events):
            number, _, _, length = struct.unpack_from("iIII", events, at)
            found.add(self._files[number])
            at += 16 + length
        return found

    def close(self) -> None:
        os.close(self._queue)


def changes(name: str, root: Path, monkeypatch: pytest.MonkeyPatch, level: str) -> tuple[list[str], set[str]]:
    """What was done to the machine, and what was read that resumes a GPU, when the program looked at that level."""
    monkeypatch.setenv("GPUDOCTOR_SIM_TRACE", "/.sim/trace")
    machine = Machine(scenario.load(scenario.SICK / f"{name}.json"), root)
    watch = Watch([root / path[1:] for path in RESUMING if (root / path[1:]).exists()])
    ran = machine.gpudoctor("--json", "--level", level)
    assert ran.err == ""
    read = {f"/{path.relative_to(root)}" for path in watch.read()}
    watch.close()
    trace = root / ".sim/trace"
    lines = trace.read_text().splitlines() if trace.exists() else []
    done = [line.partition("\t")[0] for line in lines]
    return [word for word in done if word in CHANGES], read


def test_level_quick_leaves_a_suspended_gpu_asleep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done, read = changes("odd-sleeping-laptop", tmp_path, monkeypatch, "quick")
    assert (done, read) == ([], set())
    assert (tmp_path / GPU[1:] / "power/runtime_status").read_text() == "suspended\n"


def test_level_standard_asks_it_which_resumes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done, read = changes("odd-sleeping-laptop", tmp_path, monkeypatch, "standard")
    assert done[:1] == ["resume"]
    assert f"{GPU}/config" in read
    assert (tmp_path / GPU[1:] / "power/runtime_status").read_text() == "active\n"


def test_level_quick_loads_no_module_and_makes_no_device_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = changes("module-not-loaded", tmp_path, monkeypatch, "quick")
    assert done == []


def test_the_library_itself_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = changes("module-not-loaded", tmp_path, monkeypatch, "standard")
    assert done[:2] == ["modprobe nvidia", "mknod /dev/nvidiactl"]
