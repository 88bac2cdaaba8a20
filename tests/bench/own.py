"""What our own commands cost, each beside what it may cost: ``python -m tests.bench.own [--runs N] [--write]``.

On a quiet machine; with ``--write`` they are kept in tests/bench/figures.toml, and comparison.md shows them.
Ratios are of programs that run in turn. Sixty-four GPUs are simulated; all else is what a user starts.
"""

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests import needs
from tests.bench.figures import FILE, write_own
from tests.cluster.fleet_documents import hosts
from tests.readers.test_reader_collect_env import MODERN
from tests.sim import scenario
from tests.sim.root import Machine
from tests.views.tui.terminal import Terminal

_SMALLEST_APP = """
from textual.app import App
from textual.widgets import Label

class Smallest(App):
    def compose(self):
        yield Label("readable")

Smallest().run()
"""
_GPUS, _WATCHED_SECONDS, _DOCUMENTS = 64, 30.0, 10_000
_SETTLED_SECONDS = 10.0
"""Seconds in which no process begins or ends."""


def _seconds(*argv: str, **options: Any) -> float:
    started = time.perf_counter()
    subprocess.run(argv, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    return time.perf_counter() - started


def _gpudoctor(*words: str) -> tuple[str, ...]:
    return (str(Path(sys.executable).with_name("gpudoctor")), *words)


def read(runs: int, folder: Path) -> float:
    """Milliseconds in which a pasted report is read and judged, as a process."""
    (report := folder / "report.txt").write_text(MODERN, "utf-8")
    return 1000 * statistics.median(_seconds(*_gpudoctor("read", str(report))) for _ in range(runs + 1))


def first_screen(runs: int, folder: Path) -> float:
    """Time until the interface can be read, in units of the smallest Textual application's."""
    (app := folder / "smallest.py").write_text(_SMALLEST_APP, "utf-8")

    def shown(words: str, *argv: str) -> float:
        with Terminal(argv[1:], (80, 24), program=argv[0]) as terminal:
            return terminal.wait_for(words)

    pairs = [
        (shown(" Causes ", *_gpudoctor("demo", "cpu-torch")), shown("readable", sys.executable, str(app)))
        for _ in range(runs + 1)
    ]
    return statistics.median(ours / theirs for ours, theirs in pairs[1:])


def live(_: int, folder: Path) -> float:
    """Per cent of a core that the screen of 64 live GPUs takes, twice a second, with the child that asks NVML."""
    raw = json.loads((scenario.PROFILES / "hgx-h100.json").read_text("utf-8"))
    few = raw["nvml"]["gpus"]
    raw["nvml"]["gpus"] = [_numbered(few[number % len(few)], number) for number in range(_GPUS)]
    raw["nvml"]["system"]["nvmlDeviceGetCount"] = _GPUS
    machine = Machine(scenario.expanded(raw), folder / "root")
    argv = machine.command([sys.executable, "-m", "gpudoctor"], inherit=True)
    with Terminal(argv[1:], (160, 80), program=argv[0]) as terminal:
        terminal.wait_for("GPUs")
        terminal.type("2")
        terminal.wait_for("held back by")
        processes, since = set(_tree(terminal.pid)), time.monotonic()
        while time.monotonic() < since + _SETTLED_SECONDS:  # the check that the interface begins with is not counted
            time.sleep(1.0)
            if processes != (now := set(_tree(terminal.pid))):
                processes, since = now, time.monotonic()
        before, started = _processor_seconds(terminal.pid), time.perf_counter()
        time.sleep(_WATCHED_SECONDS)
        return 100 * (_processor_seconds(terminal.pid) - before) / (time.perf_counter() - started)


def _numbered(gpu: Mapping[str, Any], number: int) -> dict[str, Any]:
    out = copy.deepcopy(dict(gpu))
    out["nvmlDeviceGetUUID"] = f"GPU-{number:08x}-0000-4000-8000-{number:012x}"
    return out


def _processor_seconds(pid: int) -> float:
    total = 0.0
    for one in _tree(pid):
        fields = Path(f"/proc/{one}/stat").read_text("utf-8").rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text("utf-8").split():
            yield from _tree(int(child))


def fold(_: int, folder: Path) -> float:
    """Seconds in which the documents of 10,000 hosts become one diagnosis."""
    (results := folder / "hosts.jsonl").write_text("\n".join(hosts(_DOCUMENTS)), "utf-8")
    return _seconds(*_gpudoctor("fleet", str(results), "--json"))


def bench(_: int, folder: Path) -> float:
    """Seconds of `gpudoctor bench --device cpu`, in an environment with torch."""
    return _seconds(*_gpudoctor("bench", "--device", "cpu", "--python", needs.torch_python()), cwd=folder)


class Row(NamedTuple):
    """What is measured, how, in which unit, the most that it may be, and where the time goes if it is more."""

    name: str
    measure: Callable[[int, Path], float]
    unit: str
    limit: float
    why: str = ""


ROWS = (
    Row(
        "`gpudoctor read REPORT`, as a process",
        read,
        "ms",
        60,
        "half imports 290 modules, a sixth compiles patterns",
    ),
    Row(
        "the interface's first readable screen",
        first_screen,
        "times the smallest Textual app",
        1.3,
        "our screens and the recording, beside Textual's own 0.16 s",
    ),
    Row(
        "64 GPUs live, twice a second",
        live,
        "% of a core",
        3.0,
        "some 1,100 calls of NVML a second; 3.33 where 8 GPUs were watched",
    ),
    Row("`gpudoctor fleet` on 10,000 documents", fold, "s", 12.0, "half is JSON, 112 kB a document"),
    Row("`gpudoctor bench --device cpu`", bench, "s", 30.0, "59 kernels; each family of them imports torch in a child"),
)


def main() -> None:
    """Measure all rows, or those asked for, and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9, help="counted rounds of what is short (default: %(default)s)")
    parser.add_argument("--only", metavar="NAME", choices=[row.measure.__name__ for row in ROWS], help="one row")
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {FILE.name}")
    options = parser.parse_args()
    kept = []
    for row in ROWS:
        if options.only in (None, row.measure.__name__):
            with tempfile.TemporaryDirectory() as folder:
                figure = float(f"{row.measure(options.runs, Path(folder)):.3g}")
            print(f"{row.name}: {figure:g} {row.unit} (limit {row.limit:g})", flush=True)
            kept.append({"name": row.name, "figure": figure, "unit": row.unit, "limit": row.limit, "why": row.why})
    if options.write:
        write_own(kept)


if __name__ == "__main__":
    main()
