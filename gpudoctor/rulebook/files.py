"""Which files of a folder are pages: not the tables, the shared cures or the translations."""

from __future__ import annotations

from pathlib import Path

from gpudoctor.language import OTHERS

SETUP = "setup"
_NO_PAGES = ("profiles", "tables", SETUP, *OTHERS)


def page_files(folder: Path) -> list[Path]:
    """The rule pages under `folder`, in order of their names."""
    found = (path for path in folder.rglob("*.toml") if not set(path.relative_to(folder).parts[:-1]) & set(_NO_PAGES))
    return sorted(found)
