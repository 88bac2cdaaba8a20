"""The plan that cures what was found: seen before it is done, done after a yes, and taken back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.language import say
from gpudoctor.core.plan import Foreseen, Plan
from gpudoctor.views._terminal import one_line, plural, seconds
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.base import Band, FramedScreen, Repair
from gpudoctor.views.tui.repair import ask_to_end, ask_to_run, ask_to_undo, errors_shown, repair_of
from gpudoctor.views.tui.widgets.prose import Block, Pane, plain
from gpudoctor.views.tui.widgets.rows import Rows
from gpudoctor.views.tui.widgets.steps import Steps
from gpudoctor.views.tui.words import plan as words


class FixScreen(FramedScreen):
    """The open plan: shown, run after a yes, and undone."""

    NAME = "fix"
    AUTO_FOCUS = "#steps"
    PERIOD = 0.2
    """Seconds between two looks at a run that is under way."""
    CSS = """
    #plan { height: 1fr; }
    #steps { height: auto; max-height: 45%; min-height: 4; }
    #output { height: 1fr; }
    #undo { height: auto; max-height: 7; }
    .-narrow #undo { max-height: 5; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "apply", "apply", tooltip="Run the chosen steps, after a yes"),
        Binding("d", "dry_run", "dry run", tooltip="What would be done; nothing is run"),
        Binding("space", "leave_out", "leave out", tooltip="Leave the step out, choose it again, or choose the cure"),
        Binding("c", "copy", "copy", tooltip="Copy the first command; again, the next"),
        Binding("C", "copy_all", "copy as script", show=False),
        Binding("enter", "again", "try again", tooltip="Run again from the step that failed"),
        Binding("U", "undo", "undo", tooltip="Take the run back"),
        Binding("x", "end", "end it now", tooltip="End the command that runs, after a yes"),
        Binding("n,N", "next_bad", "next that cannot be run or failed", show=False),
        Binding("f", "all", "all causes", show=False, tooltip="The plan for every cause"),
    ]

    def body(self) -> Iterable[Widget]:
        """The steps, below them their output, and how to undo."""
        self.steps, self.output, self.undo = Steps(), Pane("What would be done", id="output"), Pane("Undo", id="undo")
        self._copied, self._shown_version, self._shown_begun, self._step_shown = 0, -1, 0, False
        self._shown_busy = False
        self._cursor_set_by_code = -1
        """Where the cursor was put by us: anywhere else, the user moved it."""
        self._follows_run = True
        self._foreseen_plan: Plan | None = None
        self._foreseen_result: Foreseen | None = None
        with Vertical(id="plan"):
            yield self.steps
            yield self.output
            yield self.undo

    @property
    def repair(self) -> Repair:
        """The app's open plan with its run; an empty one is made if the app has none."""
        return repair_of(self.doctor)

    def on_mount(self) -> None:
        """Look a few times a second for changes of the run."""
        self.set_interval(self.PERIOD, self._tick)

    def on_screen_resume(self) -> None:
        """Redraw for the plan that is open now."""
        self._refresh()

    def show(self, diagnosis: Diagnosis) -> None:
        """Make the plan anew for this diagnosis, unless it was changed, run or handed over ready."""
        repair, make = self.repair, self.doctor.work.plan
        if make and not (repair.run or repair.touched or repair.given or repair.busy):
            with errors_shown(self.doctor):
                repair.plan = make(diagnosis, repair.only)
            if self.is_current:
                self._refresh()

    def _tick(self) -> None:
        """Redraw while the plan runs, and once after it; nothing while another screen is shown."""
        if self.is_current and (self.repair.busy or self._shown_busy or self.steps.run is not self.repair.run):
            self._refresh()

    def _refresh(self) -> None:
        """Redraw steps, output, undo and frame as the plan and its run are now.

        The cursor follows the running step until the user moves it.
        """
        repair = self.repair
        self._shown_busy = repair.busy
        if self._shown_version != repair.version:
            self._shown_version, self._copied, self._step_shown, self._follows_run = repair.version, 0, False, True
        elif repair.begun != self._shown_begun:
            self._shown_begun, self._follows_run = repair.begun, True
        plan, run = repair.plan, repair.run
        where = say("   in {environment}", environment=one_line(plan.environment)) if plan and plan.environment else ""
        self.steps.border_title = Content(say("Plan{where}", where=where))
        self.steps.empty = "Nothing here can be cured." if plan else "No plan is open: f on a finding makes one."
        self.steps.put(plan, run, repair.seconds() if repair.busy else 0.0)
        if run and self._follows_run and (step := run.current):
            self.steps.go(step.id)
        self._cursor_set_by_code = self.steps.cursor
        self._show_output()
        shown = (run.plan if run else plan) or None
        work = self.doctor.work
        blocks = list(words.undo_blocks(shown, run, bool(work.undo), work.recorded)) if shown and shown.steps else []
        blocks += list(words.last_run_blocks(repair.last)) if repair.last and work.undo and not run else []
        self.undo.put("Undo", blocks, keep=True)
        self.undo.display = bool(blocks)
        self.reframe()
        self.refresh_bindings()

    def _show_output(self) -> None:
        """Show why a run died, else the output of its step under the cursor (or its current step).

        Without a run what the step that the user moved to would do, else the dry run of the whole plan.
        """
        repair = self.repair
        plan, run, line = repair.plan, repair.run, self.steps.line
        if repair.trouble:
            self.output.put("What happened", [Block(plain(repair.trouble), Content.styled("✗", "$error"), 2)])
        elif run and (step := (line.step if line and line.step else run.current)):
            kept = self.output.max_scroll_y - self.output.scroll_y <= 1
            title = say("Output of {step}", step=words.step_label(run.plan, step).lower())
            title += say("   (a recording)") if self.doctor.work.recorded else ""
            same = str(self.output.border_title) == title
            printed = words.output_blocks(step, run.step(step.id), run, bool(self.doctor.work.undo))
            self.output.put(title, list(printed), keep=True)
            if kept or not same:
                self.output.call_after_refresh(self.output.scroll_end, animate=False)
        elif plan and self._step_shown and line and line.step:
            title = say("{step}: what would be done", step=words.step_label(plan, line.step))
            self.output.put(title, list(words.step_blocks(plan, line.step)), keep=True)
        elif plan:
            nothing = Block(Content(nothing_to_fix(self.doctor.diagnosis)))
            blocks = list(words.dry_run_blocks(plan, self._foreseen(plan))) if plan.steps else [nothing]
            self.output.put("Dry run: what would be done", blocks, keep=True)
        else:
            self.output.put("What would be done", [Block(Content(say("Nothing: no plan is open.")))])

    def _foreseen(self, plan: Plan) -> Foreseen | None:
        """What the rules would say after that plan; computed once for each plan.

        None if that is not possible; a `DoctorError` is shown as message.
        """
        judge, diagnosis = self.doctor.work.foreseen, self.doctor.diagnosis
        if judge and diagnosis and self._foreseen_plan is not plan:
            self._foreseen_plan, self._foreseen_result = plan, None
            with errors_shown(self.doctor):
                self._foreseen_result = judge(diagnosis, plan)
        return self._foreseen_result if self._foreseen_plan is plan else None

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """Show the step to which the user moved, and no longer follow the run; moves by code are ignored."""
        if event.rows is not self.steps or self.steps.cursor == self._cursor_set_by_code:
            return
        self._cursor_set_by_code, self._step_shown, self._follows_run = self.steps.cursor, True, False
        self._show_output()

    def on_rows_chosen(self, event: Rows.Chosen) -> None:
        """Enter on a step: run again from the failed step, if the run failed."""
        if event.rows is self.steps:
            self.action_again()

    def band(self) -> Band:
        """The first line: the state of the run; before a run as on every screen."""
        own = run_band(self.repair)
        return Band(*own, self.machine()) if own else super().band()

    def status(self) -> Sequence[Content | str]:
        """Texts of the second line: what is planned, or the run's progress; without a plan as on every screen."""
        return run_status(self.repair, self.doctor.work.recorded) or super().status()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's
        """False for actions that are not possible now, such as ``apply`` during a run or ``undo`` before one."""
        repair = self.repair
        stopped = bool(repair.run and not repair.busy and repair.run.outcome in ("stopped", "still found"))
        shows = {
            "again": stopped,
            "undo": bool((repair.run or repair.last) and not repair.busy),
            "end": repair.busy,
            "apply": not repair.busy,
            "dry_run": not repair.busy,
            "leave_out": not repair.run and not repair.busy,
        }
        return shows.get(action, True)

    def action_leave_out(self) -> None:
        """Leave the step under the cursor out, or choose it again; on the heading of a way to fix, choose that way."""
        line, plan = self.steps.line, self.repair.plan
        if not line or not plan:
            return
        changed = plan.by_way(line.way) if line.way else plan.toggled(line.step.id if line.step else "")
        self.repair.plan, self.repair.touched = changed, True
        self._refresh()

    def action_dry_run(self) -> None:
        """Show what would be done; nothing is run. After a run its plan is opened anew, the run kept to be undone."""
        self._step_shown = False
        if self.repair.run and not self.repair.busy:
            self.repair.put(self.repair.plan, self.repair.only, self.repair.given)
        self._refresh()
        self.doctor.say("dry run: nothing was run")

    def action_copy(self) -> None:
        """Copy the first command of the plan; when repeated, the next. A message says which, or that there is none."""
        plan = self.repair.plan
        commands = words.commands(plan) if plan else []
        if not commands:
            self.doctor.say("no command to copy: what to do is in words")
            return
        number, self._copied = self._copied % len(commands), self._copied + 1
        self.app.copy_to_clipboard(commands[number])
        which = say(" {number} of {count}", number=number + 1, count=len(commands)) if len(commands) > 1 else ""
        self.doctor.say("copied{which}: {command}", which=which, command=commands[number])

    def action_copy_all(self) -> None:
        """Copy all chosen steps as a shell script; nothing without a plan."""
        if plan := self.repair.plan:
            self.app.copy_to_clipboard(words.script(plan))
            self.doctor.say("copied: all {count} steps as a shell script", count=len(plan.chosen))

    def action_next_bad(self) -> None:
        """Move to the next step that failed or cannot be run here; only a message if there is none."""
        if not self.steps.next_bad():
            self.doctor.say("every step can be run from here")

    def action_all(self) -> None:
        """Open the plan for every cause of the diagnosis; nothing during a run or without a diagnosis."""
        make, diagnosis, repair = self.doctor.work.plan, self.doctor.diagnosis, self.repair
        if repair.busy or not make or not diagnosis:
            return
        with errors_shown(self.doctor):
            repair.put(make(diagnosis, ()))
            self._refresh()
            self.doctor.say("the plan for every cause")

    def action_apply(self) -> None:
        """Ask, then run the chosen steps up to a reboot; only a message if none is chosen or one cannot be run."""
        plan, work = self.repair.plan, self.doctor.work
        if not plan or not plan.chosen:
            self.doctor.say("nothing is chosen: space chooses a step")
        elif plan.hindered:
            steps, why = words.step_numbers(plan, plan.hindered), say(plan.hindered[0].hindrance)
            self.doctor.say("{steps}: {why}. c copies the commands, space leaves a step out", steps=steps, why=why)
        elif work.apply is None:
            self.doctor.say("nothing is run from here yet: c copies the commands, C all of them as a script")
        else:
            ask_to_run(self.doctor, plan.until_reboot)

    def action_again(self) -> None:
        """Ask, then run the steps not done yet, from the failed one; nothing unless the run stopped or did not help."""
        run = self.repair.run
        if not run or self.repair.busy or run.outcome not in ("stopped", "still found") or run.undoes:
            return
        if self.doctor.work.apply:
            ask_to_run(self.doctor, run.rest)

    def action_undo(self) -> None:
        """Ask, then undo the run, or the last one if nothing was run since; only a message if that is not possible."""
        repair = self.repair
        run = repair.run or repair.last
        if not run or repair.busy:
            self.doctor.say("nothing was run from here: nothing to take back")
        elif not self.doctor.work.undo:
            self.doctor.say("nothing is taken back from here yet: what to do is in words below")
        elif run.undoes and run.outcome == "undone":
            self.doctor.say("run {id} was taken back already", id=run.undoes)
        elif run.undoes:
            self.doctor.say(
                say("taking back run {id} stopped; gpudoctor fix --undo {id} goes on with it", id=run.undoes)
            )
        else:
            ask_to_undo(self.doctor, run)

    def action_end(self) -> None:
        """Ask, then end the command of the plan that runs now."""
        ask_to_end(self.doctor)

    def action_leave(self) -> None:
        """Esc: stop after this step while a plan runs, else remove the message, else go back."""
        if self.repair.busy:
            self.repair.stop("after this step")
            self.doctor.say("stops after this step; x ends it now")
        elif self.doctor.message:
            self.doctor.say("")
        else:
            self.doctor.switch_mode(self.repair.came_from)


