"""What kernels measured: a bar for each GPU, the list of kernels with what came of each, and the same as tabs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from gpudoctor.core.language import say
from gpudoctor.core.measurement import Kernel, Measurements, Run
from gpudoctor.views._terminal import one_line, padded
from gpudoctor.views.tui.widgets.matrix import share
from gpudoctor.views.tui.widgets.rows import Cell, Rows, fit
from gpudoctor.views.tui.words import measured

_EIGHTHS = " ▏▎▍▌▋▊▉"
_OVER = 3
"""Columns behind the mark of the expected value, for those that do more."""
_FIXED = 52
"""Columns of a row that are no bar."""
_MEANWHILE = 46
"""Columns that clock, temperature, power and what held it back take where there is room."""


class Bars(Rows):
    """One kernel's measurements: a row with a bar for each GPU."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--bar"}
    DEFAULT_CSS = "Bars > .rows--bar { color: $primary 45%; }"

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "screen.run_this", "run this")]

    def __init__(self) -> None:
        super().__init__(id="bars", classes="pane")
        self.measurements: Measurements | None = None
        self.kernel: Kernel | None = None
        self.runs: list[Run] = []

    def put(self, measurements: Measurements, kernel: Kernel) -> None:
        """Show the results of that kernel, a row per run; a GPU without a run gets a row that says so.

        Posts `Moved`.
        """
        self.measurements, self.kernel = measurements, kernel
        runs = {run.gpu: run for run in measurements.of(kernel.id)}
        missing = () if -1 in runs else measurements.devices
        unasked = {
            device.index: Run(kernel.id, device.index, "not-run", because=say("no {level} run yet", level=kernel.level))
            for device in missing
        }
        self.runs = [run for _, run in sorted({**unasked, **runs}.items())]
        self.border_title = Content(one_line(f"{say(kernel.title)}  {kernel.size}"))
        self._update_heading()
        self.fill(len(self.runs))
        self.post_message(self.Moved(self))

    def on_resize(self) -> None:
        """Draw the bars in the new width."""
        self._update_heading()
        self.refresh()

    @property
    def run(self) -> Run | None:
        """The run under the cursor; None without rows."""
        return self.runs[self.cursor] if self.runs else None

    @property
    def _has_room_for_samples(self) -> bool:
        """True if the columns of clock, temperature, power and throttling fit beside a bar."""
        return self.size.width >= _FIXED + _MEANWHILE + 32

    @property
    def _bar_length(self) -> int:
        """Length of a bar at the expected value, in columns."""
        return min(max(self.size.width - _FIXED - (_MEANWHILE if self._has_room_for_samples else 0), 4), 72)

    def _update_heading(self) -> None:
        """Set the heading: the kernel's unit, what bars are relative to, the columns that fit; nothing before `put`."""
        if self.measurements is None or self.kernel is None:
            return
        against = measured.reference_label(self.measurements, self.kernel)
        against = padded(against, self._bar_length + 1 + _OVER)
        checked, spread = padded(say("right?"), 13), padded(say("spread"), 9)
        head = f"   {'':<8}{self.kernel.unit:>10}  {against} {checked}{spread}"
        if self._has_room_for_samples:
            head += f"{'SM MHz':<12}{'°C':>4}{'W':>6}  {say('held back by')}"
        self.heading = [(padded(head, self.size.width), "head")]

    def row(self, index: int) -> Iterable[Cell]:
        """The cells of that run: mark, GPU, value, bar, correctness, spread, and samples of the GPU if there is room.

        A run without a value has its status and reason in place of the figures.
        """
        run = self.runs[index]
        assert self.measurements
        state = self.measurements.state(run)
        look = measured.LOOKS[state]
        quiet = state == "sound"
        yield f"{'·' if quiet else look.glyph} ", "dim" if quiet else look.row
        yield padded(say(self.measurements.called(run.gpu)), 8), "bold" if state in measured.BAD else ""
        if run.value is None:
            yield f"{'–':>10}  ", "dim"
            what, more = self._status_text(run)
            yield what, "dim" if run.status in {"waiting", "not-run"} else look.row or "bold"
            yield more, "dim"
            return
        yield f"{measured.number_text(run.value):>10}  ", look.row if state == "slow" else ""
        yield from self._bar_cells(self.measurements.ratio(run), look.row if state == "slow" else "bar")
        verdict, how = measured.correctness_cell(run)
        yield f" {padded(verdict, 13)}", how
        spread = "" if run.spread is None else f"±{run.spread * 100:.1f} %"
        yield f"{spread:<9}", "dim"
        if self._has_room_for_samples:
            now = run.meanwhile
            held = measured.throttle_text(now, short=True)
            clock = "" if now is None or now.sm_clock_mhz is None else f"{now.sm_clock_mhz:.0f}"
            most = f"/{now.max_sm_clock_mhz:.0f}" if clock and now and now.max_sm_clock_mhz else ""
            yield f"{clock + most:<12}", "warning" if held else ""
            yield f"{'' if now is None or now.temperature_c is None else f'{now.temperature_c:.0f}':>4}", ""
            yield f"{'' if now is None or now.power_w is None else f'{now.power_w:.0f}':>6}  ", ""
            yield (f"▼ {held}" if held else ""), "warning"

    def _status_text(self, run: Run) -> tuple[str, str]:
        """Status of a run without a value, and its detail: ``("not run: ", "GPU is in use")``."""
        if run.status == "not-run":
            return say("not run: "), one_line(say(run.because))
        if run.status == "ran":
            return f"{measured.correctness_cell(run)[0] or say('ran')} ", one_line(
                say(run.words) or say("values as those of the reference")
            )
        if step := run.broken:
            return say("failed at {rung}: ", rung=step.rung), one_line(step.message)
        states = {"waiting": (say("waits"), ""), "running": (say("is measured now"), "")}
        return states.get(run.status, (say("failed: "), one_line(say(run.because))))

    def _bar_cells(self, ratio: float | None, look: str) -> Iterator[Cell]:
        """Cells of a bar, the expected value at its stroke: ``█████▌····│``; blank if `ratio` is None."""
        length = self._bar_length
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


