"""What a rule reads: its expressions, the facts in them, and those that a table or a version on the page decides on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from gpudoctor.expression import parse
from gpudoctor.model.frozen import frozen
from gpudoctor.model.pattern import pattern
from gpudoctor.model.rule import Fix, Rule

_HOLE = pattern(r"\{([^{}]+)\}")


def conditions(rule: Rule) -> Iterator[str]:
    """What decides on the finding, without its sentences and cures."""
    yield from rule.when
    yield from rule.unless
    for sign in rule.signs:
        yield from sign.when


def expressions(rule: Rule) -> Iterator[str]:
    """Every expression on the page, in conditions and in sentences."""
    yield from conditions(rule)
    yield from rule.subjects
    templates = [rule.finding, rule.why, *(sign.finding for sign in rule.signs)]
    templates += [rule.confirm] if rule.scope == "cluster" else []
    groups = {name for sign in rule.signs for name in re.compile(sign.match).groupindex}
    yield from (hole for hole in _holes(templates) if hole not in groups)
    yield from (text for text in expressions_of(rule.fixes) if text not in groups)


def expressions_of(fixes: Iterable[Fix]) -> Iterator[str]:
    """Every expression in those fixes."""
    for fix in fixes:
        yield from fix.when
        yield from _holes([fix.title, fix.undo])
        for step in fix.steps:
            yield from step.when
            yield from _holes([step.text, *step.argv, *(value for _, value in step.makes if isinstance(value, str))])


def _holes(templates: Iterable[str]) -> Iterator[str]:
    """The expressions in templates, without the words that stand in for them."""
    return (hole.partition("|")[0].strip() for template in templates for hole in _HOLE.findall(template))


def loops(tree: ast.AST, each: str) -> dict[str, str]:
    """What a name stands for: the row being judged, or a loop variable over a group."""
    found = {each: each} if each else {}
    for node in ast.walk(tree):
        if isinstance(node, ast.comprehension) and isinstance(node.target, ast.Name):
            found[node.target.id] = node.iter.id if isinstance(node.iter, ast.Name) else ""
    return found


@frozen
class Names:
    """The names in an expression: the facts, as ``gpu.name``, and functions, groups and what a pattern has captured."""

    facts: frozenset[str]
    others: frozenset[str]


def names_in(text: str, each: str) -> Names:
    """Those of one expression on a page that is judged for `each`."""
    tree = parse(text)
    variables = loops(tree, each)
    bare = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return Names(frozenset(facts_in(tree, variables)), frozenset(bare - variables.keys()))


def facts_read(rule: Rule) -> frozenset[str]:
    """The names of all facts that the rule's conditions and sentences read."""
    names: set[str] = set()
    for text in expressions(rule):
        tree = parse(text)
        names |= facts_in(tree, loops(tree, rule.each))
    return frozenset(names)


def facts_weighed(rule: Rule, lookups: Mapping[str, object]) -> frozenset[str]:
    """The facts that its conditions look up in a table, or order against a version that is written on the page."""
    functions = frozenset(lookups)
    return frozenset().union(*(_weighed(text, rule.each, functions) for text in conditions(rule)))


@lru_cache(maxsize=4096)
def _weighed(text: str, each: str, lookups: frozenset[str]) -> frozenset[str]:
    tree = parse(text)
    variables = loops(tree, each)
    names: set[str] = set()
    for node in ast.walk(tree):
        looked_up = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in lookups
        if looked_up or _orders_against_text(node):
            names |= facts_in(node, variables)
    return frozenset(names)


def _orders_against_text(node: ast.AST) -> bool:
    if not isinstance(node, ast.Compare):
        return False
    ordered = any(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in node.ops)
    sides = [node.left, *node.comparators]
    return ordered and any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in sides)


def facts_in(tree: ast.AST, variables: Mapping[str, str]) -> set[str]:
    """The facts named in it; `variables` are what its names stand for, as `loops` tells."""
    return {
        f"{variables.get(node.value.id, node.value.id)}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
