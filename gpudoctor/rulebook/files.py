"""Which files of a folder are pages: not the tables, the shared cures or the translations."""

from __future__ import annotations

from pathlib import Path

from gpudoctor.language import OTHERS

SETUP = "setup"
_NO_PAGES = ("profiles", "tables", SETUP, *OTHERS)


def page_files(place: Path) -> list[Path]:
    """The rule pages under the folder, in order of their names; a page by itself is one."""
    if place.is_file():
        if place.resolve().parent.name in _NO_PAGES:
            return []
        return [place if place.parent.name not in {"", ".."} else place.resolve()]  # its folder names its layer
    found = (path for path in place.rglob("*.toml") if not set(path.relative_to(place).parts[:-1]) & set(_NO_PAGES))
    return sorted(found)


def origin_of(path: Path, place: Path) -> str:
    """The page's place among others, ``driver/driver.missing.toml``; `place` is the folder it was found under."""
    return path.relative_to(path.parent.parent if place.is_file() else place).as_posix()
