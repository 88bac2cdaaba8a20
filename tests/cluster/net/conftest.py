"""Two hosts on one switch for a module's tests; of these tests one at a time runs, whichever worker has it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.net.hosts import Hosts


@pytest.fixture(scope="module")
def two() -> Iterator[Hosts]:
    with Hosts(2) as hosts:
        yield hosts


@pytest.fixture(autouse=True)
def _one_at_a_time() -> Iterator[None]:
    """Rates of several at once would be those of the processors that they share, which nothing is said about."""
    with (Path(os.environ["XDG_CACHE_HOME"]) / "net.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
