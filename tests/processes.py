"""Whether a process that should be gone is, and how long something takes that has the processors for itself."""

from __future__ import annotations

import time
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody has collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int) -> bool:
    """Whether the process goes: at once, where the machine has nothing else to do."""
    deadline = time.monotonic() + 60
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_alive(pid)


def unhindered() -> float:
    """A clock in seconds that stands still while some process waits for a processor, where Linux says when that is.

    A suite keeps all processors busy, and what something takes then is not what it needs. Linux adds the time up every
    two seconds, in ``/proc/pressure/cpu``.
    """
    try:
        some = Path("/proc/pressure/cpu").read_text().splitlines()[0]
    except OSError:
        return time.monotonic()
    return time.monotonic() - int(some.rpartition("total=")[2]) / 1e6
