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
        """Name to show: ``driver.version``, ``gpu[3].name``; ``package[numpy]`` for a row that only one side has."""
        if not self.row:
            return self.fact
        group, dot, column = self.fact.rpartition(".")
        return f"{group}[{self.row}].{column}" if dot else f"{self.fact}[{self.row}]"

    @property
    def unread(self) -> Side | None:
        """The side whose fact is `Unread`, A where both are; None where neither is."""
        if isinstance(self.a, Unread):
            return "A"
        return "B" if isinstance(self.b, Unread) else None

    def to_json(self) -> dict[str, Json]:
        """``fact``, ``row`` (null for a fact of the machine), ``a`` and ``b`` as facts, null for a side without it."""
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
        """``side`` (a or b), ``finding``, ``other`` and ``facts``, the differing facts of its proof."""
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
        """True if no finding, fact, unread fact or package differs; facts in `moving` do not count."""
        return not (self.findings or self.layers or self.unread or self.packages)

    def to_json(self) -> dict[str, Json]:
        """The document ``gpudoctor-diff/1``: target and verdict of ``a`` and ``b``, ``equal``, ``findings``, ``both``,
        ``packages``, ``facts`` by layer, ``unread`` and ``moving``.
        """
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
