"""What the GPUs really do: each kernel on each GPU against what was expected, and whether its values are right."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.measurement import Kernel, Measurements, Run
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui import background, marks
from gpudoctor.views.tui.screens.place import Band, Place
from gpudoctor.views.tui.widgets.bars import Bars
from gpudoctor.views.tui.widgets.kernels import Kernels, KernelTabs
from gpudoctor.views.tui.widgets.prose import GAP, Block, Pane, plain
from gpudoctor.views.tui.widgets.rows import Rows
from gpudoctor.views.tui.words import measured, one_run

if TYPE_CHECKING:
    from gpudoctor.views.tui.app import DoctorApp


class KernelsScreen(Place):
    """Kernels × GPUs. `R` measures all, `enter` the kernel that is shown; `x` stops and keeps what was measured."""

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
        """The GPUs, below them the kernels and what is known of the one under the cursor."""
        self.bars, self.kernels, self.tabs, self.detail = Bars(), Kernels(), KernelTabs(), Pane("Kernels", id="run")
        self.found: Measurements | None = None
        self.measuring = Measuring(self.doctor, self._partly, self._measured)
        self._why = False
        self._chosen = False
        with Vertical(id="measured", classes="-none"):
            yield self.tabs
            yield self.bars
            with Horizontal(id="kernel-list"):
                yield self.kernels
                yield self.detail

    def on_mount(self) -> None:
        """What was measured before, if anything was."""
        super().on_mount()
        self.set_interval(0.25, self._tick)
        if self.doctor.work.measured is None:
            self._nothing()
        elif self.found is None:
            self.detail.put("Kernels", [Block(plain("Reading what was measured …"))])
            self._recall()

    def show(self, diagnosis: Diagnosis) -> None:  # noqa: ARG002 - what was measured is asked for by itself
        """A reading of level deep, or of a file, brings what kernels measured."""
        self._recall()

    def _recall(self) -> None:
        recall = self.doctor.work.measured
        if recall and not self.measuring.runs:
            background.start(self.app, "measured", recall, self._recalled)

    @property
    def kernel(self) -> Kernel | None:
        """The one that is shown."""
        kernels = self.found.kernels if self.found else ()
        return kernels[min(self.kernels.cursor, len(kernels) - 1)] if kernels else None

    def _recalled(self, answer: Measurements | BaseException | None) -> None:
        if self.measuring.runs:
            return
        if isinstance(answer, Measurements):
            self._put(answer.merged(self.found) if self.found else answer)
        elif self.found is not None:
            return
        elif answer is None:
            self._nothing()
        else:
            self._nothing(f"What was measured cannot be read: {background.words(answer)}")

    def _nothing(self, said: str = "Nothing was measured here yet.") -> None:
        """An empty screen in words."""
        self.detail.put("Kernels", list(nothing(said, here=self.doctor.work.kernels is not None)))

    def _put(self, found: Measurements) -> None:
        """Show these; the cursors stay where they are, or go to the first trouble. No run is nothing to show."""
        if not found.runs and self.found is None:
            return
        self.found = found
        self.query_one("#measured").set_class(not found.kernels, "-none")
        if not found.kernels:
            self._nothing("No kernel was measured.")
            return
        self.kernels.put(found)
        if not self.bars.has_focus and self.focused is None:
            self.bars.focus()
        self._kernel()
        if not self._chosen:
            self._to_trouble()
        self.reframe()

    def _to_trouble(self) -> None:
        """The first run that is wrong, else failed, else slow."""
        assert self.found
        if run := measured.worst(self.found):
            self._go(run)

    def _go(self, run: Run) -> None:
        assert self.found
        self.kernels.cursor = [kernel.id for kernel in self.found.kernels].index(run.kernel)
        self._kernel()
        self.bars.cursor = [row.gpu for row in self.bars.runs].index(run.gpu)

    def _kernel(self) -> None:
        if self.found and self.kernel:
            self.bars.put(self.found, self.kernel)
            self.tabs.put(self.kernels, self.kernels.cursor)

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """The bars follow the list of kernels, the detail both."""
        if event.rows is self.kernels:
            if self.kernel != self.bars.kernel:
                self._kernel()
            return
        self._detail()

    def _detail(self) -> None:
        run = self.bars.run
        if not self.found or not self.kernel or not run:
            return
        if self._why:
            self.detail.put("Where it comes from", list(one_run.why(self.found, self.kernel, run)))
        else:
            title = f"{self.kernel.title} on {self.found.called(run.gpu)}"
            same = str(self.detail.border_title) == title
            self.detail.put(title, list(one_run.blocks(self.found, self.kernel, run)), keep=same)

    def action_turn(self, by: int) -> None:
        """To the kernel beside this one."""
        self._chosen = True
        self.kernels.action_move(by)

    def action_kernel(self, index: int) -> None:
        """To that kernel."""
        self._chosen = True
        self.kernels.cursor = index

    def action_next(self, by: int) -> None:
        """To the next run that is wrong, failed or slow, whatever its kernel."""
        self._chosen = True
        if not self.found or not self.kernel:
            return
        run = measured.next_bad(self.found, self.kernels.cursor, self.bars.run.gpu if self.bars.run else -1, by)
        if run is None:
            self.doctor.say("nothing is wrong, failed or slow")
        else:
            self._go(run)

    def action_why(self) -> None:
        """Where the expected value comes from; again, back to the run."""
        self._why = not self._why
        self._detail()

    def action_copy(self) -> None:
        """The command that helps on."""
        run = self.bars.run
        command = one_run.cure(self.found, run, self.found.state(run)) if self.found and run else ""
        if command:
            self.app.copy_to_clipboard(command)
        self.doctor.say(f"copied: {command}" if command else "no command to copy here: what to do is in words")

    def action_leave(self) -> None:
        """Esc: back from where the value comes from, else as everywhere."""
        if self._why:
            self.action_why()
        else:
            super().action_leave()

    def action_run_this(self) -> None:
        """Measure the kernel that is shown, on every GPU; all where none is."""
        self._measure([self.kernel.id] if self.kernel else [])

    def action_run_all(self) -> None:
        """Measure every kernel."""
        self._measure([])

    def action_stop(self) -> None:
        """No further kernel is started; what was measured stays."""
        self.measuring.stop()

    def _measure(self, wanted: Sequence[str]) -> None:
        self.measuring.start(wanted, self.found.at if self.found else "")
        self.reframe()

    def _partly(self, partly: Measurements) -> None:
        self._put(self.found.merged(partly) if self.found else partly)

    def _measured(self, answer: Measurements | BaseException, stopped: bool) -> None:
        if isinstance(answer, BaseException):
            if self.found is None:
                self._nothing(f"Nothing was measured: {background.words(answer)}")
            else:
                self.doctor.say(f"not measured to the end: {background.words(answer)}")
        else:
            self._put(self.found.merged(answer) if self.found else answer)
            self.doctor.say("stopped; what was measured stays" if stopped else "measured")
            if self.found:
                self.measuring.judge(self.found)
        self.reframe()

    def _tick(self) -> None:
        if self.measuring.runs:
            self.reframe()
            self.bars.refresh()

    def band(self) -> Band:
        """What kernels found leads here, where it is no better than what the facts say."""
        band = super().band()
        worst = measured.verdict_of_all(self.found) if self.found else None
        if not worst or (band.look == "broken" and worst[0] != "broken"):
            return band
        glyph, word = marks.VERDICT[worst[0]]
        return Band(worst[0], f"{glyph} {word}", worst[1], band.rights)

    def status(self) -> Sequence[Content | str]:
        """About measuring, while something is measured or was."""
        if self.measuring.runs:
            return progress(self.found, self.measuring.seconds)
        if self.found and self.found.kernels and self.doctor.reading.over:
            return counts(self.found)
        return super().status()


# ---- Kernels run beside the interface ----
# Started, heard, stopped, and what they measured judged.

Answer = Measurements | BaseException


class Measuring:
    """`partly` is told of what there is so far; `ended` of all of it, and whether it was stopped."""

    def __init__(
        self, app: DoctorApp, partly: Callable[[Measurements], None], ended: Callable[[Answer, bool], None]
    ) -> None:
        self._app = app
        self._partly = partly
        self._ended = ended
        self._stop: threading.Event | None = None
        self._since = 0.0

    @property
    def runs(self) -> bool:
        """Whether something is measured now."""
        return self._stop is not None

    @property
    def seconds(self) -> float:
        """Since it was started."""
        return time.monotonic() - self._since

    def start(self, wanted: Sequence[str], at: str) -> None:
        """Measure the kernels of those ids, all where there are none; `at` is when what is shown was measured."""
        measure = self._app.work.kernels
        if measure is None:
            when = f"; what is shown was measured at {one_line(at)}" if at else ""
            self._app.say(f"nothing can be measured from here{when}")
            return
        if self._stop is not None:
            self._app.say("it is being measured already; x stops it")
            return
        stop = self._stop = threading.Event()
        self._since = time.monotonic()

        def tell(partly: Measurements) -> None:
            background.tell(self._app, lambda: self._heard(stop, partly))

        def work() -> Measurements:
            return measure(wanted, tell, stop)

        background.start(self._app, "kernels", work, lambda answer: self._over(stop, answer))

    def stop(self) -> None:
        """No further kernel is started; what was measured stays."""
        if self._stop is None:
            self._app.say("nothing is measured now")
        else:
            self._stop.set()
            self._app.say("stopping; what was measured stays")

    def _heard(self, mine: threading.Event, partly: Measurements) -> None:
        if mine is self._stop:
            self._partly(partly)

    def _over(self, mine: threading.Event, answer: Answer) -> None:
        self._stop = None
        self._ended(answer, mine.is_set())

    def judge(self, found: Measurements) -> None:
        """What was measured becomes part of the diagnosis that all screens show."""
        judged, diagnosis = self._app.work.judged, self._app.diagnosis
        if judged and diagnosis:
            background.start(self._app, "judged", lambda: judged(diagnosis, found), self._judged)

    def _judged(self, answer: Diagnosis | BaseException) -> None:
        if isinstance(answer, Diagnosis) and self._app.reading.over:
            self._app.diagnosis = answer
        elif isinstance(answer, BaseException):
            self._app.say(f"what was measured cannot be judged: {background.words(answer)}")


# ---- Measuring in words ----
# Nothing yet, how far it is, what came of it.

_BAR = 24
_ABOUT = (
    "Small kernels tell what no driver reports: whether a GPU computes right values, and as fast as its kind "
    "should: matrix products, memory, the way to the host, and what launching costs."
)
_HERE = "R measures every kernel, minutes in all; GPUs in use are left alone."
_THERE = "On the machine itself they are run by gpudoctor bench, and by gpudoctor check --level deep."


def nothing(said: str, here: bool) -> Iterator[Block]:
    """Why there is nothing to show, what kernels are for, and how they are run: `here`, or on the machine itself."""
    yield Block(plain(said, "bold"))
    yield GAP
    yield Block(plain(_ABOUT))
    yield GAP
    yield Block(plain(_HERE if here else _THERE))


def progress(found: Measurements | None, seconds: float) -> tuple[Content, Content]:
    """How far it is after that time, and how it is stopped."""
    runs = found.runs if found else ()
    open_ = [run for run in runs if run.status in {"waiting", "running"}]
    now = next((run for run in open_ if run.status == "running"), None)
    asked = len(runs) or 1
    full = _BAR * (asked - len(open_)) // asked if runs else 0
    bar = Content.assemble(("█" * full, "$primary"), ("░" * (_BAR - full), "$foreground 40%"))
    where = f" · {now.kernel} on {found.called(now.gpu)}" if now and found else ""
    said = Content.assemble(bar, plain(f"  {asked - len(open_)} of {len(runs)} measured{where} · {seconds:.0f} s"))
    return said, Content("x stop, keep what was measured")


def counts(found: Measurements) -> tuple[Content, Content]:
    """``61 sound · 2 wrong · 4 slow · 8 not measured``, and who is in use."""
    states = [found.state(run) for run in found.runs]
    words = ("sound", "wrong", "failed", "slow")
    said = [f"{count} {word}" for word in words if (count := states.count(word)) or word == "sound"]  # type: ignore[arg-type]
    unjudged = f"{states.count('unjudged')} not judged"
    held = [f"GPU {device.index} is in use by {one_line(device.held)}" for device in found.devices if device.held]
    right = f"{held[0]}: not touched" if len(held) == 1 else f"{len(held)} GPUs are in use: not touched" if held else ""
    when = f"measured {one_line(found.at)}" if found.at else ""
    return Content(" · ".join([*said, unjudged])), Content(right or when)
