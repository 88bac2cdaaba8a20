"""What a folder holds, found by looking: to add a probe, a reader or a rule is to add a file."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from types import ModuleType


def modules_of(package: ModuleType, first: Sequence[str] = ()) -> Iterator[ModuleType]:
    """Every module of the package's folder, by name, `first` before the others; each imported when its turn comes.

    Those named ``_like_this`` are shared helpers and left out.
    """
    names = sorted(name for place in package.__path__ for name in _names_in(place) if not name.startswith("_"))
    for name in sorted(names, key=lambda name: first.index(name) if name in first else len(first)):
        yield importlib.import_module(f"{package.__name__}.{name}")


def _names_in(place: str) -> list[str]:
    """The modules in a folder, or in a folder of a zip file; those that are packages are left out."""
    try:
        found = os.listdir(place)  # noqa: PTH208 - names, not paths
    except NotADirectoryError:
        import pkgutil  # loads inspect and the tokenizer: only where it must

        return [info.name for info in pkgutil.iter_modules([place]) if not info.ispkg]
    return [name.removesuffix(".py") for name in found if name.endswith(".py")]
