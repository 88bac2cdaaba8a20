"""Pages for people: a rule with its proof, a fact, the list of all rules, a table and its rows."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from gpudoctor.core.catalog import FactSpec
from gpudoctor.core.language import say
from gpudoctor.core.pattern import pattern
from gpudoctor.core.rule import Case, Entries, Fix, Rule, Table
from gpudoctor.views._terminal import command, joined, padded, safe, shell_lines, step_text, width, wrapped

_COMPUTED = pattern(r"(?:\{(?![\w.]+(?: ?\|[^{}]*)?\})[^{}]+\})+")
"""Holes of a template that are expressions, not merely a fact."""


@joined
def rule_page(rule: Rule, cases: Sequence[Case]) -> Iterator[str]:
    """Everything that a rule says, as one text: conditions, proofs, signs, fixes, sources, names of its test cases."""
    yield f"{rule.id}: {safe(rule.title)}"
    parts = [say(rule.severity), say(rule.role), say("layer {layer}", layer=rule.layer)]
    parts += [say("of a job or a fleet of machines")] if rule.scope == "cluster" else []
    parts += [say("judged for each {row}", row=rule.each)] if rule.each else []
    yield say(", ").join(parts)
    yield ""
    yield from wrapped(_COMPUTED.sub("…", rule.why), paragraphs=True)
    yield from _condition_lines(say("Found when all of these hold"), rule.when)
    if len(rule.proofs) > 1:
        yield from ("", *wrapped(say("One of the proofs below must hold, and of that one each line.")))
    for number, proof in enumerate(rule.proofs, 1):
        title = say("Proof {number}" if len(rule.proofs) > 1 else "Proof, all of which must hold", number=number)
        yield from _condition_lines(title, proof.when)
        if proof.confidence or proof.finding or proof.severity:
            says = _COMPUTED.sub("…", proof.finding or rule.finding)
            words = [say(word) for word in (proof.severity, proof.confidence or rule.confidence) if word]
            yield from wrapped(f"→ {say('{title}: {text}', title=say(', ').join(words), text=says)}", 2, 4)
    yield from _condition_lines(say("Never where one of these holds"), rule.unless)
    yield from _section_lines(
        "Signs in machine-printed text",
        [f"{sign.match}   ({say('conclusive' if sign.conclusive else 'suggestive')})" for sign in rule.signs],
    )
    for fix in rule.fixes:
        yield ""
        yield from _fix_lines(fix)
    yield from _section_lines("Explains", rule.explains)
    for title, text in (("To be sure", rule.confirm), ("To be sure, on Windows", rule.confirm_windows)):
        if text:
            yield from ("", *shell_lines(say("{title}:", title=say(title)), text, 0))
    yield from _section_lines("What it will not catch", [rule.misses] if rule.misses else [])
    yield from _section_lines("Sources", rule.sources)
    yield from _section_lines("Proven by", [case.name for case in cases])


def _condition_lines(title: str, conditions: Sequence[str]) -> Iterator[str]:
    """A blank line, a heading and the conditions with their own line breaks and indents; nothing if there are none."""
    if conditions:
        yield ""
        yield say("{title}:", title=title)
    for condition in conditions:
        first, _, rest = condition.strip().partition("\n")
        for line in [first, *textwrap.dedent(rest).splitlines()]:
            indent = 2 + len(line) - len(line.lstrip())
            yield from wrapped(line.strip(), indent, indent + 2)


def _section_lines(title: str, items: Sequence[str]) -> Iterator[str]:
    """A blank line, a heading and the items, indented; nothing if there are no items."""
    if items:
        yield ""
        yield say("{title}:", title=say(title))
        for item in items:
            yield from wrapped(item, 2, 4)


_SEVERITY_WIDTH = 7
"""Columns of the longest severity."""
_SETUP_COMMANDS = {name: f"gpudoctor setup {name}" for name in ("driver", "cuda-toolkit", "container")} | dict.fromkeys(
    ("compiler", "windows-driver"), "gpudoctor fix"
)
"""The command that prints the steps of what a page sets up; all else is torch, in one way or another."""


def _fix_lines(fix: Fix) -> Iterator[str]:
    """Lines of a fix: title and conditions, the command that prints the steps for this machine (``gpudoctor setup
    torch``), if there is one, the steps written in the rule with their commands, how to undo.
    """
    where = "  " + say("[where {conditions}]", conditions=" and ".join(fix.when)) if fix.when else ""
    yield from wrapped(say("Cure: {title}", title=fix.title) + where)
    if fix.setup:
        printing = _SETUP_COMMANDS.get(fix.setup, "gpudoctor setup torch")
        yield from wrapped(say("The steps are those of this machine: {command} prints them.", command=printing), 2, 2)
    for step in fix.steps:
        note = step_text(step.text, step.needs, step.touches)
        if note:
            yield from wrapped(note, 2, 2)
        if step.argv:
            yield f"    $ {command(step.argv)}"
    if fix.undo:
        yield from wrapped(say("To undo: {how}", how=fix.undo), 2, 4)


def fact_page(spec: FactSpec, rules: Sequence[str] = ()) -> str:
    """A fact's name, type, unit and meaning, and the ids of the rules that read it, as text."""
    details = [spec.kind, *([say("in {unit}", unit=spec.unit)] if spec.unit else [])]
    details += [say("one for each row")] if spec.group else []
    lines = [f"{spec.name}  {say('({marks})', marks=say(', ').join(details))}", *wrapped(spec.about, 2)]
    return "\n".join([*lines, *_section_lines("Read by", list(rules))])


