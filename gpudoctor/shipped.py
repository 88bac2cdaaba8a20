"""Files that travel with the program beside its modules, wherever it runs from: a folder, or one file that is a zip.

Names are relative to the package: ``rules/rules.json``, ``kernels/child``.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

_LOADER: Any = __spec__.loader
ARCHIVE: str = getattr(_LOADER, "archive", "")
"""The zip file that this package is imported from; empty where it is imported from a folder."""

_PACKAGE = f"{ARCHIVE}/gpudoctor" if ARCHIVE else os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120


_BEGIN = """import sys
sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]
from gpudoctor.__main__ import main
sys.exit(main())"""


def program() -> list[str]:
    """What starts this gpudoctor once more, its own words behind it; whatever lies in the working directory."""
    import sys

    home = ARCHIVE or os.path.dirname(_PACKAGE)  # noqa: PTH120
    return [sys.executable, ARCHIVE] if ARCHIVE else [sys.executable, "-c", _BEGIN, home]


def data(name: str) -> bytes | None:
    """What the file of that name holds; None where there is no such file."""
    try:
        if ARCHIVE:
            return bytes(_LOADER.get_data(f"{_PACKAGE}/{name}"))
        with open(f"{_PACKAGE}/{name}", "rb") as file:  # noqa: PTH123 - asked for each table, before anything else
            return file.read()
    except OSError:
        return None


def text(name: str) -> str:
    """The text of a file that is always there."""
    found = data(name)
    if found is None:
        raise FileNotFoundError(f"{_PACKAGE}/{name}")
    return found.decode()


@cache
def folder(name: str) -> Path:
    """That folder as one of this machine: where we run from a zip file, unpacked for as long as we live.

    Raises `UsageError` where nothing can be written to.
    """
    return _unpacked(name) if ARCHIVE else Path(_PACKAGE, name)


def _unpacked(name: str) -> Path:
    import atexit
    import shutil
    import tempfile
    import zipfile

    from gpudoctor.model.errors import UsageError

    try:
        try:
            place = Path(tempfile.mkdtemp(prefix="gpudoctor-"))
        except FileNotFoundError:  # nothing of the file system can be written to: memory can
            place = Path(tempfile.mkdtemp(prefix="gpudoctor-", dir="/dev/shm"))
        atexit.register(shutil.rmtree, place, ignore_errors=True)
        with zipfile.ZipFile(ARCHIVE) as archive:
            archive.extractall(place, [one for one in archive.namelist() if one.startswith(f"gpudoctor/{name}/")])
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"no folder can be written to ({why}), and this needs one: set TMPDIR to a folder") from error
    return place / "gpudoctor" / name
