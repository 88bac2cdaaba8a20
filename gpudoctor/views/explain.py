"""Pages for people: a rule with its proof, a fact, the list of all rules."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from gpudoctor.language import say
from gpudoctor.model.catalog import FactSpec
from gpudoctor.model.pattern import pattern
from gpudoctor.model.rule import Case, Fix, Rule
from gpudoctor.views._columns import padded
from gpudoctor.views._terminal import command, noted, safe, wrapped

_WORKED_OUT = pattern(r"(?:\{(?![\w.]+(?: ?\|[^{}]*)?\})[^{}]+\})+")
"""What stands in a sentence and is no bare fact."""


def rule_page(rule: Rule, cases: Sequence[Case]) -> str:
    """Everything a page says, in reading order."""
    return "\n".join(_rule_lines(rule, cases))


def _rule_lines(rule: Rule, cases: Sequence[Case]) -> Iterator[str]:
    yield f"{rule.id}: {safe(rule.title)}"
    said = [say(rule.severity), say(rule.role), say("layer {layer}", layer=rule.layer)]
    said += [say("of a job or a fleet of machines")] if rule.scope == "cluster" else []
    said += [say("judged for each {row}", row=rule.each)] if rule.each else []
    yield say(", ").join(said)
    yield ""
    yield from wrapped(_WORKED_OUT.sub("…", rule.why), paragraphs=True)
    yield from _conditions("Found when all of these hold", rule.when)
    yield from _conditions("Never where one of these holds", rule.unless)
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
    return f"{match}   ({say('conclusive' if conclusive else 'suggestive')})"


def _conditions(title: str, conditions: Sequence[str]) -> Iterator[str]:
    """One below the other; one that its page writes over several lines keeps them, with their indents."""
    if conditions:
        yield ""
        yield say("{title}:", title=say(title))
    for condition in conditions:
        first, _, rest = condition.strip().partition("\n")
        for line in [first, *textwrap.dedent(rest).splitlines()]:
            indent = 2 + len(line) - len(line.lstrip())
            yield from wrapped(line.strip(), indent, indent + 2)


def _section(title: str, items: Sequence[str]) -> Iterator[str]:
    if items:
        yield ""
        yield say("{title}:", title=say(title))
        for item in items:
            yield from wrapped(item, 2, 4)


_SEVERITY = 7
"""Columns of the longest."""
_PAGES = ("driver", "cuda-toolkit", "container")
"""What is set up by a page, as `gpudoctor setup` has it; all else is torch, in one way or another."""


def _fix(fix: Fix) -> Iterator[str]:
    where = "  " + say("[where {conditions}]", conditions=" and ".join(fix.when)) if fix.when else ""
    yield from wrapped(say("Cure: {title}", title=fix.title) + where)
    if fix.setup:
        what = fix.setup if fix.setup in _PAGES else "torch"
        steps = "The steps are those of this machine: gpudoctor setup {what} prints them."
        yield from wrapped(say(steps, what=what), 2, 2)
    for step in fix.steps:
        note = noted(step.text, step.needs, step.touches)
        if note:
            yield from wrapped(note, 2, 2)
        if step.argv:
            yield f"    $ {command(step.argv)}"
    if fix.undo:
        yield from wrapped(say("To undo: {how}", how=fix.undo), 2, 4)


def fact_page(spec: FactSpec, rules: Sequence[str] = ()) -> str:
    """A fact's name, type and meaning, and the rules that read it."""
    kind = [spec.kind, *([say("in {unit}", unit=spec.unit)] if spec.unit else [])]
    kind += [say("one for each row")] if spec.group else []
    about = [f"{spec.name}  ({', '.join(kind)})", *wrapped(spec.about, 2)]
    return "\n".join([*about, *_section("Read by", list(rules))])


def fact_list(specs: Sequence[FactSpec]) -> str:
    """Every fact on a line: its name, its kind, its meaning."""
    kinds = [f"{spec.kind}{f' {spec.unit}' if spec.unit else ''}" for spec in specs]
    names, longest = max(len(spec.name) for spec in specs), max(map(len, kinds))
    return "\n".join(
        f"{spec.name:<{names}}  {padded(kind, longest)}  {spec.about}" for spec, kind in zip(specs, kinds, strict=True)
    )


_LINE = (
    "A line of the profile that was given with --expect: what somebody wrote that this machine must be. Where it is not"
    " so, the finding says what is, what is expected, and by which profile; the finding's references name the file. The"
    " cure is in the machine, or in the line: gpudoctor expect --help tells how profiles are written and loosened."
)


def line_page(name: str, facts: Sequence[FactSpec]) -> str:
    """What the finding of a profile's line is, and the fact that it is about, where its name tells."""
    about = [f"{safe(name)}: a line of an expectation profile", "", *wrapped(_LINE)]
    return "\n".join([*about, *(f"\n{fact_page(spec)}" for spec in facts)])


def rule_list(rules: Sequence[Rule]) -> str:
    """Every rule on a line, from the ground up."""
    longest = max((len(rule.id) for rule in rules), default=0)
    return "\n".join(
        f"{rule.id:<{longest}}  {padded(say(rule.severity), _SEVERITY)}  {safe(rule.title)}{_scope(rule)}"
        for rule in rules
    )


def _scope(rule: Rule) -> str:
    return say(" [of many machines]") if rule.scope == "cluster" else ""
