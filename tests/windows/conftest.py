"""Windows, for one test at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.windows.rig import Windows


@pytest.fixture
def windows() -> Iterator[Windows]:
    """The machine, which no other test changes meanwhile."""
    from tests.windows import rig  # Windows' Python reads this file, too, for `there`

    machine = rig.windows()
    with machine.taken():
        yield machine
