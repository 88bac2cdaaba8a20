"""What tests of cures share: an index of stub wheels, a place of its own for each, and the simulated machines."""

from __future__ import annotations

import shutil
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Once
from tests.fixes import place as places
from tests.fixes.index import Index
from tests.fixes.place import Place
from tests.sim.documents import Documents, shared


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Documents:
    """Every simulated machine's diagnosis, made once."""
    return shared(tmp_path_factory)


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with Index(tmp_path_factory.mktemp("shelves")) as index:
        yield places.stock(index)


@pytest.fixture(scope="session")
def bare(once: Once) -> Path:
    """An environment with pip alone, to be copied."""
    return once("bare", lambda folder: venv.create(folder, with_pip=True, symlinks=True))


@pytest.fixture
def python(tmp_path: Path, bare: Path) -> str:
    """That of a new environment with pip."""
    shutil.copytree(bare, tmp_path / "env", symlinks=True)
    return str(tmp_path / "env/bin/python")


@pytest.fixture
def place(tmp_path: Path, once: Once, bare: Path, index: Index) -> Place:
    """An environment with torch for processors alone."""
    return Place.made(tmp_path, once("stocked", lambda folder: places.stocked(folder, bare, index)) / "venv", index)
