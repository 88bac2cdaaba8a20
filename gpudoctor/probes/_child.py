"""The scripts that probes run in a child process, and what follows the interpreter to run one."""

from __future__ import annotations

from pathlib import Path

from gpudoctor import shipped

CHILDREN = Path(__file__).with_name("children")


def script(name: str) -> list[str]:
    """What follows the interpreter on the command line to run that child: its path, or its text inside a zip file."""
    if shipped.ARCHIVE:
        return ["-c", shipped.text(f"probes/children/{name}")]
    return [str(CHILDREN / name)]
