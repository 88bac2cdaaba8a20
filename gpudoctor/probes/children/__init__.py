"""The scripts that probes run in a child process: standard library (and pynvml) alone, Python 3.8 and newer.

Those of level quick leave `typing` to type checkers: importing it takes a sixth of the time in which they start.
"""

from __future__ import annotations

from pathlib import Path

from gpudoctor.core import shipped

CHILDREN = Path(__file__).parent


def script(name: str) -> list[str]:
    """Command-line arguments that run the child script: its path, or ``-c`` and its text inside a zip file."""
    if shipped.ARCHIVE:
        return ["-c", shipped.text(f"probes/children/{name}")]
    return [str(CHILDREN / name)]
