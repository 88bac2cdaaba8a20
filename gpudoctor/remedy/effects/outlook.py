"""A machine as it would be: facts that steps make, and those that can no longer be relied on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from gpudoctor.catalog import catalog
from gpudoctor.expression import NOT_KNOWN
from gpudoctor.knowledge import complete
from gpudoctor.model.catalog import FactSpec, fits
from gpudoctor.model.errors import DocumentError
from gpudoctor.model.fact import Absent, Fact, Json, Known, Row, Rows, Unread, Value, listed, value_from_json
from gpudoctor.model.snapshot import Snapshot

SOURCE = "what the plan's steps make true"
ANEW = Unread("was read before this step; it is read anew after it")
_PRINTED = {
    "nvml": ("nvidia-smi",),
    "cuda_driver": ("libcuda",),
    "kernel_log": ("/dev/kmsg", "/var/log/", "journalctl"),
}
"""Whose lines of text go with a family of facts, by how their source begins."""
_ROW = re.compile(r"(?P<group>\w+)\[(?P<row>\d{1,4})\]\.(?P<column>\w+)")
"""A column of one row: ``gpu[2].mig_pending``."""


@dataclass
class Outlook:
    """The facts of a snapshot while steps change them, one after the other.

    What one step has made (`made`) no later one makes doubtful, unless it changes the same thing.
    """

    snapshot: Snapshot
    facts: dict[str, Fact] = field(init=False)
    groups: dict[str, Rows] = field(init=False)
    made: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.facts = dict(self.snapshot.facts)
        self.groups = dict(self.snapshot.groups)

    def known(self, name: str) -> Value:
        """The value of that fact; None where it is not known."""
        fact = self.facts.get(name)
        return fact.value if isinstance(fact, Known) else None

    def text(self, name: str) -> str:
        """The same as a text; empty where it is not known."""
        value = self.known(name)
        return "" if value is None else str(value)

    def rows(self, group: str) -> tuple[Row, ...]:
        """The rows of that group; none where there are none or nobody read them."""
        return listed(self.groups.get(group))

    def put(self, name: str, fact: Fact) -> None:
        """That fact, as a step makes it."""
        self.facts[name] = fact
        self.made.add(name)

    def put_rows(self, group: str, rows: Rows) -> None:
        """That group, as a step makes it."""
        self.groups[group] = rows
        self.made.add(group)

    def make(self, name: str, value: Json) -> None:
        """What a page says of a step: a fact, a column of all rows or of one, or a whole group.

        What does not fit the catalog, or could not be filled in, is left to be read again.
        """
        one = _ROW.fullmatch(name)
        plain = f"{one['group']}.{one['column']}" if one else name
        spec = catalog().find(plain)
        if spec is None:
            if plain in catalog().groups:
                self.put_rows(plain, _rows(value))
            return
        fact = fact_of(value, spec)
        self._silence(_PRINTED.get(plain.partition(".")[0], ()))
        if not spec.group:
            self.put(plain, fact)
            if plain == "torch.pins_unmet" and fact == Known((), SOURCE):
                self.put_rows("pin", ())
            return
        group, _, column = plain.rpartition(".")
        rows = tuple(
            {**row, column: fact} if one is None or place == int(one["row"]) else row
            for place, row in enumerate(self.rows(group))
        )
        if rows:
            self.put_rows(group, rows)

    def forget(self, families: Iterable[str], anew: bool = False) -> None:
        """Facts, groups and columns no longer to be relied on: ``live``, ``driver.cuda_version``, ``gpu.at_work``.

        They are worked out from the tables again where those tell them. `anew` takes back what steps made, too.
        """
        for family in families:
            self._silence(_PRINTED.get(family, ()))
            group, _, column = family.rpartition(".")
            if group in self.groups:
                self.groups[group] = _without(self.groups[group], column)
            for name in [*self.facts, *self.groups]:
                if name == family or name.startswith(f"{family}."):
                    if anew:
                        self.made.discard(name)
                    if name not in self.made:
                        self.gone.add(name)
                        self.facts.pop(name, None)
                        self.groups.pop(name, None)

    def _silence(self, sources: tuple[str, ...]) -> None:
        rows = self.groups.get("text")
        if sources and isinstance(rows, tuple):
            self.groups["text"] = tuple(
                {**row, "line": ANEW}
                if isinstance(line := row.get("line"), Known) and line.source.startswith(sources)
                else row
                for row in rows
            )

    def whole(self) -> Snapshot:
        """The snapshot, with what follows from the new facts; what is told by nothing is unread."""
        told = complete(replace(self.snapshot, facts=self.facts, groups=self.groups))
        facts, groups = dict(told.facts), dict(told.groups)
        for name in self.gone:
            if name in self.snapshot.groups:
                groups.setdefault(name, ANEW)
            else:
                facts.setdefault(name, ANEW)
        return replace(told, facts=facts, groups=groups)


def fact_of(value: Json, spec: FactSpec) -> Fact:
    """What a page wrote, as a fact of that kind; unread where it does not fit."""
    if isinstance(value, dict) and "absent" in value:
        return Absent(str(value["absent"]))
    if isinstance(value, dict) or (isinstance(value, str) and NOT_KNOWN in value):
        return ANEW
    with suppress(DocumentError):
        for reading in _readings(value, spec):
            if fits(reading, spec.kind):
                return Known(reading, SOURCE)
    return ANEW


def _readings(value: Json, spec: FactSpec) -> Iterator[Value]:
    """The value as written, and what a filled template says: ``2`` is a number, ``a, b`` a list."""
    yield value_from_json(value)
    if isinstance(value, str) and spec.kind == "list":
        yield tuple(part for part in value.split(", ") if part not in ("", "none"))
    elif isinstance(value, str) and spec.kind in ("int", "float", "bool"):
        with suppress(ValueError):
            yield value_from_json(json.loads(value.lower()))


def _without(rows: Rows, column: str) -> Rows:
    """The rows with that column to be read again where it is known."""
    if not isinstance(rows, tuple):
        return rows
    return tuple({**row, column: ANEW} if isinstance(row.get(column), Known) else row for row in rows)


def _rows(value: Json) -> Rows:
    if isinstance(value, dict) and "absent" in value:
        return Absent(str(value["absent"]))
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        return tuple(
            {str(name): Known(value_from_json(item), SOURCE) for name, item in row.items()}
            for row in value
            if isinstance(row, dict)
        )
    return ANEW
