"""A plan on paper: what is wrong, every step exactly as it would run, what comes of it, and the way back.

Its steps that need root are also a script for an administrator: every word quoted, with reasons and the way back. It
never reboots: its last line says that one is due.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from gpudoctor.core.language import say
from gpudoctor.core.plan import Change, Foreseen, Plan, PlanStep, Requirement
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
    blocks += [_causes_text(plan, titles)] if titles else []
    requirements = dict.fromkeys(item for step in plan.chosen for item in step.requires)
    lines = [row for item in requirements for row in wrapped(f"- {requirement_text(item)}", 2, 4)]
    blocks += ["\n".join([say("Before anything is changed, it is made sure that"), *lines])] if lines else []
    blocks += _step_blocks(plan, style)
    blocks += [_foreseen_text(foreseen, style)] if foreseen else []
    blocks += (
        ["\n".join(row for remark in plan.remarks for row in wrapped(say("{sentence}.", sentence=remark), hang=2))]
        if plan.remarks
        else []
    )
    blocks += [_alternatives_text(plan), _manual_steps_text(plan), _undo_text(plan)]
    return "\n\n".join(block for block in blocks if block)


def document(plan: Plan, foreseen: Foreseen | None = None) -> str:
    """The plan as one JSON document on one line, with what is foreseen if given."""
    raw = plan.to_json()
    if foreseen:
        raw["foreseen"] = foreseen.to_json()
    return as_line(raw)


def _step_blocks(plan: Plan, style: Style) -> Iterator[str]:
    """A block of lines per chosen step; the first step of each cure has the cure's title above it."""
    titles = {(way.cause, way.number): way.title for way in plan.ways}
    last_cure = ""
    for step in plan.chosen:
        cure = titles.get(_cure_key(step), "")
        cause = wrapped(f"{cure}  [{step.cause}]", hang=2) if cure and cure != last_cure else []
        last_cure = cure or last_cure
        yield "\n".join([*(style.paint(row, "bold") for row in cause), *step_lines(plan, step)])


def step_lines(plan: Plan, step: PlanStep) -> Iterator[str]:
    """One step: number and title or command, needs, text, package changes, expected facts, why it is not run."""
    number = f"{plan.number(step.id)}."
    command_line = f"$ {command(step.argv)}" if step.argv else ""
    text = "" if step.verify else one_line(step.text)
    if command_line.endswith(step.title):  # a command's title may be the command itself, without its folder
        yield f"  {number:<3}{command_line}"
    else:
        yield from wrapped(f"{number:<3}{text if text.startswith(step.title) else one_line(step.title)}", 2, 5)
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
    """Whether several steps are chosen and all have the same `hindrance`."""
    return len({step.hindrance for step in plan.chosen}) == 1 and len(plan.chosen) > 1


def change_text(change: Change) -> str:
    """A package's change, ``torch 2.9.0+cpu -> 2.9.0+cu128``; empty versions are ``not installed`` or ``removed``."""
    return f"{change.name} {change.before or say('not installed')} -> {change.after or say('removed')}"


def _head_text(plan: Plan, style: Style) -> str:
    """The plan's title, the environment it changes with its present packages, and the download size."""
    template = "Plan for {machine}: {title}" if plan.machine else "Plan: {title}"
    title = say(template, machine=one_line(plan.machine), title=one_line(plan.title))
    lines = [style.paint(title, "bold")]
    if plan.environment:
        with_packages = "It changes packages in {environment}; there now: {packages}."
        sentence = with_packages if plan.before else "It changes packages in {environment}."
        lines += wrapped(say(sentence, environment=plan.environment, packages=", ".join(plan.before)))
    if plan.downloads_mib:
        lines += [say("It downloads about {size}.", size=size(plan.downloads_mib))]
    return "\n".join(lines)


def _causes_text(plan: Plan, titles: Mapping[str, str]) -> str:
    """The causes that the plan cures, one a line, in its order; empty without any."""
    causes = dict.fromkeys(step.cause for step in plan.steps if step.cause in titles)
    lines = [row for cause in causes for row in wrapped(f"- {titles[cause]}  [{cause}]", 2, 4)]
    return "\n".join([say("What is wrong:"), *lines]) if lines else ""


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
        f"{name} is not there any more" if isinstance(value, dict) else f"{name} is {one_line(str(value))}"
        for name, value in step.makes
    )
    return few(step.makes_true or "; ".join(facts))


