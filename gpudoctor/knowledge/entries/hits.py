"""Rows that answer, and what finders have in common."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from gpudoctor.knowledge._tables import TableRow, table


class Hit(NamedTuple):
    """A row, and the section of the table that it stands in."""

    section: str
    row: TableRow


class Found(NamedTuple):
    """The rows that answer, and how the key was understood where that is not plain."""

    hits: list[Hit]
    note: str = ""


def rows(name: str, section: str, fits: Callable[[TableRow], bool]) -> list[Hit]:
    return [Hit(section, row) for row in table(name)[section] if fits(row)]


def is_of(version: object, wanted: str) -> bool:
    """Whether the version begins with `wanted`: 12.8.1 is of 12.8."""
    return f"{version}.".startswith(f"{wanted}.")


def without(key: str, *words: str) -> str:
    """The key without a leading word that only says what it is: ``CUDA 12.8``, ``torch==2.9``."""
    return re.sub(rf"^(?:{'|'.join(words)})[\s=:-]*", "", key, flags=re.IGNORECASE).strip()
