"""The two machines: without a GPU, and with one whose module is on the disk and not loaded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real.world import World


@pytest.fixture(scope="session")
def no_gpu() -> Iterator[World]:
    with World() as world:
        yield world


@pytest.fixture(scope="session")
def unloaded() -> Iterator[World]:
    with World(gpu=True) as world:
        yield world


@pytest.fixture(params=["no_gpu", "unloaded"])
def world(request: pytest.FixtureRequest) -> World:
    """Each of the two."""
    world: World = request.getfixturevalue(request.param)
    return world


@pytest.fixture(params=["root", pytest.param("user", marks=pytest.mark.full)])
def user(request: pytest.FixtureRequest) -> bool:
    """Whether an ordinary user asks, or root."""
    return bool(request.param == "user")
