"""Bandwidth measured between every two of a set of hosts or GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import cast

from gpudoctor.model.document import Entry, is_number
from gpudoctor.model.errors import DocumentError
from gpudoctor.model.frozen import field, frozen


@frozen
class Pair:
    """One measured way, from one to another; `measured` is None where it was not, `words` say why or what is wrong."""

    source: str
    target: str
    measured: float | None
    expected: float
    wrong: bool = False
    words: str = ""

    @property
    def ratio(self) -> float | None:
        """Measured over expected."""
        return None if self.measured is None or self.expected <= 0 else self.measured / self.expected


@frozen(slots=False)
class Pairwise:
    """Bandwidth between all of `names`, a row for each sender."""

    title: str
    unit: str
    expected: float
    names: tuple[str, ...]
    measured: tuple[tuple[float | None, ...], ...]
    wrong: frozenset[tuple[str, str]] = frozenset()
    """Ways on which what arrived is not what was sent."""
    words: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Why a way was not measured, or what is wrong with it."""

    @cached_property
    def _at(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.names)}

    def pair(self, source: str, target: str) -> Pair:
        """The way from the one to the other."""
        value = self.measured[self._at[source]][self._at[target]]
        way = (source, target)
        return Pair(source, target, value, self.expected, way in self.wrong, self.words.get(way, ""))

    def to_json(self) -> dict[str, object]:
        """The object that `read` takes back."""
        return {
            "title": self.title,
            "unit": self.unit,
            "expected": self.expected,
            "names": list(self.names),
            "measured": [list(row) for row in self.measured],
            "wrong": sorted([source, target] for source, target in self.wrong),
            "words": [[source, target, words] for (source, target), words in self.words.items()],
        }


def read(item: Entry) -> Pairwise:
    """The inverse of `Pairwise.to_json`; raises `DocumentError`."""
    names = item.texts("names")
    measured, words = item.raw.get("measured"), item.raw.get("words", ())
    if not _square(measured, len(names)):
        raise DocumentError(f"{item.where}measured is no square of {len(names)} numbers or nulls")
    return Pairwise(
        title=item.text("title", "Pairwise bandwidth"),
        unit=item.text("unit"),
        expected=item.number("expected"),
        names=names,
        measured=tuple(tuple(row) for row in cast("Sequence[Sequence[float | None]]", measured)),
        wrong=frozenset((way[0], way[1]) for way in _tuples(item, "wrong", item.raw.get("wrong", ()), 2)),
        words={(way[0], way[1]): way[2] for way in _tuples(item, "words", words, 3)},
    )


def _square(rows: object, size: int) -> bool:
    return (
        isinstance(rows, list)
        and len(rows) == size
        and all(isinstance(row, list) and len(row) == size for row in rows)
        and all(value is None or is_number(value) for row in rows for value in row)
    )


def _tuples(item: Entry, name: str, raw: object, size: int) -> list[list[str]]:
    fits = isinstance(raw, (list, tuple)) and all(
        isinstance(way, list) and len(way) == size and all(isinstance(part, str) for part in way) for way in raw
    )
    if not fits:
        raise DocumentError(f"{item.where}{name} is no list of {size} texts each")
    return cast("list[list[str]]", raw)
