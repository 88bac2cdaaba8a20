"""What does it cost to watch 64 GPUs twice a second? Beside the smallest Textual application, which does nothing.

python -m tests.bench.live [--gpus N] [--minutes M] [--interval S] [--size WxH]

Both run in terminals of their own at the same time. Processor time of one core over the whole minutes but the first ten
seconds, memory at the start, after each minute and at the end. The GPUs are simulated: the child that asks NVML is the
real one, and its processor time is told apart. Ends with 1 where a limit is passed.
"""

from __future__ import annotations

import argparse
import copy
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from gpudoctor import interactive, live
from gpudoctor.target.local import Local
from gpudoctor.views.tui.app import DoctorApp
from tests.sim import clients
from tests.tui.machines import told_of

MOST_CPU, MOST_GROWTH_MIB = 5.0, 4.0
"""Limits: percent of one core, and memory that may come after the first minute."""
_SETTLES = 10.0
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Spent(NamedTuple):
    """Of one process: seconds of processor time, and MiB in memory."""

    cpu: float
    mib: float


class Window:
    """A program in a terminal of its own, whose screen is read and thrown away."""

    def __init__(self, what: str, gpus: int, interval: float, size: tuple[int, int]) -> None:
        own, theirs = pty.openpty()
        fcntl.ioctl(own, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        argv = [sys.executable, "-m", "tests.bench.live", "--inside", what, "--gpus", str(gpus)]
        self.child = subprocess.Popen(
            [*argv, "--interval", str(interval)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            start_new_session=True,
        )
        os.close(theirs)
        self.drawn = 0
        self._own = own
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while select.select([self._own], [], [])[0]:
            try:
                self.drawn += len(os.read(self._own, 1 << 16))
            except OSError:
                return

    def spent(self) -> Spent:
        """So far, by the process itself."""
        return _spent(self.child.pid)

    def asker(self) -> Spent:
        """So far, by the child that asks NVML."""
        pids = Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text("ascii").split()
        threads = Path(f"/proc/{self.child.pid}/task").iterdir()
        pids += [pid for thread in threads for pid in (thread / "children").read_text("ascii").split()]
        return _spent(int(pids[0])) if pids else Spent(0, 0)


def _spent(pid: int) -> Spent:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return Spent((int(fields[11]) + int(fields[12])) / _TICK, pages * _PAGE / (1 << 20))


def inside(what: str, gpus: int, interval: float) -> None:
    """What runs in the terminal."""
    if what == "smallest":
        from textual.app import App

        App[None]().run()
        return
    nvml = clients.hgx(8)
    nvml["gpus"] = [copy.deepcopy(nvml["gpus"][index % 8]) for index in range(gpus)]
    nvml["system"]["nvmlDeviceGetCount"] = gpus
    with tempfile.TemporaryDirectory() as folder:
        environ = clients.environ(Path(folder), {**nvml, "busy": list(range(gpus))})
        work = replace(told_of("hgx-h100"), live=lambda hear: live.watch(hear, Local(environ=environ), interval))
        app = DoctorApp(work)
        app.call_later(app.action_open, "gpus")
        interactive.run_app(app)


def measure(gpus: int, minutes: float, interval: float, size: tuple[int, int]) -> int:
    """Both side by side; prints a line a minute, and what came of it."""
    windows = {what: Window(what, gpus, interval, size) for what in ("gpus", "smallest")}
    try:
        time.sleep(_SETTLES)
        began = {what: window.spent() for what, window in windows.items()}
        asked, started = windows["gpus"].asker(), time.monotonic()
        memory = [began["gpus"].mib]
        print(f"{gpus} GPUs every {interval:g} s in {size[0]}x{size[1]}; at the start {memory[0]:.1f} MiB", flush=True)
        while (left := started + minutes * 60 - time.monotonic()) > 0:
            time.sleep(min(60.0, left))
            memory.append(windows["gpus"].spent().mib)
            print(f"after {(time.monotonic() - started) / 60:4.1f} min  {memory[-1]:.1f} MiB", flush=True)
        seconds = time.monotonic() - started
        share = {what: 100 * (windows[what].spent().cpu - began[what].cpu) / seconds for what in windows}
        asker = 100 * (windows["gpus"].asker().cpu - asked.cpu) / seconds
        drawn = windows["gpus"].drawn
        print(f"the screen {share['gpus']:.2f} % of a core, the child {asker:.2f} %, {drawn >> 10} KiB drawn")
        print(f"the smallest application {share['smallest']:.2f} %, {windows['smallest'].spent().mib:.1f} MiB")
        growth = memory[-1] - memory[min(1, len(memory) - 1)]
        return int(share["gpus"] > MOST_CPU or growth > MOST_GROWTH_MIB)
    finally:
        for window in windows.values():
            window.child.kill()
            window.child.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--gpus", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--interval", type=float, default=live.INTERVAL)
    parser.add_argument("--size", default="160x75")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.inside:
        inside(told.inside, told.gpus, told.interval)
    else:
        width, height = map(int, told.size.split("x"))
        sys.exit(measure(told.gpus, told.minutes, told.interval, (width, height)))
