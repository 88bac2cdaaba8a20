"""A plan and its run in words: what would be done, what was printed, what was changed and how it is taken back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual.content import Content

from gpudoctor.core.language import say
from gpudoctor.core.plan import Change, Foreseen, Plan, PlanStep
from gpudoctor.core.run import Run, StepRun
from gpudoctor.core.system import is_of_windows
from gpudoctor.views._terminal import command, few, one_line, plural, safe, size, uncoloured
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.prose import GAP, Block, labelled, plain

_HANG = 9
_SHOWN = 200
"""Lines of output that are drawn; the journal keeps more."""
SHORT_NEEDS = {"root": "▲root", "reboot": "▲boot", "downtime": "▲jobs", "network": "●net"}


def command_line(step: PlanStep) -> str:
    """The step's command as typed in a shell, behind ``sudo`` if it needs root that is lacking (Windows: never).

    Empty for a step without a command.
    """
    sudo = step.hindrance.startswith("needs root") and "root" in step.needs and step.argv[:1] != ("sudo",)
    sudo = sudo and not is_of_windows(step.argv)
    return command((*(("sudo",) if sudo else ()), *step.argv))


def commands(plan: Plan) -> list[str]:
    """The command lines of the plan's chosen steps that have a command, in order."""
    return [command_line(step) for step in plan.commands]


def script(plan: Plan) -> str:
    """The chosen steps as a POSIX shell script, or for Windows as lines for PowerShell; steps by hand are comments."""
    machine = one_line(plan.machine) or say("this machine")
    title = f"# {say('{title}: plan of gpudoctor for {machine}', title=one_line(plan.title), machine=machine)}"
    is_windows = any(is_of_windows(step.argv) for step in plan.commands)
    lines = [title, ""] if is_windows else ["#!/bin/sh", title, "set -eu", ""]
    for step in plan.chosen:
        if step.verify:
            lines += [f"# {one_line(step.title)}", "gpudoctor check", ""]
            continue
        words = ", ".join(label.lstrip("▲● ") for label in marks.step_labels(step.needs, ""))
        needs = f" ({one_line(words)})" if words else ""
        lines += [f"# {one_line(step.title)}{needs}"]
        lines += [f"#   {one_line(step.text)}"] if step.text and step.text != step.title else []
        lines += [command_line(step), ""] if step.argv else [f"#   {say('by hand')}", ""]
    return "\n".join(lines)


def dry_run_blocks(plan: Plan, foreseen: Foreseen | None = None) -> Iterator[Block]:
    """How many steps cannot be run, what the rules would say afterwards, each chosen step, and the download size."""
    if plan.hindered:
        text = say("{steps} cannot be run from here; c copies the commands.", steps=plural(len(plan.hindered), "step"))
        yield Block(plain(text), Content.styled("▲", "$warning"), 3)
        yield GAP
    if foreseen and plan.chosen:
        yield from _foreseen_blocks(foreseen)
        yield GAP
    for step in plan.chosen:
        yield from step_blocks(plan, step)
        yield GAP
    if plan.downloads_mib:
        yield Block(
            Content(say("about {size} in all", size=size(plan.downloads_mib))),
            Content.styled(say("download"), "dim"),
            _HANG,
        )
    if not plan.chosen:
        yield Block(Content(say("Every step is left out: nothing would be done. space chooses a step.")))


def _foreseen_blocks(foreseen: Foreseen) -> Iterator[Block]:
    """A line for each kind of change: rules gone, found anew, still found, or not known; or that nothing changes."""
    blocks = (
        ("✓", say("no longer found"), foreseen.cleared, "$success"),
        ("✗", say("found anew"), foreseen.new, "$error"),
        ("✗", say("still found"), foreseen.stays, "$warning"),
        ("?", say("to be seen when it is done"), foreseen.unjudged, "$primary"),
    )
    rows = [(mark, f"{words}{say(': ')}{', '.join(ids)}", look) for mark, words, ids, look in blocks if ids]
    for number, (mark, text, look) in enumerate(rows or [("·", say("nothing changes for any rule"), "dim")]):
        label = Content.styled(say("foreseen") if not number else "", "dim")
        yield Block(Content.assemble((mark, look), " ", plain(text)), label, _HANG)


