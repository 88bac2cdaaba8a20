"""What the GPUs really do: each kernel on each GPU against what was expected, and whether its values are right."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.language import say
from gpudoctor.core.measurement import Kernel, Measurements, Run, State
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.base import Band, FramedScreen
from gpudoctor.views.tui.widgets.kernels import Bars, Kernels, KernelTabs
from gpudoctor.views.tui.widgets.prose import GAP, Block, Pane, plain
from gpudoctor.views.tui.widgets.rows import Rows
from gpudoctor.views.tui.words import measured
from gpudoctor.views.tui.work import call_in_app, error_text, run_in_thread

_NOTHING_YET = "Nothing was measured here yet."


class KernelsScreen(FramedScreen):
    """Kernels × GPUs: `R` measures all, Enter the kernel shown; `x` stops and keeps what was measured."""

    NAME = "kernels"
    AUTO_FOCUS = "#bars"
    CSS = """
    #bars { height: auto; max-height: 60%; }
    #kernel-list { height: 1fr; }
    #kernels { width: 9fr; max-width: 70; height: 1fr; }
    #run { width: 11fr; }
    #kernel-tabs, #measured.-none #bars, #measured.-none #kernels { display: none; }
    #measured.-none #kernel-list { width: 1fr; }
    .-narrow #kernel-tabs { display: block; }
    .-narrow #kernels, .-narrow #measured.-none #kernel-tabs { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("R", "run_all", "run all"),
        Binding("x", "stop", "stop"),
        Binding("n", "next(1)", "next bad"),
        Binding("N", "next(-1)", "Previous bad GPU", show=False),
        Binding("e", "why", "why expected"),
        Binding("c", "copy", "copy command"),
        Binding("left", "turn(-1)", "Previous kernel", show=False),
        Binding("right", "turn(1)", "Next kernel", show=False),
    ]

    def body(self) -> Iterable[Widget]:
        """The GPUs' bars, below them the kernels (narrow: tabs) and the detail of the run under the cursor."""
        self.bars, self.kernels, self.tabs, self.detail = Bars(), Kernels(), KernelTabs(), Pane("Kernels", id="run")
        self.found: Measurements | None = None
        self._stop: threading.Event | None = None
        """What stops the kernels that run; None where none do."""
        self._since = 0.0
        self._shows_expected = False
        self._user_moved = False
        with Vertical(id="measured", classes="-none"):
            yield self.tabs
            yield self.bars
            with Horizontal(id="kernel-list"):
                yield self.kernels
                yield self.detail

    def on_mount(self) -> None:
        """Load earlier measurements in a thread, or say that there are none; redraw regularly while kernels run."""
        self.set_interval(0.25, self._tick)
        if self.doctor.work.measured is None:
            self._show_empty()
        elif self.found is None:
            self.detail.put("Kernels", [Block(plain(say("Reading what was measured …")))])
            self._load_measurements()

    def show(self, diagnosis: Diagnosis) -> None:  # noqa: ARG002 - what was measured is asked for by itself
        """Load earlier measurements again: a reading of level deep, or of a file, may have brought some."""
        self._load_measurements()

    def _load_measurements(self) -> None:
        """Load earlier measurements in a thread; nothing while kernels run or if there is no way to ask for them."""
        recall = self.doctor.work.measured
        if recall and not self._stop:
            run_in_thread(self.app, "measured", recall, self._receive_measurements)

    @property
    def kernel(self) -> Kernel | None:
        """The kernel under the cursor; None without measurements."""
        kernels = self.found.kernels if self.found else ()
        return kernels[min(self.kernels.cursor, len(kernels) - 1)] if kernels else None

    def _receive_measurements(self, answer: Measurements | BaseException | None) -> None:
        """Show earlier measurements merged with this session's, or why there are none; ignored while kernels run.

        None or an exception is not shown if measurements are on the screen.
        """
        if self._stop:
            return
        if isinstance(answer, Measurements):
            self._show_measurements(answer.merged(self.found) if self.found else answer)
        elif self.found is not None:
            return
        elif answer is None:
            self._show_empty()
        else:
            self._show_empty(say("What was measured cannot be read: {error}", error=error_text(answer)))

    def _show_empty(self, message: str = _NOTHING_YET) -> None:
        """Show `message` and how to measure in the detail."""
        self.detail.put(
            "Kernels", list(no_measurement_blocks(message, can_measure=self.doctor.work.kernels is not None))
        )

    def _show_measurements(self, measurements: Measurements) -> None:
        """Show these measurements; the cursors stay, but go to the worst run as long as the user has not moved them."""
        if not measurements.runs and self.found is None:
            return
        self.found = measurements
        self.query_one("#measured").set_class(not measurements.kernels, "-none")
        if not measurements.kernels:
            self._show_empty(say("No kernel was measured."))
            return
        self.kernels.put(measurements)
        if not self.bars.has_focus and self.focused is None:
            self.bars.focus()
        self._show_kernel()
        if not self._user_moved:
            assert self.found
            if run := measured.worst_run(self.found):
                self._move_to(run)
        self.reframe()

    def _move_to(self, run: Run) -> None:
        """Put the cursors on this run's kernel and GPU; raises ValueError if it is not among those shown."""
        assert self.found
        self.kernels.cursor = [kernel.id for kernel in self.found.kernels].index(run.kernel)
        self._show_kernel()
        self.bars.cursor = [row.gpu for row in self.bars.runs].index(run.gpu)

    def _show_kernel(self) -> None:
        """Show the bars of the kernel under the cursor, and mark its tab; nothing without measurements."""
        if self.found and self.kernel:
            self.bars.put(self.found, self.kernel)
            self.tabs.put(self.kernels, self.kernels.cursor)

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """Show the bars of the kernel under the cursor; or, if the cursor of the bars moved, the detail of the run."""
        if event.rows is self.kernels:
            if self.kernel != self.bars.kernel:
                self._show_kernel()
            return
        self._show_detail()

    def _show_detail(self) -> None:
        """Show the run under the cursor, or where its expected value comes from; nothing without a run."""
        run = self.bars.run
        if not self.found or not self.kernel or not run:
            return
        if self._shows_expected:
            self.detail.put("Where it comes from", list(measured.expected_blocks(self.found, self.kernel, run)))
        else:
            title = say("{title} on {gpu}", title=say(self.kernel.title), gpu=say(self.found.called(run.gpu)))
            same = str(self.detail.border_title) == title
            self.detail.put(title, list(measured.run_blocks(self.found, self.kernel, run)), keep=same)

    def action_turn(self, by: int) -> None:
        """Move the cursor by that many kernels: 1 next, -1 previous."""
        self._user_moved = True
        self.kernels.action_move(by)

    def action_kernel(self, index: int) -> None:
        """Move the cursor to the kernel at that position in the list."""
        self._user_moved = True
        self.kernels.cursor = index

    def action_next(self, by: int) -> None:
        """Move to the next run that is wrong, failed or slow, of any kernel, wrapping round; `by` -1: the previous.

        A message if there is none.
        """
        self._user_moved = True
        if not self.found or not self.kernel:
            return
        run = measured.next_bad(self.found, self.kernels.cursor, self.bars.run.gpu if self.bars.run else -1, by)
        if run is None:
            self.doctor.say("nothing is wrong, failed or slow")
        else:
            self._move_to(run)

    def action_why(self) -> None:
        """Switch the detail between the run and where its expected value comes from."""
        self._shows_expected = not self._shows_expected
        self._show_detail()

    def action_copy(self) -> None:
        """Copy the next command for the run under the cursor; only a message if there is none."""
        run = self.bars.run
        command = measured.next_command(self.found, run, self.found.state(run)) if self.found and run else ""
        if command:
            self.app.copy_to_clipboard(command)
        self.doctor.say(
            say("copied: {command}", command=command) if command else "no command to copy here: what to do is in words"
        )

    def action_leave(self) -> None:
        """Esc: back from the expected value, else as on every screen."""
        if self._shows_expected:
            self.action_why()
        else:
            super().action_leave()

    def action_run_this(self) -> None:
        """Measure the kernel shown, on every GPU; all kernels if none is."""
        self._start_measuring([self.kernel.id] if self.kernel else [])

    def action_run_all(self) -> None:
        """Measure every kernel."""
        self._start_measuring([])

    def action_stop(self) -> None:
        """Stop measuring before the next kernel; what was measured stays.

        Only a message if nothing is being measured.
        """
        if self._stop is None:
            self.doctor.say("nothing is measured now")
        else:
            self._stop.set()
            self.doctor.say("stopping; what was measured stays")

    def _start_measuring(self, kernel_ids: Sequence[str]) -> None:
        """Measure the kernels of these ids (all if empty) in a thread, showing results as they come.

        Only a message if nothing can be measured from here or it is being measured already.
        """
        app, measure = self.app, self.doctor.work.kernels
        if measure is None:
            at = self.found.at if self.found else ""
            when = say("; what is shown was measured at {at}", at=one_line(at)) if at else ""
            self.doctor.say("nothing can be measured from here{when}", when=when)
        elif self._stop is not None:
            self.doctor.say("it is being measured already; x stops it")
        else:
            stop = self._stop = threading.Event()
            self._since = time.monotonic()

            def report(partly: Measurements) -> None:
                """Show the measurements so far, from any thread; ignored if they are of an earlier start."""
                call_in_app(app, lambda: self._show_merged(partly) if stop is self._stop else None)

            run_in_thread(app, "kernels", lambda: measure(kernel_ids, report, stop), self._finish_measuring)
        self.reframe()

    def _show_merged(self, measurements: Measurements) -> None:
        """Show these measurements merged into those that are shown."""
        self._show_measurements(self.found.merged(measurements) if self.found else measurements)

    def _finish_measuring(self, answer: Measurements | BaseException) -> None:
        """Show the final measurements and have the diagnosis made anew with them in a thread, or say what failed."""
        stopped, self._stop = bool(self._stop and self._stop.is_set()), None
        if isinstance(answer, BaseException):
            if self.found is None:
                self._show_empty(say("Nothing was measured: {error}", error=error_text(answer)))
            else:
                self.doctor.say("not measured to the end: {error}", error=error_text(answer))
        else:
            self._show_merged(answer)
            self.doctor.say("stopped; what was measured stays" if stopped else "measured")
            judged, diagnosis, found = self.doctor.work.judged, self.doctor.diagnosis, self.found
            if found and judged and diagnosis:
                run_in_thread(self.app, "judged", lambda: judged(diagnosis, found), self._receive_diagnosis)
        self.reframe()

    def _receive_diagnosis(self, answer: Diagnosis | BaseException) -> None:
        """Make the new diagnosis the app's, so that all screens show it; a message after an exception.

        Ignored while the machine is being read.
        """
        if isinstance(answer, BaseException):
            self.doctor.say("what was measured cannot be judged: {error}", error=error_text(answer))
        elif self.doctor.reading.over:
            self.doctor.diagnosis = answer

    def _tick(self) -> None:
        """Redraw the first two lines and the bars while kernels run."""
        if self._stop:
            self.reframe()
            self.bars.refresh()

    def band(self) -> Band:
        """The first line: the verdict of the measurements if something is bad and no milder than that of the facts."""
        band = super().band()
        verdict = measured.verdict_of_all(self.found) if self.found else None
        if not verdict or (band.look == "broken" and verdict[0] != "broken"):
            return band
        glyph, word = marks.VERDICT[verdict[0]]
        return Band(verdict[0], f"{glyph} {word}", verdict[1], band.rights)

    def status(self) -> Sequence[Content | str]:
        """Texts of the second line: progress while kernels run, else counts of runs, else as on every screen."""
        if self._stop:
            return progress_line(self.found, time.monotonic() - self._since)
        if self.found and self.found.kernels and self.doctor.reading.over:
            return counts_line(self.found)
        return super().status()


