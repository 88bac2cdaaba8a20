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

from gpudoctor.expression.facts import Apart, Facts, GroupRow, Holder, Mentioned, Touched, apart
from gpudoctor.expression.functions import BUILTINS, show
from gpudoctor.model.errors import RuleError
from gpudoctor.model.frozen import replace
from gpudoctor.model.pattern import pattern
from gpudoctor.model.values import CannotJudge, Nothing

__all__ = [
    "BUILTINS",
    "NOT_KNOWN",
    "Evaluator",
    "Facts",
    "GroupRow",
    "Mentioned",
    "Touched",
    "evaluate",
    "fill",
    "parse",
    "selected",
]


# ---- Sentences with expressions between braces, filled with what these are worth ----

NOT_KNOWN = "(not known)"
_LONGEST = 1000
"""Characters of a value in a sentence."""
_BREAKS = pattern(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
_HOLE = pattern(r"\{([^{}]+)\}")


def fill(template: str, evaluator: Evaluator, extra: Mapping[str, str] | None = None) -> str:
    """The template with each ``{expression}`` replaced by its value; an unread one reads ``(not known)``.

    ``{expression | words}`` reads those words where the value is unread or absent, ``{expression | ''}`` nothing then.
    """

    def value(match: re.Match[str]) -> str:
        inner, mark, otherwise = (part.strip() for part in match.group(1).partition("|"))
        otherwise = "" if otherwise == "''" else otherwise
        if extra and inner in extra:
            return _one_line(extra[inner])
        try:
            found = evaluate(inner, evaluator)
        except CannotJudge:
            return otherwise if mark else NOT_KNOWN
        return otherwise if mark and isinstance(found, Nothing) else _one_line(show(found))

    return _HOLE.sub(value, template)


def _one_line(text: str) -> str:
    """What a machine or a report said, so that it cannot pass for a sentence of ours: no line of its own, and cut."""
    text = _BREAKS.sub(" ", text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


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

    def _eval_boolop(self, node: ast.BoolOp) -> object:
        settles = isinstance(node.op, ast.Or)
        return self._settled([partial(self._eval, part) for part in node.values], settles)

    def _eval_call(self, node: ast.Call) -> object:
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        if called == "known":
            try:
                return not isinstance(self._eval(node.args[0]), Nothing)
            except CannotJudge:
                return False
        if called in ("any", "all") and isinstance(node.args[0], ast.GeneratorExp):
            return self._looped(node.args[0], called == "any")
        if node.keywords or called not in self.functions:
            return super()._eval_call(node)
        arguments = [self._eval(one) for one in node.args]  # in f(*a, **b) Python 3.11 keeps b for ever where a raises
        return self.functions[called](*arguments)

    def _eval_attribute(self, node: ast.Attribute) -> object:
        """A column of what holds facts, without simpleeval's questions about attributes of Python's own objects."""
        held = self._eval(node.value)
        return held.column(node.attr) if isinstance(held, Holder) else super()._eval_attribute(node)

    def _settled(self, parts: Iterable[Part], wanted: bool) -> bool:
        """Whether some part is `wanted`: one that is settles it, whatever is unread of others.

        Of a part that settles it, only what that part rests
        on is proof; where none does, all parts are. Raises `CannotJudge` where none does and one could not be judged.
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

    def _looped(self, loop: ast.GeneratorExp, wanted: bool) -> bool:
        """``any`` (`wanted` is true) or ``all`` of a loop; its filters belong to the round."""
        filters = [condition for one in loop.generators for condition in one.ifs]

        def round_() -> object:
            passes = self._settled([partial(self._eval, one) for one in filters], False) if filters else True
            return self._eval(loop.elt) if passes else not wanted

        items = list(self._eval(loop.generators[0].iter))
        rows = self._told_apart(loop, items) if wanted and len(loop.generators) == 1 else Apart(items, (), {})
        rounds: list[Part] = [
            partial(self._naming, scope, round_) for scope in self._rounds(loop.generators, rows.alike)
        ]
        if rows.unlike:
            rounds.append(lambda: self.names.touched.update(rows.unlike))
        hopeless = (partial(self._naming, scope, round_) for scope in self._rounds(loop.generators, rows.unread))
        return self._settled(rounds, wanted) or any(self._settled([one], wanted) for one in hopeless)

    def selected(self, loop: ast.ListComp) -> Iterator[object]:
        """The items of ``[x for x in rows if condition]``, without the rows of which that cannot be judged."""
        filters = [condition for one in loop.generators for condition in one.ifs]

        def item() -> list[object]:
            passes = self._settled([partial(self._eval, one) for one in filters], False)
            return [self._eval(loop.elt)] if passes else []

        for scope in self._rounds(loop.generators, list(self._eval(loop.generators[0].iter))):
            outer: Touched = dict(self.names.touched)
            try:
                items = self._naming(scope, item)
            except CannotJudge:
                items = []
            if not items:
                self.names.touched = outer
            yield from items

    def _told_apart(self, loop: ast.GeneratorExp, items: list[object]) -> Apart:
        """The rows of an ``any`` by one of its conditions, ``row.column == value``, without which no round is true.

        On a machine with 128 GPUs nearly all rows are about another GPU than the one that is judged. Where the
        condition is unread no round is true, and the first that cannot be judged decides.
        """
        for column, right in _equals(loop):
            outer, self.names.touched = self.names.touched, {}
            try:
                rows = apart(items, column, self._eval(right))
                return replace(rows, unlike={**rows.unlike, **self.names.touched}) if rows.unlike else rows
            except CannotJudge:
                return Apart((), items, {})
            finally:
                self.names.touched = outer
        return Apart(items, (), {})

    def _rounds(self, loops: Sequence[ast.comprehension], items: Iterable[object]) -> Iterator[dict[str, object]]:
        """The loop variables of each round, those of inner loops change first."""
        target = loops[0].target
        if not isinstance(target, ast.Name):
            raise RuleError("a loop has one variable")
        for item in items:
            scope: dict[str, object] = {target.id: item}
            if len(loops) == 1:
                yield scope
                continue
            inner = self._naming(scope, lambda: list(self._rounds(loops[1:], self._eval(loops[1].iter))))
            yield from ({**scope, **more} for more in inner)

    def _naming(self, scope: Mapping[str, object], part: Callable[[], T]) -> T:
        """What the part gives while these names mean these things."""
        outer = self.nodes[ast.Name]
        self.nodes[ast.Name] = lambda node: scope[node.id] if node.id in scope else outer(node)
        try:
            return part()
        finally:
            self.nodes[ast.Name] = outer


def _equals(loop: ast.GeneratorExp) -> Iterator[tuple[str, ast.expr]]:
    """Column and value of each condition ``row.column == value`` without which no round is true."""
    one = loop.generators[0]
    row = one.target.id if isinstance(one.target, ast.Name) else ""
    together = isinstance(loop.elt, ast.BoolOp) and isinstance(loop.elt.op, ast.And)
    for part in [*one.ifs, *(loop.elt.values if together else [loop.elt])]:  # type: ignore[attr-defined]
        if isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], ast.Eq):
            left, right = part.left, part.comparators[0]
            if isinstance(left, ast.Attribute) and _names(left.value) == {row} and row not in _names(right):
                yield left.attr, right


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _in(item: object, holder: Any) -> bool:
    return not isinstance(item, Nothing) and item in holder


def _not_in(item: object, holder: Any) -> bool:
    return not isinstance(item, Nothing) and not isinstance(holder, Nothing) and item not in holder


@lru_cache(maxsize=8192)
def parse(text: str) -> ast.AST:
    """The expression's syntax tree; raises `RuleError` where it is no expression."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise RuleError(f"not an expression: {text!r} ({error.msg})") from error


def evaluate(text: str, evaluator: Evaluator) -> object:
    """The expression's value; raises `CannotJudge` where an unread fact decides it or nothing can be worked out."""
    try:
        return evaluator.eval(text, previously_parsed=parse(text))
    except CannotJudge:
        raise
    except Exception as error:  # a page's mistake, or a fact of a shape it did not expect, must not end a check
        raise CannotJudge(text, _unworkable(error)) from error


def selected(text: str, evaluator: Evaluator) -> list[object]:
    """The items of a list as far as they can be worked out: rows that cannot be judged are left out."""
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


def _unworkable(error: Exception) -> str:
    """Why an expression has no value, in words that those who wrote the page know."""
    if isinstance(error, TypeError):
        kinds = [_PYTHON_NAMES[name] for name in re.findall(r"'(\w+)'", str(error)) if name in _PYTHON_NAMES]
        return f"{' and '.join(kinds)} do not go together" if len(kinds) > 1 else "its values do not go together"
    if isinstance(error, ZeroDivisionError):
        return "it divides by zero"
    if isinstance(error, (TimeoutError, IterableTooLong)):
        return f"it takes too long to work out ({error})"
    return f"it cannot be worked out ({error})"
