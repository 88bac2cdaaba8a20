"""The nightly run: as many mutilated pastes, snapshots and records as asked, in all processes asked.

python -m tests.fuzz --count 200000 [--seed N] [--jobs N] [--only NUMBER] [--keep FOLDER]

A case is named by seed and number; what went wrong, and what took longest, is kept as files. Ends with 1 where
anything went wrong.
"""

import argparse
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.examine import Examined, examine, time_limit
from tests.fuzz.mutate import case

_PIECE = 100
_SLOWEST = 10
SHOWN = 1.0
"""Seconds of processor time for showing a diagnosis and checking what is shown, beside reading and judging."""
_MOST_OF_A_KIND = 3


def _piece(task: tuple[int, range]) -> list[tuple[int, str, int, Examined]]:
    seed, numbers = task
    done: list[tuple[int, str, int, Examined]] = []
    for number in numbers:
        kind, raw = case(seed, number)
        done.append((number, kind, len(raw), examine(raw, kind)))
    return done


def campaign(seed: int, numbers: range, jobs: int) -> Iterator[tuple[int, str, int, Examined]]:
    """Every case: its number, kind, size, and what became of it."""
    pieces = [(seed, numbers[at : at + _PIECE]) for at in range(0, len(numbers), _PIECE)]
    if jobs == 1:
        for piece in pieces:
            yield from _piece(piece)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for done in pool.imap_unordered(_piece, pieces):
            yield from done


def main() -> int:
    """Run, print a line now and then, and the figures at the end."""
    options = _options()
    os.environ.setdefault("NO_COLOR", "1")
    keep = Path(options.keep or tempfile.mkdtemp(prefix="gpudoctor-fuzz-"))
    keep.mkdir(parents=True, exist_ok=True)
    numbers = range(options.start, options.start + options.count)
    if options.only is not None:
        numbers = range(options.only, options.only + 1)
    started = time.monotonic()
    kinds: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    times: list[tuple[float, int, str]] = []
    problems: defaultdict[str, list[int]] = defaultdict(list)
    for done, (number, kind, length, examined) in enumerate(campaign(options.seed, numbers, options.jobs), 1):
        kinds[kind] += 1
        refused[kind] += examined.refused
        times.append((examined.seconds, number, kind))
        slow = examined.seconds > time_limit(length) + SHOWN
        for problem in (*examined.problems, *([f"slow: {examined.seconds:.1f} s"] if slow else [])):
            signature = f"{kind}: {problem[:90]}"
            if not problems[signature]:
                print(f"{options.seed}:{number} {kind}: {problem}", flush=True)
            problems[signature].append(number)
        if done % 5000 == 0:
            rate = done / (time.monotonic() - started)
            print(f"{done} of {len(numbers)}, {rate:.0f} a second, {len(problems)} kinds of problem", flush=True)
    times.sort(reverse=True)
    for _, number, _ in times[:_SLOWEST]:
        _save(keep / f"slow-{options.seed}-{number}", options.seed, number)
    for found in problems.values():
        for number in found[:_MOST_OF_A_KIND]:
            _save(keep / f"wrong-{options.seed}-{number}", options.seed, number)
    memory = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) >> 10
    print(f"{sum(kinds.values())} cases ({', '.join(f'{n} {kind}s' for kind, n in kinds.most_common())})")
    print(
        f"refused as documents: {dict(refused)}; {time.monotonic() - started:.0f} s on the clock, at most {memory} MiB"
    )
    print(f"median {times[len(times) // 2][0] * 1e3:.1f} ms, slowest (seconds, case, kind; kept in {keep}):")
    for seconds, number, kind in times[:_SLOWEST]:
        print(f"  {seconds:.2f}  {options.seed}:{number}  {kind}")
    print(f"{sum(map(len, problems.values()))} problems of {len(problems)} kinds")
    for signature, found in sorted(problems.items(), key=lambda entry: -len(entry[1])):
        print(f"  {len(found)} x {signature}  e.g. {options.seed}:{found[0]}")
    return 1 if problems else 0


def _save(path: Path, seed: int, number: int) -> None:
    path.write_bytes(case(seed, number)[1])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", type=int, help="one case")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", help="folder for what went wrong and what took longest")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
