"""How fast are we, beside what people run today? Ratios from runs taken in turn, so that a noisy machine is fair.

python -m tests.bench.quick --python PATH_OF_AN_INTERPRETER_WITH_TORCH [--runs N]

The last comparison runs both programs over eight simulated H100: real driver libraries of ours, a real torch.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Comparison(NamedTuple):
    """Two commands, and the ratio of their times that ours must not pass."""

    name: str
    ours: Sequence[str]
    theirs: Sequence[str]
    limit: float
    environ: Mapping[str, str] = {}


def seconds(command: Sequence[str], environ: Mapping[str, str]) -> float:
    """Wall time of one whole process, its output thrown away."""
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, env=environ)
    return time.perf_counter() - started


def side_by_side(one: Comparison, runs: int) -> tuple[float, float, float]:
    """Median seconds of ours and theirs, and the median of the pairwise ratios, after one warm-up of each."""
    environ = {**os.environ, **one.environ}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program is compiled, and so is theirs
    seconds(one.ours, environ), seconds(one.theirs, environ)
    pairs = [(seconds(one.ours, environ), seconds(one.theirs, environ)) for _ in range(runs)]
    return (
        statistics.median(pair[0] for pair in pairs),
        statistics.median(pair[1] for pair in pairs),
        statistics.median(pair[0] / pair[1] for pair in pairs),
    )


def simulated(folder: Path) -> dict[str, str]:
    """Variables under which a program meets eight healthy H100."""
    from tests.sim import build, scenario

    record = scenario.load(scenario.PROFILES / "hgx-h100.json")
    answers = folder / "answers"
    build.write_answers(record.nvml, record.cuda, answers)
    return {"LD_LIBRARY_PATH": str(build.libraries()), "GPUDOCTOR_SIM_ANSWERS": str(answers)}


def main() -> None:
    """Print one line a comparison: what, our median, theirs, the ratio and its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="an interpreter that has torch")
    parser.add_argument("--runs", type=int, default=9, help="counted pairs of runs (default: 9)")
    options = parser.parse_args()
    program = str(sys.executable).rpartition("/")[0] + "/gpudoctor"
    quick = [program, "check", "--level", "quick", "--json", "--python", options.python]
    collect_env = [options.python, "-m", "torch.utils.collect_env"]
    with tempfile.TemporaryDirectory() as folder:
        comparisons = [
            Comparison("--version / python -c pass", [program, "--version"], [sys.executable, "-c", "pass"], 4.0),
            Comparison("check --level quick --json / torch.utils.collect_env", quick, collect_env, 0.25),
            Comparison("the same with eight simulated H100", quick, collect_env, 0.15, simulated(Path(folder))),
        ]
        for one in comparisons:
            mine, other, ratio = side_by_side(one, options.runs)
            print(f"{one.name}: {mine:.3f} s / {other:.3f} s = {ratio:.2f} (limit {one.limit})")


if __name__ == "__main__":
    main()
