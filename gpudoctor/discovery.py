"""What a folder holds, found by looking: to add a probe, a reader or a rule is to add a file."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from types import ModuleType


def modules_of(package: ModuleType, first: Sequence[str] = ()) -> Iterator[ModuleType]:
    """Every module of the package's folder, by name, `first` before the others; each imported when its turn comes.

    Those named ``_like_this`` are shared helpers and left out.
    """
    found = pkgutil.iter_modules(package.__path__)
    names = sorted(info.name for info in found if not info.ispkg and not info.name.startswith("_"))
    for name in sorted(names, key=lambda name: first.index(name) if name in first else len(first)):
        yield importlib.import_module(f"{package.__name__}.{name}")
