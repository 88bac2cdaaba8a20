"""What runs in the patient's interpreter: old Pythons can read it, and nothing in it needs or shadows a package."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpudoctor.kernels.child

CHILD = Path(gpudoctor.kernels.child.__file__).parent
FILES = sorted(CHILD.rglob("*.py"))
LATE = {"compiled/_kernels.py": {"triton"}}
"""Imported only by a kernel that runs, once what it needs is known to be there."""
ASKED_ABOUT = {"torch", "triton", "jax", "tensorflow", "nccl", "numpy", "cuda"}


def imported(tree: ast.Module) -> Iterator[str]:
    """The packages that are imported as soon as the file is; relative imports are its own."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).partition(".")[0]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(CHILD)))
def test_python_3_8_reads_it_and_it_needs_nothing_to_be_imported(file: Path) -> None:
    tree = ast.parse(file.read_text("utf-8"), feature_version=(3, 8))
    late = LATE.get(str(file.relative_to(CHILD)), set())
    assert set(imported(tree)) - late <= set(sys.stdlib_module_names)
    assert file.stem not in ASKED_ABOUT
    assert "from __future__ import annotations" in file.read_text("utf-8") or len(tree.body) == 1
