"""What an expression on a page must get right: names that exist, calls that fit, values of kinds that go together."""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from collections.abc import Iterable, Mapping

from gpudoctor.core.catalog import Catalog, FactSpec, kind_name, unit_factor
from gpudoctor.core.errors import RuleError, UsageError
from gpudoctor.core.language import meant, say
from gpudoctor.diagnosis.expression import BUILTINS, parse
from gpudoctor.diagnosis.knowledge import LOOKUPS
from gpudoctor.diagnosis.rulebook.expressions import loop_groups
from gpudoctor.diagnosis.rulebook.page import Spot, with_correction

# ---- What kind of value a fact has ----
# And how a value of another kind would be written as one of it.

FAMILIES = {"text": "text", "version": "text", "int": "number", "float": "number", "bool": "bool"}
"""Kinds whose values may be compared with each other go by one name; ``list`` and ``map`` by their own."""
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([^\d\s].*?)?\s*\Z")


def described(name: str, spec: FactSpec) -> str:
    """The fact and its kind, for messages: ``limits.shm_mib, a whole number in MiB``."""
    kind = say(kind_name(spec.kind))
    if spec.unit:
        kind = say("{kind} in {unit}", kind=kind, unit=spec.unit)
    return say("{name}, {kind}", name=name, kind=kind)


def family_of(value: object) -> str:
    """Kind family of a page's constant: ``bool``, ``number``, ``text``, or ``none`` for anything else."""
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, (int, float)) else "text" if isinstance(value, str) else "none"


def value_with_kind(value: object) -> str:
    """A page's value with its kind, for messages: ``the text '64'``."""
    family = family_of(value)
    if family not in ("number", "text"):
        return repr(value)
    return say("the number {value}" if family == "number" else "the text {value}", value=repr(value))


def suggested_value(value: object, spec: FactSpec) -> bool | int | float | str | None:
    """The value as the fact's kind and unit would have it: 16384 for ``16 GiB`` in MiB, ``"12"`` for 12 as text.

    None where that is unclear, or for a number or text that is of that kind already.
    """
    wanted = FAMILIES.get(spec.kind, spec.kind)
    if wanted == "text" and family_of(value) == "number":
        return str(value)
    if wanted == "bool" and str(value).lower() in _BOOLEANS:
        return _BOOLEANS[str(value).lower()]
    quantity = _QUANTITY.match(value) if isinstance(value, str) and wanted == "number" else None
    if quantity is None:
        return None
    try:
        number = float(quantity[1]) * unit_factor(quantity[2] or "", spec.unit)
    except UsageError:
        return None
    return int(number) if number == int(number) else number if spec.kind == "float" else None


_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


# ---- Expressions ----

_ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_ALIKE = (ast.Eq, ast.NotEq)
_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.NotEq: "!="}


def check_expressions(found: Iterable[str], known: Catalog, each: str, page: Spot) -> None:
    """Raises `RuleError` for the first of these expressions that is wrong, naming its line on the page."""
    for text in found:
        try:
            check_expression(_parse_strictly(text), known, each)
        except RuleError as error:
            raise page.text(text).broken(say("in {text}: {problem}", text=repr(text), problem=error)) from error


