"""What a page must get right before it is used: names that exist, versions that are versions, cases that prove it."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from gpudoctor.expression import BUILTINS, parse
from gpudoctor.model.catalog import Catalog, FactSpec
from gpudoctor.model.errors import RuleError
from gpudoctor.model.rule import Case, Rule

_ID = re.compile(r"[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*\Z")
_HOLE = re.compile(r"\{([^{}]+)\}")


def check_page(rule: Rule, cases: Sequence[Case], path: Path) -> None:
    """Raise `RuleError` for the first thing wrong with the page at `path`."""
    from gpudoctor.catalog import catalog

    known = catalog()
    _check_shape(rule, cases, path)
    if rule.each and rule.each not in known.groups:
        raise RuleError(f"{path}: each = {rule.each!r} is no group; groups are {', '.join(sorted(known.groups))}")
    for text in _expressions(rule):
        try:
            _check_expression(_strictly(text), known, rule.each)
        except RuleError as error:
            raise RuleError(f"{path}: in {text!r}: {error}") from error
    for case in cases:
        _check_case(case, known, path)


def _strictly(text: str) -> ast.AST:
    """The expression's tree; a backslash that Python only warns of today is refused (write r'...' or [(])."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return parse(text)


def _check_shape(rule: Rule, cases: Sequence[Case], path: Path) -> None:
    if not _ID.match(rule.id) or path.stem != rule.id:
        raise RuleError(f"{path}: the file is named by its id, <layer>/<topic>.<what-is>.toml, not {rule.id!r}")
    if not rule.when and not rule.signs:
        raise RuleError(f"{path}: nothing to look for: neither when nor sign")
    if not rule.sources:
        raise RuleError(f"{path}: no source")
    for sign in rule.signs:
        try:
            re.compile(sign.match, re.IGNORECASE | re.MULTILINE)
        except re.error as error:
            raise RuleError(f"{path}: sign {sign.match!r}: {error}") from error
    proofs = (
        ("finds (one that fires, with its words)", any(case.finds is not None for case in cases)),
        ("passes (a near miss)", any(case.passes for case in cases)),
        ("unjudged (a fact missing)", any(case.unjudged is not None for case in cases)),
    )
    missing = [name for name, there in proofs if not there]
    if missing:
        raise RuleError(f"{path}: no case that {missing[0]}")


def _expressions(rule: Rule) -> Iterator[str]:
    yield from rule.when
    yield from rule.unless
    templates = [rule.finding, rule.why, rule.about]
    for sign in rule.signs:
        yield from sign.when
        templates.append(sign.finding)
    for fix in rule.fixes:
        yield from fix.when
        templates += [
            fix.title,
            *(step.text for step in fix.steps),
            *(word for step in fix.steps for word in step.argv),
        ]
    groups = {name for sign in rule.signs for name in re.compile(sign.match).groupindex}
    for template in templates:
        holes = (hole.partition("|")[0].strip() for hole in _HOLE.findall(template))
        yield from (hole for hole in holes if hole not in groups)


@lru_cache(maxsize=1)
def _functions() -> frozenset[str]:
    from gpudoctor.knowledge import LOOKUPS

    return frozenset(BUILTINS) | frozenset(LOOKUPS)


def _check_expression(tree: ast.AST, known: Catalog, each: str) -> None:
    """Every name is a fact, a group or a loop variable; every call is documented; no version meets a bare number."""
    loops = _loops(tree, each)
    attributes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    calls = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            _spec(node, known, loops)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in _functions():
            raise RuleError(f"no function {node.func.id!r}; there are {', '.join(sorted(_functions()))}")
        elif isinstance(node, ast.Name) and id(node) not in attributes | calls:
            if node.id not in known.groups and node.id not in loops:
                raise RuleError(f"no group {node.id!r}; there are {', '.join(sorted(known.groups))}")
        elif isinstance(node, ast.Compare):
            _check_compare(node, known, loops)


def _loops(tree: ast.AST, each: str) -> dict[str, str]:
    """What a name stands for: the row being judged, or a loop variable over a group."""
    loops = {each: each} if each else {}
    for node in ast.walk(tree):
        if isinstance(node, ast.comprehension) and isinstance(node.target, ast.Name):
            loops[node.target.id] = node.iter.id if isinstance(node.iter, ast.Name) else ""
    return loops


def facts_read(rule: Rule) -> frozenset[str]:
    """The names of all facts that the rule's conditions and sentences read."""
    names = set()
    for text in _expressions(rule):
        tree = parse(text)
        loops = _loops(tree, rule.each)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                names.add(f"{loops.get(node.value.id, node.value.id)}.{node.attr}")
    return frozenset(names)


def _spec(node: ast.Attribute, known: Catalog, loops: Mapping[str, str]) -> FactSpec | None:
    assert isinstance(node.value, ast.Name)
    topic = loops.get(node.value.id, node.value.id)
    if not topic:
        return None
    spec = known.find(f"{topic}.{node.attr}")
    if spec is None:
        near = sorted(name for name in known.specs if name.startswith(f"{topic}."))
        raise RuleError(f"no fact {topic}.{node.attr}" + (f"; there are {', '.join(near)}" if near else ""))
    return spec


def _check_compare(node: ast.Compare, known: Catalog, loops: Mapping[str, str]) -> None:
    sides = [node.left, *node.comparators]
    numbers = [side for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, (int, float))]
    wrapped = any(isinstance(side, ast.Call) and getattr(side.func, "id", "") == "version" for side in sides)
    bare = [
        side
        for side in sides
        if isinstance(side, ast.Attribute)
        and isinstance(side.value, ast.Name)
        and (spec := _spec(side, known, loops)) is not None
        and spec.kind == "version"
    ]
    ordered = any(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in node.ops)
    if (wrapped or bare) and numbers:
        raise RuleError(f'a bare number where a version belongs (12.10 is not 12.1): write "{numbers[0].value!r}"')
    if bare and ordered and not wrapped:
        raise RuleError("versions are ordered by version(...), not as text")


def _check_case(case: Case, known: Catalog, path: Path) -> None:
    for name, value in case.facts.items():
        if isinstance(value, list) and name in known.groups:
            for row in value:
                for column, item in row.items():
                    _check_case_value(f"{name}.{column}", item, known, f"{path}: case {case.name!r}")
        elif name not in known.groups:
            _check_case_value(name, value, known, f"{path}: case {case.name!r}")


def _check_case_value(name: str, value: object, known: Catalog, where: str) -> None:
    spec = known.find(name)
    if spec is None:
        raise RuleError(f"{where}: no fact {name}")
    if isinstance(value, dict) and spec.kind != "map":
        if not {"absent", "unread"} & set(value):
            raise RuleError(f"{where}: {name} is a value, {{absent = why}} or {{unread = why}}")
    elif not isinstance(value, _TYPES[spec.kind]) or (spec.kind in {"int", "float"} and isinstance(value, bool)):
        raise RuleError(f"{where}: {name} is {spec.kind}, not {value!r}")


_TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "version": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "list": (list,),
    "map": (dict,),
}
