"""A folder for what compilers and stores write: the patient's own stay as they are."""

from __future__ import annotations

import os
import subprocess
import tempfile
from typing import List, Optional

_SWEEP = 'read -r nothing; exec rm -rf -- "$1"'


def folder(where: Optional[str] = None) -> str:
    """A new one, which is gone when this process is, however it ends.

    A shell waits for the end of a pipe that we hold, out of reach of the signal that ends our process group.
    """
    made = tempfile.mkdtemp(prefix="gpudoctor-", dir=where)
    _sweepers.append(
        subprocess.Popen(
            ["/bin/sh", "-c", _SWEEP, "sh", made],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
    )
    return made


_sweepers: List["subprocess.Popen[bytes]"] = []
"""Each holds its pipe for as long as we live."""


def may_run_from(where: str) -> bool:
    """Whether files may be written there and libraries loaded from there."""
    try:
        return os.access(where, os.W_OK | os.X_OK) and not os.statvfs(where).f_flag & getattr(os, "ST_NOEXEC", 8)
    except OSError:
        return False
