"""A folder for what compilers and stores write: the patient's own stay as they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from typing import Any, List, Optional

_SWEEP = 'read -r nothing; for try in 1 2 3 4 5 6; do rm -rf -- "$1"; [ -e "$1" ] || exit 0; sleep 0.5; done'
"""More than once: a compiler that we started may still be writing."""


class Folder:
    """A temporary folder at `path` that is removed at the end of ``with`` or of this process, however that ends.

    A shell waits for the end of a pipe that we hold, out of reach of the signal that ends our process group. On
    Windows, where whatever we start ends with us, `remove_all` is for that: the folder of a killed process is left.
    """

    def __init__(self, parent: Optional[str] = None) -> None:
        self.path = tempfile.mkdtemp(prefix="gpudoctor-", dir=parent)
        if sys.platform == "win32":
            _UNSWEPT.append(self.path)
            return
        self._sweeper = subprocess.Popen(
            ["/bin/sh", "-c", _SWEEP, "sh", self.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env={"PATH": "/usr/bin:/bin"},  # without the mark by which what we start is found and ended
        )

    def __enter__(self) -> str:
        return self.path

    def __exit__(self, *_: Any) -> None:
        if sys.platform == "win32":
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            self._sweeper.communicate()


_UNSWEPT: List[str] = []
"""Folders that no shell removes."""


def remove_all() -> None:
    """Remove the folders of this process that nothing else removes at its end; does nothing but on Windows."""
    for path in _UNSWEPT:
        shutil.rmtree(path, ignore_errors=True)


def allows_executables(folder: str) -> bool:
    """True if the folder is writable and its file system lets libraries be loaded (no noexec); False if absent."""
    try:
        if sys.platform == "win32":
            return os.access(folder, os.W_OK)
        return os.access(folder, os.W_OK | os.X_OK) and not os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 8)
    except OSError:
        return False
