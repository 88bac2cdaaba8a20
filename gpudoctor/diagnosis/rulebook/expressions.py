"""The expressions of a page: what a rule reads by them, and names that stand for them.

A page names once what it uses in many places: ``let.lost = "[g.address for g in gpu if ...]"``. Such a name stands for
its expression wherever the page has one: in conditions, and between the braces of sentences. It may use the names above
it. Everything behind `read_page` sees the page with each name spelled out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpudoctor.core.catalog import Catalog
from gpudoctor.core.errors import RuleError
from gpudoctor.core.frozen import frozen
from gpudoctor.core.pattern import pattern
from gpudoctor.core.rule import Fix, Rule
from gpudoctor.diagnosis import page_cache
from gpudoctor.diagnosis.expression import BUILTINS, HOLE, parse
from gpudoctor.diagnosis.knowledge import LOOKUPS
from gpudoctor.diagnosis.rulebook.page import Spot


def conditions(rule: Rule) -> Iterator[str]:
    """The rule's conditions (when, unless, proofs, signs), without sentences and fixes."""
    yield from rule.when
    yield from rule.unless
    for proof in rule.proofs:
        yield from proof.when
    for sign in rule.signs:
        yield from sign.when


def expressions(rule: Rule) -> Iterator[str]:
    """Every expression on the page, in conditions, sentences and fixes; groups that a sign captures left out."""
    yield from conditions(rule)
    yield from rule.subjects
    yield from (condition for detail in rule.details for condition in detail.when)
    templates = [rule.finding, rule.why, *(proof.finding for proof in rule.proofs)]
    templates += [*(detail.says for detail in rule.details), *(sign.finding for sign in rule.signs)]
    templates += [rule.confirm] if rule.scope == "cluster" else []
    groups = {name for sign in rule.signs for name in re.compile(sign.match).groupindex}
    yield from (hole for hole in _holes(templates) if hole not in groups)
    yield from (text for text in expressions_of(rule.fixes) if text not in groups)


def expressions_of(fixes: Iterable[Fix]) -> Iterator[str]:
    """Every expression in those fixes, in conditions and text."""
    for fix in fixes:
        yield from fix.when
        yield from _holes([fix.title, fix.undo])
        for step in fix.steps:
            yield from step.when
            yield from _holes([step.text, *step.argv, *(value for _, value in step.makes if isinstance(value, str))])


def _holes(templates: Iterable[str]) -> Iterator[str]:
    """The expressions in ``{...}`` of templates, without the fallback text after ``|``."""
    return (hole.partition("|")[0].strip() for template in templates for hole in HOLE.findall(template))


def loop_groups(tree: ast.AST, each: str) -> dict[str, str]:
    """By loop variable, and by `each`, the group that it ranges over; empty text for other iterables."""
    found = {each: each} if each else {}
    for node in ast.walk(tree):
        if isinstance(node, ast.comprehension) and isinstance(node.target, ast.Name):
            found[node.target.id] = node.iter.id if isinstance(node.iter, ast.Name) else ""
    return found


@frozen
class Names:
    """Names in an expression: `facts` as ``gpu.name``, and `others` (functions, groups, captured groups)."""

    facts: frozenset[str]
    others: frozenset[str]


def names_in(text: str, each: str) -> Names:
    """The facts (``gpu.name``, also through a loop variable) and the other names in one expression, loop variables left
    out; raises `RuleError` where it cannot be parsed.

    `each` is the group for each of whose rows the page is judged, ``""`` for none; it counts as a loop variable.
    """
    tree = parse(text)
    variables = loop_groups(tree, each)
    bare = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return Names(frozenset(facts_in(tree, variables)), frozenset(bare - variables.keys()))


def facts_read(rule: Rule) -> frozenset[str]:
    """The names of all facts that the rule's conditions, sentences and fixes read."""
    names: set[str] = set()
    for text in expressions(rule):
        tree = parse(text)
        names |= facts_in(tree, loop_groups(tree, rule.each))
    return frozenset(names)


def facts_weighed(rule: Rule, lookups: Mapping[str, object]) -> frozenset[str]:
    """Names of facts that the conditions pass to one of `lookups`, or order (not equate) against a text: versions."""
    functions = frozenset(lookups)
    return frozenset().union(*(_weighed_facts(text, rule.each, functions) for text in conditions(rule)))


@lru_cache(maxsize=4096)
def _weighed_facts(text: str, each: str, lookups: frozenset[str]) -> frozenset[str]:
    """The facts that one expression passes to one of `lookups` or orders against a text; cached."""
    tree = parse(text)
    variables = loop_groups(tree, each)
    names: set[str] = set()
    for node in ast.walk(tree):
        looked_up = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in lookups
        if looked_up or _orders_against_text(node):
            names |= facts_in(node, variables)
    return frozenset(names)


def _orders_against_text(node: ast.AST) -> bool:
    """Whether the node is a comparison by ``<``, ``<=``, ``>`` or ``>=`` with a text constant on one side."""
    if not isinstance(node, ast.Compare):
        return False
    ordered = any(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in node.ops)
    sides = [node.left, *node.comparators]
    return ordered and any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in sides)


