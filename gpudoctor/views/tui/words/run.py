"""The first two lines of the fix screen: what is planned, how far a run is, and what it came to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.plan import Plan
from gpudoctor.model.run import Run
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.prose import plain
from gpudoctor.views.tui.words.plan import seconds

if TYPE_CHECKING:
    from gpudoctor.views.tui.repair import Repair


def band(repair: Repair) -> tuple[str, str, str] | None:
    """Look, word and subject of the first line while a plan runs, and after; None before."""
    run = repair.run
    title = run.plan.title if run else repair.plan.title if repair.plan else ""
    if repair.busy:
        spinner = marks.SPINNER[int(repair.seconds() * 8) % len(marks.SPINNER)]
        return "reading", f"{spinner} {'UNDOING' if run and run.undoes else 'FIXING'}", title
    if not run:
        return None
    step = run.current
    said = {
        "fixed": ("sound", "✓ FIXED", f"{title} no longer found"),
        "still found": ("broken", "✗ STILL FOUND", ", ".join(rule for rule, found in run.judged if found)),
        "done": ("sound", "✓ DONE", title),
        "undone": ("sound", "✓ UNDONE", f"run {run.undoes} was taken back"),
    }
    stopped = f"✗ STOPPED at step {run.plan.number(step.id) if step else 1}"
    if run.worse:
        return "broken", "✗ WORSE", f"{', '.join(run.worse)}: U takes the run back"
    return said.get(run.outcome, ("broken", stopped, title))


def status(repair: Repair, recorded: bool) -> tuple[Content | str, Content | str] | None:
    """What is planned, or how far the run is and how it is stopped; None where there is no plan."""
    run = repair.run
    if repair.busy:
        hint = "Esc stop after this step" if repair.wanted == "go on" else f"stops {repair.wanted}"
        playing = "playing a recording, nothing is changed · " if recorded else ""
        return Content(f"{playing}{_place(run)} · {seconds(repair.seconds())}"), hint
    if run:
        done = sum(ran.state == "done" for ran in run.steps)
        took = seconds(sum(ran.seconds for ran in run.steps))
        kept = "a recording: nothing was changed" if recorded else plain(f"record {run.id}")
        return Content(f"{done} of {len(run.plan.chosen)} steps done · {took}"), kept
    return (_planned(repair.plan), "nothing is run until you say yes") if repair.plan else None


def _place(run: Run | None) -> str:
    step = run.current if run else None
    return f"step {run.plan.number(step.id)} of {len(run.plan.chosen)}" if run and step else "beginning"


def _planned(plan: Plan) -> Content:
    steps, causes = len(plan.chosen), len(set(plan.verifies))
    said = f"{steps} step{'s' if steps != 1 else ''}"
    said += f" for {causes} cause{'s' if causes != 1 else ''}" if causes else ""
    hindered = f" · {len(plan.hindered)} cannot be run from here" if plan.hindered else ""
    return Content(f"plan: {said}{hindered}")


def nothing(diagnosis: Diagnosis | None) -> str:
    """Why there is nothing to do."""
    if diagnosis and diagnosis.verdict == "sound":
        return "Nothing is wrong here, so there is nothing to cure."
    return "No cure is written down for what was found here; e on the finding explains it."