def fact_list(specs: Sequence[FactSpec]) -> str:
    """Every fact on a line: name, type with unit, meaning; raises ValueError without facts."""
    kinds = [f"{spec.kind}{f' {spec.unit}' if spec.unit else ''}" for spec in specs]
    names, longest = max(len(spec.name) for spec in specs), max(map(len, kinds))
    return "\n".join(
        f"{spec.name:<{names}}  {padded(kind, longest)}  {spec.about}" for spec, kind in zip(specs, kinds, strict=True)
    )


_ABOUT_PROFILE_LINES = (
    "A line of the profile that was given with --expect: what somebody wrote that this machine must be. Where it is not"
    " so, the finding says what is, what is expected, and by which profile; the finding's references name the file. The"
    " cure is in the machine, or in the line: gpudoctor expect --help tells how profiles are written and loosened."
)


def line_page(name: str, facts: Sequence[FactSpec]) -> str:
    """Page of a finding made by a profile's line: what such a line is, then the pages of the facts that it is about."""
    head = say("{name}: a line of an expectation profile", name=safe(name))
    lines = [head, "", *wrapped(say(_ABOUT_PROFILE_LINES))]
    return "\n".join([*lines, *(f"\n{fact_page(spec)}" for spec in facts)])


def rule_list(rules: Sequence[Rule]) -> str:
    """Every rule on a line, in the order given: id, severity, title; empty without rules."""
    longest = max((len(rule.id) for rule in rules), default=0)
    return "\n".join(
        f"{rule.id:<{longest}}  {padded(say(rule.severity), _SEVERITY_WIDTH)}  {safe(rule.title)}"
        + (say(" [of many machines]") if rule.scope == "cluster" else "")
        for rule in rules
    )


# ---- Tables of what runs on what ----


@joined
def table_page(table: Table) -> Iterator[str]:
    """A data table's description, sources, all keys by heading, and commands to try, as one text."""
    yield from wrapped(say("Table {name}: {about}", name=table.name, about=say(table.about)))
    yield say("Checked {day} against:", day=table.checked)
    for source in table.sources:
        yield from wrapped(source, 2, 4)
    for heading, keys in table.keys:
        yield ""
        yield say("{heading} ({count}):", heading=say(heading), count=len(keys))
        yield from wrapped(", ".join(keys), 2)
    yield ""
    yield say("To see rows of it:")
    for key in table.tries:
        yield f"  $ {command(('gpudoctor', 'explain', table.name, key))}"


@joined
def entries_page(table: Table, entries: Entries) -> Iterator[str]:
    """A data table's matching rows as one text: the note, each row with its source, then the table's sources."""
    if entries.note:
        yield from wrapped(entries.note)
        yield ""
    for entry in entries.entries:
        yield from wrapped(entry.title, 0, 4)
        labels = [say("{title}:", title=say(label)) for label, _ in entry.lines]
        widest = max(map(width, labels), default=0)
        for label, (_, text) in zip(labels, entry.lines, strict=True):
            yield from wrapped(f"{padded(label, widest)} {text}", 2, widest + 3)
        if entry.source:
            yield from wrapped(say("Source: {source}", source=entry.source), 2, 4)
        yield ""
    yield from wrapped(say("Table {name}, checked {day} against", name=table.name, day=table.checked), 0, 2)
    for source in table.sources:
        yield from wrapped(source, 2, 4)
