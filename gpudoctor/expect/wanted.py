"""What a fact must be, as it is typed: ``8``, ``true``, ``">= 570, < 590"``, ``">= 64 GiB"``, ``"400 +- 5 %"``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpudoctor.expect.bounds import tame
from gpudoctor.expression.functions import show
from gpudoctor.model.catalog import FactSpec
from gpudoctor.model.errors import UsageError
from gpudoctor.model.fact import Value
from gpudoctor.model.units import factor

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
_NUMBER = r"(-?\d{1,15}(?:\.\d{1,15})?(?:e-?\d{1,2})?)\s*([^\d\s,<>=!+±-][^\d,<>=!+±]*)?"
_BOUND = re.compile(rf"(>=|<=|==|!=|>|<|)\s*{_NUMBER}\Z")
_AROUND = re.compile(rf"{_NUMBER}\s*(?:\+-|\+/-|±)\s*{_NUMBER}\Z")
_VERSIONED = re.compile(r"(>=|<=|==|!=|~=|>|<|)\s*(\S+)\Z")
_FEW = 'a range is written as text: ">= 570, < 590"'


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a value must be. `says` is how a sentence names it; `absent`: not being there is as it must be."""

    says: str
    holds: Holds
    absent: bool = False


NOT_THERE = Wanted("none", lambda _: False, absent=True)
THERE = Wanted("some value", lambda _: True)


def wanted(spec: FactSpec, raw: object, unit: str = "") -> Wanted:
    """What the fact must be by the short form that was typed; raises `UsageError` for what does not go with its kind.

    `unit` is that of the numbers, by default the fact's.
    """
    if spec.kind in {"int", "float"}:
        return _number(raw, unit or spec.unit)
    if spec.kind == "version":
        return _any_of(raw, _version) if isinstance(raw, list) else _version(raw)
    if spec.kind == "text":
        return _any_of(raw, _text) if isinstance(raw, list) else _text(raw)
    if spec.kind == "bool":
        if not isinstance(raw, bool):
            raise UsageError(f"it is true or false, not {_typed(raw)}")
        return Wanted(show(raw), lambda value: value is raw)
    if spec.kind == "list":
        return same_items(raw)
    raise UsageError("it is an object, which no short form is for: write a [line.NAME] with when = [...]")


def others(than: Wanted) -> Wanted:
    """Anything else, or nothing."""

    def holds(value: Value) -> bool | None:
        held = than.holds(value)
        return None if held is None else not held

    return Wanted(f"anything but {than.says}", holds, absent=True)


def both(parts: Sequence[Wanted]) -> Wanted:
    """All of them."""
    if len(parts) == 1:
        return parts[0]

    def holds(value: Value) -> bool | None:
        held = [part.holds(value) for part in parts]
        return False if False in held else None if None in held else True

    return Wanted(", ".join(part.says for part in parts), holds, all(part.absent for part in parts))


def matching(pattern: object) -> Wanted:
    """Text in which the pattern is found, upper and lower case alike."""
    found = re.compile(tame(pattern), re.IGNORECASE)
    return Wanted(f"a match of {pattern!r}", lambda value: found.search(str(value), 0, 4096) is not None)


def same_items(raw: object) -> Wanted:
    """The same items, in whatever order."""
    items = _items(raw)
    return Wanted(show(items), lambda value: isinstance(value, tuple) and sorted(map(str, value)) == sorted(items))


def holding(raw: object) -> Wanted:
    """A list that has these, and may have more."""
    items = set(_items(raw))
    return Wanted(
        f"a list with {show(sorted(items))}", lambda value: isinstance(value, tuple) and items <= set(map(str, value))
    )


def lacking(raw: object) -> Wanted:
    """A list that has none of these, or no list at all."""
    items = set(_items(raw))
    return Wanted(
        f"a list without {show(sorted(items))}",
        lambda value: isinstance(value, tuple) and not items & set(map(str, value)),
        absent=True,
    )


