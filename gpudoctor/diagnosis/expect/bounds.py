"""What a profile may ask to be worked out, in bounded time: a profile may be anybody's, and so may the facts."""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from gpudoctor.core.errors import RuleError, UsageError
from gpudoctor.core.language import say
from gpudoctor.diagnosis.expression import Evaluator, Facts, parse
from gpudoctor.diagnosis.expression.facts import MATCHED_CHARACTERS
from gpudoctor.diagnosis.knowledge import LOOKUPS
from gpudoctor.diagnosis.rulebook.required_words import syntax_tree

_LONGEST_CONDITION = 1000
"""Characters of a condition, and of a pattern."""
_MOST_LOOPS = 2
_BUDGET_STEPS = 1_000_000
"""Steps in which all conditions of a profile must be worked out: a second or two."""
_STEPS_PER_ROUND = 10
"""Steps that making one round of a loop counts for: all of them are made before the first is run."""
_MOST_MATCHES = 16.0 * MATCHED_CHARACTERS
"""Ways in which a pattern may match at one place: one repeat without end, as long as the text, and a few choices."""
_REFUSED = (ast.Pow, ast.LShift, ast.Lambda, ast.JoinedStr, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)


class Bounded(Evaluator):
    """An evaluator with a budget of steps; raises `TimeoutError` (which `evaluate` makes `CannotJudge`) when spent."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts, LOOKUPS)
        self._left = _BUDGET_STEPS
        matches: Callable[[object, str], bool] = self.functions["matches"]

        def counted(text: object, pattern: str) -> bool:
            """``matches``, which takes steps off the budget by the square of the text's length."""
            self._spend(min(len(str(text)), MATCHED_CHARACTERS) ** 2 // 200)
            return matches(text, pattern)

        self.functions["matches"] = counted

    def _spend(self, steps: int) -> None:
        """Takes steps off the budget; raises `TimeoutError` when it is spent."""
        self._left -= steps
        if self._left < 0:
            raise TimeoutError("the profile's conditions take too long to work out")

    def _eval(self, node: ast.AST) -> object:
        """The node's value; takes one step off the budget, raising `TimeoutError` when it is spent."""
        self._spend(1)
        return super()._eval(node)

    def _loop_scopes(self, loops: Any, items: Any) -> Iterator[dict[str, object]]:
        """The loop variables of each iteration; each takes `_STEPS_PER_ROUND` steps off the budget."""
        for scope in super()._loop_scopes(loops, items):
            self._spend(_STEPS_PER_ROUND)
            yield scope


def checked_condition(condition: object) -> ast.AST:
    """The condition's syntax tree; raises `UsageError` where it is no expression, names no fact, or is too costly.

    Refused are powers, shifts, lambdas, f-strings, more than two loops, ``says`` and slow patterns.
    """
    if not isinstance(condition, str) or not condition.strip():
        raise UsageError(say('a condition is text, as in "gpu.memory_mib >= 80000"'))
    if len(condition) > _LONGEST_CONDITION:
        raise UsageError(
            say(
                "a condition of {count} characters; at most {most} are read",
                count=len(condition),
                most=_LONGEST_CONDITION,
            )
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = parse(condition)
            nodes = list(ast.walk(tree))
    except (RuleError, RecursionError, MemoryError, ValueError, SyntaxWarning) as error:
        raise UsageError(
            say("not a condition: {condition} ({error})", condition=repr(condition[:60]), error=_short_message(error))
        ) from error
    if any(isinstance(node, _REFUSED) for node in nodes):
        raise UsageError(
            say(
                "{condition}: powers, shifts and functions of one's own are no part of a condition",
                condition=repr(condition[:60]),
            )
        )
    if sum(isinstance(node, ast.comprehension) for node in nodes) > _MOST_LOOPS:
        raise UsageError(
            say(
                "{condition}: at most {count} loops; the inner one runs for each round of the outer",
                condition=repr(condition[:60]),
                count=_MOST_LOOPS,
            )
        )
    called = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    for call in called:
        _check_call(call, condition)
    functions = {id(call.func) for call in called}
    if not any(isinstance(node, ast.Name) and id(node) not in functions for node in nodes):
        raise UsageError(say("{condition} asks for no fact", condition=repr(condition[:60])))
    return tree


def _check_call(call: ast.Call, condition: str) -> None:
    """Raises `UsageError` for a call of ``says``, or of ``matches`` with a pattern that `checked_pattern` refuses or
    that is no literal text.
    """
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if name == "says":
        raise UsageError(
            say(
                "{condition}: what a log says is for a rule's page: gpudoctor rules new", condition=repr(condition[:60])
            )
        )
    if name == "matches":
        for argument in call.args[1:]:
            checked_pattern(argument.value if isinstance(argument, ast.Constant) else None)


def checked_pattern(pattern: object) -> str:
    """The regular expression unchanged; raises `UsageError` where invalid, too long, or too slow to search."""
    if not isinstance(pattern, str):
        raise UsageError(say("a pattern is text that stands there as it is"))
    if len(pattern) > _LONGEST_CONDITION:
        raise UsageError(
            say(
                "a pattern of {count} characters; at most {most} are read",
                count=len(pattern),
                most=_LONGEST_CONDITION,
            )
        )
    try:
        re.compile(pattern)
        count = _match_count(syntax_tree(pattern))
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(
            say("not a pattern: {pattern} ({error})", pattern=repr(pattern[:60]), error=_short_message(error))
        ) from error
    if count > _MOST_MATCHES:
        raise UsageError(
            say(
                "{pattern}: more than one repeat, or one within another, could take for ever",
                pattern=repr(pattern[:60]),
            )
        )
    return pattern


def _short_message(error: BaseException) -> str:
    """The last 120 characters of the error's message, else its type's name."""
    return str(error)[-120:] or type(error).__name__


def _match_count(parsed: Any) -> float:
    """Upper bound of the ways in which a parsed pattern can match at one position."""
    return math.prod(_item_match_count(argument) for _, argument in parsed)


def _item_match_count(argument: Any) -> float:
    """Upper bound of the ways in which one parsed item (group, repeat, alternatives) can match."""
    if hasattr(argument, "data"):
        return _match_count(argument)
    if not isinstance(argument, tuple):
        return 1.0
    parts = [item for item in argument if hasattr(item, "data")]
    if len(argument) == 3 and parts == [argument[2]]:  # a repeat: min, max, what
        return _repeat_match_count(int(argument[0]), int(argument[1]), _match_count(argument[2]))
    if isinstance(argument[-1], list):  # alternatives
        return sum(map(_item_match_count, argument[-1]))
    return math.prod(map(_match_count, parts))


def _repeat_match_count(minimum: int, maximum: int, inner: float) -> float:
    """Upper bound of the ways to match a repeat: at most `MATCHED_CHARACTERS` where the body has one way; else infinite
    for more than 8 rounds, or for a body with `MATCHED_CHARACTERS` ways or more.
    """
    if inner > 1:
        return (maximum - minimum + 1) * inner**maximum if maximum <= 8 and inner < MATCHED_CHARACTERS else math.inf
    return float(min(maximum - minimum + 1, MATCHED_CHARACTERS))
