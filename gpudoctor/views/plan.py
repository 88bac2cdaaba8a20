"""A plan on paper: what is wrong, every step exactly as it would run, what comes of it, and the way back.

Its steps that need root are also a script for an administrator: every word quoted, with reasons and the way back. It
never reboots: its last line says that one is due.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpudoctor.core.language import say
from gpudoctor.core.plan import Change, Foreseen, Plan, PlanStep, Requirement, Way
from gpudoctor.views._terminal import PLAIN, Style, command, few, one_line, size, step_marks, wrapped
from gpudoctor.views.document import line as as_line

_REQUIRES = {
    "program": "{what} can be run",
    "writable": "{what} can be written to",
    "unchanged": "{what} is as it was when this plan was made",
}


def render(
    plan: Plan, style: Style = PLAIN, foreseen: Foreseen | None = None, titles: Mapping[str, str] | None = None
) -> str:
    """The whole plan as text, ending without a newline; `titles` are the causes' titles by rule id."""
    blocks = [_head_text(plan, style)]
    titles = titles or {}
    causes = dict.fromkeys(step.cause for step in plan.steps if step.cause in titles)
    blocks.append(_list_text(say("What is wrong:"), [f"{titles[cause]}  [{cause}]" for cause in causes]))
    requirements = map(requirement_text, dict.fromkeys(item for step in plan.chosen for item in step.requires))
    blocks.append(_list_text(say("Before anything is changed, it is made sure that"), requirements))
    blocks += _step_blocks(plan, style)
    blocks += [_foreseen_text(foreseen, style)] if foreseen else []
    remarks = (say("{sentence}.", sentence=remark) for remark in plan.remarks)
    blocks.append("\n".join(row for remark in remarks for row in wrapped(remark, hang=2)))
    alternatives = (f"{way.title}  [{way.cause}]" for way in _ways_not_chosen(plan))
    blocks += [_list_text(say("Or, instead (gpudoctor explain shows how):"), alternatives), _manual_steps_text(plan)]
    blocks.append(_list_text(say("To undo by hand:"), plan.undo))
    return "\n\n".join(block for block in blocks if block)


def _list_text(heading: str, sentences: Iterable[str]) -> str:
    """The heading and below it the sentences, each behind a dash; empty without any."""
    lines = [row for sentence in sentences for row in wrapped(f"- {sentence}", 2, 4)]
    return "\n".join([heading, *lines]) if lines else ""


def document(plan: Plan, foreseen: Foreseen | None = None) -> str:
    """The plan as a JSON document on one line, with what is foreseen if given."""
    raw = plan.to_json()
    if foreseen:
        raw["foreseen"] = foreseen.to_json()
    return as_line(raw)


def _step_blocks(plan: Plan, style: Style) -> Iterator[str]:
    """A text of several lines per chosen step; the first step of each fix has the fix's title above it."""
    titles = {(way.cause, way.number): way.title for way in plan.ways}
    last_cure = ""
    for step in plan.chosen:
        cure = titles.get((step.cause, step.way), "")
        cause = wrapped(f"{cure}  [{step.cause}]", hang=2) if cure and cure != last_cure else []
        last_cure = cure or last_cure
        yield "\n".join([*(style.paint(row, "bold") for row in cause), *step_lines(plan, step)])


def step_lines(plan: Plan, step: PlanStep) -> Iterator[str]:
    """Lines of one step: number, title or command, needs, text, package changes, expected facts, and why it is not run,
    unless that is the same for all of several steps.
    """
    number = f"{plan.number(step.id)}."
    command_line = f"$ {command(step.argv)}" if step.argv else ""
    text = "" if step.verify else one_line(step.text)
    if command_line.endswith(step.title):  # a command's title may be the command itself, without its folder
        yield f"  {number:<2} {command_line}"
    else:
        yield from wrapped(f"{number:<2} {text if text.startswith(step.title) else one_line(step.title)}", 2, 5)
        yield from [f"     {command_line}"] if command_line else ()
    by_hand = () if step.argv or step.verify else ("by hand",)
    needs = step_marks((*by_hand, *step.needs), step.touches)
    if needs:
        yield from wrapped(needs, 5, 5)
    if text and not text.startswith(step.title):
        yield from wrapped(text, 5, 5)
    for change in step.changes:
        yield from wrapped(change_text(change), 5, 7)
    if effect := _effect_text(step):
        yield from wrapped(say("expected: {facts}", facts=effect), 5, 15)
    if step.hindrance and not _nothing_runs_here(plan):
        yield from wrapped(say("not run: {why}", why=say(step.hindrance)), 5, 7)


def _nothing_runs_here(plan: Plan) -> bool:
    """True if several steps are chosen and all have the same `hindrance`, empty or not."""
    return len({step.hindrance for step in plan.chosen}) == 1 and len(plan.chosen) > 1


def change_text(change: Change) -> str:
    """A package's change: ``torch 2.9.0+cpu -> 2.9.0+cu128``; an empty version is ``not installed`` or ``removed``."""
    return f"{change.name} {change.before or say('not installed')} -> {change.after or say('removed')}"


def _head_text(plan: Plan, style: Style) -> str:
    """The plan's title, the environment that it changes with its present packages, and the download size, as lines."""
    template = "Plan for {machine}: {title}" if plan.machine else "Plan: {title}"
    title = say(template, machine=one_line(say(plan.machine)), title=one_line(plan.title))
    lines = [style.paint(title, "bold")]
    if plan.environment:
        with_packages = "It changes packages in {environment}; there now: {packages}."
        sentence = with_packages if plan.before else "It changes packages in {environment}."
        lines += wrapped(say(sentence, environment=plan.environment, packages=", ".join(plan.before)))
    if plan.downloads_mib:
        lines += [say("It downloads about {size}.", size=size(plan.downloads_mib))]
    return "\n".join(lines)


