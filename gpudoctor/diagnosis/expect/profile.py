"""A profile as a value: its lines, by name and in order, what a fact must be, and the level that answers for it.

What a fact must be is written ``8``, ``true``, ``">= 570, < 590"``, ``">= 64 GiB"``, ``"400 +- 5 %"``.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from gpudoctor import probes
from gpudoctor.core.catalog import FactSpec, unit_factor
from gpudoctor.core.document import is_number
from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import Value
from gpudoctor.core.language import say
from gpudoctor.core.rule import Fix, Severity
from gpudoctor.core.shipped import modules_of
from gpudoctor.core.versions import parse as parse_version
from gpudoctor.diagnosis.expect.bounds import checked_pattern
from gpudoctor.diagnosis.expression import parse, show
from gpudoctor.diagnosis.rulebook.expressions import facts_in, loop_groups
from gpudoctor.kernels import facts

# ---- Which level of a check answers for a fact ----
# What is not asked at a lower one is not judged there.

DEEP = "deep"
ORDER = ("quick", "standard", DEEP)
_JOB = "job"
"""Told by a check of the whole job only."""


@lru_cache(maxsize=1)
def _level_by_fact() -> Mapping[str, str]:
    """By fact, the lowest level that reads it, or ``job``; facts without an entry are read at ``quick``."""
    levels = {spec.name: DEEP for spec in facts.FACTS}
    for module in modules_of(probes):
        levels.update({spec.name: getattr(module, "LEVEL", "quick") for spec in module.FACTS})
    levels.update({name: _JOB for name in levels if name.startswith("collective.")})
    return levels


def level_of(fact: str) -> str:
    """The lowest level that reads the fact: ``quick``, ``standard``, ``deep``, or ``job`` (only across a job's ranks).

    An unknown fact counts as ``quick``.
    """
    return _level_by_fact().get(fact, "quick")


def level_of_condition(condition: str, each: str) -> str:
    """The highest level needed for the facts that the condition names; job-only facts do not count."""
    tree: ast.AST = parse(condition)
    levels = {level_of(fact) for fact in facts_in(tree, loop_groups(tree, each))} & set(ORDER)
    return max(levels, key=ORDER.index, default="quick")


def why_not_measured(level: str, asked: str) -> str:
    """Why a fact of `level` is not read by a check at level `asked`, in words; empty where it is."""
    if level == _JOB:
        return "measured across the ranks of a job only: gpudoctor preflight under srun or torchrun"
    if level in ORDER and ORDER.index(level) > ORDER.index(asked):
        return f"measured from level {level} on; this was level {asked}"
    return ""


# ---- What a fact must be, as it is typed ----


Holds = Callable[[Value], "bool | None"]
"""Whether a value is as it must be; none where that cannot be told of it."""
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_NUMBER = r"(-?\d{1,15}(?:\.\d{1,15})?(?:e[+-]?\d{1,2})?)\s*([^\d\s,<>=!+±-][^\d,<>=!+±]*)?"
_BOUND = re.compile(rf"(>=|<=|==|!=|>|<|)\s*{_NUMBER}\Z")
_AROUND = re.compile(rf"{_NUMBER}\s*(?:\+-|\+/-|±)\s*{_NUMBER}\Z")
_VERSIONED = re.compile(r"(>=|<=|==|!=|~=|>|<|)\s*(\S+)\Z")
_FEW = 'a range is written as text: ">= 570, < 590"'


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a value must be: `says` as a sentence names it, `holds` tests a value; `absent`: absence meets it, too."""

    says: str
    holds: Holds
    absent: bool = False


NOT_THERE = Wanted("none", lambda _: False, absent=True)
THERE = Wanted("some value", lambda _: True)


def wanted(spec: FactSpec, raw: object) -> Wanted:
    """What the fact must be by the short form in the profile; raises `UsageError` for what does not go with its kind.

    Text and versions may be a list of alternatives; a number without a unit is in the fact's own.
    """
    if spec.kind in {"int", "float"}:
        return _number(raw, spec.unit)
    if spec.kind == "version":
        return _any_of(raw, _version) if isinstance(raw, list) else _version(raw)
    if spec.kind == "text":
        return _any_of(raw, _text) if isinstance(raw, list) else _text(raw)
    if spec.kind == "bool":
        if not isinstance(raw, bool):
            raise UsageError(say("it is true or false, not {raw}", raw=_toml_text(raw)))
        return Wanted(show(raw), lambda value: value is raw)
    if spec.kind == "list":
        return same_items(raw)
    raise UsageError(say("it is an object, which no short form is for: write a [line.NAME] with when = [...]"))


def anything_but(excluded: Wanted) -> Wanted:
    """Any value other than the `excluded` one; an absent fact meets it as well."""

    def holds(value: Value) -> bool | None:
        """The opposite of the excluded expectation; None where that is None: it cannot be told."""
        held = excluded.holds(value)
        return None if held is None else not held

    return Wanted(f"anything but {excluded.says}", holds, absent=True)


def all_of(parts: Sequence[Wanted]) -> Wanted:
    """All of these expectations together; absence meets it where it meets each."""
    if len(parts) == 1:
        return parts[0]

    def holds(value: Value) -> bool | None:
        """False where one fails, else None where one cannot be told, else True."""
        held = [part.holds(value) for part in parts]
        return False if False in held else None if None in held else True

    return Wanted(", ".join(part.says for part in parts), holds, all(part.absent for part in parts))


def matching(pattern: object) -> Wanted:
    """Text in whose first 4096 characters the pattern is found, any case; raises `UsageError` for a bad pattern."""
    compiled = re.compile(checked_pattern(pattern), re.IGNORECASE)
    return Wanted(f"a match of {pattern!r}", lambda value: compiled.search(str(value), 0, 4096) is not None)


def same_items(raw: object) -> Wanted:
    """A list of exactly these items in any order; raises `UsageError` where `raw` is no list."""
    items = _items(raw)
    return Wanted(show(items), lambda value: isinstance(value, tuple) and sorted(map(str, value)) == sorted(items))


def with_items(raw: object) -> Wanted:
    """A list that contains at least these items; raises `UsageError` where `raw` is no list."""
    required = set(_items(raw))
    return Wanted(
        f"a list with {show(sorted(required))}",
        lambda value: isinstance(value, tuple) and required <= set(map(str, value)),
    )


def without_items(raw: object) -> Wanted:
    """A list with none of these items, or an absent one; raises `UsageError` where `raw` is no list."""
    forbidden = set(_items(raw))
    return Wanted(
        f"a list without {show(sorted(forbidden))}",
        lambda value: isinstance(value, tuple) and not forbidden & set(map(str, value)),
        absent=True,
    )


def _items(raw: object) -> list[str]:
    """The items of a TOML list as text; raises `UsageError` where it is no list of texts and numbers."""
    if not isinstance(raw, list) or not all(isinstance(item, (str, int, float)) for item in raw):
        raise UsageError(say('it is a list, as in ["hw_slowdown"], not {raw}', raw=_toml_text(raw)))
    return [str(item) for item in raw]


def _any_of(raw: list[Any], each: Callable[[object], Wanted]) -> Wanted:
    """One of several expectations, each made by `each` of an item of `raw`; raises `UsageError` for an empty list."""
    if not raw:
        raise UsageError(say("an empty list leaves nothing that it may be"))
    parts = [each(item) for item in raw]

    def holds(value: Value) -> bool | None:
        """True where one holds, else None where one cannot be told, else False."""
        held = [part.holds(value) for part in parts]
        return True if True in held else None if None in held else False

    return Wanted(" or ".join(part.says for part in parts), holds)


def _text(raw: object) -> Wanted:
    """What a text must be: exactly `raw`; raises `UsageError` where that is no text."""
    if not isinstance(raw, str):
        raise UsageError(say("it is text, not {raw}", raw=_toml_text(raw)))
    return Wanted(raw, lambda value: value == raw)


def _number(raw: object, unit: str) -> Wanted:
    """What a number must be: `raw`, or within a range as text (``>= 570, < 590``, ``100 +- 5 %``), units converted.

    `unit` is the fact's. Raises `UsageError`.
    """
    if isinstance(raw, (int, float)) and not isinstance(raw, bool) and abs(raw) < 1e18:
        return Wanted(_with_unit(raw, unit), lambda value: value == raw)
    if not isinstance(raw, str):
        raise UsageError(say("it is a number, not {raw}; {form}", raw=_toml_text(raw), form=_FEW))
    if match := _AROUND.match(raw.strip()):
        return _within_tolerance(raw, match, unit)
    parts = [_BOUND.match(part.strip()) for part in raw.split(",")]
    bounds = [
        (_ORDERS[match[1] or "=="], float(match[2]) * unit_factor((match[3] or "").strip(), unit))
        for match in parts
        if match
    ]
    if len(bounds) < len(parts):
        raise UsageError(say("{raw} is no number and no range of numbers; {form}", raw=repr(raw[:60]), form=_FEW))
    return Wanted(
        _with_unit(raw, "" if any(match and match[3] for match in parts) else unit),
        lambda value: is_number(value) and all(order(value, bound) for order, bound in bounds),
    )


def _within_tolerance(raw: str, match: re.Match[str], unit: str) -> Wanted:
    """A number at most a tolerance off (``100 W +- 5 %``); the tolerance is in a unit or in per cent."""
    middle = float(match[1]) * unit_factor((match[2] or "").strip(), unit)
    tolerance_unit = (match[4] or "").strip()
    tolerance = (
        abs(middle) * float(match[3]) / 100
        if tolerance_unit == "%" != unit
        else float(match[3]) * unit_factor(tolerance_unit, unit)
    )
    return Wanted(
        _with_unit(raw, "" if match[2] else unit),
        lambda value: is_number(value) and abs(value - middle) <= tolerance,
    )


def _version(raw: object) -> Wanted:
    """A version requirement (``>= 2.6, < 3``); a bare version accepts any build of it.

    Text that is neither, without a comparison sign, must be equal. Raises `UsageError` for a number or a broken range.
    """
    if isinstance(raw, (int, float)):
        raise UsageError(
            say('a bare number where a version belongs (12.10 is not 12.1): write it in quotes, as in "12.8"')
        )
    if not isinstance(raw, str):
        raise UsageError(say("it is a version as text, not {raw}", raw=_toml_text(raw)))
    parts = [_VERSIONED.match(part.strip()) for part in raw.split(",")]
    try:
        specifiers = SpecifierSet(
            ",".join(f"{match[1] or '=='}{match[2]}" for match in parts if match), prereleases=True
        )
    except InvalidSpecifier:
        specifiers = None
    if specifiers is None or None in parts or not raw.strip():
        if any(sign in raw for sign in "<>=~,") or not raw.strip():
            raise UsageError(say("{raw} is no range of versions; {form}", raw=repr(raw[:60]), form=_FEW))
        return Wanted(raw, lambda value: value == raw)
    ranges = specifiers

    def holds(value: Value) -> bool | None:
        """Whether the version is in the ranges or the same text; None where the value is no version."""
        version = parse_version(str(value))
        return None if version is None else value == raw or ranges.contains(version)

    return Wanted(raw, holds)


def _with_unit(raw: object, unit: str) -> str:
    """``VALUE UNIT``, or the value alone without a unit."""
    return f"{raw} {unit}" if unit else str(raw)


def _toml_text(raw: object) -> str:
    """A value for messages, about as TOML has it (``true``, ``a table``, ``'text'``), cut at 60 characters."""
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, Mapping):
        return "a table"
    return repr(raw)[:60]


# ---- A profile ----


@dataclass(frozen=True, slots=True)
class Annotations:
    """A line's severity, reason, fixes and the file it is from."""

    severity: Severity = "error"
    why: str = ""
    fixes: tuple[Fix, ...] = ()
    origin: str = ""
    """The file that it stands in."""


@dataclass(frozen=True, slots=True)
class FactLine:
    """A line about one fact: of the machine, or in every row of its group.

    `where` is a condition that selects the rows; `at_least`, above 0, is how many of them must hold.
    `kernel` is the measured kernel, with the level that measures it.
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
    annotations: Annotations = field(default_factory=Annotations)


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
    annotations: Annotations = field(default_factory=Annotations)


Line = FactLine | ConditionLine


@dataclass(frozen=True, slots=True)
class Profile:
    """What a machine must be: lines by name, its own after those of the profiles it extends."""

    name: str
    lines: Mapping[str, Line]
    about: str = ""
    sources: tuple[str, ...] = ()
    origin: str = ""


def finding_id(name: str) -> str:
    """The id of the finding that a line of that name makes: ``expect.NAME``."""
    return f"expect.{name}"
