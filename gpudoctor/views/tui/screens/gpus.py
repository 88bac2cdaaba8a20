"""The GPUs at work: twice a second what each does, what holds it back, how they are connected, who uses them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.widget import Widget

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.language import phrase, say
from gpudoctor.core.sample import Sample, sample_of
from gpudoctor.views._terminal import plural
from gpudoctor.views.tui.base import FramedScreen
from gpudoctor.views.tui.widgets.frame import Line
from gpudoctor.views.tui.widgets.gpu_table import GPUTable
from gpudoctor.views.tui.widgets.matrix import Matrix
from gpudoctor.views.tui.widgets.prose import Block, Pane, plain
from gpudoctor.views.tui.widgets.rows import Rows
from gpudoctor.views.tui.words import gpu as gpu_words
from gpudoctor.views.tui.words import gpu_links
from gpudoctor.views.tui.words.gpu import MOST, GpuState
from gpudoctor.views.tui.work import call_in_app, run_in_thread


class LiveScreen(FramedScreen):
    """A screen with live samples of the GPUs, which a thread takes from `follow_samples` until the screen is closed."""

    def __init__(self) -> None:
        super().__init__()
        self._samples = LiveSamples()
        self._stop: Callable[[], None] = lambda: None

    def draw_samples(self) -> None:
        """Redraw what shows the GPU samples, after each new one; raises NotImplementedError unless overridden."""
        raise NotImplementedError

    def follow_samples(self) -> None:
        """Start sampling the GPUs in a thread; does nothing if the app has no live samples (as for a report)."""
        live, app = self.doctor.work.live, self.app  # a thread has no active app to ask for

        def receive(sample: Sample) -> None:
            """Pass a sample from the sampling thread to the screen, in the interface's thread."""
            call_in_app(app, lambda: self._receive_sample(sample))

        if live:
            run_in_thread(app, "live", lambda: live(receive), self._receive_stop)

    def on_unmount(self) -> None:
        """Stop sampling."""
        self._stop()

    def _receive_stop(self, stop: Callable[[], None] | BaseException) -> None:
        """Keep the function that stops sampling, or call it if the screen was closed; show an exception as trouble."""
        if isinstance(stop, BaseException):
            self._receive_sample(Sample(None, trouble=" ".join(str(stop).split())))
        elif self.is_attached:
            self._stop = stop
        else:
            stop()

    def _receive_sample(self, sample: Sample) -> None:
        """Update the state shown from the sample, and redraw if something changed; ignored once the screen closed."""
        if self.is_attached and self._samples.take(sample):
            self.draw_samples()