# ---- Measuring in words ----

_BAR = 24
_ABOUT = (
    "Small kernels tell what no driver reports: whether a GPU computes right values, and as fast as its kind "
    "should: matrix products, memory, the way to the host, and what launching costs."
)
_HERE = "R measures every kernel, minutes in all; GPUs in use are left alone."
_THERE = "On the machine itself they are run by gpudoctor bench, and by gpudoctor check --level deep."


def no_measurement_blocks(message: str, can_measure: bool) -> Iterator[Block]:
    """`message`, what kernels are for, and how to run them: by key (`can_measure`), else on the machine itself."""
    yield Block(plain(say(message), "bold"))
    yield GAP
    yield Block(plain(say(_ABOUT)))
    yield GAP
    yield Block(plain(say(_HERE if can_measure else _THERE)))


def progress_line(measurements: Measurements | None, seconds: float) -> tuple[Content, Content]:
    """Progress bar of the running kernels with counts and `seconds`; and, for the right end, the key that stops."""
    runs = measurements.runs if measurements else ()
    open_ = [run for run in runs if run.status in {"waiting", "running"}]
    now = next((run for run in open_ if run.status == "running"), None)
    asked = len(runs) or 1
    full = _BAR * (asked - len(open_)) // asked if runs else 0
    bar = Content.assemble(("█" * full, "$primary"), ("░" * (_BAR - full), "$foreground 40%"))
    where = (
        say(" · {kernel} on {gpu}", kernel=now.kernel, gpu=say(measurements.called(now.gpu)))
        if now and measurements
        else ""
    )
    line = Content.assemble(
        bar,
        plain(
            say(
                "  {done} of {count} measured{where} · {seconds:.0f} s",
                done=asked - len(open_),
                count=len(runs),
                where=where,
                seconds=seconds,
            )
        ),
    )
    return line, Content(say("x stop, keep what was measured"))


def counts_line(measurements: Measurements) -> tuple[Content, Content]:
    """Runs by state: ``61 sound · 2 wrong · 4 slow · 8 not judged``; and which GPUs are in use, else when measured."""
    states = [measurements.state(run) for run in measurements.runs]
    words: dict[State, str] = {
        "sound": say("{count} sound"),
        "wrong": say("{count} wrong"),
        "failed": say("{count} failed"),
        "slow": say("{count} slow"),
    }
    parts = [
        say(word, count=count) for state, word in words.items() if (count := states.count(state)) or state == "sound"
    ]
    unjudged = say("{count} not judged", count=states.count("unjudged"))
    held = [
        say("GPU {index} is in use by {held}", index=device.index, held=one_line(device.held))
        for device in measurements.devices
        if device.held
    ]
    right = (
        say("{held}: not touched", held=held[0])
        if len(held) == 1
        else say("{count} GPUs are in use: not touched", count=len(held))
        if held
        else ""
    )
    when = say("measured {at}", at=one_line(measurements.at)) if measurements.at else ""
    return Content(" · ".join([*parts, unjudged])), Content(right or when)
