"""Files that travel with the program, wherever it runs from: a folder, or one file that is a zip; and modules by place.

Names of files are relative to the package: ``rules/rules.json``, ``kernels/child``. Modules that a folder holds are
found by looking: to add a probe, a reader or a rule is to add a file.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from gpudoctor.core.errors import UsageError

_LOADER: Any = __spec__.loader
ARCHIVE: str = getattr(_LOADER, "archive", "")
"""The zip file that this package is imported from; empty where it is imported from a folder."""

_PACKAGE = f"{ARCHIVE}/gpudoctor" if ARCHIVE else str(Path(__file__).absolute().parents[1])


_BEGIN = """import sys
sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]
from gpudoctor.__main__ import main
sys.exit(main())"""


def own_command() -> list[str]:
    """The command (argv) that starts this gpudoctor again, to be followed by its arguments."""
    home = ARCHIVE or os.path.dirname(_PACKAGE)  # noqa: PTH120
    return [sys.executable, ARCHIVE] if ARCHIVE else [sys.executable, "-c", _BEGIN, home]


def data(name: str) -> bytes | None:
    """The bytes of a file of this package (its path below ``gpudoctor/``); None where it cannot be read."""
    try:
        if ARCHIVE:
            return bytes(_LOADER.get_data(f"{_PACKAGE}/{name}"))
        with open(f"{_PACKAGE}/{name}", "rb") as file:  # noqa: PTH123 - asked for each table, before anything else
            return file.read()
    except OSError:
        return None


def text(name: str) -> str:
    """The text of a file of this package (its path below ``gpudoctor/``); raises `FileNotFoundError`."""
    found = data(name)
    if found is None:
        raise FileNotFoundError(f"{_PACKAGE}/{name}")
    return found.decode()


@cache
def folder(name: str) -> Path:
    """The path of a folder of this package; from a zip file unpacked, once, to a temporary folder removed at exit.

    Raises `UsageError` where nothing can be written.
    """
    return _unpack_folder(name) if ARCHIVE else Path(_PACKAGE, name)


def _unpack_folder(name: str) -> Path:
    """The folder unpacked from the zip file to a temporary one, removed at exit; raises `UsageError`."""
    import tempfile  # with shutil, random and two compressors: only where it must
    import zipfile

    try:
        try:
            home = tempfile.TemporaryDirectory(prefix="gpudoctor-", ignore_cleanup_errors=True)
        except FileNotFoundError:  # nothing of the file system can be written to: memory can
            home = tempfile.TemporaryDirectory(prefix="gpudoctor-", dir="/dev/shm", ignore_cleanup_errors=True)
        atexit.register(home.cleanup)
        with zipfile.ZipFile(ARCHIVE) as archive:
            archive.extractall(home.name, [one for one in archive.namelist() if one.startswith(f"gpudoctor/{name}/")])
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"no folder can be written to ({why}), and this needs one: set TMPDIR to a folder") from error
    return Path(home.name, "gpudoctor", name)


# ---- Modules that a folder holds ----


def modules_of(package: ModuleType, first: Sequence[str] = ()) -> Iterator[ModuleType]:
    """Import and yield each module of the package's folder: those named in `first`, then the others by name.

    Left out are subpackages and helpers named ``_like_this``.
    """
    names = sorted(name for place in package.__path__ for name in _names_in(place) if not name.startswith("_"))
    for name in sorted(names, key=lambda name: first.index(name) if name in first else len(first)):
        yield importlib.import_module(f"{package.__name__}.{name}")


def _names_in(place: str) -> list[str]:
    """Names of the modules (no subpackages) in a folder, also one within a zip file; in no order."""
    try:
        found = os.listdir(place)  # noqa: PTH208 - names, not paths
    except (NotADirectoryError, FileNotFoundError):  # in a zip file; the second is what Windows calls it
        import pkgutil  # loads inspect and the tokenizer: only where it must

        return [info.name for info in pkgutil.iter_modules([place]) if not info.ispkg]
    return [name.removesuffix(".py") for name in found if name.endswith(".py")]
