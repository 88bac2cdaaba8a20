"""The first thing that runs of ``gpudoctor.pyz``, as its ``__main__.py``: byte code first, then the program.

Python 3.6 and newer understand this file; one that is too old for the rest looks for a newer one on PATH.
"""

import os
import sys

OLDEST = (3, 10)
NEWER = [f"python3.{minor}" for minor in range(19, 9, -1)]


def main() -> int:
    """Run gpudoctor in this Python and return its exit code; before 3.10 hand over to a newer one on PATH."""
    program = os.path.dirname(os.path.abspath(__file__))
    if sys.version_info < OLDEST:
        return hand_over(program)
    sys.path[:1] = [f"{program}/{sys.implementation.cache_tag}", program]
    from gpudoctor.__main__ import main as run

    return run()


def hand_over(program: str) -> int:
    """Replace this process by Python 3.10 or newer on PATH; without one, print an error and return 2."""
    for name in NEWER:
        for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK):
                os.execv(path, [path, program, *sys.argv[1:]])
    sys.stderr.write(f"gpudoctor: Python 3.10 or newer is needed, and this is {sys.version.split()[0]}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
