"""Tables read once, what look-ups have in common, and how an implied fact is put into a snapshot.

In a look-up absent values pass through, and malformed ones cannot be judged. A fact is implied where nobody looked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar, cast

from packaging.version import Version

from gpudoctor.core import versions
from gpudoctor.core.fact import Fact, Row, Rows, Unread, value_of
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.values import NOTHING, CannotJudge, Nothing
from gpudoctor.diagnosis import page_cache

P = ParamSpec("P")
R = TypeVar("R")
TableRow = Mapping[str, Any]


@cache
def table(name: str) -> Mapping[str, Any]:
    """The content of ``rules/tables/<name>.toml``; raises `RuleError` where it is missing or broken."""
    loaded: Mapping[str, Any] = page_cache.compiled(
        None, f"tables/tables-{name}", lambda folder: page_cache.toml(folder / f"{name}.toml")
    )
    return loaded


LOOKUPS: dict[str, Callable[..., object]] = {}
"""What conditions on rule pages may call, by name; each function's docstring says what it answers."""


def lookup(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator that enters the function in `LOOKUPS`, so that pages call it by its name.

    With an absent argument (`Nothing`) it then gives `NOTHING` without a call.
    """

    @wraps(function)
    def called(*arguments: P.args, **named: P.kwargs) -> R:
        """The look-up's result; `NOTHING`, without a call, where a positional argument is absent."""
        if any(isinstance(argument, Nothing) for argument in arguments):
            return cast(R, NOTHING)
        return function(*arguments, **named)

    LOOKUPS[function.__name__] = called
    return called


def text(value: object, what: str) -> str:
    """The value, text or number, as stripped text; raises `CannotJudge` for anything else and for empty text."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or not str(value).strip():
        raise CannotJudge(what, f"{value!r} says nothing"[:80])
    return str(value).strip()


def version(value: object, what: str) -> Version:
    """The version at the start of the text, with or without a leading v or V; raises `CannotJudge` for none."""
    written = text(value, what)
    parsed = versions.parse(written.removeprefix("V"))
    if parsed is None or max(parsed.release) > 10**9:
        raise CannotJudge(what, f"{written[:40]!r} is not a version")
    return parsed


def release(value: object, what: str) -> tuple[int, int]:
    """The first two numbers of a version: (12, 4) of ``12.4.131``, (12, 0) of ``12``; raises `CannotJudge` for none."""
    numbers = version(value, what).release
    return numbers[0], numbers[1] if len(numbers) > 1 else 0


def dotted(numbers: tuple[int, int]) -> str:
    """``12.4`` of (12, 4)."""
    return f"{numbers[0]}.{numbers[1]}"


# ---- How an implied fact is put into a snapshot ----


Facts = dict[str, Fact]
Groups = dict[str, Rows]

_LARGEST_NUMBER = 1e15
"""No figure of a GPU comes near."""


def is_open(snapshot: Snapshot, name: str) -> bool:
    """Whether the fact is unread because no probe looked for it, so that it may be inferred."""
    fact = snapshot.get(name)
    return isinstance(fact, Unread) and not fact.asked


def fill(snapshot: Snapshot, facts: Facts, name: str, fact: Fact) -> None:
    """Sets the fact in `facts`, if no probe looked for it in the snapshot (`is_open`); else does nothing."""
    if is_open(snapshot, name):
        facts[name] = fact


def number(row: Row, column: str) -> float | None:
    """The number in that column as float; None where it is none, not finite, or beyond 1e15."""
    value = value_of(row.get(column))
    plain = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LARGEST_NUMBER
    return float(value) if plain else None  # type: ignore[arg-type]