def requirement_text(item: Requirement) -> str:
    """A requirement in words: ``/opt/venv can be written to``, ``/opt has room for 2.4 GiB``."""
    if item.kind == "room":
        return say("{place} has room for {size}", place=one_line(item.subject), size=size(item.mib))
    return say(_REQUIRES[item.kind], what=one_line(item.subject))


def _effect_text(step: PlanStep) -> str:
    """What the step makes true, in words or as facts, the first few; empty if its title says so or it only verifies."""
    if step.verify or step.makes_true == step.title or step.makes_true.startswith("part of: "):
        return ""
    facts = (
        say("{name} is not there any more", name=name)
        if isinstance(value, dict)
        else say("{name} is {value}", name=name, value=one_line(str(value)))
        for name, value in step.makes
    )
    return few(step.makes_true or say("; ").join(facts))


def _foreseen_text(foreseen: Foreseen, style: Style) -> str:
    """Which rules would be gone, new, still found or unknown once the steps are done; or that nothing changes."""
    parts = (
        ("no longer found", foreseen.cleared, "green"),
        ("found anew", foreseen.new, "yellow"),
        ("still found", foreseen.stays, "yellow"),
        ("to be seen when the machine is read again", foreseen.unjudged, "dim"),
    )
    lines = [say("Foreseen, once all of this is done:")]
    for outcome, ids, colour in parts:
        sentence = say("{outcome}: {ids}", outcome=say(outcome), ids=", ".join(ids))
        lines += [style.paint(row, colour) for row in wrapped(sentence, 2, 4)] if ids else []
    return "\n".join(lines if len(lines) > 1 else [*lines, say("  nothing changes for any rule")])


def _ways_not_chosen(plan: Plan) -> Iterator[Way]:
    """The ways to fix of which the plan has steps, but none that is chosen."""
    open_ways = {(step.cause, step.way) for step in plan.steps} - {(step.cause, step.way) for step in plan.chosen}
    return (way for way in plan.ways if (way.cause, way.number) in open_ways)


def _manual_steps_text(plan: Plan) -> str:
    """Which chosen steps are left to a person, by number, or that nothing can be run here; empty if all are run."""
    steps = [step for step in plan.chosen if step.hindrance and not step.verify]
    if steps and _nothing_runs_here(plan):
        return "\n".join(wrapped(say("Nothing of this is run: {why}.", why=say(steps[0].hindrance)), hang=2))
    numbers = ", ".join(str(plan.number(step.id)) for step in steps)
    template = "Left to a person: steps {numbers}." if len(steps) > 1 else "Left to a person: step {numbers}."
    return say(template, numbers=numbers) if steps else ""


# ---- The steps that need root, as a script ----

SCRIPT_NAME = "gpudoctor-root-steps.sh"


def root_steps(plan: Plan) -> tuple[PlanStep, ...]:
    """Chosen commands that need root, up to and with the first reboot, except those in which a person must fill
    something in.
    """
    return tuple(step for step in plan.until_reboot.commands if "root" in step.needs and not _needs_completion(step))


def _needs_completion(step: PlanStep) -> bool:
    """True if a word of the command is a placeholder in capitals that `hindrance` names, or is not printable."""
    has_placeholder = any(word in step.hindrance.split() for word in step.argv if word.isupper())
    return has_placeholder or any(not word.isprintable() for word in step.argv)


def root_script(plan: Plan) -> str:
    """A POSIX shell script of the `root_steps` that stops at the first failure; empty if there are none."""
    steps = root_steps(plan)
    return "\n".join(_script_lines(plan, steps)) if steps else ""


def _script_lines(plan: Plan, steps: Sequence[PlanStep]) -> Iterator[str]:
    """Lines of `root_script`: heading, each fix's title and undo with its commands, and what to do at the end.

    A reboot is a comment, and a command that changes nothing may fail.
    """
    yield "#!/bin/sh"
    machine = one_line(plan.machine) or say("this machine")
    head = "What needs root, of gpudoctor's plan for {machine}: {title}."
    yield from _comment_lines(say(head, machine=machine, title=one_line(plan.title)))
    yield from _comment_lines(say("To be run as root, on that machine. It ends at the first command that fails."))
    yield "set -eu"
    last_way = None
    for step in steps:
        yield ""
        way = next((way for way in plan.ways if (way.cause, way.number) == (step.cause, step.way)), None)
        if way and way != last_way:
            yield from _comment_lines(f"{one_line(way.title)}  [{way.cause}]")
            if way.undo:
                yield from _comment_lines(say("To undo: {how}", how=one_line(way.undo)))
        last_way = way
        if step.text:
            yield from _comment_lines(one_line(step.text))
        if "downtime" in step.needs:
            yield from _comment_lines(say("This interrupts jobs."))
        if "reboot" in step.needs:
            yield from _comment_lines(say("Left to you, at the end: {command}", command=shlex.join(step.argv)))
        elif step.touches == "nothing":
            yield f"{shlex.join(step.argv)} || true"
        else:
            yield shlex.join(step.argv)
    yield ""
    if any("reboot" in step.needs for step in steps):
        ended = say("Done. Now reboot this machine, when no job runs, and then: gpudoctor check")
    else:
        ended = say("Done. To see what it came to: gpudoctor check")
    yield f"echo {shlex.quote(ended)}"


def _comment_lines(text: str) -> Iterator[str]:
    """The text wrapped to lines, each a shell comment."""
    return (f"# {row}" for row in wrapped(text))