# ---- The kernels ----

_COUNTS = 15
"""Columns that how many are what takes, in short."""
_SHORT = {"training": "train", "tensorflow": "tf"}
"""Rungs by fewer letters."""


class Kernels(Rows):
    """The list of kernels: a glyph for each GPU where there is room, and the number of GPUs in each state."""

    MOST_GLYPHS = 16
    """GPUs that have a glyph each."""
    SHORTEST, LONGEST = 16, 36
    """Columns of a kernel's title."""

    def __init__(self) -> None:
        super().__init__(id="kernels", classes="pane")
        self.border_title = say("Kernels")
        self._rows: list[tuple[Kernel, list[Cell], list[Cell]]] = []
        self._rung_labels: list[str] = []
        self._gpus_with_glyphs: list[int] = []
        self._widest_cells = self._title_width = self._rung_width = 0

    def put(self, measurements: Measurements) -> None:
        """Show the kernels of these measurements with their results."""
        gpus = [device.index for device in measurements.devices]
        few = len(gpus) <= self.MOST_GLYPHS
        self._rows = [
            (
                kernel,
                list(_glyphs(measurements, kernel, gpus)) if few and len(gpus) > 1 else [],
                list(state_cells(measurements, kernel)),
            )
            for kernel in measurements.kernels
        ]
        self._widest_cells = max(
            (sum(cell_len(text) for text, _ in (*row[1], *row[2])) for row in self._rows), default=0
        )
        rungs = [_SHORT.get(kernel.rung, kernel.rung) for kernel in measurements.kernels]
        self._rung_labels = ["" if at and rungs[at - 1] == rung else rung for at, rung in enumerate(rungs)]
        self._rung_width = max(map(len, rungs)) + 1 if len(set(rungs)) > 1 else 0
        self._gpus_with_glyphs = gpus if few and len(gpus) > 1 else []
        self._update_layout()
        self.fill(len(self._rows))

    def on_resize(self) -> None:
        """Fit the titles to the new width."""
        self._update_layout()
        self.refresh()

    def _update_layout(self) -> None:
        """Set the width of the titles, and the heading with the last digit of each GPU's index above its glyphs."""
        longest = max((cell_len(one_line(say(row[0].title))) for row in self._rows), default=0)
        room = self.size.width - self._rung_width - 2 * len(self._gpus_with_glyphs) - _COUNTS
        self._title_width = min(longest, self.LONGEST, max(room, self.SHORTEST))
        numbers = "".join(f"{gpu % 10} " for gpu in self._gpus_with_glyphs)
        self.heading = [(f"{'':<{self._rung_width + self._title_width + 4}}{numbers}", "dim")] if numbers else ()

    @property
    def titles(self) -> list[tuple[str, list[Cell]]]:
        """For each kernel its title and the cells with the number of GPUs in each state."""
        return [(say(kernel.title), cells) for kernel, _, cells in self._rows]

    def row(self, index: int) -> Iterable[Cell]:
        """The cells of that kernel: rung, title, a glyph for each GPU, and the number of GPUs in each state."""
        kernel, glyphs, cells = self._rows[index]
        if self._widest_cells > self.size.width - self._rung_width - self._title_width - 6:
            room = self.size.width - self._rung_width - self._title_width - 4 - 2 * len(self._gpus_with_glyphs)
            cells = list(_cells_that_fit([(_shortened(text), look) for text, look in cells], room))
        first = index == self.scroll_offset.y  # of those that are seen
        rung = _SHORT.get(kernel.rung, kernel.rung) if first else self._rung_labels[index]
        lead = (f" {rung:<{self._rung_width - 1}}" if self._rung_width else "", "dim")
        return [lead, (f" {fit(one_line(say(kernel.title)), self._title_width)}  ", ""), *glyphs, (" ", ""), *cells]


