"""What tests over simulated machines share."""

from __future__ import annotations

import pytest

from tests.sim.documents import Documents, shared


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Documents:
    """Every simulated machine's diagnosis, made once."""
    return shared(tmp_path_factory)
