"""``gpudoctor.pyz``: the installed gpudoctor and what it imports, as one file that any Python 3.10 or newer runs.

The file is a zip. At its root lie the modules and data as in a folder of packages; beside them, in a folder for each
Python that it was compiled for (``cpython-311/``), the byte code of all modules. `gpudoctor.pyz.start` puts that folder
first on ``sys.path``, so that modules come compiled; another Python imports the sources. Nothing is unpacked to run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpudoctor import durable, shipped
from gpudoctor.model.errors import UsageError
from gpudoctor.pyz.contents import lay_out

_MOMENT = (1980, 1, 1, 0, 0, 0)
"""The time of every file within, so that the same gpudoctor gives the same bytes."""

_SHEBANG = b"#!/usr/bin/env python3\n"


def build(
    place: Path, pythons: Sequence[str] = (), tui: bool = True, tell: Callable[[str], None] = lambda _: None
) -> None:
    """Write the file, compiled for our own Python and for `pythons`; `tell` hears what will be missing from it.

    Raises `UsageError` for a Python that is none, a place that cannot be written to, a package that is not pure Python.
    """
    tags = {tag(python): python for python in (*pythons, sys.executable)}
    with tempfile.TemporaryDirectory(prefix="gpudoctor-") as scratch:
        tree, compiled, whole = (Path(scratch, name) for name in ("tree", "compiled", "whole"))
        for missing in lay_out(tree, tui):
            tell(missing)
        with ThreadPoolExecutor(os.cpu_count()) as workers:
            list(workers.map(lambda tag: compile_with(tags[tag], tree, compiled / tag), tags))
        shutil.copy(shipped.folder("pyz") / "start.py", tree / "__main__.py")
        with whole.open("wb") as file:
            file.write(_SHEBANG)
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
                _add(archive, tree)
                _add(archive, compiled)
        _put(whole, place)


def _add(archive: zipfile.ZipFile, folder: Path) -> None:
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _MOMENT)
        entry.external_attr = 0o100644 << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, path.read_bytes())


def _put(whole: Path, place: Path) -> None:
    """Let the file appear in one step, to be run by everybody."""
    try:
        durable.put(place, whole.read_bytes(), 0o755)
    except OSError as error:
        raise UsageError(f"-o {place}: {error.strerror}; give a file in a folder that you can write to") from error


# ---- Byte code of a tree of modules, made by the Python that is to run it ----

_PATIENCE = 300.0
_WHICH = "import sys; print(sys.version_info >= (3, 10), sys.implementation.cache_tag)"


def tag(python: str) -> str:
    """What that Python calls its byte code: ``cpython-311``. Raises `UsageError` for none that is 3.10 or newer."""
    new, _, name = _said(python, _WHICH).partition(" ")
    if new != "True":
        raise UsageError(f"--python {python}: give a Python 3.10 or newer")
    return name


def compile_with(python: str, tree: Path, goal: Path) -> None:
    """Compile every module of the tree into the folder `goal`; raises `UsageError` where it cannot."""
    _said(python, shipped.text("pyz/compile_tree.py"), str(tree), str(goal))


def _said(python: str, code: str, *words: str) -> str:
    argv = [python, "-I", "-S", "-c", code, *words]
    try:
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=_PATIENCE)
    except OSError as error:
        raise UsageError(f"--python {python}: it cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"--python {python}: it did not come to an end within {_PATIENCE:g} s") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        raise UsageError(f"--python {python}: give a Python 3.10 or newer ({last})")
    return done.stdout.strip()
