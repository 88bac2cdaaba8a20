"""Two hosts on one switch for a module's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.net.hosts import Hosts


@pytest.fixture(scope="module")
def two() -> Iterator[Hosts]:
    with Hosts(2) as hosts:
        yield hosts
