"""Tables read once, and what look-ups have in common: absent values pass through, malformed ones cannot be judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from packaging.version import Version

from gpudoctor import pages
from gpudoctor.model import version as versions
from gpudoctor.model.values import NOTHING, CannotJudge, Nothing

P = ParamSpec("P")
R = TypeVar("R")
TableRow = Mapping[str, Any]


@cache
def table(name: str) -> Mapping[str, Any]:
    """``rules/tables/<name>.toml``; raises `RuleError` where it is missing or broken."""
    loaded: Mapping[str, Any] = pages.compiled(None, f"tables/tables-{name}", lambda folder: _parse(folder, name))
    return loaded


def _parse(folder: Path, name: str) -> dict[str, Any]:
    return pages.toml(folder / f"{name}.toml")


def lookup(function: Callable[P, R]) -> Callable[P, R]:
    """A look-up as rule pages call it: an absent argument, which only they have, gives an absent result."""

    @wraps(function)
    def called(*arguments: P.args, **named: P.kwargs) -> R:
        if any(isinstance(argument, Nothing) for argument in arguments):
            return cast(R, NOTHING)
        return function(*arguments, **named)

    return called


def text(value: object, what: str) -> str:
    """The value as stripped text; raises `CannotJudge` where it is empty or no text or number."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or not str(value).strip():
        raise CannotJudge(what, f"{value!r} says nothing"[:80])
    return str(value).strip()


def version(value: object, what: str) -> Version:
    """The version at the start of the text, with or without a leading v or V; raises `CannotJudge`."""
    written = text(value, what)
    parsed = versions.parse(written.removeprefix("V"))
    if parsed is None or max(parsed.release) > 10**9:
        raise CannotJudge(what, f"{written[:40]!r} is not a version")
    return parsed


def release(value: object, what: str) -> tuple[int, int]:
    """The first two numbers of a version: (12, 4) of ``12.4.131``; raises `CannotJudge`."""
    numbers = version(value, what).release
    return numbers[0], numbers[1] if len(numbers) > 1 else 0


def dotted(numbers: tuple[int, int]) -> str:
    """``12.4`` of (12, 4)."""
    return f"{numbers[0]}.{numbers[1]}"
