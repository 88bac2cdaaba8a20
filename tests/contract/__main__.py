"""``python -m tests.contract``: which of 1.0's promises are broken; ``--write``: make this version's those of 1.0."""

import sys

from tests.contract import promises

if __name__ == "__main__":
    broken = list(promises.breakages(promises.stored(), promises.now()))
    if "--write" in sys.argv:
        promises.write()
        sys.stderr.write("".join(f"no longer promised: {line}\n" for line in broken))
    else:
        sys.exit("\n".join(broken) or 0)
