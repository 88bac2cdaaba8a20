"""How one list of a table is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Section(NamedTuple):
    """One list of a table: its heading, and for its rows the key, the title and the label of each column.

    `key` and `title` are templates over the row. A column that has no label is told by its own name, one whose label is
    empty is left out.
    """

    heading: str
    key: str
    title: str
    labels: Mapping[str, str]
