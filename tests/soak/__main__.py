"""Check machines again and again in one process, and say what it holds afterwards.

python -m tests.soak [--checks N] [--warm N] [--seed N] [--limit MIB]

The machines change from check to check: healthy and sick ones, drivers that hang or crash, records that are replayed,
this machine with its history, diagnoses that are watched or left half-way; and now and then a child is killed. Ends
with 1 where a process, thread, open file or temporary file is left, memory has grown by more than the limit after the
warm-up, or one machine was judged in two ways.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

PATIENCE = {"GPUDOCTOR_NVML_TIMEOUT": "1.5", "GPUDOCTOR_CUDA_TIMEOUT": "0.3"}
"""Seconds for what hangs: read when the probes are imported."""
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}
"""The GNU C library gives threads up to eight arenas for each processor and returns none of them. Which thread fills
which is chance: free memory in them grows by 10 MiB and more in an hour, which would hide a leak.
"""
_PARTS = 10


def main() -> int:
    """Print the figures as JSON: memory after the warm-up and after each tenth of the checks, and what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checks", type=int, default=2000, help="checks after the warm-up (default: %(default)s)")
    parser.add_argument("--warm", type=int, default=200, help="checks before it is measured (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=5.0, help="MiB it may grow by (default: %(default)s)")
    options = parser.parse_args()
    if not ONE_ARENA.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, "-m", "tests.soak", *sys.argv[1:]], {**os.environ, **ONE_ARENA})
    with tempfile.TemporaryDirectory(prefix="gpudoctor-soak-") as home:
        (temporary := Path(home, "tmp")).mkdir()
        os.environ.update(
            PATIENCE, TMPDIR=str(temporary), GPUDOCTOR_STATE=f"{home}/state", GPUDOCTOR_SOAK=str(os.getpid())
        )
        tempfile.tempdir = str(temporary)
        from tests.soak.soaking import Soak, leaks

        soak = Soak(Path(home), temporary, options.seed)
        started = time.monotonic()
        soak.run(options.warm)
        holds = [soak.held()]
        for number in range(1, _PARTS + 1):
            soak.run(options.checks * number // _PARTS - options.checks * (number - 1) // _PARTS)
            holds.append(soak.held())
            done = options.warm + options.checks * number // _PARTS
            print(f"{done} checks, {time.monotonic() - started:.0f} s: {holds[-1].mib:.1f} MiB", file=sys.stderr)
    wrong = [*soak.surprises, *leaks(holds[0], holds[-1], options.limit)]
    told = {
        "checks": options.warm + options.checks,
        "seconds": round(time.monotonic() - started),
        "mib": [round(one.mib, 1) for one in holds],
        "kinds": dict(soak.kinds),
        "wrong": wrong,
    }
    print(json.dumps(told))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
