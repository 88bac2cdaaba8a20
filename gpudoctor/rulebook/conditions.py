"""What an expression on a page must get right: names that exist, calls that fit, values of kinds that go together."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from gpudoctor.expression import BUILTINS, parse
from gpudoctor.model.catalog import Catalog, FactSpec
from gpudoctor.model.errors import RuleError
from gpudoctor.model.near import meant
from gpudoctor.rulebook import kinds
from gpudoctor.rulebook.reading import loops
from gpudoctor.rulebook.spot import Spot

_ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_ALIKE = (ast.Eq, ast.NotEq)
_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.NotEq: "!="}


def check_expressions(found: Iterable[str], known: Catalog, each: str, page: Spot) -> None:
    """Raise `RuleError` for the first that is wrong, with the line where it stands."""
    for text in found:
        try:
            check_expression(_strictly(text), known, each)
        except RuleError as error:
            raise page.text(text).broken(f"in {text!r}: {error}") from error


def _strictly(text: str) -> ast.AST:
    """The expression's tree; a backslash that Python only warns of today is refused (write r'...' or [(])."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return parse(text)


def check_expression(tree: ast.AST, known: Catalog, each: str) -> None:
    """Every name is a fact, a group or a loop variable; every call fits; what is compared is of kinds that go together.

    Raises `RuleError`.
    """
    variables = loops(tree, each)
    whole = getattr(tree, "body", tree)
    if isinstance(whole, ast.Name) and whole.id in known.groups:
        raise RuleError(_rows(whole.id, known))
    attributes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    calls = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            _spec(node, known, variables)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            _check_call(node, node.func.id)
        elif isinstance(node, ast.Name) and id(node) not in attributes | calls:
            if node.id not in known.groups and node.id not in variables:
                raise RuleError(no_group(node.id, known))
        elif isinstance(node, ast.Compare):
            _check_compare(node, known, variables)


def no_group(name: str, known: Catalog) -> str:
    """What is said of a group that nobody has heard of."""
    return f"no group {name!r}" + (meant(name, known.groups) or f"; there are {', '.join(sorted(known.groups))}")


def _rows(name: str, known: Catalog) -> str:
    """What is said of a group that stands where a value belongs."""
    first = next(spec.name for spec in known.specs.values() if spec.name.startswith(f"{name}."))
    return f"{name} is rows, not a value: write len({name}), or [row.{first.rpartition('.')[2]} for row in {name}]"


def no_fact(name: str, known: Catalog) -> str:
    """What is said of a fact that nobody has heard of: what is near, and the command that lists others."""
    topic = name.partition(".")[0]
    listed = f"facts {topic}" if any(one.startswith(f"{topic}.") for one in known.specs) else "facts"
    return f"no fact {name}{meant(name, known.specs) or ';'} `gpudoctor explain {listed}` lists what there is"


@lru_cache(maxsize=1)
def _functions() -> Mapping[str, Callable[..., object]]:
    from gpudoctor.knowledge import LOOKUPS

    return {**BUILTINS, **LOOKUPS}


def _check_call(node: ast.Call, name: str) -> None:
    known = _functions()
    if name not in known:
        offered = meant(name, known) or f"; there are {', '.join(sorted(BUILTINS))}, and look-ups in tables"
        raise RuleError(f"no function {name!r}{offered}")
    if any(isinstance(argument, ast.Starred) for argument in node.args) or node.keywords:
        return
    import inspect

    try:
        signature = inspect.signature(known[name])
    except ValueError:  # one of Python's own that does not tell
        return
    try:
        signature.bind(*node.args)
    except TypeError:
        asked = ", ".join(signature.parameters)
        raise RuleError(f"{name}({asked}) is called with {len(node.args) or 'none'} of these") from None


def _spec(node: ast.Attribute, known: Catalog, variables: Mapping[str, str]) -> FactSpec | None:
    assert isinstance(node.value, ast.Name)
    topic = variables.get(node.value.id, node.value.id)
    if not topic:
        return None
    spec = known.find(f"{topic}.{node.attr}")
    if spec is None:
        raise RuleError(no_fact(f"{topic}.{node.attr}", known))
    return spec


def _check_compare(node: ast.Compare, known: Catalog, variables: Mapping[str, str]) -> None:
    sides = [node.left, *node.comparators]
    numbers = [side for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, (int, float))]
    wrapped = any(isinstance(side, ast.Call) and getattr(side.func, "id", "") == "version" for side in sides)
    bare = [side for side in sides if (spec := _fact_of(side, known, variables)) and spec.kind == "version"]
    if (wrapped or bare) and numbers:
        fact = ast.unparse(bare[0]) if bare else "..."
        example = f'version({fact}) {_SIGNS.get(type(node.ops[0]), "==")} "{numbers[0].value!r}"'
        raise RuleError(f"a bare number where a version belongs (12.10 is not 12.1): write {example}")
    if bare and any(isinstance(op, _ORDERED) for op in node.ops) and not wrapped:
        raise RuleError(f"versions are ordered by version(...), not as text: write version({ast.unparse(bare[0])})")
    for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
        if isinstance(op, (*_ORDERED, *_ALIKE)):
            _check_pair(node, left, right, known, variables)


def _fact_of(node: ast.expr, known: Catalog, variables: Mapping[str, str]) -> FactSpec | None:
    named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    return _spec(node, known, variables) if named else None  # type: ignore[arg-type]


def _check_pair(
    whole: ast.Compare, left: ast.expr, right: ast.expr, known: Catalog, variables: Mapping[str, str]
) -> None:
    """A fact beside a value that is written on the page, or beside another fact: both of one family."""
    ours, theirs = _fact_of(left, known, variables), _fact_of(right, known, variables)
    if ours is None and theirs is not None:
        ours, theirs, left, right = theirs, None, right, left
    if ours is None:
        return
    family = kinds.FAMILIES.get(ours.kind, ours.kind)
    if theirs is not None:
        if kinds.FAMILIES.get(theirs.kind, theirs.kind) != family:
            names = [ast.unparse(side) for side in (left, right)]
            raise RuleError(f"{kinds.described(names[0], ours)}, is compared with {kinds.described(names[1], theirs)}")
    elif isinstance(right, ast.Constant) and kinds.family_of(right.value) != family:
        raise RuleError(_odd(whole, ast.unparse(left), ours, right))


def _odd(whole: ast.Compare, name: str, spec: FactSpec, constant: ast.Constant) -> str:
    """What is said of a value that the fact cannot have, and what to write instead as far as that can be told."""
    if constant.value is None:
        return f"nothing equals None: write absent({name}) or present({name})"
    said = f"{kinds.described(name, spec)}, is compared with {kinds.shown(constant.value)}"
    better = kinds.rewritten(constant.value, spec)
    if better is None:
        return said
    written = constant.value
    constant.value = better
    try:
        return f"{said}: write {ast.unparse(whole)}"
    finally:
        constant.value = written  # the tree is kept for whoever parses that text again
