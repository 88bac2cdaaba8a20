"""What tests that need an interpreter with torch share."""

from __future__ import annotations

import pytest

from tests import needs


@pytest.fixture(scope="session")
def python() -> str:
    return needs.torch_python()
