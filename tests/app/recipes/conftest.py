"""One machine for a module's tests; each test finds it sound and without what another installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.app.recipes.node import HEALTHY, Node


@pytest.fixture(scope="module")
def _node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return Node(tmp_path_factory.mktemp("node"))


@pytest.fixture
def node(_node: Node) -> Iterator[Node]:
    """A sound machine with an empty root."""
    _node.becomes(HEALTHY)
    yield _node
    shutil.rmtree(_node.root)
    (_node.root / "tmp").mkdir(parents=True)
