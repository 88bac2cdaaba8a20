"""As many faults as asked, in an interpreter with torch.

python -m tests.kernels.faults --trials 2000 [--seed N] [KERNEL...]

Each trial also judges a clean result. Ends with 1 where a fault was missed, misplaced or told wrongly, or where a clean
result raised an alarm; what went wrong is printed with what repeats it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import needs


def trials(count: int, seed: int, kernels: list[str] | None = None) -> Any:
    """What the script said: counts by kind and kernel, and every trial that went wrong."""
    script = Path(__file__).with_name("inject.py")
    argv = [needs.torch_python(), "-W", "ignore", str(script), str(count), str(seed), *(kernels or [])]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def main() -> int:
    """The exit code."""
    words = argparse.ArgumentParser(prog="python -m tests.kernels.faults")
    words.add_argument("--trials", type=int, default=2000)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("kernels", nargs="*", help="only these: matmul.bf16")
    asked = words.parse_args()
    said = trials(asked.trials, asked.seed, asked.kernels)
    sys.stdout.write(json.dumps(said, indent=1) + "\n")
    return 1 if said["bad"] else 0


if __name__ == "__main__":
    sys.exit(main())
