"""Conditions of rule pages: Python expressions over facts, judged in three values.

A name such as ``driver.version`` is a fact, ``gpu`` without a column all rows of a group, and inside a rule with
``each = "gpu"`` the one row being judged. An unread fact makes the expression *unjudged*, unless another part settles
it (``false and unread`` is false, ``true or unread`` is true). An absent fact is no value at all: every comparison
with it is false, ``absent(name)`` is true. Every fact touched is remembered: that is the evidence.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar

from simpleeval import DEFAULT_OPERATORS, EvalWithCompoundTypes, IterableTooLong

from gpudoctor.core.errors import RuleError
from gpudoctor.core.frozen import replace
from gpudoctor.core.language import say, worded
from gpudoctor.core.pattern import TooCostlyError, pattern
from gpudoctor.core.values import CannotJudge, Nothing, Version
from gpudoctor.diagnosis.expression.facts import (
    MATCHED_CHARACTERS,
    Facts,
    GroupRow,
    Holder,
    Many,
    SplitRows,
    Touched,
    UnreadAsAbsent,
    cannot_judge,
    split_by_value,
)

# ---- What conditions may call ----
# Beside the look-ups of `gpudoctor.diagnosis.knowledge`. Absent mostly stays absent.


def show(value: object) -> str:
    """A value as report text: yes/no, lists and sets by commas (``none`` where empty), mappings as ``key value``.

    Floats have at most six digits; anything else is as `str` gives it.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (set, frozenset)):
        value = sorted(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(show(item) for item in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {show(item)}" for key, item in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _version(text: object) -> object:
    """The text as a `Version`, which compares by PEP 440 with versions and text; an absent value stays absent."""
    return text if isinstance(text, Nothing) else Version(str(text))


def _matches(text: object, pattern: str) -> bool:
    """Whether the pattern is found in the text's first `MATCHED_CHARACTERS`, any case; False for an absent value."""
    return not isinstance(text, Nothing) and _pattern(pattern).search(str(text), 0, MATCHED_CHARACTERS) is not None


@lru_cache(maxsize=4096)
def _pattern(pattern: str) -> re.Pattern[str]:
    """The compiled regular expression, ignoring case; cached."""
    return re.compile(pattern, re.IGNORECASE)


def _lower(text: object) -> object:
    """The text in lower case; an absent value stays absent."""
    return text if isinstance(text, Nothing) else str(text).lower()


def _any_line_matches(lines: Iterable[object], pattern: str) -> bool:
    """Whether the pattern is found in the ``line`` of some row of a group; a fast ``any(matches(...))`` over the rows.

    False for an absent group; raises `CannotJudge` for an unread one.
    """
    if isinstance(lines, Many):
        return lines.says(_pattern(pattern))
    return bool(list(lines))  # nobody read a text: that raises


BUILTINS: Mapping[str, Callable[..., object]] = {
    "version": _version,
    "absent": lambda value: isinstance(value, Nothing),
    "known": lambda value: not isinstance(value, Nothing),  # the evaluator's: an unread argument is an answer, too
    "present": lambda value: not isinstance(value, Nothing),
    "either": lambda value, other: other if isinstance(value, Nothing) else value,  # the evaluator's, for the same
    "matches": _matches,
    "says": _any_line_matches,
    "lower": _lower,
    "len": len,
    "any": any,
    "all": all,
    "min": min,
    "max": max,
    "sum": sum,
    "sorted": sorted,
    "set": lambda items: sorted(set(items)),
    "int": int,
    "str": str,
    "words": show,
    "abs": abs,
    "round": round,
    "startswith": lambda text, head: not isinstance(text, Nothing) and str(text).startswith(head),
}
"""By the name that a page calls it."""


__all__ = [
    "BUILTINS",
    "HOLE",
    "NOT_KNOWN",
    "Evaluator",
    "Facts",
    "GroupRow",
    "Touched",
    "UnreadAsAbsent",
    "evaluate",
    "fill",
    "parse",
    "searches_text",
    "selected",
]


# ---- Sentences with expressions between braces, filled with what these are worth ----

NOT_KNOWN = "(not known)"
_LONGEST_VALUE = 1000
"""Characters of a value in a sentence."""
_BREAKS = pattern(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
HOLE = pattern(r"\{([^{}]+)\}")
"""An expression between braces, perhaps with what to say without its value behind a bar."""


def fill(template: str, evaluator: Evaluator, extra: Mapping[str, str] | None = None) -> str:
    """The template with each ``{expression}`` replaced by its value as text; an unread one reads ``(not known)``.

    ``{expression | words}`` reads those words where the value is unread or absent, ``{expression | ''}`` nothing then.
    A hole that is a name in `extra` has that text. Values stand on one line, cut at 1000 characters.
    """

    def value(match: re.Match[str]) -> str:
        """The text for one hole: its value, else the words behind its bar, else ``(not known)``."""
        inner, mark, otherwise = (part.strip() for part in match.group(1).partition("|"))
        otherwise = "" if otherwise == "''" else otherwise
        if extra and inner in extra:
            return _one_line(extra[inner])
        try:
            result = evaluate(inner, evaluator)
        except CannotJudge:
            return otherwise if mark else NOT_KNOWN
        if mark and isinstance(result, Nothing):
            return otherwise
        return _one_line(show(worded(inner, result)))

    return HOLE.sub(value, template)


def _one_line(text: str) -> str:
    """The text on one line, cut at `_LONGEST_VALUE` characters, so that quoted output cannot imitate the report."""
    text = _BREAKS.sub(" ", text)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


# ---- The language of conditions ----
# simpleeval with three values.

T = TypeVar("T")
Part = Callable[[], object]
"""What settles a condition, or does not, once it is worked out."""


class Evaluator(EvalWithCompoundTypes):  # type: ignore[misc]
    """simpleeval with three values: ``and``, ``or`` and ``not in`` know what absent and unread mean.

    Making one costs more than most expressions: its `names` may be changed from one judgement to the next.
    """

    def __init__(self, facts: Facts, functions: Mapping[str, Callable[..., object]]) -> None:
        operators = {
            **DEFAULT_OPERATORS,
            ast.NotIn: _not_in,
            ast.In: _in,
            ast.Is: operator.is_,
            ast.IsNot: operator.is_not,
        }
        super().__init__(operators=operators, functions={**BUILTINS, **functions}, names=facts)
        self._answered: tuple[object, frozenset[str]] = (None, frozenset())
        """A snapshot, and what of it is not unread."""

    def unread(self, conditions: tuple[str, ...]) -> CannotJudge | None:
        """The `CannotJudge` of the first fact, where all facts that the conditions need are unread; None otherwise.

        None also on a judged row, and where an unread fact counts as absent: then each condition is worked out.
        """
        facts = self.names
        if type(facts) is not Facts or facts.each:
            return None
        if facts.snapshot is not self._answered[0]:
            self._answered = facts.snapshot, facts.snapshot.answered()
        names, first = _facts_needed_by_all(conditions)
        if not names or not names.isdisjoint(self._answered[1]):
            return None
        return cannot_judge(first, facts.snapshot)

    def _eval_boolop(self, node: ast.BoolOp) -> object:
        """The value, true or false, of ``and`` or ``or``: one operand may decide even where others are unread.

        An absent one counts as false. Raises `CannotJudge` where none decides and one is unread.
        """
        settles = isinstance(node.op, ast.Or)
        return self._any_is([partial(self._eval, part) for part in node.values], settles)

    def _eval_call(self, node: ast.Call) -> object:
        """The call's value; ``known``, ``either``, ``any`` and ``all`` are evaluated in three values here.

        ``known`` and ``either`` take an unread first argument as absent; for ``any`` and ``all`` of a loop see
        `_quantified`; every other call raises `CannotJudge` for an unread argument.
        """
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        if called in ("known", "either"):
            try:
                value = self._eval(node.args[0])
            except CannotJudge:
                value = Nothing()
            there = not isinstance(value, Nothing)
            return there if called == "known" else value if there else self._eval(node.args[1])
        if called in ("any", "all") and isinstance(node.args[0], ast.GeneratorExp):
            return self._quantified(node.args[0], called == "any")
        if node.keywords or called not in self.functions:
            return super()._eval_call(node)
        # in f(*a, **b) Python 3.11 keeps b for ever where a raises
        arguments = [self._eval(argument) for argument in node.args]
        return self.functions[called](*arguments)

    def _eval_attribute(self, node: ast.Attribute) -> object:
        """A column of a topic, row or group, `CannotJudge` raised where unread; other attributes as simpleeval does."""
        named = isinstance(node.value, ast.Name)
        held = self.nodes[ast.Name](node.value) if named else self._eval(node.value)
        return held.column(node.attr) if isinstance(held, Holder) else super()._eval_attribute(node)

    def _any_is(self, parts: Iterable[Part], wanted: bool) -> bool:
        """`wanted` where some part is true (`wanted` is True: ``or``) or false (False: ``and``), else ``not wanted``;
        unread parts do not keep others from deciding.

        The facts read by the deciding part, or by all parts that could be judged where none decides, are kept as proof
        in `Facts.touched`. Raises `CannotJudge` where none decides and one part could not be judged.
        """
        outer: Touched = self.names.touched
        proof: Touched = {}
        pending: CannotJudge | None = None
        try:
            for part in parts:
                self.names.touched = {}
                try:
                    settles = bool(part()) is wanted
                except CannotJudge as unread:
                    pending = pending or unread
                    continue
                if settles:
                    proof = self.names.touched
                    return wanted
                proof.update(self.names.touched)
        finally:
            self.names.touched = outer
            outer.update(proof)
        if pending:
            raise pending
        return not wanted

    def _quantified(self, loop: ast.GeneratorExp, wanted: bool) -> bool:
        """``any`` (`wanted` is true) or ``all`` (false) of a generator expression; raises `CannotJudge` where open.

        Open is what no element decides while one could not be judged.
        """
        filters = [condition for generator in loop.generators for condition in generator.ifs]

        def element() -> object:
            """Value of the tested element in the current scope; `not wanted` where the ``if`` rejects it."""
            passes = not filters or self._any_is([partial(self._eval, test) for test in filters], False)
            return self._eval(loop.elt) if passes else not wanted

        items = list(self._eval(loop.generators[0].iter))
        rows = self._split_rows(loop, items) if wanted and len(loop.generators) == 1 else SplitRows(items, (), {})
        rounds: list[Part] = [
            partial(self._with_names, scope, element) for scope in self._loop_scopes(loop.generators, rows.alike)
        ]
        if rows.unlike:
            rounds.append(lambda: self.names.touched.update(rows.unlike))
        hopeless = (
            partial(self._with_names, scope, element) for scope in self._loop_scopes(loop.generators, rows.unread)
        )
        return self._any_is(rounds, wanted) or any(self._any_is([test], wanted) for test in hopeless)

    def selected(self, loop: ast.ListComp) -> Iterator[object]:
        """The items of ``[x for x in rows if condition]``; rows whose condition cannot be judged are left out."""
        filters = [condition for generator in loop.generators for condition in generator.ifs]

        def selected_item() -> list[object]:
            """The item of the current scope in a list; empty where the condition rejects it."""
            passes = self._any_is([partial(self._eval, test) for test in filters], False)
            return [self._eval(loop.elt)] if passes else []

        for scope in self._loop_scopes(loop.generators, list(self._eval(loop.generators[0].iter))):
            outer: Touched = dict(self.names.touched)
            try:
                items = self._with_names(scope, selected_item)
            except CannotJudge:
                items = []
            if not items:
                self.names.touched = outer
            yield from items

    def _split_rows(self, loop: ast.GeneratorExp, items: list[object]) -> SplitRows:
        """The rows of an ``any`` split by its first condition ``row.column == value``: equal, unread, different.

        Without such a condition all are equal; where the value cannot be judged, all are unread. On a machine with 128
        GPUs nearly all rows are about another GPU: those that differ need no evaluation.
        """
        for column, right in _equality_conditions(loop):
            outer, self.names.touched = self.names.touched, {}
            try:
                rows = split_by_value(items, column, self._eval(right))
                return replace(rows, unlike={**rows.unlike, **self.names.touched}) if rows.unlike else rows
            except CannotJudge:
                return SplitRows((), items, {})
            finally:
                self.names.touched = outer
        return SplitRows(items, (), {})

    def _loop_scopes(self, loops: Sequence[ast.comprehension], items: Iterable[object]) -> Iterator[dict[str, object]]:
        """The loop variables of each iteration, by name; inner loops vary fastest; raises `RuleError` for unpacking."""
        target = loops[0].target
        if not isinstance(target, ast.Name):
            raise RuleError(say("a loop has one variable"))
        for item in items:
            scope: dict[str, object] = {target.id: item}
            if len(loops) == 1:
                yield scope
                continue
            inner = self._with_names(scope, lambda: list(self._loop_scopes(loops[1:], self._eval(loops[1].iter))))
            yield from ({**scope, **more} for more in inner)

    def _with_names(self, scope: Mapping[str, object], part: Callable[[], T]) -> T:
        """The result of `part()`, called while the names in `scope` stand for its values."""
        outer = self.nodes[ast.Name]
        self.nodes[ast.Name] = lambda node: scope[node.id] if node.id in scope else outer(node)
        try:
            return part()
        finally:
            self.nodes[ast.Name] = outer


def _equality_conditions(loop: ast.GeneratorExp) -> Iterator[tuple[str, ast.expr]]:
    """Column and value expression of each ``row.column == value`` that must hold for an iteration to be true."""
    generator = loop.generators[0]
    row = generator.target.id if isinstance(generator.target, ast.Name) else ""
    together = isinstance(loop.elt, ast.BoolOp) and isinstance(loop.elt.op, ast.And)
    for part in [*generator.ifs, *(loop.elt.values if together else [loop.elt])]:  # type: ignore[attr-defined]
        if isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], ast.Eq):
            left, right = part.left, part.comparators[0]
            if (
                isinstance(left, ast.Attribute)
                and _variable_names(left.value) == {row}
                and row not in _variable_names(right)
            ):
                yield left.attr, right


def _variable_names(tree: ast.AST) -> set[str]:
    """All names that occur in the syntax tree."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _in(item: object, holder: Any) -> bool:
    """``item in holder``; False for an absent item, and for an absent holder."""
    return not isinstance(item, Nothing) and item in holder


def _not_in(item: object, holder: Any) -> bool:
    """``item not in holder``; False where either side is absent."""
    return not isinstance(item, Nothing) and not isinstance(holder, Nothing) and item not in holder


@lru_cache(maxsize=8192)
def parse(text: str) -> ast.AST:
    """The expression's syntax tree, cached; raises `RuleError` where it is no Python expression."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise RuleError(say("not an expression: {text} ({problem})", text=repr(text), problem=error.msg)) from error


def evaluate(text: str, evaluator: Evaluator) -> object:
    """The expression's value; raises `CannotJudge` where an unread fact decides it or nothing can be worked out.

    Raises `TooCostlyError` where the budget of this thread, if it has one, is used up.
    """
    if unread := evaluator.unread((text,)):  # most pages, where a paste tells of one thing
        raise unread
    try:
        return evaluator.eval(text, previously_parsed=parse(text))
    except (CannotJudge, TooCostlyError):
        raise
    except Exception as error:  # a page's mistake, or a fact of a shape it did not expect, must not end a check
        raise CannotJudge(text, _failure_text(error)) from error


@lru_cache(maxsize=8192)
def searches_text(conditions: tuple[str, ...]) -> bool:
    """Whether one of the conditions looks at the rows of group ``text``, of which there may be many."""
    return any("text" in condition and "text" in _variable_names(parse(condition)) for condition in conditions)


@lru_cache(maxsize=8192)
def _facts_needed_by_all(conditions: tuple[str, ...]) -> tuple[frozenset[str], str]:
    """(facts and groups without any of which none of the conditions can be judged, the first that is looked at).

    Both empty where a condition may have an answer without them, or reads none.
    """
    names: list[str] = []
    for condition in conditions:
        before = len(names)
        if not _collect_facts(parse(condition), frozenset(), names) or len(names) == before:
            return frozenset(), ""
    return frozenset(names), names[0] if names else ""


def _collect_facts(node: ast.AST, variables: frozenset[str], names: list[str]) -> bool:
    """Append the facts and groups read under the node to `names`, in the order in which they are evaluated.

    False where unread ones may still give an answer (by ``known`` or ``either``, or by a constant of an ``and`` or
    ``or``), else True. `variables` are names of loop variables, which are no facts.
    """
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if node.value.id not in variables:
            names.append(f"{node.value.id}.{node.attr}")
        return True
    if isinstance(node, ast.Name):
        if node.id not in variables:
            names.append(node.id)
        return True
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in ("known", "either"):
            return False
        return all(_collect_facts(part, variables, names) for part in [*node.args, *node.keywords])
    if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
        before = len(names)
        if not _collect_facts(node.generators[0].iter, variables, names):
            return False
        if len(names) > before:
            return True  # unread rows leave no item to look at
        variables |= {name for loop in node.generators for name in _variable_names(loop.target)}
        parts = [node.elt, *(test for loop in node.generators for test in loop.ifs)]
        return all(_collect_facts(part, variables, names) for part in parts)
    for part in _operands(node):
        before = len(names)
        if not _collect_facts(part, variables, names):
            return False
        if isinstance(node, ast.BoolOp) and isinstance(part, ast.expr) and len(names) == before:
            return False  # a constant, which may decide
    return True


def _operands(node: ast.AST) -> Iterable[ast.AST]:
    """The child nodes in the order in which they are evaluated, of what most conditions are without the operators."""
    if isinstance(node, ast.Compare):
        return node.left, *node.comparators
    if isinstance(node, ast.BoolOp):
        return node.values
    return () if isinstance(node, ast.Constant) else ast.iter_child_nodes(node)


def selected(text: str, evaluator: Evaluator) -> list[object]:
    """The items of a list expression; rows that cannot be judged are left out; empty where evaluation fails."""
    tree = parse(text)
    try:
        items = evaluator.selected(tree) if isinstance(tree, ast.ListComp) else evaluate(text, evaluator)
        return list(items)  # type: ignore[call-overload, no-any-return]
    except Exception:  # as in `evaluate`: the page's mistake costs the subjects, not the finding
        return []


_PYTHON_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "tuple": "a list",
}


def _failure_text(error: Exception) -> str:
    """Why an expression has no value, from the exception that evaluating it raised, worded for a page's author."""
    if isinstance(error, TypeError):
        kinds = [_PYTHON_NAMES[name] for name in re.findall(r"'(\w+)'", str(error)) if name in _PYTHON_NAMES]
        return f"{' and '.join(kinds)} do not go together" if len(kinds) > 1 else "its values do not go together"
    if isinstance(error, ZeroDivisionError):
        return "it divides by zero"
    if isinstance(error, (TimeoutError, IterableTooLong)):
        return f"it takes too long to work out ({error})"
    return f"it cannot be worked out ({error})"