def _items(raw: object) -> list[str]:
    if not isinstance(raw, list) or not all(isinstance(item, (str, int, float)) for item in raw):
        raise UsageError(f'it is a list, as in ["hw_slowdown"], not {_typed(raw)}')
    return [str(item) for item in raw]


def _any_of(raw: list[Any], each: Callable[[object], Wanted]) -> Wanted:
    """One of several."""
    if not raw:
        raise UsageError("an empty list leaves nothing that it may be")
    parts = [each(item) for item in raw]

    def holds(value: Value) -> bool | None:
        held = [part.holds(value) for part in parts]
        return True if True in held else None if None in held else False

    return Wanted(" or ".join(part.says for part in parts), holds)


def _text(raw: object) -> Wanted:
    if not isinstance(raw, str):
        raise UsageError(f"it is text, not {_typed(raw)}")
    return Wanted(raw, lambda value: value == raw)


def _number(raw: object, unit: str) -> Wanted:
    if isinstance(raw, (int, float)) and not isinstance(raw, bool) and abs(raw) < 1e18:
        return Wanted(_with_unit(raw, unit), lambda value: value == raw)
    if not isinstance(raw, str):
        raise UsageError(f"it is a number, not {_typed(raw)}; {_FEW}")
    if match := _AROUND.match(raw.strip()):
        return _around(raw, match, unit)
    parts = [_BOUND.match(part.strip()) for part in raw.split(",")]
    bounds = [
        (_ORDERS[match[1] or "=="], float(match[2]) * factor((match[3] or "").strip(), unit))
        for match in parts
        if match
    ]
    if len(bounds) < len(parts):
        raise UsageError(f"{raw[:60]!r} is no number and no range of numbers; {_FEW}")
    return Wanted(
        _with_unit(raw, "" if any(match and match[3] for match in parts) else unit),
        lambda value: _is_number(value) and all(order(value, bound) for order, bound in bounds),
    )


def _around(raw: str, match: re.Match[str], unit: str) -> Wanted:
    """A number and how far off it may be, in its unit or in per cent."""
    middle = float(match[1]) * factor((match[2] or "").strip(), unit)
    written = (match[4] or "").strip()
    off = abs(middle) * float(match[3]) / 100 if written == "%" != unit else float(match[3]) * factor(written, unit)
    return Wanted(
        _with_unit(raw, "" if match[2] else unit),
        lambda value: _is_number(value) and abs(_as_float(value) - middle) <= off,
    )


def _version(raw: object) -> Wanted:
    """A requirement as pip has them; without an operator that release, whatever build of it."""
    if isinstance(raw, (int, float)):
        raise UsageError('a bare number where a version belongs (12.10 is not 12.1): write it in quotes, as in "12.8"')
    if not isinstance(raw, str):
        raise UsageError(f"it is a version as text, not {_typed(raw)}")
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    from gpudoctor.model.version import parse

    parts = [_VERSIONED.match(part.strip()) for part in raw.split(",")]
    try:
        asked = SpecifierSet(",".join(f"{match[1] or '=='}{match[2]}" for match in parts if match), prereleases=True)
    except InvalidSpecifier:
        asked = None
    if asked is None or None in parts or not raw.strip():
        if any(sign in raw for sign in "<>=~,") or not raw.strip():
            raise UsageError(f"{raw[:60]!r} is no range of versions; {_FEW}")
        return Wanted(raw, lambda value: value == raw)
    ranges = asked

    def holds(value: Value) -> bool | None:
        version = parse(str(value))
        return None if version is None else value == raw or ranges.contains(version)

    return Wanted(raw, holds)


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _as_float(value: Value) -> float:
    return float(value) if isinstance(value, (int, float)) else float("nan")


def _with_unit(raw: object, unit: str) -> str:
    return f"{raw} {unit}" if unit else str(raw)


def _typed(raw: object) -> str:
    """A value as TOML has it."""
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, Mapping):
        return "a table"
    return repr(raw)[:60]