def _foreseen_text(foreseen: Foreseen, style: Style) -> str:
    """Which rules would no longer be found, be new, stay or be unknown once the steps are done."""
    parts = (
        ("no longer found", foreseen.cleared, "green"),
        ("found anew", foreseen.new, "yellow"),
        ("still found", foreseen.stays, "yellow"),
        ("to be seen when the machine is read again", foreseen.unjudged, "dim"),
    )
    lines = [
        style.paint(row, colour)
        for outcome, ids, colour in parts
        if ids
        for row in wrapped(say("{outcome}: {ids}", outcome=say(outcome), ids=", ".join(ids)), 2, 4)
    ]
    return "\n".join([say("Foreseen, once all of this is done:"), *(lines or [say("  nothing changes for any rule")])])


def _alternatives_text(plan: Plan) -> str:
    """Titles of the cures that have steps in the plan, none of them chosen; empty without any."""
    chosen = {(step.cause, step.way) for step in plan.chosen}
    lines = [
        row
        for way in plan.ways
        if (way.cause, way.number) not in chosen
        and any((way.cause, way.number) == _cure_key(step) for step in plan.steps)
        for row in wrapped(f"- {way.title}  [{way.cause}]", 2, 4)
    ]
    return "\n".join([say("Or, instead (gpudoctor explain shows how):"), *lines]) if lines else ""


def _cure_key(step: PlanStep) -> tuple[str, int]:
    """(cause, number of the way) that identifies the cure a step belongs to."""
    return step.cause, step.way


def _manual_steps_text(plan: Plan) -> str:
    """Which steps a person must do, by number, or that nothing can be run here; empty where all are run."""
    steps = [step for step in plan.chosen if step.hindrance and not step.verify]
    if steps and _nothing_runs_here(plan):
        return "\n".join(wrapped(say("Nothing of this is run: {why}.", why=say(steps[0].hindrance)), hang=2))
    numbers = ", ".join(str(plan.number(step.id)) for step in steps)
    template = "Left to a person: steps {numbers}." if len(steps) > 1 else "Left to a person: step {numbers}."
    return say(template, numbers=numbers) if steps else ""


def _undo_text(plan: Plan) -> str:
    """How to undo the plan by hand, one sentence a line; empty without any."""
    lines = [row for sentence in plan.undo for row in wrapped(f"- {sentence}", 2, 4)]
    return "\n".join([say("To undo by hand:"), *lines]) if lines else ""


# ---- The steps that need root, as a script ----

SCRIPT_NAME = "gpudoctor-root-steps.sh"


def root_steps(plan: Plan) -> tuple[PlanStep, ...]:
    """Chosen commands that need root, up to the first reboot, without those that a person must complete first."""
    return tuple(step for step in plan.until_reboot.commands if "root" in step.needs and not _needs_completion(step))


def _needs_completion(step: PlanStep) -> bool:
    """Whether the command has a placeholder in capitals that its `hindrance` names, or unprintable characters."""
    has_placeholder = any(word in step.hindrance.split() for word in step.argv if word.isupper())
    return has_placeholder or any(not word.isprintable() for word in step.argv)


def root_script(plan: Plan) -> str:
    """A POSIX shell script of `root_steps` that stops at the first failure; empty where there are none."""
    steps = root_steps(plan)
    return "\n".join(_script_lines(plan, steps)) if steps else ""


def _script_lines(plan: Plan, steps: Sequence[PlanStep]) -> Iterator[str]:
    """Lines of `root_script`: heading, each cure with its commands, and what to do at the end."""
    yield "#!/bin/sh"
    machine = one_line(plan.machine) or "this machine"
    yield from _comment_lines(f"What needs root, of gpudoctor's plan for {machine}: {one_line(plan.title)}.")
    yield from _comment_lines("To be run as root, on that machine. It ends at the first command that fails.")
    yield "set -eu"
    last_way = None
    for step in steps:
        yield ""
        way = next((way for way in plan.ways if (way.cause, way.number) == (step.cause, step.way)), None)
        if way and way != last_way:
            yield from _comment_lines(f"{one_line(way.title)}  [{way.cause}]")
            if way.undo:
                yield from _comment_lines(f"To undo: {one_line(way.undo)}")
        last_way = way
        if step.text:
            yield from _comment_lines(one_line(step.text))
        if "downtime" in step.needs:
            yield from _comment_lines("This interrupts jobs.")
        if "reboot" in step.needs:
            yield from _comment_lines(f"Left to you, at the end: {shlex.join(step.argv)}")
        elif step.touches == "nothing":
            yield f"{shlex.join(step.argv)} || true"
        else:
            yield shlex.join(step.argv)
    yield ""
    if any("reboot" in step.needs for step in steps):
        yield "echo 'Done. Now reboot this machine, when no job runs, and then: gpudoctor check'"
    else:
        yield "echo 'Done. To see what it came to: gpudoctor check'"


def _comment_lines(text: str) -> Iterator[str]:
    """The text wrapped, as shell comments."""
    return (f"# {row}" for row in wrapped(text))
