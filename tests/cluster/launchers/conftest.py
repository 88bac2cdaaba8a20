"""One cluster for the tests of a module; each test finds it whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.launchers.slurm import Slurm


@pytest.fixture(scope="module")
def _cluster() -> Iterator[Slurm]:
    with Slurm() as slurm:
        yield slurm


@pytest.fixture
def slurm(_cluster: Slurm) -> Iterator[Slurm]:
    """Four sound nodes in service; afterwards no job and no drained node is left."""
    yield _cluster
    _cluster.mend()
