"""What a kernel measured on each GPU, as bars that end at what was expected, and the list of kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from gpudoctor.model.measurement import Kernel, Measurements, Run
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui import measured
from gpudoctor.views.tui.cells import share
from gpudoctor.views.tui.widgets.rows import Cell, Rows

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
        unasked = {
            device.index: Run(kernel.id, device.index, "not-run", because=f"no {kernel.level} run yet")
            for device in found.devices
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
        yield f"GPU {run.gpu:<4}", "bold" if state in measured.BAD else ""
        if run.value is None:
            yield f"{'–':>10}  ", "dim"
            what, more = self._instead(run)
            yield what, "dim" if run.status in {"waiting", "not-run"} else look.row
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
        if step := run.broken:
            return f"failed at {step.rung}: ", one_line(step.message)
        return {"waiting": "waits", "running": "is measured now"}.get(run.status, "failed"), ""

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


class Kernels(Rows):
    """A row for each kernel: a glyph for each GPU where there is room, and how many are what."""

    MOST_GLYPHS = LONGEST = 16
    """GPUs that have a glyph each, and columns of a kernel's title."""

    def __init__(self) -> None:
        super().__init__(id="kernels", classes="pane")
        self.border_title = "Kernels"
        self._rows: list[tuple[Kernel, list[Cell], list[Cell]]] = []
        self._widest = self._title = 0

    def put(self, found: Measurements) -> None:
        """Show these, with what came of each."""
        gpus = [device.index for device in found.devices]
        few = len(gpus) <= self.MOST_GLYPHS
        self._rows = [
            (kernel, list(_glyphs(found, kernel, gpus)) if few else [], list(folded(found, kernel)))
            for kernel in found.kernels
        ]
        self._widest = max((sum(cell_len(text) for text, _ in (*row[1], *row[2])) for row in self._rows), default=0)
        numbers = "".join(f"{gpu % 10} " for gpu in gpus) if few else ""
        self._title = min(max((cell_len(one_line(row[0].title)) for row in self._rows), default=0), self.LONGEST)
        self.heading = [(f"{'':<{self._title + 4}}{numbers}", "dim")] if numbers else ()
        self.fill(len(self._rows))

    @property
    def titles(self) -> list[tuple[str, list[Cell]]]:
        """Each title, with what came of it."""
        return [(kernel.title, cells) for kernel, _, cells in self._rows]

    def row(self, index: int) -> Iterable[Cell]:
        """Title, the GPUs, and how many are what."""
        kernel, glyphs, cells = self._rows[index]
        if self._widest > self.size.width - self._title - 6:
            cells = [(_short(text), look) for text, look in cells]
        return [(f" {set_cell_size(one_line(kernel.title), self._title)}  ", ""), *glyphs, (" ", ""), *cells]


def _short(text: str) -> str:
    """``✗ 1`` of ``✗ 1 wrong``."""
    words = text.split()
    gap = text[: len(text) - len(text.lstrip())]
    return f"{gap}{' '.join(words[:2])}" if words[1].isdigit() else text.partition(" (")[0]


def _glyphs(found: Measurements, kernel: Kernel, gpus: Iterable[int]) -> Iterator[Cell]:
    """``· · · · · 5 x ?``: as in every heat map."""
    for gpu in gpus:
        run = found.run(kernel.id, gpu)
        state = found.state(run) if run else "waiting"
        ratio = found.ratio(run) if run else None
        if state == "slow" and ratio is not None:
            mark = share(ratio)
            yield f"{mark.glyph} ", "warning"
        elif state == "sound":
            yield "· ", "dim"
        else:
            glyph = {"wrong": "x", "waiting": " "}.get(state, measured.LOOKS[state].glyph)
            yield f"{glyph} ", measured.LOOKS[state].row


def folded(found: Measurements, kernel: Kernel) -> Iterator[Cell]:
    """``✗ 1 wrong  ! 1 slow  ✓ 5  ? 1``."""
    counts = measured.states(found, kernel)
    if not counts:
        yield f"· not run{' (deep)' if kernel.level == 'deep' else ''}", "dim"
    gap = ""
    for state in (*measured.BAD, "sound", "unjudged", "running", "waiting"):
        if counts[state]:
            look = measured.LOOKS[state]
            yield f"{gap}{look.glyph} {counts[state]}{f' {look.short}' if look.short else ''}", look.row or "dim"
            gap = "  "


class KernelTabs(Widget):
    """The kernels as one line, where there is no room for a list; a click chooses one."""

    DEFAULT_CSS = "KernelTabs { height: 1; padding: 0 1; }"

    def __init__(self) -> None:
        super().__init__(id="kernel-tabs")
        self._titles: list[tuple[str, str]] = []
        self._here = 0

    def put(self, kernels: Kernels, here: int) -> None:
        """Show their titles, with the mark of the worst of each."""
        self._titles = [
            (one_line(title), next((text.lstrip()[0] for text, look in cells if look in {"error", "warning"}), ""))
            for title, cells in kernels.titles
        ]
        self._here = here
        self.refresh()

    def render(self) -> Content:
        """As many as there is room for, among them the one that is open."""
        width, first = self.content_size.width, 0
        while first < self._here and self._parts(first, self._here + 1).cell_length > width - 2:
            first += 1
        line = Content.assemble("‹ " if first else "", self._parts(first, len(self._titles)))
        return line if line.cell_length <= width else Content.assemble(line.truncate(width - 2), " ›")

    def _parts(self, first: int, end: int) -> Content:
        parts: list[Content] = []
        for at, (title, mark) in enumerate(self._titles[first:end], first):
            here = at == self._here
            colour = {"✗": "$error", "!": "$warning"}.get(mark, "$foreground 70%")
            look = Style.parse(f"bold {'$primary' if here else colour}")
            click = Style.from_meta({"@click": f"screen.kernel({at})"})
            text = f"{mark} {title}" if mark else title
            parts.append(Content.styled(f"[{text}]" if here else f" {text} ", look + click))
        return Content("").join(parts)