def _parse_strictly(text: str) -> ast.AST:
    """The expression's syntax tree; Python's warnings (a wrong backslash) are errors. Raises `RuleError`."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return parse(text)


def check_expression(tree: ast.AST, known: Catalog, each: str) -> None:
    """Raises `RuleError` for an unknown name or function, a call with wrong arguments, or kinds that do not compare."""
    variables = loop_groups(tree, each)
    whole = getattr(tree, "body", tree)
    if isinstance(whole, ast.Name) and whole.id in known.groups:
        raise RuleError(_group_as_value_message(whole.id, known))
    attributes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    calls = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            _fact_spec(node, known, variables)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            _check_call(node, node.func.id)
        elif isinstance(node, ast.Name) and id(node) not in attributes | calls:
            if node.id not in known.groups and node.id not in variables:
                raise RuleError(no_group(node.id, known))
        elif isinstance(node, ast.Compare):
            _check_compare(node, known, variables)


def no_group(name: str, known: Catalog) -> str:
    """Message for an unknown group, with near names or all of them."""
    near = meant(name, known.groups) or say("; available: {names}", names=", ".join(sorted(known.groups)))
    return say("no group {name}", name=repr(name)) + near


def _group_as_value_message(name: str, known: Catalog) -> str:
    """Message for a group used where a value belongs."""
    first = next(spec.name for spec in known.specs.values() if spec.name.startswith(f"{name}."))
    column = first.rpartition(".")[2]
    template = "{name} is rows, not a value: write len({name}), or [row.{column} for row in {name}]"
    return say(template, name=name, column=column)


def no_fact(name: str, known: Catalog) -> str:
    """Message for an unknown fact: near names, and the command that lists others."""
    topic = name.partition(".")[0]
    listed = f"facts {topic}" if any(known_name.startswith(f"{topic}.") for known_name in known.specs) else "facts"
    near = meant(name, known.specs)
    template = "{problem}; `gpudoctor explain {listed}` lists what there is"
    if near:  # a question, which ends by itself
        template = "{problem} `gpudoctor explain {listed}` lists what there is"
    return say(template, problem=say("no fact {name}", name=name) + near, listed=listed)


def _check_call(node: ast.Call, name: str) -> None:
    """Raises `RuleError` for an unknown function or a wrong number of arguments."""
    known = {**BUILTINS, **LOOKUPS}
    if name not in known:
        offered = meant(name, known) or say(
            "; available: {names}, and look-ups in tables", names=", ".join(sorted(BUILTINS))
        )
        raise RuleError(say("no function {name}", name=repr(name)) + offered)
    if any(isinstance(argument, ast.Starred) for argument in node.args) or node.keywords:
        return
    try:
        signature = inspect.signature(known[name])
    except ValueError:  # one of Python's own that does not tell
        return
    try:
        signature.bind(*node.args)
    except TypeError:
        call = f"{name}({', '.join(signature.parameters)})"
        raise RuleError(
            say("{call} is called with {count} of these", call=call, count=len(node.args))
            if node.args
            else say("{call} is called with none of these", call=call)
        ) from None


def _fact_spec(node: ast.Attribute, known: Catalog, variables: Mapping[str, str]) -> FactSpec | None:
    """The declaration of the fact that ``name.attr`` reads; raises `RuleError` where no such fact is declared.

    None for the attribute of a loop variable that ranges over no group.
    """
    assert isinstance(node.value, ast.Name)
    topic = variables.get(node.value.id, node.value.id)
    if not topic:
        return None
    spec = known.find(f"{topic}.{node.attr}")
    if spec is None:
        raise RuleError(no_fact(f"{topic}.{node.attr}", known))
    return spec


def _check_compare(node: ast.Compare, known: Catalog, variables: Mapping[str, str]) -> None:
    """Raises `RuleError` where a version is compared with a number or ordered as text, or kinds do not compare."""
    sides = [node.left, *node.comparators]
    numbers = [side for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, (int, float))]
    wrapped = any(isinstance(side, ast.Call) and getattr(side.func, "id", "") == "version" for side in sides)
    bare = [side for side in sides if (spec := _fact_of(side, known, variables)) and spec.kind == "version"]
    if (wrapped or bare) and numbers:
        fact = ast.unparse(bare[0]) if bare else "..."
        example = f'version({fact}) {_SIGNS.get(type(node.ops[0]), "==")} "{numbers[0].value!r}"'
        problem = say("a bare number where a version belongs (12.10 is not 12.1)")
        raise RuleError(with_correction(problem, example))
    if bare and any(isinstance(op, _ORDERED) for op in node.ops) and not wrapped:
        problem = say("versions are ordered by version(...), not as text")
        raise RuleError(with_correction(problem, f"version({ast.unparse(bare[0])})"))
    for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
        if isinstance(op, (*_ORDERED, *_ALIKE)):
            _check_pair(node, left, right, known, variables)


def _fact_of(node: ast.expr, known: Catalog, variables: Mapping[str, str]) -> FactSpec | None:
    """The declaration of the fact that the expression names; None for any other; raises `RuleError` if undeclared."""
    named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    return _fact_spec(node, known, variables) if named else None  # type: ignore[arg-type]


def _check_pair(
    whole: ast.Compare, left: ast.expr, right: ast.expr, known: Catalog, variables: Mapping[str, str]
) -> None:
    """Raises `RuleError` where a fact is compared with a value or fact of another kind family."""
    ours, theirs = _fact_of(left, known, variables), _fact_of(right, known, variables)
    if ours is None and theirs is not None:
        ours, theirs, left, right = theirs, None, right, left
    if ours is None:
        return
    family = FAMILIES.get(ours.kind, ours.kind)
    if theirs is not None:
        if FAMILIES.get(theirs.kind, theirs.kind) != family:
            names = [ast.unparse(side) for side in (left, right)]
            described_sides = described(names[0], ours), described(names[1], theirs)
            raise RuleError(_compared(*described_sides))
    elif isinstance(right, ast.Constant) and family_of(right.value) != family:
        raise RuleError(_mismatch_message(whole, ast.unparse(left), ours, right))


def _compared(fact: str, other: str) -> str:
    """Message for a fact that is compared with something of another kind."""
    return say("{fact}, is compared with {other}", fact=fact, other=other)


def _mismatch_message(whole: ast.Compare, name: str, spec: FactSpec, constant: ast.Constant) -> str:
    """Message for a value that the fact cannot have, with what to write instead where that is clear."""
    if constant.value is None:
        return say("nothing equals None: write absent({name}) or present({name})", name=name)
    message = _compared(described(name, spec), value_with_kind(constant.value))
    better = suggested_value(constant.value, spec)
    if better is None:
        return message
    written = constant.value
    constant.value = better
    try:
        return with_correction(message, ast.unparse(whole))
    finally:
        constant.value = written  # the tree is kept for whoever parses that text again
