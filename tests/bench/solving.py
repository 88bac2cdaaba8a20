"""How long does a solution take? Random machines and wants beside `json.loads` of the tables that it works from.

python -m tests.bench.solving [--combinations N] [--runs N]

Processor time of one core, of each combination the best of the runs. Ends with 1 where one takes longer than the limit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from functools import partial
from random import Random

from gpudoctor.pages import home, toml
from gpudoctor.setup.solver import solved
from tests.bench.judging import milliseconds
from tests.setup.combinations import some

SOLVE_MS = 50.0
"""Limit: to solve one."""
TABLES = ("torch", "companions", "drivers", "gpus", "compilers")


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--combinations", type=int, default=1000, help="machines and wants (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each (default: %(default)s)")
    options = parser.parse_args()
    random = Random(0)
    every = [some(random).wishes for _ in range(options.combinations)]
    first = milliseconds(partial(solved, every[0]))
    times = sorted(min(milliseconds(partial(solved, one)) for _ in range(options.runs)) for one in every)
    text = json.dumps([toml(home() / "tables" / f"{name}.toml") for name in TABLES])
    theirs = min(milliseconds(partial(json.loads, text), 5) for _ in range(options.runs))
    median, worst = statistics.median(times), times[-1]
    print(
        f"a solution: {len(times)} combinations, median {median:.1f} ms, p99 {times[len(times) * 99 // 100]:.1f} ms,"
        f" max {worst:.1f} ms (limit {SOLVE_MS:.0f}), the very first {first:.0f} ms;"
        f" median {median / theirs:.2f} times json.loads of the tables, max {worst / theirs:.1f} times"
    )
    return 0 if worst <= SOLVE_MS else 1


if __name__ == "__main__":
    sys.exit(main())
