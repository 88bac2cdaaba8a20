"""What a profile may ask to be worked out, in bounded time: a profile may be anybody's, and so may the facts."""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from gpudoctor.expression import Evaluator, Facts, parse
from gpudoctor.expression.facts import WIDTH
from gpudoctor.knowledge import LOOKUPS
from gpudoctor.model.errors import RuleError, UsageError

_LONGEST = 1000
"""Characters of a condition, and of a pattern."""
_LOOPS = 2
_BUDGET = 1_000_000
"""Steps in which all conditions of a profile must be worked out: a second or two."""
_ROUND = 10
"""Steps that making one round of a loop counts for: all of them are made before the first is run."""
_WAYS = 16.0 * WIDTH
"""Ways in which a pattern may match at one place: one repeat without end, as long as the text, and a few choices."""
_REFUSED = (ast.Pow, ast.LShift, ast.Lambda, ast.JoinedStr, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)


class Bounded(Evaluator):
    """An evaluator that gives up when its budget is spent: then what it works out cannot be told."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts, LOOKUPS)
        self._left = _BUDGET
        matches: Callable[[object, str], bool] = self.functions["matches"]

        def counted(text: object, pattern: str) -> bool:
            self._spend(min(len(str(text)), WIDTH) ** 2 // 200)
            return matches(text, pattern)

        self.functions["matches"] = counted

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise TimeoutError("the profile's conditions take too long to work out")

    def _eval(self, node: ast.AST) -> object:
        self._spend(1)
        return super()._eval(node)

    def _rounds(self, loops: Any, items: Any) -> Iterator[dict[str, object]]:
        for scope in super()._rounds(loops, items):
            self._spend(_ROUND)
            yield scope


def tree_of(condition: object) -> ast.AST:
    """The condition's tree; raises `UsageError` for what is none, or is no question about this machine."""
    if not isinstance(condition, str) or not condition.strip():
        raise UsageError('a condition is text, as in "gpu.memory_mib >= 80000"')
    if len(condition) > _LONGEST:
        raise UsageError(f"a condition of {len(condition)} characters; at most {_LONGEST} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = parse(condition)
            nodes = list(ast.walk(tree))
    except (RuleError, RecursionError, MemoryError, ValueError, SyntaxWarning) as error:
        raise UsageError(f"not a condition: {condition[:60]!r} ({_short(error)})") from error
    if any(isinstance(node, _REFUSED) for node in nodes):
        raise UsageError(f"{condition[:60]!r}: powers, shifts and functions of one's own are no part of a condition")
    if sum(isinstance(node, ast.comprehension) for node in nodes) > _LOOPS:
        raise UsageError(f"{condition[:60]!r}: at most {_LOOPS} loops; the inner one runs for each round of the outer")
    called = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    for call in called:
        _check_call(call, condition)
    functions = {id(call.func) for call in called}
    if not any(isinstance(node, ast.Name) and id(node) not in functions for node in nodes):
        raise UsageError(f"{condition[:60]!r} asks for no fact")
    return tree


def _check_call(call: ast.Call, condition: str) -> None:
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if name == "says":
        raise UsageError(f"{condition[:60]!r}: what a log says is for a rule's page: gpudoctor rules new")
    if name == "matches":
        for argument in call.args[1:]:
            tame(argument.value if isinstance(argument, ast.Constant) else None)


def tame(pattern: object) -> str:
    """The regular expression as it is; raises `UsageError` for what is none, or whose search could take for ever."""
    if not isinstance(pattern, str):
        raise UsageError("a pattern is text that stands there as it is")
    if len(pattern) > _LONGEST:
        raise UsageError(f"a pattern of {len(pattern)} characters; at most {_LONGEST} are read")
    try:
        re.compile(pattern)
        ways = _ways(_parsed(pattern))
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"not a pattern: {pattern[:60]!r} ({_short(error)})") from error
    if ways > _WAYS:
        raise UsageError(f"{pattern[:60]!r}: more than one repeat, or one within another, could take for ever")
    return pattern


def _short(error: BaseException) -> str:
    return str(error)[-120:] or type(error).__name__


def _parsed(pattern: str) -> Any:
    try:
        from re import _parser  # type: ignore[attr-defined,unused-ignore]
    except ImportError:  # Python 3.10
        import sre_parse as _parser
    return _parser.parse(pattern)


def _ways(parsed: Any) -> float:
    """In how many ways it could match at one place, at most: what a search may have to try."""
    return math.prod(_ways_of(argument) for _, argument in parsed)


def _ways_of(argument: Any) -> float:
    if hasattr(argument, "data"):
        return _ways(argument)
    if isinstance(argument, tuple) and len(argument) == 3 and hasattr(argument[2], "data"):  # a repeat: min, max, what
        return _ways_of_repeat(int(argument[0]), int(argument[1]), _ways(argument[2]))
    if isinstance(argument, tuple) and isinstance(argument[-1], list):  # alternatives
        return sum(_ways_of(one) for one in argument[-1] if hasattr(one, "data")) or 1.0
    if isinstance(argument, tuple):
        return math.prod(_ways_of(one) for one in argument if hasattr(one, "data"))
    return 1.0


def _ways_of_repeat(least: int, most: int, inner: float) -> float:
    if inner > 1:
        return (most - least + 1) * inner**most if most <= 8 and inner < WIDTH else math.inf
    return float(min(most - least + 1, WIDTH))
