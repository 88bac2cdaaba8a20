"""The kernels: a list with what came of each, and the same as one line of tabs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.cells import cell_len, set_cell_size
from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from gpudoctor.model.measurement import Kernel, Measurements
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui.widgets.rows import Cell, Rows
from gpudoctor.views.tui.words import measured
from gpudoctor.views.tui.words.cells import share

_COUNTS = 15
"""Columns that how many are what takes, in short."""
_SHORT = {"training": "train", "tensorflow": "tf"}
"""Rungs by fewer letters."""


class Kernels(Rows):
    """A row for each kernel: a glyph for each GPU where there is room, and how many are what."""

    MOST_GLYPHS = 16
    """GPUs that have a glyph each."""
    SHORTEST, LONGEST = 16, 36
    """Columns of a kernel's title."""

    def __init__(self) -> None:
        super().__init__(id="kernels", classes="pane")
        self.border_title = "Kernels"
        self._rows: list[tuple[Kernel, list[Cell], list[Cell]]] = []
        self._rungs: list[str] = []
        self._few: list[int] = []
        self._widest = self._title = self._rung = 0

    def put(self, found: Measurements) -> None:
        """Show these, with what came of each."""
        gpus = [device.index for device in found.devices]
        few = len(gpus) <= self.MOST_GLYPHS
        self._rows = [
            (kernel, list(_glyphs(found, kernel, gpus)) if few and len(gpus) > 1 else [], list(folded(found, kernel)))
            for kernel in found.kernels
        ]
        self._widest = max((sum(cell_len(text) for text, _ in (*row[1], *row[2])) for row in self._rows), default=0)
        rungs = [_SHORT.get(kernel.rung, kernel.rung) for kernel in found.kernels]
        self._rungs = ["" if at and rungs[at - 1] == rung else rung for at, rung in enumerate(rungs)]
        self._rung = max(map(len, rungs)) + 1 if len(set(rungs)) > 1 else 0
        self._few = gpus if few and len(gpus) > 1 else []
        self._measure()
        self.fill(len(self._rows))

    def on_resize(self) -> None:
        """Titles are as long as there is room for."""
        self._measure()
        self.refresh()

    def _measure(self) -> None:
        longest = max((cell_len(one_line(row[0].title)) for row in self._rows), default=0)
        room = self.size.width - self._rung - 2 * len(self._few) - _COUNTS
        self._title = min(longest, self.LONGEST, max(room, self.SHORTEST))
        numbers = "".join(f"{gpu % 10} " for gpu in self._few)
        self.heading = [(f"{'':<{self._rung + self._title + 4}}{numbers}", "dim")] if numbers else ()

    @property
    def titles(self) -> list[tuple[str, list[Cell]]]:
        """Each title, with what came of it."""
        return [(kernel.title, cells) for kernel, _, cells in self._rows]

    def row(self, index: int) -> Iterable[Cell]:
        """Title, the GPUs, and how many are what."""
        kernel, glyphs, cells = self._rows[index]
        if self._widest > self.size.width - self._rung - self._title - 6:
            room = self.size.width - self._rung - self._title - 4 - 2 * len(self._few)
            cells = list(_fitting([(_short(text), look) for text, look in cells], room))
        first = index == self.scroll_offset.y  # of those that are seen
        rung = _SHORT.get(kernel.rung, kernel.rung) if first else self._rungs[index]
        lead = (f" {rung:<{self._rung - 1}}" if self._rung else "", "dim")
        title = one_line(kernel.title)
        if cell_len(title) > self._title:
            title = f"{set_cell_size(title, self._title - 1)}…"
        return [lead, (f" {set_cell_size(title, self._title)}  ", ""), *glyphs, (" ", ""), *cells]


def _fitting(cells: Iterable[Cell], room: int) -> Iterator[Cell]:
    """Those that there is room for, the worst first."""
    for text, look in cells:
        room -= cell_len(text)
        if room < 0:
            return
        yield text, look


def _short(text: str) -> str:
    """``✗ 1`` of ``✗ 1 wrong``."""
    words = text.split()
    gap = text[: len(text) - len(text.lstrip())]
    return f"{gap}{' '.join(words[:2])}" if words[1].isdigit() else text.partition(" (")[0]


def _glyphs(found: Measurements, kernel: Kernel, gpus: Iterable[int]) -> Iterator[Cell]:
    """``· · · · · 5 x ?``: as in every heat map."""
    together = found.run(kernel.id, -1)
    for gpu in gpus:
        run = together or found.run(kernel.id, gpu)
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
        while (
            first < self._here and self._parts(first, self._here + 1).cell_length > width - 4
        ):  # the signs at both ends
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
