"""What a kernel measured on each GPU, as bars that end at what was expected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from gpudoctor.model.measurement import Kernel, Measurements, Run
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui.widgets.rows import Cell, Rows
from gpudoctor.views.tui.words import measured

_EIGHTHS = " ▏▎▍▌▋▊▉"
_OVER = 3
"""Columns behind the mark of the expected value, for those that do more."""
_FIXED = 52
"""Columns of a row that are no bar."""
_MEANWHILE = 46
"""Columns that clock, temperature, power and what held it back take where there is room."""


class Bars(Rows):
    """A row for each GPU."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--bar"}
    DEFAULT_CSS = "Bars > .rows--bar { color: $primary 45%; }"

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "screen.run_this", "run this")]

    def __init__(self) -> None:
        super().__init__(id="bars", classes="pane")
        self.measurements: Measurements | None = None
        self.kernel: Kernel | None = None
        self._runs: list[Run] = []

    def put(self, found: Measurements, kernel: Kernel) -> None:
        """Show that kernel."""
        self.measurements, self.kernel = found, kernel
        runs = {run.gpu: run for run in found.of(kernel.id)}
        missing = () if -1 in runs else found.devices
        unasked = {
            device.index: Run(kernel.id, device.index, "not-run", because=f"no {kernel.level} run yet")
            for device in missing
        }
        self._runs = [run for _, run in sorted({**unasked, **runs}.items())]
        self.border_title = Content(one_line(f"{kernel.title}  {kernel.size}"))
        self._head()
        self.fill(len(self._runs))
        self.post_message(self.Moved(self))

    def on_resize(self) -> None:
        """The bars are as long as there is room."""
        self._head()
        self.refresh()

    @property
    def run(self) -> Run | None:
        """What is under the cursor."""
        return self._runs[self.cursor] if self._runs else None

    @property
    def runs(self) -> list[Run]:
        """All rows."""
        return self._runs

    @property
    def _full(self) -> bool:
        """Whether there is room for what the GPU was like meanwhile."""
        return self.size.width >= _FIXED + _MEANWHILE + 32

    @property
    def _length(self) -> int:
        """Columns of a bar up to what was expected."""
        return min(max(self.size.width - _FIXED - (_MEANWHILE if self._full else 0), 4), 72)

    def _head(self) -> None:
        if self.measurements is None or self.kernel is None:
            return
        against = measured.against(self.measurements, self.kernel)
        head = f"   {'':<8}{self.kernel.unit:>10}  {against:<{self._length + 1 + _OVER}} {'right?':<13}{'spread':<9}"
        if self._full:
            head += f"{'SM MHz':<12}{'°C':>4}{'W':>6}  held back by"
        self.heading = [(head.ljust(self.size.width), "head")]

    def row(self, index: int) -> Iterable[Cell]:
        """Mark, GPU, value, bar, correctness, spread."""
        run = self._runs[index]
        assert self.measurements
        state = self.measurements.state(run)
        look = measured.LOOKS[state]
        quiet = state == "sound"
        yield f"{'·' if quiet else look.glyph} ", "dim" if quiet else look.row
        yield f"{self.measurements.called(run.gpu):<8}", "bold" if state in measured.BAD else ""
        if run.value is None:
            yield f"{'–':>10}  ", "dim"
            what, more = self._instead(run)
            yield what, "dim" if run.status in {"waiting", "not-run"} else look.row or "bold"
            yield more, "dim"
            return
        yield f"{measured.number(run.value):>10}  ", look.row if state == "slow" else ""
        yield from self._bar(self.measurements.ratio(run), look.row if state == "slow" else "bar")
        said, how = measured.verdict(run)
        yield f" {said:<13}", how
        spread = "" if run.spread is None else f"±{run.spread * 100:.1f} %"
        yield f"{spread:<9}", "dim"
        if self._full:
            yield from _meanwhile(run)

    def _instead(self, run: Run) -> tuple[str, str]:
        """What is said where there is no number, and its detail."""
        if run.status == "not-run":
            return "not run: ", one_line(run.because)
        if run.status == "ran":
            return f"{measured.verdict(run)[0] or 'ran'} ", one_line(run.words or "values as those of the reference")
        if step := run.broken:
            return f"failed at {step.rung}: ", one_line(step.message)
        said = {"waiting": ("waits", ""), "running": ("is measured now", "")}
        return said.get(run.status, ("failed: ", one_line(run.because)))

    def _bar(self, ratio: float | None, look: str) -> Iterator[Cell]:
        """``█████▌····│``; beyond the mark where it does more."""
        length = self._length
        if ratio is None:
            yield f"{'':<{length + 1 + _OVER}}", ""
            return
        eighths = min(round(ratio * length * 8), (length + _OVER) * 8)
        inside = min(eighths, length * 8)
        full = "█" * (inside // 8) + (_EIGHTHS[inside % 8] if inside % 8 else "")
        yield full, look
        yield "·" * (length - len(full)), "dim"
        over = max(0, eighths - length * 8 - 4)
        yield "│", "bold"
        beyond = "█" * (over // 8) + (_EIGHTHS[over % 8] if over % 8 else "")
        yield f"{beyond:<{_OVER}}", look


def _meanwhile(run: Run) -> Iterator[Cell]:
    now = run.meanwhile
    held = measured.held_by(now, short=True)
    clock = "" if now is None or now.sm_clock_mhz is None else f"{now.sm_clock_mhz:.0f}"
    most = f"/{now.max_sm_clock_mhz:.0f}" if clock and now and now.max_sm_clock_mhz else ""
    yield f"{clock + most:<12}", "warning" if held else ""
    yield f"{'' if now is None or now.temperature_c is None else f'{now.temperature_c:.0f}':>4}", ""
    yield f"{'' if now is None or now.power_w is None else f'{now.power_w:.0f}':>6}  ", ""
    yield (f"▼ {held}" if held else ""), "warning"
