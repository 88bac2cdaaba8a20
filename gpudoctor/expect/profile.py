"""A profile as a value: its lines, by name, in the order in which they stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpudoctor.expect.wanted import Wanted
from gpudoctor.model.rule import Fix, Severity


@dataclass(frozen=True, slots=True)
class Told:
    """What a line may say besides what it expects."""

    severity: Severity = "error"
    why: str = ""
    fixes: tuple[Fix, ...] = ()
    origin: str = ""
    """The file that it stands in."""


@dataclass(frozen=True, slots=True)
class FactLine:
    """One fact and what it must be: of the machine, or in every row of its group.

    `where` is a condition that chooses the rows which count; `at_least`, above 0, is how many of them are enough.
    `kernel` is the one whose measurement it is about, with the level that makes it.
    """

    name: str
    fact: str
    group: str
    wanted: Wanted
    where: str = ""
    at_least: int = 0
    kernel: str = ""
    level: str = "quick"
    unit: str = ""
    told: Told = field(default_factory=Told)


@dataclass(frozen=True, slots=True)
class ConditionLine:
    """Conditions as on a rule's page, all of which must hold: on the machine, or in every row of the group `each`.

    `says` is the sentence where they do not, with facts in braces; empty: the condition itself is named.
    """

    name: str
    when: tuple[str, ...]
    each: str = ""
    says: str = ""
    level: str = "quick"
    told: Told = field(default_factory=Told)


Line = FactLine | ConditionLine


@dataclass(frozen=True, slots=True)
class Profile:
    """What a machine must be: its own lines, and those of the profiles that it extends."""

    name: str
    lines: Mapping[str, Line]
    about: str = ""
    sources: tuple[str, ...] = ()
    origin: str = ""


def finding_id(name: str) -> str:
    """The id of the finding of a line of that name."""
    return f"expect.{name}"
