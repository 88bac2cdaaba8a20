"""``gpudoctor.pyz``: the installed gpudoctor and what it imports, as one file that any Python 3.10 or newer runs.

The file is a zip. At its root lie the modules and data as in a folder of packages; beside them, in a folder for each
Python that it was compiled for (``cpython-311/``), the byte code of all modules. `gpudoctor.app.pyz.start` puts that
folder first on ``sys.path``, so that modules come compiled; another Python imports the sources. Nothing is unpacked to
run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import gpudoctor
from gpudoctor.core import files, shipped
from gpudoctor.core.errors import UsageError
from gpudoctor.core.language import OTHERS
from gpudoctor.core.versions import normal
from gpudoctor.diagnosis import page_cache
from gpudoctor.diagnosis.rulebook.compiling import compiled_copies

_FILE_TIME = (1980, 1, 1, 0, 0, 0)
"""The time of every file within, so that the same gpudoctor gives the same bytes."""

_SHEBANG = b"#!/usr/bin/env python3\n"


def build(
    place: Path, pythons: Sequence[str] = (), tui: bool = True, warn: Callable[[str], None] = lambda _: None
) -> None:
    """Write ``gpudoctor.pyz`` to `place`, compiled for this Python and `pythons`; `warn` gets what it will lack.

    Raises `UsageError` for a Python that is none, a place that cannot be written to, a package that is not pure Python.
    """
    tags = {tag(python): python for python in (*pythons, sys.executable)}
    with tempfile.TemporaryDirectory(prefix="gpudoctor-") as scratch:
        tree, compiled, whole = (Path(scratch, name) for name in ("tree", "compiled", "whole"))
        for missing in copy_packages(tree, tui):
            warn(missing)
        with ThreadPoolExecutor(os.cpu_count()) as workers:
            list(workers.map(lambda tag: compile_with(tags[tag], tree, compiled / tag), tags))
        shutil.copy(shipped.folder("app/pyz") / "start.py", tree / "__main__.py")
        with whole.open("wb") as file:
            file.write(_SHEBANG)
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
                _add(archive, tree)
                _add(archive, compiled)
        _write(whole, place)


def _add(archive: zipfile.ZipFile, folder: Path) -> None:
    """Add every file of the folder to the archive, with fixed times."""
    for path in sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.parts):
        entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _FILE_TIME)
        entry.external_attr = 0o100644 << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, path.read_bytes())


def _write(whole: Path, place: Path) -> None:
    """Write the file atomically, executable by everybody; raises `UsageError`."""
    try:
        files.put(place, whole.read_bytes(), 0o755)
    except OSError as error:
        raise UsageError(f"-o {place}: {error.strerror}; give a file in a folder that you can write to") from error


# ---- Byte code of a tree of modules, made by the Python that is to run it ----

_COMPILE_SECONDS = 300.0
_WHICH = "import sys; print(sys.version_info >= (3, 10), sys.implementation.cache_tag)"


def tag(python: str) -> str:
    """Name of that Python's byte code: ``cpython-311``; raises `UsageError` if it is not Python 3.10 or newer."""
    new, _, name = _output_of(python, _WHICH).partition(" ")
    if new != "True":
        raise UsageError(f"--python {python}: give a Python 3.10 or newer")
    return name


def compile_with(python: str, tree: Path, goal: Path) -> None:
    """Compile every module under `tree` into `goal` with that Python; raises `UsageError` where it cannot."""
    _output_of(python, shipped.text("app/pyz/compile_tree.py"), str(tree), str(goal))