class GPUsScreen(LiveScreen):
    """The GPUs, live if they can be sampled, else as reported. `b`, `t` and `p` choose what the links show."""

    NAME = "gpus"
    AUTO_FOCUS = "#gpus"
    CSS = """
    #gpus { height: 1fr; }
    #below { height: 1fr; layout: horizontal; }
    #links { width: 1fr; max-width: 66; }
    #links Matrix { height: 1fr; border: none; padding: 0; }
    #links Line { color: $foreground 60%; padding: 0; }
    #links #reason { color: $foreground; }
    #gpu { width: 1fr; height: 1fr; }
    GPUsScreen.-many #below { display: none; }
    GPUsScreen.-narrow #links { display: none; }
    GPUsScreen.-matrix #below { display: block; }
    GPUsScreen.-many.-detail #below { display: block; height: 18; max-height: 60%; }
    GPUsScreen.-many.-detail #links { display: none; }
    GPUsScreen.-matrix.-narrow #links { display: block; }
    GPUsScreen.-matrix.-narrow #gpu { display: none; }
    GPUsScreen.-matrix.-many #gpus { display: none; }
    GPUsScreen.-matrix.-many #gpu { display: none; }
    GPUsScreen.-alone #links { display: none; }
    GPUsScreen.-none #gpus { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "cause", "cause"),
        Binding("t", "links('topology')", "topology"),
        Binding("p", "links('p2p')", "P2P"),
        Binding("b", "links('bandwidth')", "links"),
        Binding("d", "detail", "Detail, where there are many", show=False),
        Binding("space", "freeze", "freeze"),
    ]
    AGED = 1.0
    """Seconds between two looks whether what is shown has grown old."""

    def __init__(self) -> None:
        super().__init__()
        self._detail_size = (0, 0)
        """Columns and lines for which the detail was made."""
        self._link_view = gpu_links.VIEWS[-1]

    def body(self) -> Iterable[Widget]:
        """The table of GPUs; below it the heat map of their links and the detail of one GPU."""
        self.table, self.detail = GPUTable(), Pane("GPU", id="gpu")
        self.matrix, self.reason, self.legend = Matrix(id="matrix", classes=""), Line(id="reason"), Line(id="legend")
        self.links = Vertical(self.matrix, self.reason, self.legend, id="links", classes="pane")
        yield self.table
        with Container(id="below"):
            yield self.links
            yield self.detail

    def on_mount(self) -> None:
        """Start sampling in a thread, and look once a second whether numbers have become outdated."""
        self.set_interval(self.AGED, self._redraw_if_outdated)
        self.follow_samples()

    def on_resize(self) -> None:
        """Redraw table, detail and frame for the new size, after the layout."""
        self.call_after_refresh(self.draw_samples)

    def _redraw_if_outdated(self) -> None:
        """Redraw if live numbers have become outdated or the room for the detail has changed."""
        if self._samples.age() or self._available_size != self._detail_size:
            self.draw_samples()

    def show(self, diagnosis: Diagnosis) -> None:
        """Show findings and links of the diagnosis, and its numbers unless there are live ones."""
        self._samples.shown.health = gpu_words.health(diagnosis)
        self._samples.take(sample_of(diagnosis.snapshot))
        self._show_links()
        self.draw_samples()

    def go(self, name: str) -> bool:
        """Focus the table, and put its cursor on the GPU whose index `name` is; False if it is not listed."""
        found = name.isdigit() and self.table.go(int(name))
        self.table.focus()
        return found

    def draw_samples(self) -> None:
        """Redraw table, detail and frame from the latest samples, with the layout for the number of GPUs."""
        shown = self._samples.shown
        count = len(shown.gpus)
        if count != self.table.count:
            self.refresh_bindings()
        self.set_class(count > gpu_links.MANY, "-many")
        self.set_class(count < 2, "-alone")
        self.set_class(not count, "-none")
        if not count and self.table.has_focus:
            self.detail.focus()
        rows = count + sum(len(gpu.instances) for gpu in shown.gpus.values())
        self.table.styles.height = "1fr" if count > gpu_links.MANY else min(rows + 3, max(self.size.height * 3 // 5, 6))
        self.table.border_title = plural(count, "GPU")
        self.table.put(shown)
        curves = say("curves: the last 60 s") if self.table.shown.axes else ""
        self.table.border_subtitle = " · ".join(
            filter(None, (say("found first") if self.table.found_first else "", curves))
        )
        self._show_detail(keep=True)
        self.reframe()

    @property
    def _available_size(self) -> tuple[int, int]:
        """Columns and lines available for the detail."""
        return max(self.detail.scrollable_content_region.width - 1, 20), self.detail.content_region.height

    def _show_detail(self, keep: bool) -> None:
        """Show the GPU under the cursor in detail, or why there is none; `keep` keeps the scroll position.

        Does nothing while the table has the whole screen.
        """
        diagnosis, gpu = self.doctor.diagnosis, self.table.gpu
        self._detail_size = self._available_size
        if self.has_class("-many") and not self.has_class("-detail"):
            return
        if gpu is not None:
            blocks = list(gpu_words.gpu_blocks(self._samples.shown, gpu, *self._detail_size))
            self.detail.put(gpu_words.gpu_title(gpu), blocks, keep=keep)
        elif diagnosis is not None:
            trouble = self._samples.trouble or say("no GPU is listed")
            self.detail.put("No GPU", [Block(plain(trouble)), *gpu_words.no_gpu_blocks(diagnosis)], keep=keep)
        else:
            self.detail.put("GPUs", [Block(plain(self._samples.trouble or say("nothing was read yet")))], keep=keep)

    def _show_links(self) -> None:
        """Show the heat map of the chosen view of the links (topology, P2P, bandwidth); nothing before a diagnosis."""
        diagnosis = self.doctor.diagnosis
        if diagnosis is None:
            return
        view = gpu_links.view(diagnosis.snapshot, self._link_view)
        self.matrix.wide, self.matrix.empty = view.wide, view.empty
        self.links.border_title = Content(view.title)
        heads = [name.replace("GPU ", "GPU" if view.wide else "") for name in view.names]
        self.matrix.put(view.names, heads, view.cells)
        self.legend.say(view.legend)

    def status(self) -> Sequence[Content | str]:
        """Texts of the second line: whether the numbers are live and how old, and what ``?`` and ``-`` mean."""
        if not self.doctor.reading.over:
            return super().status()
        text = self._samples.status_text(self.doctor.work.recorded)
        return Content(text), Content(say("? could not be read   - not reported"))

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """Show the GPU under the table's cursor in detail; go to its row of the heat map unless that is focused."""
        if event.rows is not self.table:
            return
        gpu = self.table.gpu
        self._show_detail(keep=str(self.detail.border_title) == (gpu_words.gpu_title(gpu) if gpu else ""))
        if gpu and not self.matrix.has_focus:
            self.matrix.go_to(f"GPU {gpu.index}")

    def on_matrix_moved(self, event: Matrix.Moved) -> None:
        """Show the reason of the heat map's cell under the cursor."""
        mark = event.matrix.mark
        self.reason.say(plain(say(mark.reason)) if mark else "")

    def selected(self) -> tuple[str, ...]:
        """Ids of the findings about the GPU under the cursor, each once; none without a GPU."""
        gpu = self.table.gpu
        found = self._samples.shown.health.of(gpu.index) if gpu else ()
        return tuple(dict.fromkeys(finding.id for finding in found))

    async def on_rows_chosen(self) -> None:
        """Open the first finding about the chosen GPU (Enter or a second click)."""
        await self.action_cause()

    async def action_cause(self) -> None:
        """Open the first finding about the GPU under the cursor; without a GPU the first finding of all.

        A message if there is none; nothing before a diagnosis.
        """
        diagnosis, gpu = self.doctor.diagnosis, self.table.gpu
        if diagnosis is None:
            return
        found = self._samples.shown.health.of(gpu.index) if gpu else diagnosis.findings
        if found:
            (await self.visit("diagnosis")).go(found[0].id)
        else:
            self.doctor.say(say("nothing was found about GPU {index}", index=gpu.index) if gpu else "nothing was found")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """False for ``links`` with fewer than two GPUs, ``freeze`` and ``detail`` without any; else as elsewhere."""
        least = {"links": 2, "freeze": 1, "detail": 1}.get(action, 0)
        return len(self._samples.shown.gpus) >= least and super().check_action(action, parameters)

    def action_links(self, view: str) -> None:
        """Show that heat map of the links (``topology``, ``p2p``, ``bandwidth``); again, show the panes it hides."""
        again = self.has_class("-matrix") and view == self._link_view
        self._link_view = view
        self.set_class(not again, "-matrix")
        self._show_links()
        (self.table if again else self.matrix if self.has_class("-many") else self.table).focus()

    def action_detail(self) -> None:
        """Show or hide the detail below the table, which has the whole screen where there are many GPUs."""
        self.toggle_class("-detail")
        self.remove_class("-matrix")
        self._show_detail(keep=False)

    def action_freeze(self) -> None:
        """Stop updating the numbers shown; if stopped already, go on with all samples that came meanwhile."""
        self._samples.freeze()
        self.draw_samples()