def step_blocks(plan: Plan, step: PlanStep) -> Iterator[Block]:
    """One step of the plan: title, command, text, expected facts, package changes, needs, why it cannot be run here."""
    yield labelled(step_label(plan, step), plain(step.title, "bold"), _HANG)
    if step.argv:
        yield labelled("       $ ", plain(command_line(step), "$primary"), _HANG + 2, "dim")
    if step.text and step.text.rstrip(".") != step.title:
        yield Block(plain(one_line(step.text)), hang=_HANG)
    if step.makes_true and step.makes_true != step.title:
        yield Block(plain(say("expected: {few}", few=few(step.makes_true))), hang=_HANG)
    for change in step.changes:
        yield Block(change_text(change), Content.styled(say("change"), "dim"), _HANG)
    if labels := marks.step_labels(step.needs, step.touches):
        yield Block(plain("  ".join(labels), "$warning" if step.grave else "dim"), hang=_HANG)
    if step.hindrance:
        yield labelled("not here", plain(say(step.hindrance), "$warning"), _HANG, "dim")


def step_label(plan: Plan, step: PlanStep) -> str:
    """``Step 2``; ``Left out`` if the step is not chosen."""
    number = plan.number(step.id)
    return say("Step {number}", number=number) if number else say("Left out")


def change_text(change: Change) -> Content:
    """A package's change: ``torch 2.9.0+cu130 → 2.9.0+cu128``; without a version ``not installed`` or ``removed``."""
    before, after = change.before or say("not installed"), change.after or say("removed")
    return Content.assemble(plain(f"{change.name}  "), plain(before, "dim"), " → ", plain(after, "bold"))


def output_blocks(step: PlanStep, ran: StepRun, run: Run, can_undo: bool = False) -> Iterator[Block]:
    """A step's command, the last lines it printed, its state, what a failure means, and what a verification found.

    `can_undo` names the key that undoes the run after a failure.
    """
    if step.argv:
        yield labelled("$ ", plain(command(step.argv), "$primary"), 2, "dim")
    lines = ran.output.lines[-_SHOWN:]
    if hidden := ran.output.dropped + len(ran.output.lines) - len(lines):
        yield Block(Content.styled(say("… {lines} before this", lines=plural(hidden, "line")), "dim"))
    for line in lines:
        yield Block(plain(uncoloured(line)))
    if step.verify and ran.state == "running":
        yield Block(Content(say("Reading the machine again, and judging.")))
    elif ran.state == "waits":
        yield Block(Content.styled(say("This step has not begun."), "dim"))
    elif ran.state == "left out":
        yield Block(Content.styled(say("This step was left out."), "dim"))
    elif ran.state == "done" and not ran.output.lines and not step.verify:
        yield Block(Content.styled(say("It printed nothing."), "dim"))
    elif ran.state in ("failed", "stopped"):
        yield GAP
        if ran.state == "stopped":
            message = say("It was ended before it had come to its end: it may be half done.")
        elif ran.status is None:
            message = say("It did not succeed.")
        else:
            message = say("It failed with exit status {status}.", status=ran.status)
        done = "; ".join(run.changed)
        yield Block(
            plain(say("Changed so far: {done}.", done=done) if done else say("Nothing was changed before it.")), hang=2
        )
        reason = _telling_line([*map(uncoloured, lines)])
        failure = Content.assemble(plain(message, "bold"), f" {safe(reason)}" if reason else "")
        yield Block(failure, Content.styled("✗", "bold $error"), 2)
        keys = say("U takes it back   enter tries again from here" if can_undo else "enter tries again from here")
        yield Block(Content(keys), hang=2)
    if run.over and step == run.current:
        yield from _judgement_blocks(run, step)
    for rule, found in run.judged:
        if step.verify == rule:
            mark = ("✗ still found", "bold $error") if found else ("✓ no longer found", "bold $success")
            mark = marks.translated(mark[0]), mark[1]
            yield Block(Content.assemble(mark, "  ", plain(rule)))


def _telling_line(lines: Sequence[str]) -> str:
    """The last line that contains ``error`` (in any case), else the last that is not blank; empty without any."""
    written = [line.strip() for line in lines if line.strip()]
    return next((line for line in reversed(written) if "error" in line.lower()), written[-1] if written else "")


def _judgement_blocks(run: Run, step: PlanStep) -> Iterator[Block]:
    """Rules found only after the run, and why the step's rule was not judged or how to undo; nothing if neither."""
    unsaid = run.why if step.verify and step.verify not in dict(run.judged) else ""
    for rule in run.worse:
        yield Block(
            Content.assemble((marks.translated("✗ found now, and not before"), "bold $error"), "  ", plain(rule))
        )
    if unsaid or run.worse:
        yield Block(plain(unsaid or say("U takes the run back.")))