def facts_in(tree: ast.AST, variables: Mapping[str, str]) -> set[str]:
    """Names of the facts read in the tree; `variables` maps loop variables to groups, as `loop_groups` gives."""
    return {
        f"{variables.get(node.value.id, node.value.id)}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }


# ---- Names that stand for expressions ----

_CONDITIONS = frozenset(("when", "unless", "subjects"))
_SENTENCES = frozenset(["title", "finding", "why", "says", "text", "argv", "makes", "undo", "steps"]).union(
    ["proofs", "details", "signs"]
)
"""Keys of a page, or of its translation, under which expressions stand between braces."""
_CAPTURED = pattern(r"\(\?P<(\w+)>")

_RETIRED = frozenset(["said", "open", "about"])
"""What pages written for 1.0 may still hold, and nothing reads."""


def read_page(path: Path) -> dict[str, Any]:
    """The page's TOML, without retired keys, ``let`` names expanded; raises `RuleError`, also for an unused name."""
    whole = page_cache.toml(path)
    raw = {key: part for key, part in whole.items() if key not in _RETIRED}
    if "let" not in raw:
        return raw
    page = Spot(path)
    names = LetNames(raw, page)
    spelled = names.spelled_out(raw)
    unused = [name for name in names.expression_by_name if name not in names.used]
    if unused and len(raw) == len(whole):  # a retired key may have used them
        raise page.key(f"let.{unused[0]}").broken(f"let.{unused[0]}: nothing on the page uses it")
    return spelled


class LetNames:
    """A page's ``let`` names with their expressions; raises `RuleError` for an invalid name or expression."""

    def __init__(self, raw: Mapping[str, Any], page: Spot) -> None:
        self.expression_by_name: dict[str, str] = {}
        self.used: set[str] = set()
        self._page = page
        self._sentences = _SENTENCES | ({"confirm"} if raw.get("scope") == "cluster" else set())
        given = raw.get("let", {})
        if not isinstance(given, Mapping):
            raise page.key("let").broken(f'let is written let.name = "an expression", not {given!r}')
        for name, expression in given.items():
            if not name.isidentifier():
                raise page.text(name).broken(f"let.{name}: a name is letters, digits and _")
            if not isinstance(expression, str):
                raise page.key(f"let.{name}").broken(f"let.{name} is text, in quotes, not {expression!r}")
            try:
                self.expression_by_name[name] = self._expand(expression)
            except RuleError as error:
                raise page.key(f"let.{name}").broken(f"let.{name}: {error}") from error

    def spelled_out(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """The page, or its translation, with each ``let`` name replaced by its expression; cases are left alone."""

        def of(part: Any, key: str) -> Any:
            """The part with its texts expanded; `key`, under which it stands, tells conditions from sentences."""
            if isinstance(part, Mapping):
                return {name: of(value, key if key == "makes" else name) for name, value in part.items()}
            if isinstance(part, list):
                return [of(value, key) for value in part]
            return self._expand_text(part, key) if isinstance(part, str) else part

        return {key: value if key in ("case", "let") else of(value, key) for key, value in raw.items()}

    def _expand_text(self, text: str, key: str) -> str:
        """The text with ``let`` names expanded, as a condition or in the holes of a sentence; raises `RuleError`."""
        try:
            if key in _CONDITIONS:
                return self._expand(text)
            return HOLE.sub(lambda hole: self._expand_hole(hole[1]), text) if key in self._sentences else text
        except RuleError as error:
            raise self._page.text(text).broken(f"in {text!r}: {error}") from error

    def _expand_hole(self, hole: str) -> str:
        """A hole of a sentence with ``let`` names expanded, in braces; `hole` is the text between them. Unchanged where
        it uses no such name or is no expression.

        Raises `RuleError` where an expansion holds a brace or bar.
        """
        expression, mark, otherwise = hole.partition("|")
        try:
            used = any(self._name_nodes(expression))
        except RuleError:
            used = False
        if not used:
            return f"{{{hole}}}"
        spelled = self._expand(expression)
        if odd := next((sign for sign in "{|}" if sign in spelled), ""):
            raise RuleError(f"{{{hole}}}: what is named there holds {odd!r}, which means something in a sentence")
        return f"{{{spelled} {mark}{otherwise}}}" if mark else f"{{{spelled}}}"

    def _expand(self, expression: str) -> str:
        """The expression with each ``let`` name replaced by its expression in parentheses, and noted as used.

        Raises `RuleError`.
        """
        data = expression.strip().encode()
        lines = [0, *(at + 1 for at, byte in enumerate(data) if byte == ord("\n"))]
        for node in sorted(self._name_nodes(expression), key=lambda node: (node.lineno, node.col_offset), reverse=True):
            self.used.add(node.id)
            at = lines[node.lineno - 1] + node.col_offset
            data = data[:at] + f"({self.expression_by_name[node.id]})".encode() + data[at + len(node.id) :]
        return data.decode()

    def _name_nodes(self, expression: str) -> Iterator[ast.Name]:
        """Nodes of the expression that are ``let`` names; raises `RuleError` where one is a loop variable."""
        for node in ast.walk(parse(expression)):
            if isinstance(node, ast.Name) and node.id in self.expression_by_name:
                if isinstance(node.ctx, ast.Store):
                    raise RuleError(f"{node.id} is a name of this page, and cannot be a loop's variable as well")
                yield node


def check_names(raw: Mapping[str, Any], known: Catalog, page: Spot) -> None:
    """Raises `RuleError` where a ``let`` name is that of a fact topic, a function or a captured group."""
    taken = {
        "there are facts": {name.partition(".")[0] for name in known.specs},
        "there is a function": {*BUILTINS, *LOOKUPS},
        "a sign captures a group": {name for sign in raw.get("sign", ()) for name in _CAPTURED.findall(sign["match"])},
    }
    for name in raw.get("let", {}):
        if what := next((what for what, names in taken.items() if name in names), ""):
            raise page.key(f"let.{name}").broken(f"let.{name}: {what} of that name")