# ---- The first two lines of the fix screen ----


def run_band(repair: Repair) -> tuple[str, str, str] | None:
    """Class, word and subject of the first line: ``("sound", "✓ FIXED", ...)``; None unless a plan runs or has run."""
    run = repair.run
    title = run.plan.title if run else repair.plan.title if repair.plan else ""
    if repair.busy:
        spinner = marks.spinner(repair.seconds())
        return "reading", f"{spinner} {'UNDOING' if run and run.undoes else 'FIXING'}", title
    if not run:
        return None
    step = run.current
    texts = {
        "fixed": ("sound", "✓ FIXED", say("{title} no longer found", title=title)),
        "still found": ("broken", "✗ STILL FOUND", ", ".join(rule for rule, found in run.judged if found)),
        "done": ("sound", "✓ DONE", title),
        "undone": ("sound", "✓ UNDONE", say("run {id} was taken back", id=run.undoes)),
    }
    stopped = say("✗ STOPPED at step {step}", step=run.plan.number(step.id) if step else 1)
    if run.worse:
        return "broken", "✗ WORSE", say("{names}: U takes the run back", names=", ".join(run.worse))
    return texts.get(run.outcome, ("broken", stopped, title))


def run_status(repair: Repair, recorded: bool) -> tuple[Content | str, Content | str] | None:
    """Left and right text of the second line: what is planned, or the run's progress; None without a plan."""
    run = repair.run
    if repair.busy:
        hint = {"go on": "Esc stop after this step", "now": "stops now"}.get(repair.wanted, "stops after this step")
        playing = say("playing a recording, nothing is changed · ") if recorded else ""
        step = run.current if run else None
        done = (
            say("step {number} of {count}", number=run.plan.number(step.id), count=len(run.plan.chosen))
            if run and step
            else say("beginning")
        )
        return Content(f"{playing}{done} · {seconds(repair.seconds())}"), say(hint)
    if run:
        ended = sum(ran.state == "done" for ran in run.steps)
        took = seconds(sum(ran.seconds for ran in run.steps))
        kept = say("a recording: nothing was changed") if recorded else plain(say("record {id}", id=run.id))
        return Content(
            say("{ended} of {count} steps done · {took}", ended=ended, count=len(run.plan.chosen), took=took)
        ), kept
    return (_plan_text(repair.plan), say("nothing is run until you say yes")) if repair.plan else None


def _plan_text(plan: Plan) -> Content:
    """How many steps and causes the plan has, and how many steps cannot be run: ``plan: 3 steps for 2 causes``."""
    steps, causes = len(plan.chosen), len(set(plan.verifies))
    text = plural(steps, "step") + (say(" for {causes}", causes=plural(causes, "cause")) if causes else "")
    hindered = say(" · {count} cannot be run from here", count=len(plan.hindered)) if plan.hindered else ""
    return Content(say("plan: {text}{hindered}", text=text, hindered=hindered))


def nothing_to_fix(diagnosis: Diagnosis | None) -> str:
    """Sentence that says why the plan has no step: nothing is wrong, or no fix is known for what was found."""
    if diagnosis and diagnosis.verdict == "sound":
        return say("Nothing is wrong here, so there is nothing to cure.")
    return say("No cure is written down for what was found here; e on the finding explains it.")
