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

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.sample import Sample, sample_of
from gpudoctor.views.tui import background
from gpudoctor.views.tui.screens.place import Place
from gpudoctor.views.tui.widgets.frame import Line
from gpudoctor.views.tui.widgets.gpu_table import GPUTable
from gpudoctor.views.tui.widgets.matrix import Matrix
from gpudoctor.views.tui.widgets.prose import Block, Pane, plain
from gpudoctor.views.tui.widgets.rows import Rows
from gpudoctor.views.tui.words import gpu as gpu_words
from gpudoctor.views.tui.words import gpu_detail, gpu_links
from gpudoctor.views.tui.words.gpu_columns import Shown
from gpudoctor.views.tui.words.history import MOST


class GPUsScreen(Place):
    """Live where there is a machine to ask; else what the report says. `b`, `t` and `p` choose what the links show."""

    NAME = "gpus"
    AUTO_FOCUS = "#gpus"
    CSS = """
    #gpus { height: 1fr; }
    #below { height: 1fr; layout: horizontal; }
    #links { width: 1fr; }
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
        self._watch = Watch()
        self._said = ""
        """What the second line says."""
        self._drawn = 0
        """Columns for which the detail was made."""
        self._way = gpu_links.WAYS[-1]
        self._stop: Callable[[], None] = lambda: None

    def body(self) -> Iterable[Widget]:
        """The table; below it links and detail."""
        self.table, self.detail = GPUTable(), Pane("GPU", id="gpu")
        self.matrix, self.reason, self.legend = Matrix(id="matrix", classes=""), Line(id="reason"), Line(id="legend")
        self.links = Vertical(self.matrix, self.reason, self.legend, id="links", classes="pane")
        yield self.table
        with Container(id="below"):
            yield self.links
            yield self.detail

    def on_mount(self) -> None:
        """Follow the app; ask the machine where it can be asked."""
        super().on_mount()
        self.set_interval(self.AGED, self._age)
        live, app = self.doctor.work.live, self.app  # a thread has no active app to ask for

        def told(sample: Sample) -> None:
            background.tell(app, lambda: self._take(sample))

        if live:
            background.start(app, "live", lambda: live(told), self._started)

    def on_resize(self) -> None:
        """Other widths, other curves."""
        super().on_resize()
        self.call_after_refresh(self._draw)

    def on_unmount(self) -> None:
        """Nobody looks any more."""
        self._stop()

    def _started(self, stop: Callable[[], None] | BaseException) -> None:
        if isinstance(stop, BaseException):
            self._take(Sample(None, trouble=" ".join(str(stop).split())))
        elif self.is_attached:
            self._stop = stop
        else:
            stop()

    def _take(self, sample: Sample) -> None:
        if self.is_attached and self._watch.take(sample):
            self._draw()

    def _age(self) -> None:
        if self._watch.age() or self._columns != self._drawn:
            self._draw()

    def show(self, diagnosis: Diagnosis) -> None:
        """Marks and links follow the diagnosis; so do the numbers, until there are live ones."""
        self._watch.shown.health = gpu_words.health(diagnosis)
        self._watch.take(sample_of(diagnosis.snapshot))
        self._put_links()
        self._draw()

    def go(self, name: str) -> bool:
        """To the GPU of that number."""
        found = name.isdigit() and self.table.go(int(name))
        self.table.focus()
        return found

    def _draw(self) -> None:
        shown = self._watch.shown
        count = len(shown.gpus)
        self.set_class(count > gpu_links.MANY, "-many")
        self.set_class(count < 2, "-alone")
        self.set_class(not count, "-none")
        if not count and self.table.has_focus:
            self.detail.focus()
        rows = count + sum(len(gpu.instances) for gpu in shown.gpus.values())
        self.table.styles.height = "1fr" if count > gpu_links.MANY else min(rows + 3, max(self.size.height * 3 // 5, 6))
        self.table.border_title = f"{count} GPU{'s' if count != 1 else ''}"
        self.table.border_subtitle = "found first" if self.table.found_first else ""
        self.table.put(shown)
        self._detail(keep=True)
        self.reframe()

    @property
    def _columns(self) -> int:
        """Columns that the detail has."""
        return max(self.detail.scrollable_content_region.width - 1, 20)

    def _detail(self, keep: bool) -> None:
        diagnosis, gpu = self.doctor.diagnosis, self.table.gpu
        self._drawn = self._columns
        if self.has_class("-many") and not self.has_class("-detail"):
            return
        if gpu is not None:
            blocks = list(gpu_detail.blocks(self._watch.shown, gpu, self._drawn))
            self.detail.put(gpu_detail.title(gpu), blocks, keep=keep)
        elif diagnosis is not None:
            trouble = self._watch.trouble or "no GPU is listed"
            self.detail.put("No GPU", [Block(plain(trouble)), *gpu_detail.nothing(diagnosis)], keep=keep)
        else:
            self.detail.put("GPUs", [Block(plain(self._watch.trouble or "nothing was read yet"))], keep=keep)

    def _put_links(self) -> None:
        diagnosis = self.doctor.diagnosis
        if diagnosis is None:
            return
        view = gpu_links.view(diagnosis.snapshot, self._way)
        self.matrix.wide, self.matrix.empty = view.wide, view.empty
        self.links.border_title = Content(view.title)
        heads = [name.replace("GPU ", "GPU" if view.wide else "") for name in view.names]
        self.matrix.put(view.names, heads, view.cells)
        self.legend.say(view.legend)

    def status(self) -> Sequence[Content | str]:
        """Whether the numbers are live, and what the marks mean."""
        if not self.doctor.reading.over:
            return super().status()
        return Content(self._watch.words(self.doctor.work.recorded)), Content("? could not be read   - not reported")

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """The detail and the links follow the cursor."""
        if event.rows is not self.table:
            return
        gpu = self.table.gpu
        self._detail(keep=str(self.detail.border_title) == (gpu_detail.title(gpu) if gpu else ""))
        if gpu and not self.matrix.has_focus:
            self.matrix.go_to(f"GPU {gpu.index}")

    def on_matrix_moved(self, event: Matrix.Moved) -> None:
        """Why the cell under the cursor is as it is."""
        mark = event.matrix.mark
        self.reason.say(plain(mark.reason) if mark else "")

    def selected(self) -> tuple[str, ...]:
        """What was found about the GPU under the cursor."""
        gpu = self.table.gpu
        found = self._watch.shown.health.of(gpu.index) if gpu else ()
        return tuple(dict.fromkeys(finding.id for finding in found))

    async def on_rows_chosen(self) -> None:
        """Enter and a second click open the cause."""
        await self.action_cause()

    async def action_cause(self) -> None:
        """To the first thing found about this GPU; where there is no GPU, to the first cause."""
        diagnosis, gpu = self.doctor.diagnosis, self.table.gpu
        if diagnosis is None:
            return
        found = self._watch.shown.health.of(gpu.index) if gpu else diagnosis.findings
        if found:
            (await self.visit("diagnosis")).go(found[0].id)
        else:
            self.doctor.say(f"nothing was found about GPU {gpu.index}" if gpu else "nothing was found")

    def action_links(self, way: str) -> None:
        """Show the links that way; pressed again where they hide another pane, take them away."""
        again = self.has_class("-matrix") and way == self._way
        self._way = way
        self.set_class(not again, "-matrix")
        self._put_links()
        (self.table if again else self.matrix if self.has_class("-many") else self.table).focus()

    def action_detail(self) -> None:
        """The detail below a table that takes the whole screen; or away again."""
        self.toggle_class("-detail")
        self.remove_class("-matrix")
        self._detail(keep=False)

    def action_freeze(self) -> None:
        """Hold the numbers as they are; what comes meanwhile is drawn afterwards."""
        self._watch.freeze()
        self._draw()


# ---- What was last heard of each GPU ----
# New numbers, old ones that must not pass for new, and the silence in between.

STALE = 3.0
"""Seconds without a sample after which the numbers are called old."""


class Watch:
    """Takes samples and keeps `shown` true to them. Moments are those of the monotonic clock."""

    def __init__(self) -> None:
        self.clock = time.monotonic
        self.shown = Shown()
        self.trouble = ""
        """Why there is nothing new."""
        self.live = False
        self.frozen: float | None = None
        """Since when nothing is drawn."""
        self._heard = 0.0
        self._answered: dict[int, float] = {}
        self._errors: dict[int, str] = {}
        self._beat: deque[float] = deque(maxlen=8)
        self._waiting: deque[Sample] = deque(maxlen=MOST)

    def take(self, sample: Sample) -> bool:
        """A new sample; whether there is something new to draw."""
        if not sample.live and self.live:
            return False  # what the report says is older
        if self.frozen is not None:
            self._waiting.append(sample)
            return False
        now = self.clock()
        self.trouble = sample.trouble
        if not sample.live:
            self.shown.gpus = {gpu.index: gpu for gpu in sample.gpus}
            self._errors = {gpu.index: gpu.error for gpu in sample.gpus if gpu.error}
        elif not sample.trouble:
            self._live(sample, now)
        self._strike(now)
        return True

    def _live(self, sample: Sample, now: float) -> None:
        if not self.live:
            self.shown.gpus, self.live = {}, True
        self._heard = now
        moment = sample.seconds if sample.seconds is not None else now
        self._beat.append(moment)
        self.shown.moment = moment
        self.shown.histories.add(moment, sample.gpus)
        gone = set(self.shown.gpus) - {gpu.index for gpu in sample.gpus}
        self._errors = dict.fromkeys(gone, "NVML no longer lists it")
        for gpu in sample.gpus:
            if gpu.error:
                self._errors[gpu.index] = gpu.error
                self.shown.gpus.setdefault(gpu.index, gpu)
            else:
                self._answered[gpu.index] = now
                self.shown.gpus[gpu.index] = gpu

    def age(self) -> bool:
        """Look at the clock; whether something must be drawn for it alone."""
        if self.frozen is not None or not self.live:
            return False
        now = self.clock()
        if now - self._heard < STALE:
            return False
        self._strike(now)
        return True

    def _strike(self, now: float) -> None:
        """Say of each GPU whose numbers are old why, and since when."""
        silent = self.live and now - self._heard >= STALE
        struck = {}
        for index in self.shown.gpus:
            since = self._answered.get(index)
            ago = f", {now - since:.0f} s ago" if since is not None else ""
            if index in self._errors:
                struck[index] = f"NVML: {self._errors[index]}{ago}"
            elif silent:
                struck[index] = f"no answer for {now - (since or now):.0f} s"
        self.shown.struck = struck

    def freeze(self) -> None:
        """Hold what is shown, or go on with all that came meanwhile."""
        if self.frozen is None:
            self.frozen = self.clock()
            return
        self.frozen = None
        while self._waiting:
            self.take(self._waiting.popleft())

    def words(self, recorded: bool = False) -> str:
        """The second line: live or `recorded` and how often, frozen, silent, or from a report."""
        now = self.clock()
        if self.frozen is not None:
            return f"frozen {now - self.frozen:.0f} s ago · space goes on"
        if self.live and (self.trouble or now - self._heard >= STALE):
            why = f": {self.trouble}" if self.trouble else ""
            return f"NVML has not answered for {now - self._heard:.0f} s{why}"
        if self.live:
            return f"{'recorded' if recorded else 'live'} · {self._rate()} · space freezes"
        if not self.shown.gpus:
            return self.trouble
        return f"from the report, not live{f': {self.trouble}' if self.trouble else ''}"

    def _rate(self) -> str:
        if len(self._beat) < 3 or self._beat[-1] <= self._beat[0]:
            return "first numbers"
        return f"{(len(self._beat) - 1) / (self._beat[-1] - self._beat[0]):.0f} a second"
