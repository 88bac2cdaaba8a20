"""A longer trial of the solver against the oracle: ``python -m tests.fixes.solver --combinations 200000``."""

from __future__ import annotations

import argparse
import sys
import time

from tests.fixes.solver.combinations import trial


def main() -> int:
    """Try that many, say what differs, and how long it took."""
    parser = argparse.ArgumentParser(prog="python -m tests.fixes.solver", description=__doc__)
    parser.add_argument("--combinations", type=int, default=100_000, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    started = time.perf_counter()
    found = trial(asked.seed, asked.combinations)
    seconds = time.perf_counter() - started
    said = f"{asked.combinations} combinations in {seconds:.0f} s: {len(found)} differences"
    sys.stdout.write("\n".join((*found[:20], said, "")))
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())
