"""A snapshot: every fact of one machine at one moment. Rules read nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeVar, cast, get_args

from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import (
    Fact,
    Json,
    Known,
    Reason,
    Row,
    Rows,
    Unread,
    Value,
    fact_from_json,
    fact_to_json,
    known,
    number_of,
    rows_to_json,
    text_of,
    texts_of,
    value_of,
)
from gpudoctor.core.frozen import field, frozen
from gpudoctor.core.texts import screened

SCHEMA = "gpudoctor/1"
MOST_GPUS = 128
"""GPUs of the largest machine that is judged: what is judged for each GPU looks at all of them."""
MOST_ROWS = {"text": 1 << 20, "package": 2000, "pci": 1000, "measured": 1 << 14, "rung": 1000}
MOST_ROWS.update(dict.fromkeys(("machine", "rank", "link", "silence", "outlier", "split"), 1 << 14))
"""Rows of a group that are kept, the first of them: what repeats itself without end tells nothing new."""
MOST_OTHER_ROWS = 500
Level = Literal["quick", "standard", "deep"]
T = TypeVar("T")


@frozen
class Event:
    """What a source of facts (a probe, a kernel) does while a snapshot is made; `detail` is what it waits for."""

    source: str
    state: Literal["started", "working", "done", "died", "stopped"]
    detail: str = ""


Progress = Callable[[Event], None]


@frozen
class Target:
    """What the facts are about: kind ``local``, ``report``, ``snapshot``, ``node`` or ``fleet``, and its name."""

    kind: str
    name: str
    python: str | None = None
    level: str = "quick"

    def to_json(self) -> dict[str, Json]:
        """``kind``, ``name``, ``python`` and ``level``."""
        return {"kind": self.kind, "name": self.name, "python": self.python, "level": self.level}


_NOT_STATED = Unread("the report does not say", False, Reason.NOT_STATED)
_NOT_ASKED = Unread("not asked", False, Reason.NOT_ASKED)


@frozen
class Snapshot:
    """Facts by dotted name, and groups of rows (``gpu``, ``pci``, ``text``) by group name."""

    target: Target
    facts: Mapping[str, Fact]
    groups: Mapping[str, Rows] = field(default_factory=dict)
    timings_ms: Mapping[str, float] = field(default_factory=dict)

    def get(self, name: str) -> Fact:
        """The fact of that name; `unanswered`, an `Unread`, where there is none."""
        return self.facts.get(name) or self.unanswered

    def rows(self, group: str) -> Rows:
        """The rows of that group, or the `Absent` or `Unread` in their place; `unanswered` where there is neither."""
        rows = self.groups.get(group)
        return self.unanswered if rows is None else rows

    def known(self, name: str) -> Known | None:
        """The fact of that name where it is `Known`, else None."""
        return known(self.facts.get(name))

    def value(self, name: str) -> Value:
        """The value of that fact where it is known, else None."""
        return value_of(self.facts.get(name))

    def text(self, name: str) -> str:
        """The value of that fact as text where it is known, else empty."""
        return text_of(self.facts.get(name))

    def number(self, name: str) -> float | None:
        """The value of that fact where it is a known finite number (True and False are none), else None."""
        return number_of(self.facts.get(name))

    def texts(self, name: str) -> tuple[str, ...]:
        """The items of that fact as texts where it is a known list, else an empty tuple."""
        return texts_of(self.facts.get(name))

    @property
    def pasted(self) -> bool:
        """Whether the facts come from a pasted report: then silence proves nothing."""
        return self.target.kind == "report" or "report.lines" in self.facts

    @property
    def unanswered(self) -> Unread:
        """The `Unread` for a fact that is not there: not stated, in a pasted report; else not asked."""
        return _NOT_STATED if self.pasted else _NOT_ASKED

    def answered(self) -> frozenset[str]:
        """The names of the facts and groups that are known or absent, not `Unread`."""
        states = (*self.facts.items(), *self.groups.items())
        return frozenset(name for name, state in states if not isinstance(state, Unread))

    def topics(self) -> frozenset[str]:
        """The first parts of its facts' names (``driver`` of ``driver.version``), and the names of its groups."""
        return frozenset(name.partition(".")[0] for name in (*self.facts, *self.groups))

    def facts_to_json(self) -> dict[str, Json]:
        """The contract's ``facts``: scalars and groups side by side, sorted by name."""
        out: dict[str, Json] = {name: cast(Json, fact_to_json(fact)) for name, fact in self.facts.items()}
        out.update({name: rows_to_json(rows) for name, rows in self.groups.items()})
        return dict(sorted(out.items()))

    def to_json(self) -> dict[str, Json]:
        """The snapshot as a document that `from_json` reads: schema, target, facts and timings_ms."""
        timings: dict[str, Json] = {name: round(ms, 1) for name, ms in self.timings_ms.items()}
        return {
            "schema": SCHEMA,
            "target": cast(Json, self.target.to_json()),
            "facts": cast(Json, self.facts_to_json()),
            "timings_ms": cast(Json, timings),
        }


