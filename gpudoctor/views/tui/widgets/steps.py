"""The steps of a plan as a table: under each cure that was chosen its steps, the other cures as one line each."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass

from gpudoctor.core.language import say
from gpudoctor.core.plan import Plan, PlanStep, Way
from gpudoctor.core.run import Run, StepRun
from gpudoctor.views._terminal import one_line, padded, seconds, width
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.rows import Cell, Rows, fit
from gpudoctor.views.tui.words.plan import SHORT_NEEDS

_STATES = {
    "waits": (marks.QUIET, "", "waits"),
    "done": (marks.PASSED, "good", "done"),
    "failed": ("✗", "error", "failed"),
    "stopped": ("✗", "error", "ended"),
    "left out": ("–", "dim", "left out"),
}
"""Glyph, look and word of each state but the running one."""


@dataclass(frozen=True, slots=True)
class Line:
    """A row: a step, or the heading of a fix (`way`); `chosen` if its steps follow."""

    step: PlanStep | None = None
    way: Way | None = None
    chosen: bool = False

    @property
    def key(self) -> object:
        """Identity of the row's step or fix (step id, or cause and number), by which the cursor finds it again."""
        return self.step.id if self.step else self.way and (self.way.cause, self.way.number)


class Steps(Rows):
    """The table of a plan's steps; the cursor stays on its step or fix."""

    def __init__(self) -> None:
        super().__init__(id="steps", classes="pane")
        self.border_title = say("Plan")
        self.empty = "Nothing to do."
        self.plan: Plan | None = None
        self.run: Run | None = None
        self._lines: list[Line] = []
        self._seconds = 0.0
        self._open_way_by_cause: dict[str, int] = {}
        """The cure whose steps are listed, by cause."""

    @property
    def line(self) -> Line | None:
        """The row under the cursor; None without rows."""
        return self._lines[self.cursor] if self.cursor < len(self._lines) else None

    def put(self, plan: Plan | None, run: Run | None, passed: float = 0.0) -> None:
        """Show the run's plan with each step's state, or without a run `plan`; the cursor stays on its step or fix.

        `passed` are the seconds that the running step has taken.
        """
        here = self.line
        self.plan, self.run, self._seconds = (run.plan if run else plan), run, passed
        self._lines = list(self._lines_of(self.plan)) if self.plan else []
        place = next((at for at, line in enumerate(self._lines) if here and here.key == line.key), None)
        self.fill(len(self._lines))
        if place is not None:
            self.cursor = place

    def go(self, step: str) -> None:
        """Put the cursor on the step of that id; does nothing if it is not listed."""
        place = next((at for at, line in enumerate(self._lines) if line.step and line.step.id == step), None)
        if place is not None:
            self.cursor = place

    def next_bad(self) -> bool:
        """Move to the next step that failed or cannot be run here, wrapping round; False if there is none."""
        for by in range(1, len(self._lines) + 1):
            line = self._lines[place := (self.cursor + by) % len(self._lines)]
            ran = self.run.step(line.step.id).state if self.run and line.step else ""
            if ran in ("failed", "stopped") or (line.step and line.step.chosen and line.step.hindrance and not ran):
                self.cursor = place
                return True
        return False

    def _lines_of(self, plan: Plan) -> Iterable[Line]:
        """The rows of the plan: for each cause its `_cause_lines`, and its further steps of no fix where they stand in
        the plan; last the fixes of causes without any step.
        """
        seen: set[str] = set()
        for step in plan.steps:
            if step.cause not in seen:
                seen.add(step.cause)
                yield from self._cause_lines(plan, step.cause)
            elif not step.way:
                yield Line(step=step)
        left = [way for way in plan.ways if way.cause not in seen]
        yield from (Line(way=way) for way in left)

    def _cause_lines(self, plan: Plan, cause: str) -> Iterable[Line]:
        """The rows of a cause: its fixes, the steps of the open one below it, then its first step if that is of no fix.

        Without fixes only its first step. The open fix is the chosen one, else the one that was open before.
        """
        ways = [way for way in plan.ways if way.cause == cause]
        own = [step for step in plan.steps if step.cause == cause]
        if not ways:
            yield from (Line(step=step) for step in own[:1])
            return
        number = plan.chosen_way(cause) or self._open_way_by_cause.get(cause, 0) or self._way_without_steps(ways, own)
        self._open_way_by_cause[cause] = number
        for way in ways:
            yield Line(way=way, chosen=way.number == number)
            if way.number == number:
                yield from (Line(step=step) for step in own if step.way == number)
        if own and not own[0].way:
            yield Line(step=own[0])

    @staticmethod
    def _way_without_steps(ways: list[Way], own: list[PlanStep]) -> int:
        """Number of the first fix without steps of its own (another cause's steps do it), else of the first fix."""
        numbers = {step.way for step in own}
        return next((way.number for way in ways if way.number not in numbers), ways[0].number)

    @property
    def _column_widths(self) -> tuple[int, int, int, int]:
        """Widths of the columns: step title, what it touches (0 on narrow screens), what it needs, and its state."""
        width = self.scrollable_content_region.width or self.size.width
        touches, needs, state = (13, 17, 20) if width >= 90 else (0, 12, 15)
        return max(width - 7 - touches - needs - state, 10), touches, needs, state

    @property
    def heading(self) -> Iterable[Cell]:  # type: ignore[override]
        """The cells of the heading: names of the columns, cut to their widths."""
        words, touches, needs, state = self._column_widths
        named = zip(("step", "touches", "needs", "state"), (words, touches, needs, state), strict=True)
        return [("       ", "head"), *((fit(say(name), size), "head") for name, size in named)]

    def row(self, index: int) -> Iterable[Cell]:
        """The cells of that row: the heading of a fix, or a step with state, number, title, touches and needs."""
        line = self._lines[index]
        if line.way:
            return self._way_row(line.way, line.chosen)
        assert line.step
        words, touches, needs, state = self._column_widths
        ran = self.run.step(line.step.id) if self.run else StepRun("waits" if line.step.chosen else "left out")
        glyph, look, text = self._state_cells(line.step, ran)
        needs_text = " ".join(say(SHORT_NEEDS.get(need, f"▲{one_line(need)}")) for need in line.step.needs) or "–"
        number = self.plan.number(line.step.id) if self.plan else 0
        dimmed = "dim" if ran.state == "left out" else ""
        return [
            (f"{glyph} ", look),
            (f"{number or '':>2}  ", dimmed),
            (fit(one_line(line.step.title), words - 1) + " ", dimmed),
            (fit(one_line(say(line.step.touches)), touches), "dim"),
            (fit(needs_text, needs), "dim" if not line.step.grave or dimmed else "warning"),
            (fit(text, state), look or "dim"),
        ]

    def _way_row(self, way: Way, chosen: bool) -> Iterable[Cell]:
        """The cells of a fix's heading: whether it is chosen, its title, and its cause."""
        label = padded(say("Do" if way.number == 1 else "or"), width(say("Do")))
        words, *sizes = self._column_widths
        glyph = "◉" if chosen else "○"
        look = "bold" if chosen else "dim"
        assert self.plan
        several = sizes[0] > 0 or len({step.cause for step in self.plan.steps if step.cause}) > 1
        text = fit(one_line(way.title), words if several else words + sum(sizes))
        none = chosen and not any(step.cause == way.cause and step.way == way.number for step in self.plan.steps)
        return [
            (f"{label} ", "dim"),
            (f"{glyph} ", "accent" if chosen else "dim"),
            (f"{text} ", look),
            (say("by the steps above") if none else one_line(way.cause) if several and way.number == 1 else "", "dim"),
        ]

    def _state_cells(self, step: PlanStep, ran: StepRun) -> tuple[str, str, str]:
        """Glyph, style and words of a step's state, with its seconds if it ran: ``("✓", "good", "done 2.1 s")``."""
        if ran.state == "running":
            return marks.spinner(time.monotonic()), "accent", say("running  {seconds}", seconds=seconds(self._seconds))
        if ran.state == "waits" and step.hindrance:
            words = re.split("[:,：，]", say(step.hindrance))[0]
            return "▲", "warning", words
        glyph, look, word = _STATES[ran.state]
        word = say(word)
        if step.verify and self.run and (found := dict(self.run.judged).get(step.verify)) is not None:
            return ("✗", "error", say("still found")) if found else (marks.PASSED, "good", say("no longer found"))
        if ran.state in ("done", "failed", "stopped"):
            word = f"{word}  {seconds(ran.seconds)}"
        return glyph, look, word
