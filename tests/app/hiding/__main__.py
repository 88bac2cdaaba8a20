"""``python -m tests.app.hiding --count 5000``: the whole run, with its figures."""

from __future__ import annotations

import argparse
import sys
import time

from tests.app.hiding.views import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.app.hiding", description=__doc__)
    parser.add_argument("--count", type=int, default=5000, help="documents (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first: to see one again")
    asked = parser.parse_args()
    began = time.monotonic()
    figures = run(asked.count, asked.seed, asked.first)
    views = ", ".join(f"{count} {view}" for view, count in figures.views.items())
    say = sys.stdout.write
    say(f"{figures.documents} documents with {figures.canaries} canaries, {time.monotonic() - began:.0f} s; {views}\n")
    say(f"{len(figures.leaks)} to be seen\n")
    for line in figures.leaks[:40]:
        say(f"  {line}\n")
    return int(bool(figures.leaks))


if __name__ == "__main__":
    raise SystemExit(main())