# ---- What was last heard of each GPU ----

STALE_SECONDS = 3.0
"""Seconds without a sample after which the numbers are called old."""


class LiveSamples:
    """Takes samples and updates `shown`, marking outdated numbers: by the monotonic clock, in seconds. Curves go by the
    samples' own `seconds`, if given.
    """

    def __init__(self) -> None:
        self.clock = time.monotonic
        self.shown = GpuState()
        self.trouble = ""
        """Why there is nothing new."""
        self.live = False
        self.frozen: float | None = None
        """Since when nothing is drawn."""
        self._last_sample_at = 0.0
        self._answered_at: dict[int, float] = {}
        self._errors: dict[int, str] = {}
        self._recent_moments: deque[float] = deque(maxlen=8)
        self._held_samples: deque[tuple[Sample, float]] = deque(maxlen=MOST)

    def take(self, sample: Sample) -> bool:
        """Update the state shown from a sample, and mark outdated numbers; True if there is something to redraw.

        False if the sample is ignored (one of a report after live ones), or only kept for later because the view is
        frozen.
        """
        if not sample.live and self.live:
            return False  # what the report says is older
        if self.frozen is not None:
            self._held_samples.append((sample, self.clock()))
            return False
        self._take(sample, self.clock())
        return True

    def _take(self, sample: Sample, now: float) -> None:
        """Update the state shown from a sample that came at `now`, and mark outdated numbers."""
        self.trouble = phrase(sample.trouble)
        if not sample.live:
            self.shown.gpus = {gpu.index: gpu for gpu in sample.gpus}
            self._errors = {gpu.index: gpu.error for gpu in sample.gpus if gpu.error}
        elif not sample.trouble:
            self._take_live(sample, now)
        self._mark_outdated(now)

    def _take_live(self, sample: Sample, now: float) -> None:
        """Update GPUs, curves and errors from a live sample; a GPU not in it keeps its numbers, with an error."""
        if not self.live:
            self.shown.gpus, self.live = {}, True
        self._last_sample_at = now
        moment = sample.seconds if sample.seconds is not None else now
        self._recent_moments.append(moment)
        self.shown.moment = moment
        self.shown.histories.add(moment, sample.gpus)
        gone = set(self.shown.gpus) - {gpu.index for gpu in sample.gpus}
        self._errors = dict.fromkeys(gone, say("NVML no longer lists it"))
        for gpu in sample.gpus:
            if gpu.error:
                self._errors[gpu.index] = gpu.error
                self.shown.gpus.setdefault(gpu.index, gpu)
            else:
                self._answered_at[gpu.index] = now
                self.shown.gpus[gpu.index] = gpu

    def age(self) -> bool:
        """Mark outdated numbers; True if live samples have stopped coming, so that their age must be redrawn."""
        if self.frozen is not None or not self.live:
            return False
        now = self.clock()
        if now - self._last_sample_at < STALE_SECONDS:
            return False
        self._mark_outdated(now)
        return True

    def _mark_outdated(self, now: float) -> None:
        """Set for each GPU whose numbers are outdated why (its NVML error, or no answer) and for how long."""
        silent = self.live and now - self._last_sample_at >= STALE_SECONDS
        outdated = {}
        for index in self.shown.gpus:
            since = self._answered_at.get(index)
            ago = say(", {now:.0f} s ago", now=now - since) if since is not None else ""
            if index in self._errors:
                outdated[index] = f"NVML: {self._errors[index]}{ago}"
            elif silent:
                outdated[index] = say("no answer for {now:.0f} s", now=now - (since or now))
        self.shown.struck = outdated

    def freeze(self) -> None:
        """Stop updating what is shown; if that is stopped already, take all samples that came meanwhile and go on."""
        if self.frozen is None:
            self.frozen = self.clock()
            return
        self.frozen = None
        while self._held_samples:
            self._take(*self._held_samples.popleft())
        self.age()

    def status_text(self, recorded: bool = False) -> str:
        """Text of the second line: live or recorded and how often, frozen, not answering, or from a report.

        Without any GPU it is only the trouble.
        """
        now = self.clock()
        if self.frozen is not None:
            return say("frozen {now:.0f} s ago · space goes on", now=now - self.frozen)
        if self.live and (self.trouble or now - self._last_sample_at >= STALE_SECONDS):
            why = say(": ") + self.trouble if self.trouble else ""
            return say("NVML has not answered for {now:.0f} s{why}", now=now - self._last_sample_at, why=why)
        if self.live:
            return say(
                "{recorded} · {rate} · space freezes",
                recorded=say("recorded" if recorded else "live"),
                rate=self._rate_text(),
            )
        if not self.shown.gpus:
            return self.trouble
        return say("from the report, not live") + (say(": ") + self.trouble if self.trouble else "")

    def _rate_text(self) -> str:
        """How often samples come: ``2 a second``, ``one each 3 s``; before the third ``first numbers``."""
        if len(self._recent_moments) < 3 or self._recent_moments[-1] <= self._recent_moments[0]:
            return say("first numbers")
        rate = (len(self._recent_moments) - 1) / (self._recent_moments[-1] - self._recent_moments[0])
        return say("{rate:.0f} a second", rate=rate) if rate > 0.5 else say("one each {rate:.0f} s", rate=1 / rate)
