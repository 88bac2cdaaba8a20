"""What differs between two diagnoses, A and B, the most telling first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from gpudoctor.core.diagnosis import Diagnosis, Finding, Since
from gpudoctor.core.document import object_to_json
from gpudoctor.core.fact import Fact, Json, Unread, fact_to_json
from gpudoctor.core.frozen import frozen

SCHEMA = "gpudoctor-diff/1"
Side = Literal["A", "B"]


@frozen
class Change:
    """One fact, or one row of a group, that is not the same on both sides.

    `row` says which row of the group (a GPU's index, a device's address, a package's name), empty for a fact of the
    machine. A side is None where it has no such row.
    """

    fact: str
    row: str
    a: Fact | None
    b: Fact | None

    @property
    def name(self) -> str:
        """``gpu[3].name``; ``package[numpy]`` for a row that only one side has."""
        if not self.row:
            return self.fact
        group, dot, column = self.fact.rpartition(".")
        return f"{group}[{self.row}].{column}" if dot else f"{self.fact}[{self.row}]"

    @property
    def unread(self) -> Side | None:
        """The side on which this was not read, where the other one knows."""
        if isinstance(self.a, Unread):
            return "A"
        return "B" if isinstance(self.b, Unread) else None

    def to_json(self) -> dict[str, Json]:
        """Both sides in the shape of a fact; null where there is no such row."""
        sides = {"a": self.a, "b": self.b}
        shown = {side: None if state is None else cast(Json, fact_to_json(state)) for side, state in sides.items()}
        return {"fact": self.fact, "row": self.row or None, **shown}


@frozen
class OneSided:
    """A finding that the other side lacks: what that side says of the rule, and the facts of its proof that differ."""

    side: Side
    finding: Finding
    other: str
    changes: tuple[Change, ...]

    def to_json(self) -> dict[str, Json]:
        """The finding as documents have it, and the facts of its proof that differ."""
        facts = object_to_json(self, "changes")["changes"]
        return {"side": self.side.lower(), **object_to_json(self, "finding other"), "facts": facts}


@frozen
class Difference:
    """All that differs. `layers` holds the facts by the layer they are about, the most telling layer first.

    `unread` are those that only one side could read; `moving` those that differ between any two machines or moments,
    such as temperatures and serial numbers; `both` are the ids of findings on either side; `packages` were exchanged
    between A and B, where both are moments of one machine.
    """

    a: Diagnosis
    b: Diagnosis
    findings: tuple[OneSided, ...]
    layers: Mapping[str, tuple[Change, ...]]
    unread: tuple[Change, ...]
    moving: tuple[Change, ...]
    both: tuple[str, ...]
    packages: tuple[Since, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether nothing differs but what always does."""
        return not (self.findings or self.layers or self.unread or self.packages)

    def to_json(self) -> dict[str, Json]:
        """Lists in the order in which they are shown."""
        sides: dict[str, Json] = {
            side: {"target": cast(Json, diagnosis.snapshot.target.to_json()), "verdict": diagnosis.verdict}
            for side, diagnosis in (("a", self.a), ("b", self.b))
        }
        return {
            "schema": SCHEMA,
            "tool": {"version": self.b.tool_version},
            **sides,
            **object_to_json(self, "equal findings both packages"),
            "facts": object_to_json(self, "layers")["layers"],
            **object_to_json(self, "unread moving"),
        }
