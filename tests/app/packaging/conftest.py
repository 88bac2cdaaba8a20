"""What tests of reach share: files and environments that are made once a run, whichever worker asks first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpudoctor.app import pyz
from tests.app.packaging.shelf import PYTHONS, install, stock
from tests.conftest import Once


@pytest.fixture(scope="session")
def whole(once: Once) -> Path:
    """The file with everything, compiled for our Python alone."""
    return once("gpudoctor.pyz", pyz.build)


@pytest.fixture(scope="session")
def lean(once: Once) -> Path:
    """The file without the interface, compiled for every Python that is here."""
    return once("lean.pyz", lambda place: pyz.build(place, list(PYTHONS.values()), tui=False))


@pytest.fixture(scope="session")
def shelf(once: Once) -> Path:
    """A folder with our wheel and sdist and every wheel that they need: an index without a network."""
    return once("shelf", stock)


@pytest.fixture(scope="session")
def installed(once: Once, shelf: Path) -> Callable[[str], Path]:
    """The environment of that Python in which our wheel was installed, and nothing else."""

    def environment(version: str) -> Path:
        return once(f"venv-{version}", lambda place: install(place, PYTHONS[version], shelf))

    return environment
