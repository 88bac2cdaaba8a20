"""What goes into the file: our own package, and the distributions that it needs, all of them pure Python."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from gpudoctor import pages, shipped
from gpudoctor.language import OTHERS
from gpudoctor.model.distribution import normal
from gpudoctor.model.errors import UsageError
from gpudoctor.rulebook.compiled import compiled_copies

_PYTHONS = [{"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.0"} for minor in range(10, 15)]
"""Those that the file is for, whichever builds it."""

OLDEST = "3.10"
_INTERFACE = "textual"
_NATIVE = {".so", ".pyd", ".dylib"}
_LEFT_OUT = {"__pycache__", "direct_url.json", "RECORD", "REQUESTED", "INSTALLER"}


def lay_out(tree: Path, tui: bool) -> list[str]:
    """Lay all of it out in that folder, as pip would; a sentence for each distribution that is missed somewhere."""
    _lay_out_ours(tree)
    missed = []
    for name in needed(tui):
        try:
            found = distribution(name)
        except PackageNotFoundError:
            missed.append(f"{name} is not installed here: where the file needs it, it will not have it")
            continue
        _lay_out(found, tree)
        pythons = found.metadata["Requires-Python"] or ""
        if OLDEST not in SpecifierSet(pythons):
            missed.append(
                f"{name} {found.version} is for Python {pythons}: build the file in a Python {OLDEST} for all"
            )
    return missed


def _lay_out_ours(tree: Path) -> None:
    """Our package, with the rulebook within it, compiled; its metadata says which version it is, and the licence."""
    if shipped.ARCHIVE:
        raise UsageError("the file is built by an installed gpudoctor: pip install gpudoctor, then gpudoctor pyz")
    package = tree / "gpudoctor"
    shutil.copytree(Path(pages.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "rules"))
    shutil.copytree(pages.home(), package / "rules", ignore=shutil.ignore_patterns(*OTHERS))
    if (package / "rules" / "rules.json").exists():  # a wheel's, which has translations in this form alone
        return
    for name, content in compiled_copies(pages.home()).items():
        (package / "rules" / name).write_text(json.dumps(content, separators=(",", ":"), ensure_ascii=False), "utf-8")


def needed(tui: bool) -> list[str]:
    """Names of the distributions, each once, in the order in which they are first asked for."""
    found: dict[str, None] = {}
    waiting = [Requirement("gpudoctor")]
    while waiting:
        wanted = waiting.pop()
        name = normal(wanted.name)
        if (name in found and not wanted.extras) or (name == _INTERFACE and not tui):
            continue
        found[name] = None
        waiting += _wants(wanted)
    return [name for name in found if name != "gpudoctor"]


def _wants(wanted: Requirement) -> Iterator[Requirement]:
    """What it asks for on any of the Pythons."""
    try:
        lines = distribution(wanted.name).requires or []
    except PackageNotFoundError:
        return
    for requirement in map(Requirement, lines):
        marker = requirement.marker
        places = ({"extra": extra, **python} for extra in ("", *wanted.extras) for python in _PYTHONS)
        if not marker or any(marker.evaluate(place) for place in places):
            yield requirement


def _lay_out(of: Distribution, tree: Path) -> None:
    """Its files but commands and byte code. A module that is compiled only for speed has its source beside it."""
    files = [file for file in of.files or () if ".." not in file.parts and not _LEFT_OUT & set(file.parts)]
    modules = {str(file).partition(".")[0] for file in files if file.suffix == ".py"}
    for file in files:
        if file.suffix in _NATIVE:
            module = str(file).partition(".")[0]
            if module in modules or module.endswith("__mypyc"):
                continue
            raise UsageError(f"{of.metadata['Name']} has native code ({file}): one file with it runs not everywhere")
        goal = tree / file
        goal.parent.mkdir(parents=True, exist_ok=True)
        goal.write_bytes(Path(str(of.locate_file(file))).read_bytes())
