"""The interpreters of this machine that gpudoctor is for, and an environment in which a program has nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


def _found(version: str) -> str | None:
    """That Python on PATH or of pyenv; a shim that starts none is none."""
    if version == OWN:
        return sys.executable
    folders = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin"))
    path = os.pathsep.join([*map(str, folders), os.environ.get("PATH", os.defpath)])
    python = shutil.which(f"python{version}", path=path)
    works = python and subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode == 0
    return python if works else None


PYTHONS = {version: python for version in VERSIONS if (python := _found(version))}
"""By version; the one that runs the tests is always there."""


def bare(folder: Path, **more: str) -> dict[str, str]:
    """Variables of a process without a home, a cache or a Python of its own; `folder` is its only temporary one."""
    nowhere = "/proc/nowhere"
    given = {"PATH": "/usr/bin:/bin", "HOME": nowhere, "GPUDOCTOR_STATE": nowhere, "TMPDIR": str(folder)}
    return {**given, "LC_ALL": "C.UTF-8", **more}
