"""What a page must get right before it is used: names that exist, versions that are versions, cases that prove it."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from gpudoctor.expression import BUILTINS, parse
from gpudoctor.model.catalog import Catalog, FactSpec
from gpudoctor.model.errors import RuleError
from gpudoctor.model.rule import Case, Fix, Rule
from gpudoctor.model.setup_page import SetupCase, SetupPage
from gpudoctor.rulebook import setups
from gpudoctor.rulebook.reading import expressions, expressions_of, loops

_ID = re.compile(r"[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*\Z")
BLANK = "FILL IN:"
"""How a blank of a new page begins."""


def is_id(name: str) -> bool:
    """Whether a rule may bear that name."""
    return _ID.match(name) is not None


def refuse_blanks(raw: object, path: Path, where: str = "") -> None:
    """Raise `RuleError` for the first blank of a new page that nobody has filled in."""
    if isinstance(raw, str) and raw.startswith(BLANK):
        raise RuleError(f"{path}: {where} is still to be filled in: {raw.removeprefix(BLANK).strip()}")
    if isinstance(raw, Mapping):
        for key, value in raw.items():
            refuse_blanks(key, path, f"a name under {where}")
            refuse_blanks(value, path, str(key))
    elif isinstance(raw, list):
        for value in raw:
            refuse_blanks(value, path, where)


def check_page(rule: Rule, cases: Sequence[Case], path: Path) -> None:
    """Raise `RuleError` for the first thing wrong with the page at `path`."""
    from gpudoctor.catalog import catalog

    known = catalog()
    _check_shape(rule, cases, path)
    if rule.each and rule.each not in known.groups:
        raise RuleError(f"{path}: each = {rule.each!r} is no group; groups are {', '.join(sorted(known.groups))}")
    _check_expressions(expressions(rule), known, rule.each, path)
    _check_fixes(rule.fixes, known, path)
    for case in cases:
        _check_facts(case.facts, known, f"{path}: case {case.name!r}")


def check_setup(page: SetupPage, cases: Sequence[SetupCase], path: Path) -> None:
    """Raise `RuleError` for the first thing wrong with the setup page at `path`."""
    known = setups.catalog()
    _check_expressions(expressions_of(page.fixes), known, "", path)
    _check_fixes(page.fixes, known, path)
    for case in cases:
        _check_facts(case.facts, known, f"{path}: case {case.name!r}")
        if case.offers and case.offers not in [fix.title for fix in page.fixes]:
            raise RuleError(f"{path}: case {case.name!r}: no fix is called {case.offers!r}")
    if unproven := next((fix for fix in page.fixes if fix.title not in [case.offers for case in cases]), None):
        raise RuleError(f"{path}: no case offers {unproven.title!r}")


def _check_expressions(found: Iterable[str], known: Catalog, each: str, path: Path) -> None:
    for text in found:
        try:
            check_expression(_strictly(text), known, each)
        except RuleError as error:
            raise RuleError(f"{path}: in {text!r}: {error}") from error


def _check_fixes(fixes: Sequence[Fix], known: Catalog, path: Path) -> None:
    for fix in fixes:
        if fix.setup and fix.setup not in setups.known_setups():
            raise RuleError(f"{path}: nothing sets up {fix.setup!r}; there are {', '.join(setups.known_setups())}")
        for step in fix.steps:
            for name, value in step.makes:
                filled = isinstance(value, str) and "{" in value and known.find(name)
                rows = isinstance(value, list) and name in known.groups
                if not filled and not rows:
                    _check_case_value(name, value, known, f"{path}: what {fix.title!r} makes")


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


@lru_cache(maxsize=1)
def _functions() -> frozenset[str]:
    from gpudoctor.knowledge import LOOKUPS

    return frozenset(BUILTINS) | frozenset(LOOKUPS)


def check_expression(tree: ast.AST, known: Catalog, each: str) -> None:
    """Every name is a fact, a group or a loop variable; every call is documented; no version meets a bare number."""
    variables = loops(tree, each)
    attributes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    calls = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            _spec(node, known, variables)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in _functions():
            raise RuleError(f"no function {node.func.id!r}; there are {', '.join(sorted(_functions()))}")
        elif isinstance(node, ast.Name) and id(node) not in attributes | calls:
            if node.id not in known.groups and node.id not in variables:
                raise RuleError(f"no group {node.id!r}; there are {', '.join(sorted(known.groups))}")
        elif isinstance(node, ast.Compare):
            _check_compare(node, known, variables)


def _spec(node: ast.Attribute, known: Catalog, variables: Mapping[str, str]) -> FactSpec | None:
    assert isinstance(node.value, ast.Name)
    topic = variables.get(node.value.id, node.value.id)
    if not topic:
        return None
    spec = known.find(f"{topic}.{node.attr}")
    if spec is None:
        near = sorted(name for name in known.specs if name.startswith(f"{topic}."))
        raise RuleError(f"no fact {topic}.{node.attr}" + (f"; there are {', '.join(near)}" if near else ""))
    return spec


def _check_compare(node: ast.Compare, known: Catalog, variables: Mapping[str, str]) -> None:
    sides = [node.left, *node.comparators]
    numbers = [side for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, (int, float))]
    wrapped = any(isinstance(side, ast.Call) and getattr(side.func, "id", "") == "version" for side in sides)
    bare = [
        side
        for side in sides
        if isinstance(side, ast.Attribute)
        and isinstance(side.value, ast.Name)
        and (spec := _spec(side, known, variables)) is not None
        and spec.kind == "version"
    ]
    ordered = any(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in node.ops)
    if (wrapped or bare) and numbers:
        raise RuleError(f'a bare number where a version belongs (12.10 is not 12.1): write "{numbers[0].value!r}"')
    if bare and ordered and not wrapped:
        raise RuleError("versions are ordered by version(...), not as text")


def _check_facts(facts: Mapping[str, object], known: Catalog, where: str) -> None:
    for name, value in facts.items():
        if isinstance(value, list) and name in known.groups:
            for row in value:
                for column, item in row.items():
                    _check_case_value(f"{name}.{column}", item, known, where)
        elif name not in known.groups:
            _check_case_value(name, value, known, where)


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
