"""A plan on paper: what is wrong, every step exactly as it would run, what comes of it, and the way back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpudoctor.language import say
from gpudoctor.model.foreseen import Foreseen
from gpudoctor.model.plan import Change, Plan, PlanStep, Requirement
from gpudoctor.views._terminal import Style, command, few, marks, one_line, wrapped
from gpudoctor.views.document import line as as_line

_REQUIRES = {
    "program": "{what} can be run",
    "writable": "{what} can be written to",
    "unchanged": "{what} is as it was when this plan was made",
}


def render(
    plan: Plan, style: Style | None = None, foreseen: Foreseen | None = None, wrong: Mapping[str, str] | None = None
) -> str:
    """The whole plan, without a newline at its end. `wrong` are the titles of the causes by their ids."""
    style = style or Style()
    blocks = [_head(plan, style)]
    blocks += [_wrong(plan, wrong)] if wrong else []
    blocks += [_first(plan)]
    blocks += _steps(plan, style)
    blocks += [_foreseen(foreseen, style)] if foreseen else []
    blocks += (
        ["\n".join(row for remark in plan.remarks for row in wrapped(say("{sentence}.", sentence=remark), hang=2))]
        if plan.remarks
        else []
    )
    blocks += [_others(plan), _by_a_person(plan), _way_back(plan)]
    return "\n\n".join(block for block in blocks if block)


def document(plan: Plan, foreseen: Foreseen | None = None) -> str:
    """The plan as one JSON document, with what is foreseen of it."""
    raw = plan.to_json()
    if foreseen:
        raw["foreseen"] = foreseen.to_json()
    return as_line(raw)


def _steps(plan: Plan, style: Style) -> Iterator[str]:
    """Every chosen step; before the first of a cure, what that cure is."""
    titles = {(way.cause, way.number): way.title for way in plan.ways}
    before = ""
    for step in plan.chosen:
        cure = titles.get(_of(step), "")
        said = wrapped(f"{cure}  [{step.cause}]", hang=2) if cure and cure != before else []
        before = cure or before
        yield "\n".join([*(style.paint(row, "bold") for row in said), *step_lines(plan, step)])


def step_lines(plan: Plan, step: PlanStep) -> Iterator[str]:
    """One step: its command as one would type it, what it asks for, what it changes, what it brings about."""
    number = f"{plan.number(step.id)}."
    typed = f"$ {command(step.argv)}" if step.argv else ""
    text = "" if step.verify else one_line(step.text)
    if typed.endswith(step.title):  # a command's title may be the command itself, without its folder
        yield f"  {number:<3}{typed}"
    else:
        yield from wrapped(f"{number:<3}{text if text.startswith(step.title) else one_line(step.title)}", 2, 5)
        yield from [f"     {typed}"] if typed else ()
    by_hand = () if step.argv or step.verify else ("by hand",)
    said = marks((*by_hand, *step.needs), step.touches)
    if said:
        yield from wrapped(said, 5, 5)
    if text and not text.startswith(step.title):
        yield from wrapped(text, 5, 5)
    for change in step.changes:
        yield from wrapped(changed(change), 5, 7)
    if brings := _brings(step):
        yield from wrapped(say("expected: {facts}", facts=brings), 5, 15)
    if step.hindrance and not _elsewhere(plan):
        yield from wrapped(say("not run: {why}", why=say(step.hindrance)), 5, 7)


def _elsewhere(plan: Plan) -> bool:
    """Whether nothing at all can be run from here, each step for the same reason."""
    return len({step.hindrance for step in plan.chosen}) == 1 and len(plan.chosen) > 1


def changed(change: Change) -> str:
    """``torch 2.9.0+cpu -> 2.9.0+cu128``."""
    return f"{change.name} {change.before or say('not installed')} -> {change.after or say('removed')}"


def _head(plan: Plan, style: Style) -> str:
    about = "Plan for {machine}: {title}" if plan.machine else "Plan: {title}"
    named = say(about, machine=one_line(plan.machine), title=one_line(plan.title))
    said = [style.paint(named, "bold")]
    if plan.environment:
        now = "It changes packages in {environment}; there now: {packages}."
        changes = now if plan.before else "It changes packages in {environment}."
        said += wrapped(say(changes, environment=plan.environment, packages=", ".join(plan.before)))
    if plan.downloads_mib:
        said += [say("It downloads about {size}.", size=_size(plan.downloads_mib))]
    return "\n".join(said)


def _wrong(plan: Plan, titles: Mapping[str, str]) -> str:
    """The causes that the plan cures, in its order."""
    causes = dict.fromkeys(step.cause for step in plan.steps if step.cause in titles)
    lines = [row for cause in causes for row in wrapped(f"- {titles[cause]}  [{cause}]", 2, 4)]
    return "\n".join([say("What is wrong:"), *lines]) if lines else ""


def _first(plan: Plan) -> str:
    """What must hold before the first step."""
    wanted = dict.fromkeys(item for step in plan.chosen for item in step.requires)
    lines = [row for item in wanted for row in wrapped(f"- {required(item)}", 2, 4)]
    return "\n".join([say("Before anything is changed, it is made sure that"), *lines]) if lines else ""


def required(item: Requirement) -> str:
    """``/opt/venv can be written to``."""
    if item.kind == "room":
        return say("{place} has room for {size}", place=one_line(item.subject), size=_size(item.mib))
    return say(_REQUIRES[item.kind], what=one_line(item.subject))


def _brings(step: PlanStep) -> str:
    """What the step makes true, in words where there are any, else as facts; the first few of many."""
    if step.verify or step.makes_true == step.title or step.makes_true.startswith("part of: "):
        return ""
    facts = (
        f"{name} is not there any more" if isinstance(value, dict) else f"{name} is {one_line(str(value))}"
        for name, value in step.makes
    )
    return few(step.makes_true or "; ".join(facts))


def _foreseen(foreseen: Foreseen, style: Style) -> str:
    """What the rules would say, judged on what the steps make true."""
    said = (
        ("no longer found", foreseen.cleared, "green"),
        ("found anew", foreseen.new, "yellow"),
        ("still found", foreseen.stays, "yellow"),
        ("to be seen when the machine is read again", foreseen.unjudged, "dim"),
    )
    lines = [
        style.paint(row, colour)
        for words, ids, colour in said
        if ids
        for row in wrapped(say("{outcome}: {ids}", outcome=say(words), ids=", ".join(ids)), 2, 4)
    ]
    return "\n".join([say("Foreseen, once all of this is done:"), *(lines or [say("  nothing changes for any rule")])])


def _others(plan: Plan) -> str:
    """The cures that stand beside the chosen ones."""
    chosen = {(step.cause, step.way) for step in plan.chosen}
    lines = [
        row
        for way in plan.ways
        if (way.cause, way.number) not in chosen and any((way.cause, way.number) == _of(s) for s in plan.steps)
        for row in wrapped(f"- {way.title}  [{way.cause}]", 2, 4)
    ]
    return "\n".join([say("Or, instead (gpudoctor explain shows how):"), *lines]) if lines else ""


def _of(step: PlanStep) -> tuple[str, int]:
    return step.cause, step.way


def _by_a_person(plan: Plan) -> str:
    """What is not run by us, in a line; the steps say why."""
    steps = [step for step in plan.chosen if step.hindrance and not step.verify]
    if steps and _elsewhere(plan):
        return "\n".join(wrapped(say("Nothing of this is run: {why}.", why=say(steps[0].hindrance)), hang=2))
    numbers = ", ".join(str(plan.number(step.id)) for step in steps)
    left = "Left to a person: steps {numbers}." if len(steps) > 1 else "Left to a person: step {numbers}."
    return say(left, numbers=numbers) if steps else ""


def _way_back(plan: Plan) -> str:
    lines = [row for words in plan.undo for row in wrapped(f"- {words}", 2, 4)]
    return "\n".join([say("To undo by hand:"), *lines]) if lines else ""


def _size(mib: float) -> str:
    return f"{mib / 1024:.1f} GiB" if mib >= 1024 else f"{mib:.0f} MiB"
