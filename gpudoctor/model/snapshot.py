"""A snapshot: every fact of one machine at one moment. Rules read nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeVar, cast, get_args

from gpudoctor.model.errors import DocumentError
from gpudoctor.model.fact import Fact, Json, Known, Row, Rows, Unread, fact_from_json, fact_to_json, rows_to_json
from gpudoctor.model.frozen import field, frozen
from gpudoctor.model.secrets import screened

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
    """Whom the facts are about: ``local``, ``report``, ``snapshot``, ``node`` or ``fleet``."""

    kind: str
    name: str
    python: str | None = None
    level: str = "quick"

    def to_json(self) -> dict[str, Json]:
        """As the contract has it."""
        return {"kind": self.kind, "name": self.name, "python": self.python, "level": self.level}


@frozen
class Snapshot:
    """Facts by dotted name, and groups of rows (``gpu``, ``pci``, ``text``) by group name."""

    target: Target
    facts: Mapping[str, Fact]
    groups: Mapping[str, Rows] = field(default_factory=dict)
    timings_ms: Mapping[str, float] = field(default_factory=dict)

    def get(self, name: str) -> Fact:
        """The fact of that name; unread where nobody answered for it."""
        return self.facts.get(name) or Unread(self.nobody, asked=False)

    def rows(self, group: str) -> Rows:
        """The rows of that group; unread where nobody answered for it."""
        rows = self.groups.get(group)
        return Unread(self.nobody, asked=False) if rows is None else rows

    @property
    def pasted(self) -> bool:
        """Whether the facts come from a pasted report: then silence proves nothing."""
        return self.target.kind == "report" or "report.lines" in self.facts

    @property
    def nobody(self) -> str:
        """Why a fact that nobody answered for is unread."""
        return "the report does not say" if self.pasted else "not asked"

    def facts_to_json(self) -> dict[str, Json]:
        """The contract's ``facts``: scalars and groups side by side, sorted by name."""
        out: dict[str, Json] = {name: cast(Json, fact_to_json(fact)) for name, fact in self.facts.items()}
        out.update({name: rows_to_json(rows) for name, rows in self.groups.items()})
        return dict(sorted(out.items()))

    def to_json(self) -> dict[str, Json]:
        """A document that `from_json` takes back."""
        timings: dict[str, Json] = {name: round(ms, 1) for name, ms in self.timings_ms.items()}
        return {
            "schema": SCHEMA,
            "target": cast(Json, self.target.to_json()),
            "facts": cast(Json, self.facts_to_json()),
            "timings_ms": cast(Json, timings),
        }


def from_json(raw: object) -> Snapshot:
    """A snapshot from a saved snapshot or a whole diagnosis document; raises `DocumentError`."""
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
            facts[str(name)] = _at(name, fact_from_json, entry)
        else:
            groups[str(name)] = _at(name, _rows, entry)
    if isinstance(gpus := groups.get("gpu"), tuple) and len(gpus) > MOST_GPUS:
        raise DocumentError(f"{len(gpus)} GPUs in one machine; at most {MOST_GPUS} are judged")
    timings = raw.get("timings_ms") or {}
    if not isinstance(timings, Mapping):
        raise DocumentError("not a gpudoctor snapshot: timings_ms is no object")
    return Snapshot(
        target=_target(target),
        facts=facts,
        groups={
            name: rows[: MOST_ROWS.get(name, MOST_OTHER_ROWS)] if isinstance(rows, tuple) else rows
            for name, rows in groups.items()
        },
        timings_ms={str(k): float(v) for k, v in timings.items() if isinstance(v, (int, float))},
    )


def _target(raw: Mapping[str, object]) -> Target:
    name, python, level = raw.get("name", ""), raw.get("python"), raw.get("level", "quick")
    if not isinstance(name, str) or not isinstance(python, (str, type(None))) or level not in get_args(Level):
        raise DocumentError("not a gpudoctor snapshot: its target's name, python or level is none")
    kind = "fleet" if raw.get("kind") == "fleet" else "snapshot"
    return Target(kind, name, python, str(level))


def _at(name: str, parse: Callable[[object], T], raw: object) -> T:
    try:
        return parse(raw)
    except DocumentError as error:
        raise DocumentError(f"{name[:60]!r}: {error}") from error


def _rows(raw: object) -> Rows:
    """A group: rows, or one absent or unread fact where it has none."""
    if isinstance(raw, list):
        return tuple(_row(item) for item in raw)
    why = fact_from_json(raw)
    if isinstance(why, Known):
        raise DocumentError("a value where a list of rows belongs")
    return why


def _row(raw: object) -> Row:
    if not isinstance(raw, Mapping):
        raise DocumentError(f"not a row of facts: {str(raw)[:60]!r}")
    return {str(column): fact_from_json(entry) for column, entry in raw.items()}
