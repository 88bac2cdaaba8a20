"""Pages for people: a rule with its proof, a fact, the list of all rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.model.catalog import FactSpec
from gpudoctor.model.rule import Case, Fix, Rule
from gpudoctor.views._terminal import command, marks, safe, wrapped


def rule_page(rule: Rule, cases: Sequence[Case]) -> str:
    """Everything a page says, in reading order."""
    return "\n".join(_rule_lines(rule, cases))


def _rule_lines(rule: Rule, cases: Sequence[Case]) -> Iterator[str]:
    yield f"{rule.id}: {safe(rule.title)}"
    where = ", of a job or a fleet of machines" if rule.scope == "cluster" else ""
    each = f", judged for each {rule.each}" if rule.each else ""
    yield f"{rule.severity}, {rule.role}, layer {rule.layer}{where}{each}"
    yield ""
    yield from wrapped(rule.why)
    yield from _section("Found when all of these hold", rule.when)
    yield from _section("Never where one of these holds", rule.unless)
    yield from _section("Signs in machine-printed text", [_sign(sign.match, sign.conclusive) for sign in rule.signs])
    for fix in rule.fixes:
        yield ""
        yield from _fix(fix)
    yield from _section("Explains", rule.explains)
    if rule.confirm:
        yield from _section("To be sure", [rule.confirm])
    yield from _section("What it will not catch", [rule.misses] if rule.misses else [])
    yield from _section("Sources", rule.sources)
    yield from _section("Proven by", [case.name for case in cases])


def _sign(match: str, conclusive: bool) -> str:
    return f"{match}   ({'conclusive' if conclusive else 'suggestive'})"


def _section(title: str, items: Sequence[str]) -> Iterator[str]:
    if items:
        yield ""
        yield f"{title}:"
        for item in items:
            yield from wrapped(item, 2, 4)


def _fix(fix: Fix) -> Iterator[str]:
    yield from wrapped(f"Cure: {fix.title}" + (f"  [where {' and '.join(fix.when)}]" if fix.when else ""))
    for step in fix.steps:
        note = f"{step.text} {marks(step.needs, step.touches)}".strip()
        if note:
            yield from wrapped(note, 2, 2)
        if step.argv:
            yield f"    $ {command(step.argv)}"
    if fix.undo:
        yield from wrapped(f"To undo: {fix.undo}", 2, 4)


def fact_page(spec: FactSpec, rules: Sequence[str] = ()) -> str:
    """A fact's name, type and meaning, and the rules that read it."""
    kind = f"{spec.kind}, in {spec.unit}" if spec.unit else spec.kind
    about = [f"{spec.name}  ({kind}{', one for each row' if spec.group else ''})", *wrapped(spec.about, 2)]
    return "\n".join([*about, *_section("Read by", list(rules))])


def rule_list(rules: Sequence[Rule]) -> str:
    """Every rule on a line, from the ground up."""
    width = max((len(rule.id) for rule in rules), default=0)
    return "\n".join(f"{rule.id:<{width}}  {rule.severity:<7}  {safe(rule.title)}{_scope(rule)}" for rule in rules)


def _scope(rule: Rule) -> str:
    return " [of many machines]" if rule.scope == "cluster" else ""