def from_json(raw: object) -> Snapshot:
    """A snapshot from a saved snapshot or a whole diagnosis document, secrets hidden; raises `DocumentError`.

    Its target is of kind snapshot or fleet. A group keeps its first `MOST_ROWS`; more than `MOST_GPUS` GPUs are an
    error.
    """
    if not isinstance(raw, Mapping) or not isinstance(raw.get("facts"), Mapping):
        raise DocumentError("not a gpudoctor snapshot: no facts in it")
    schema = str(raw.get("schema", ""))
    if schema != SCHEMA:
        raise DocumentError(
            f"schema {schema[:40]!r} is not {SCHEMA}; read it with the gpudoctor that wrote it or a newer one"
        )
    raw = screened(raw)
    target = raw.get("target")
    if not isinstance(target, Mapping):
        raise DocumentError("not a gpudoctor snapshot: no target in it")
    facts: dict[str, Fact] = {}
    groups: dict[str, Rows] = {}
    for name, entry in raw["facts"].items():
        if "." in name:
            facts[str(name)] = _parse_named(name, fact_from_json, entry)
        else:
            groups[str(name)] = _parse_named(name, _rows_from_json, entry)
    if isinstance(gpus := groups.get("gpu"), tuple) and len(gpus) > MOST_GPUS:
        raise DocumentError(f"{len(gpus)} GPUs in one machine; at most {MOST_GPUS} are judged")
    timings = raw.get("timings_ms") or {}
    if not isinstance(timings, Mapping):
        raise DocumentError("not a gpudoctor snapshot: timings_ms is no object")
    return Snapshot(
        target=_target_from_json(target),
        facts=facts,
        groups={
            name: rows[: MOST_ROWS.get(name, MOST_OTHER_ROWS)] if isinstance(rows, tuple) else rows
            for name, rows in groups.items()
        },
        timings_ms={str(k): float(v) for k, v in timings.items() if isinstance(v, (int, float))},
    )


def _target_from_json(raw: Mapping[str, object]) -> Target:
    """The target of a document; its kind is fleet where it was, else snapshot; raises `DocumentError`."""
    name, python, level = raw.get("name", ""), raw.get("python"), raw.get("level", "quick")
    if not isinstance(name, str) or not isinstance(python, (str, type(None))) or level not in get_args(Level):
        raise DocumentError("not a gpudoctor snapshot: its target's name, python or level is none")
    kind = "fleet" if raw.get("kind") == "fleet" else "snapshot"
    return Target(kind, name, python, str(level))


def _parse_named(name: str, parse: Callable[[object], T], raw: object) -> T:
    """`parse(raw)`; a `DocumentError` of it is raised with the fact's name before its message."""
    try:
        return parse(raw)
    except DocumentError as error:
        raise DocumentError(f"{name[:60]!r}: {error}") from error


def _rows_from_json(raw: object) -> Rows:
    """A group: rows, or the absent or unread fact that stands for them; raises `DocumentError`."""
    if isinstance(raw, list):
        return tuple(_row_from_json(item) for item in raw)
    why = fact_from_json(raw)
    if isinstance(why, Known):
        raise DocumentError("a value where a list of rows belongs")
    return why


def _row_from_json(raw: object) -> Row:
    """A row's facts by column; raises `DocumentError`."""
    if not isinstance(raw, Mapping):
        raise DocumentError(f"not a row of facts: {str(raw)[:60]!r}")
    return {str(column): fact_from_json(entry) for column, entry in raw.items()}