def _output_of(python: str, code: str, *words: str) -> str:
    """Standard output of the code, run by that Python; raises `UsageError` if it fails or takes too long."""
    argv = [python, "-I", "-S", "-c", code, *words]
    try:
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=_COMPILE_SECONDS)
    except OSError as error:
        raise UsageError(f"--python {python}: it cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"--python {python}: it did not come to an end within {_COMPILE_SECONDS:g} s") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        raise UsageError(f"--python {python}: give a Python 3.10 or newer ({last})")
    return done.stdout.strip()


# ---- What goes into the file: our own package, and the distributions that it needs, all of them pure Python ----

_PYTHONS = [{"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.0"} for minor in range(10, 15)]
"""Those that the file is for, whichever builds it."""

OLDEST = "3.10"
_INTERFACE = "textual"
_NATIVE = {".so", ".pyd", ".dylib"}
_LEFT_OUT = {"__pycache__", "direct_url.json", "RECORD", "REQUESTED", "INSTALLER"}


def copy_packages(tree: Path, tui: bool) -> list[str]:
    """Copy gpudoctor and all that it needs into the folder; a warning for each package missing or unsuitable.

    Raises `UsageError` from within a .pyz and for a package with native code alone.
    """
    _copy_own_package(tree)
    warnings = []
    for name in needed(tui):
        try:
            package = distribution(name)
        except PackageNotFoundError:
            warnings.append(f"{name} is not installed here: where the file needs it, it will not have it")
            continue
        _copy_distribution(package, tree)
        pythons = package.metadata["Requires-Python"] or ""
        if OLDEST not in SpecifierSet(pythons):
            warnings.append(
                f"{name} {package.version} is for Python {pythons}: build the file in a Python {OLDEST} for all"
            )
    return warnings


def _copy_own_package(tree: Path) -> None:
    """Copy our package with the compiled rulebook into `tree`; raises `UsageError` if run from a .pyz."""
    if shipped.ARCHIVE:
        raise UsageError("the file is built by an installed gpudoctor: pip install gpudoctor, then gpudoctor pyz")
    package = tree / "gpudoctor"
    shutil.copytree(Path(gpudoctor.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "rules"))
    shutil.copytree(page_cache.home(), package / "rules", ignore=shutil.ignore_patterns(*OTHERS))
    if (package / "rules" / "rules.json").exists():  # a wheel's, which has translations in this form alone
        return
    for name, content in compiled_copies(page_cache.home()).items():
        (package / "rules" / name).write_text(json.dumps(content, separators=(",", ":"), ensure_ascii=False), "utf-8")


def needed(tui: bool) -> list[str]:
    """Names of the distributions that gpudoctor needs, directly or not, each once; `tui` includes Textual."""
    names: dict[str, None] = {}
    waiting = [Requirement("gpudoctor")]
    while waiting:
        wanted = waiting.pop()
        name = normal(wanted.name)
        if (name in names and not wanted.extras) or (name == _INTERFACE and not tui):
            continue
        names[name] = None
        waiting += _requirements_of(wanted)
    return [name for name in names if name != "gpudoctor"]


def _requirements_of(requirement: Requirement) -> Iterator[Requirement]:
    """What a distribution requires on any Python from 3.10 to 3.14; nothing if it is not installed."""
    try:
        lines = distribution(requirement.name).requires or []
    except PackageNotFoundError:
        return
    for candidate in map(Requirement, lines):
        marker = candidate.marker
        places = ({"extra": extra, **python} for extra in ("", *requirement.extras) for python in _PYTHONS)
        if not marker or any(marker.evaluate(place) for place in places):
            yield candidate


def _copy_distribution(package: Distribution, tree: Path) -> None:
    """Copy the distribution's files into `tree`, except commands and byte code.

    Native code is left out where it has a pure twin; else it raises `UsageError`.
    """
    files = [file for file in package.files or () if ".." not in file.parts and not _LEFT_OUT & set(file.parts)]
    modules = {str(file).partition(".")[0] for file in files if file.suffix == ".py"}
    for file in files:
        if file.suffix in _NATIVE:
            module = str(file).partition(".")[0]
            if module in modules or module.endswith("__mypyc"):
                continue
            raise UsageError(
                f"{package.metadata['Name']} has native code ({file}): one file with it runs not everywhere"
            )
        goal = tree / file
        goal.parent.mkdir(parents=True, exist_ok=True)
        goal.write_bytes(Path(str(package.locate_file(file))).read_bytes())
