"""Room for connections: each takes a file descriptor, of which a process has 1,024 by default on most systems."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_OTHERS = 512
"""What a process has open beside its connections: a training script with its data loaders, or ours."""


@contextmanager
def room_for(connections: int) -> Iterator[None]:
    """The soft limit raised as far as needed and allowed; afterwards it is as it was, for whatever is started then."""
    if sys.platform == "win32":
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHERS
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    raised = soft != resource.RLIM_INFINITY and soft < most
    if raised:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    finally:
        if raised:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
