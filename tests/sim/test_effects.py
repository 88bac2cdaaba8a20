"""What asking the driver does to a machine: modules loaded, device files made, GPUs resumed. Level quick does none."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.sim import scenario
from tests.sim.root import Machine

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
