"""What runs cost: ``python -m tests.bench.cost`` reads commands (JSON) and prints what each took (JSON).

It stands alone, so that it can run inside a simulated machine: the start of the machine is not in the times.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_LONGEST = 120.0
_KEPT = 200_000
"""Characters of output that are kept."""


def measured(commands: Mapping[str, Sequence[str]], runs: int, proc: str = "/proc") -> dict[str, Any]:
    """Of each command: ``seconds`` of the runs, taken in turn after one that warms up; ``mib`` of its processes
    together at their most, by proportional set size; ``code`` and ``said`` of the first run.
    """
    out: dict[str, Any] = {}
    for name, argv in commands.items():
        code, said = _first(argv)
        out[name] = {"code": code, "said": said[:_KEPT], "seconds": [], "mib": _most(argv, proc)}
    for _ in range(runs):
        for name, argv in commands.items():
            out[name]["seconds"].append(_seconds(argv))
    return out


def _first(argv: Sequence[str]) -> tuple[int, str]:
    """The exit code and all that is printed."""
    with tempfile.TemporaryFile("w+", errors="replace") as printed:
        code = subprocess.run(argv, check=False, stdout=printed, stderr=printed, timeout=_LONGEST).returncode
        printed.seek(0)
        return code, printed.read()


def _seconds(argv: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run(argv, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_LONGEST)
    return time.perf_counter() - started


def _most(argv: Sequence[str], proc: str) -> float:
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    most = 0.0
    while child.poll() is None:
        time.sleep(0.003)
        most = max(most, sum(_mib(pid, proc) for pid in _tree(child.pid, proc)))
    return most


def _tree(pid: int, proc: str) -> Iterator[int]:
    yield pid
    try:
        for thread in os.listdir(f"{proc}/{pid}/task"):
            with open(f"{proc}/{pid}/task/{thread}/children") as file:
                for child in file.read().split():
                    yield from _tree(int(child), proc)
    except OSError:
        return  # it ended


def _mib(pid: int, proc: str) -> float:
    try:
        with open(f"{proc}/{pid}/smaps_rollup") as file:
            return next((int(line.split()[1]) / 1024 for line in file if line.startswith("Pss:")), 0.0)
    except OSError:
        return 0.0


if __name__ == "__main__":
    plan = json.load(sys.stdin)
    json.dump(measured(plan["commands"], plan["runs"], plan["proc"]), sys.stdout)