def undo_blocks(plan: Plan, run: Run | None, can_undo: bool, recorded: bool) -> Iterator[Block]:
    """Packages from before, what the run has changed so far, and how to undo it: by key, by command or by hand."""
    if plan.before:
        yield labelled("before", " · ".join(plan.before), _HANG, "dim")
    if run and run.undoes:
        yield labelled("undo", say("this run takes back run {id}", id=run.undoes), _HANG, "dim")
    if run:
        yield labelled("changed", "; ".join(run.changed) or say("nothing so far"), _HANG, "dim")
    if recorded:
        yield labelled("record", say("a recording is played: nothing on this machine is changed"), _HANG, "dim")
    elif run and run.undoes:
        return
    elif run and can_undo:
        yield labelled("undo", say("gpudoctor fix --undo {id}     or U here, any time after", id=run.id), _HANG, "dim")
    elif can_undo:
        yield labelled("undo", say("kept by every run: U here, or gpudoctor fix --undo, any time after"), _HANG, "dim")
    for words in plan.undo if not (run or recorded) or not (can_undo or recorded) else ():
        yield labelled("by hand", words, _HANG, "dim")


def last_run_blocks(run: Run) -> Iterator[Block]:
    """A line with the last run, which can still be undone, and whether it was ended from outside."""
    step = run.current
    if run.over:
        message = say("run {id} ({title}): U takes it back", id=run.id, title=one_line(run.plan.title))
    else:
        place = say(" in {step}", step=step_label(run.plan, step).lower()) if step else ""
        message = say("run {id} was ended from outside{place}: U takes back what it had done", id=run.id, place=place)
    yield labelled("last run", plain(message, "" if run.over else "$warning"), _HANG, "dim")


def run_question(plan: Plan, recorded: bool) -> list[Block]:
    """The blocks of the question before a plan is run: commands, what they touch and need, and the download size.

    The last says that undo is kept, or (`recorded`) that a recording is played.
    """
    steps = plan.commands
    where = (
        say(" in {environment}", environment=plan.environment)
        if plan.environment
        else say(" on {machine}", machine=plan.machine)
        if plan.machine
        else ""
    )
    out = [Block(plain(say("Run {command}{where}?", command=plural(len(steps), "command"), where=where), "bold")), GAP]
    out += [Block(plain(command(step.argv), "$primary"), hang=2) for step in steps]
    out.append(GAP)
    touched = [
        marks.translated(marks.TOUCHES[name])
        for name in marks.TOUCHES
        if any(step.touches == name for step in plan.chosen)
    ]
    needed = [need for need in ("root", "reboot", "downtime") if any(need in step.needs for step in plan.chosen)]
    without = [word for need, word in (("root", say("no root")), ("reboot", say("no reboot"))) if need not in needed]
    out += [Block(Content(message)) for message in touched]
    out += [Block(Content.styled(marks.translated(marks.NEEDS[need]), "bold $warning")) for need in needed]
    if without:
        out.append(Block(Content.styled(f"· {', '.join(without)}", "dim")))
    if plan.downloads_mib:
        out.append(Block(Content(say("● downloads about {size}", size=size(plan.downloads_mib)))))
    elif any("network" in step.needs for step in plan.chosen):
        out.append(Block(Content(marks.translated(marks.NEEDS["network"]))))
    out.append(Block(Content(say("● a recording is played, nothing is changed" if recorded else "● undo is kept"))))
    return out


def quit_question(run: Run | None) -> list[Block]:
    """The blocks of the question before a running step is ended: which one, and what follows."""
    step = run.current if run else None
    return [
        Block(
            plain(f"{step_label(run.plan, step)}: {step.title}" if run and step else say("A run is beginning."), "bold")
        ),
        GAP,
        Block(Content(say("Quitting ends it now: it may be half done. The record says so, and undo is kept."))),
        Block(Content(say("To let it come to its end: go back, esc, then quit."))),
    ]


def undo_question(run: Run) -> list[Block]:
    """The blocks of the question before a run is undone: what it had changed."""
    out = [Block(plain(say("Take back run {id}: {title}?", id=run.id, title=run.plan.title), "bold")), GAP]
    out += [Block(plain(words), Content("● "), 2) for words in run.changed] or [
        Block(Content(say("It changed nothing.")))
    ]
    return out


def step_numbers(plan: Plan, steps: Sequence[PlanStep]) -> str:
    """Numbers of these steps in the plan: ``step 2``, ``steps 2, 3``."""
    numbers = ", ".join(str(plan.number(step.id)) for step in steps)
    return say("steps {numbers}" if len(steps) > 1 else "step {numbers}", numbers=numbers)