def _cells_that_fit(cells: Iterable[Cell], room: int) -> Iterator[Cell]:
    """The first cells that fit in `room` columns."""
    for text, look in cells:
        room -= cell_len(text)
        if room < 0:
            return
        yield text, look


def _shortened(text: str) -> str:
    """A cell of `state_cells` without its word: ``✗ 1`` of ``✗ 1 wrong``, ``· not run`` of ``· not run (deep)``."""
    words = text.split()
    gap = text[: len(text) - len(text.lstrip())]
    return f"{gap}{' '.join(words[:2])}" if words[1].isdigit() else text.partition(" (")[0]


def _glyphs(measurements: Measurements, kernel: Kernel, gpus: Iterable[int]) -> Iterator[Cell]:
    """A glyph for each GPU: ``·`` sound, tenths of the expected if slow, ``x`` wrong, ``✗`` failed, ``?`` not judged.

    A run on all GPUs together gives each of them its glyph; a GPU that waits or has no run gets a blank.
    """
    together = measurements.run(kernel.id, -1)
    for gpu in gpus:
        run = together or measurements.run(kernel.id, gpu)
        state = measurements.state(run) if run else "waiting"
        ratio = measurements.ratio(run) if run else None
        if state == "slow" and ratio is not None:
            mark = share(ratio)
            yield f"{mark.glyph} ", "warning"
        elif state == "sound":
            yield "· ", "dim"
        else:
            glyph = {"wrong": "x", "waiting": " "}.get(state, measured.LOOKS[state].glyph)
            yield f"{glyph} ", measured.LOOKS[state].row


def state_cells(measurements: Measurements, kernel: Kernel) -> Iterator[Cell]:
    """Number of GPUs in each state, the worst first: ``✗ 1 wrong ! 1 slow ✓ 5 ? 1``; ``· not run`` without a run."""
    counts = measured.state_counts(measurements, kernel)
    if not counts:
        yield say("· not run{more}", more=say(" (deep)") if kernel.level == "deep" else ""), "dim"
    gap = ""
    for state in (*measured.BAD, "sound", "unjudged", "running", "waiting"):
        if counts[state]:
            look = measured.LOOKS[state]
            yield f"{gap}{look.glyph} {counts[state]}{f' {say(look.short)}' if look.short else ''}", look.row or "dim"
            gap = "  "


class KernelTabs(Widget):
    """The kernels on one line, for narrow screens; a click opens one."""

    DEFAULT_CSS = "KernelTabs { height: 1; padding: 0 1; }"

    def __init__(self) -> None:
        super().__init__(id="kernel-tabs")
        self._titles: list[tuple[str, str]] = []
        self._open = 0

    def put(self, kernels: Kernels, here: int) -> None:
        """Show the kernels' titles, each with the mark of its worst state if bad; `here` is the open one's position."""
        self._titles = [
            (one_line(title), next((text.lstrip()[0] for text, look in cells if look in {"error", "warning"}), ""))
            for title, cells in kernels.titles
        ]
        self._open = here
        self.refresh()

    def render(self) -> Content:
        """As many titles on one line as fit, the open one among them; ``‹`` and ``›`` where some are cut off."""
        width, first = self.content_size.width, 0
        while (
            first < self._open and self._parts(first, self._open + 1).cell_length > width - 4
        ):  # the signs at both ends
            first += 1
        line = Content.assemble("‹ " if first else "", self._parts(first, len(self._titles)))
        return line if line.cell_length <= width else Content.assemble(line.truncate(width - 2), " ›")

    def _parts(self, first: int, end: int) -> Content:
        """The titles from `first` to before `end`, the open one in brackets; a click on one opens that kernel."""
        parts: list[Content] = []
        for at, (title, mark) in enumerate(self._titles[first:end], first):
            here = at == self._open
            colour = {"✗": "$error", "!": "$warning"}.get(mark, "$foreground 70%")
            look = Style.parse(f"bold {'$primary' if here else colour}")
            click = Style.from_meta({"@click": f"screen.kernel({at})"})
            text = f"{mark} {title}" if mark else title
            parts.append(Content.styled(f"[{text}]" if here else f" {text} ", look + click))
        return Content("").join(parts)
