"""A machine as it would be: facts that steps make, and those that can no longer be relied on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from gpudoctor.core.catalog import FactSpec, fits
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import (
    Absent,
    Fact,
    Json,
    Known,
    Row,
    Rows,
    Unread,
    Value,
    known,
    listed,
    text_of,
    texts_of,
    value_from_json,
)
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.diagnosis.expression import NOT_KNOWN
from gpudoctor.diagnosis.knowledge import complete

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
    """Facts of a snapshot while steps change them one after the other.
    Facts in `made` were set by a step; a later step makes them Unread only if it changes the same thing.
    """

    snapshot: Snapshot
    facts: dict[str, Fact] = field(init=False)
    groups: dict[str, Rows] = field(init=False)
    made: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Copy the snapshot's facts and groups, to be changed."""
        self.facts = dict(self.snapshot.facts)
        self.groups = dict(self.snapshot.groups)

    def texts(self, name: str) -> tuple[str, ...]:
        """Values of a list fact as texts; empty if it is not known."""
        return texts_of(self.facts.get(name))

    def text(self, name: str) -> str:
        """Value of a fact as text; ``""`` if it is not known."""
        return text_of(self.facts.get(name))

    def rows(self, group: str) -> tuple[Row, ...]:
        """Rows of a group; empty if it is absent or unread."""
        return listed(self.groups.get(group))

    def put(self, name: str, fact: Fact) -> None:
        """Set a fact as the effect of a step, so that `forget` keeps it."""
        self.facts[name] = fact
        self.made.add(name)

    def put_rows(self, group: str, rows: Rows) -> None:
        """Set a group as the effect of a step, so that `forget` keeps it."""
        self.groups[group] = rows
        self.made.add(group)

    def make(self, name: str, value: Json) -> None:
        """Apply an effect stated by a rule page: a fact, a column of all rows or of one, or a whole group.
        A value that does not fit the catalog becomes Unread; an unknown name is ignored.
        """
        match = _ROW.fullmatch(name)
        plain = f"{match['group']}.{match['column']}" if match else name
        spec = catalog().find(plain)
        if spec is None:
            if plain in catalog().groups:
                self.put_rows(plain, _rows_from_json(value))
            return
        fact = fact_of(value, spec)
        self._forget_text_from(_PRINTED.get(plain.partition(".")[0], ()))
        if not spec.group:
            self.put(plain, fact)
            if plain == "torch.pins_unmet" and fact == Known((), SOURCE):
                self.put_rows("pin", ())
            return
        group, _, column = plain.rpartition(".")
        rows = tuple(
            {**row, column: fact} if match is None or place == int(match["row"]) else row
            for place, row in enumerate(self.rows(group))
        )
        if rows:
            self.put_rows(group, rows)

    def forget(self, families: Iterable[str], anew: bool = False) -> None:
        """Drop facts and groups by name or prefix (``live``), and columns (``gpu.at_work``), so that they are Unread
        unless tables derive them anew. Those that a step has set stay, unless `anew`.
        """
        for family in families:
            self._forget_text_from(_PRINTED.get(family, ()))
            group, _, column = family.rpartition(".")
            if group in self.groups:
                self.groups[group] = _with_column_unread(self.groups[group], column)
            for name in [*self.facts, *self.groups]:
                if name == family or name.startswith(f"{family}."):
                    if anew:
                        self.made.discard(name)
                    if name not in self.made:
                        self.gone.add(name)
                        self.facts.pop(name, None)
                        self.groups.pop(name, None)

    def _forget_text_from(self, sources: tuple[str, ...]) -> None:
        """Make the log lines of these sources Unread."""
        rows = self.groups.get("text")
        if sources and isinstance(rows, tuple):
            self.groups["text"] = tuple(
                {**row, "line": ANEW} if (line := known(row.get("line"))) and line.source.startswith(sources) else row
                for row in rows
            )

    def whole(self) -> Snapshot:
        """Snapshot of the present facts, with those that tables derive; forgotten ones that none derives are Unread."""
        completed = complete(replace(self.snapshot, facts=self.facts, groups=self.groups))
        facts, groups = dict(completed.facts), dict(completed.groups)
        for name in self.gone:
            if name in self.snapshot.groups:
                groups.setdefault(name, ANEW)
            else:
                facts.setdefault(name, ANEW)
        return replace(completed, facts=facts, groups=groups)


def fact_of(value: Json, spec: FactSpec) -> Fact:
    """Fact from the JSON value that a rule page states as an effect: Absent for ``{"absent": reason}``, Unread if it
    does not fit the fact's type.
    """
    if isinstance(value, dict) and "absent" in value:
        return Absent(str(value["absent"]))
    if isinstance(value, dict) or (isinstance(value, str) and NOT_KNOWN in value):
        return ANEW
    with suppress(DocumentError):
        for reading in _candidate_values(value, spec):
            if fits(reading, spec.kind):
                return Known(reading, SOURCE)
    return ANEW


def _candidate_values(value: Json, spec: FactSpec) -> Iterator[Value]:
    """The value as written; then, for text, as the list or number that the fact's type asks for."""
    yield value_from_json(value)
    if isinstance(value, str) and spec.kind == "list":
        yield tuple(part for part in value.split(", ") if part not in ("", "none"))
    elif isinstance(value, str) and spec.kind in ("int", "float", "bool"):
        with suppress(ValueError):
            yield value_from_json(json.loads(value.lower()))


def _with_column_unread(rows: Rows, column: str) -> Rows:
    """Rows with that column Unread where it was known."""
    if not isinstance(rows, tuple):
        return rows
    return tuple({**row, column: ANEW} if known(row.get(column)) else row for row in rows)


def _rows_from_json(value: Json) -> Rows:
    """Rows of a group from a rule page's effect in JSON: Absent for ``{"absent": reason}``, Unread if it does not
    fit.
    """
    if isinstance(value, dict) and "absent" in value:
        return Absent(str(value["absent"]))
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        return tuple(
            {str(name): Known(value_from_json(item), SOURCE) for name, item in row.items()}
            for row in value
            if isinstance(row, dict)
        )
    return ANEW
