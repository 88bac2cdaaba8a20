"""The table of GPUs: what each column shows, which fit, and a row for each GPU, MIG devices under theirs."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType

from gpudoctor.core.language import say
from gpudoctor.core.sample import GPU, Instance
from gpudoctor.views._terminal import cut, one_line, padded, width
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.rows import Cell, Rows, fit
from gpudoctor.views.tui.words import gpu as gpu_words
from gpudoctor.views.tui.words import summary
from gpudoctor.views.tui.words.gpu import GpuState, axis_text, gib_text

DrawCell = Callable[[GpuState, GPU, int], Cell]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: `rank` is its importance, 0 the highest; it is at least `width` wide and grows up to `most`."""

    name: str
    rank: int
    width: int
    draw: DrawCell
    most: int = 0
    right: bool = False


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """A column with its width and heading in the current layout."""

    column: Column
    width: int
    heading: str


def _number_column(name: str, format_number: Callable[[float], str] = lambda number: f"{number:.0f}") -> DrawCell:
    """A function that draws the GPU's field `name` as a cell: by `format_number`, or `missing_cell` if it is None."""

    def draw(state: GpuState, gpu: GPU, width: int) -> Cell:  # noqa: ARG001 - a column's signature
        """The cell of that number of the GPU; ``?`` or ``-`` if it has none."""
        number = getattr(gpu, name)
        return (format_number(number), "") if number is not None else missing_cell(gpu, name)

    return draw


def missing_cell(gpu: GPU, *names: str) -> Cell:
    """``?`` if one of these fields, or the GPU itself, could not be read; ``-`` if this GPU does not report them."""
    unread = gpu.error or any(name in gpu.unanswered for name in names)
    return (marks.UNREAD, "info") if unread else (marks.ABSENT, "dim")


def _index_cell(state: GpuState, gpu: GPU, width: int) -> Cell:
    """The GPU's index behind the mark of its worst finding, else behind ``?`` if outdated or without an answer."""
    severity = state.health.severity(gpu.index)
    if severity:
        return f"{marks.SEVERITY[severity][0]}{gpu.index:>{width - 1}}", severity
    if gpu.index in state.struck or gpu.error:
        return f"{marks.UNREAD}{gpu.index:>{width - 1}}", "info"
    return f" {gpu.index:>{width - 1}}", ""


def _name_cell(state: GpuState, gpu: GPU, width: int) -> Cell:  # noqa: ARG001
    """The GPU's short name, cut to the width, as a dim cell."""
    return one_line(summary.short_name(gpu.name))[:width], "dim"


def _curve_column(name: str) -> DrawCell:
    """A function that draws the last minute of the field `name` as bars, on the scale shared by the table's GPUs."""

    def draw(state: GpuState, gpu: GPU, width: int) -> Cell:
        """The cell with one row of bars, `width` wide; empty without a scale."""
        scale = state.axes.get(name)
        return (state.bars(gpu, name, width, scale)[0] if scale else "", "curve")

    return draw


def _memory_bar_cell(state: GpuState, gpu: GPU, width: int) -> Cell:  # noqa: ARG001
    """A bar of the share of memory in use; empty if either size is unknown."""
    return bar(gpu.memory_used_mib, gpu.memory_mib, width), "curve"


def bar(used: float | None, total: float | None, width: int) -> str:
    """Used of total as a bar, ``███░░░░░``; at least one block if more than 0.5 % is used. Empty if unknown."""
    if used is None or not total:
        return ""
    full = min(width, round(width * used / total) or (1 if used / total > 0.005 else 0))
    return "█" * full + _EMPTY * (width - full)


_EMPTY = "░"


def _clock_cell(state: GpuState, gpu: GPU, width: int) -> Cell:  # noqa: ARG001
    """``1410/1980``: current and maximum SM clock in MHz, or only the current one; ``?`` or ``-`` without it."""
    if gpu.clock_mhz is None:
        return missing_cell(gpu, "clock_mhz")
    most = "" if gpu.clock_max_mhz is None else f"/{gpu.clock_max_mhz:.0f}"
    return f"{gpu.clock_mhz:.0f}{most}", ""


def _limit_cell(state: GpuState, gpu: GPU, width: int) -> Cell:  # noqa: ARG001
    """Why the GPU's numbers are outdated, else what limits its clocks (``▼ heat``, ``z idle``); empty if nothing."""
    if why := state.struck.get(gpu.index):
        return one_line(why), "info"
    text = gpu_words.held_back(gpu)
    if text.startswith("▼"):
        return text, state.health.severity(gpu.index) or "bold"
    return text, "dim"


def _pcie_cell(state: GpuState, gpu: GPU, width: int) -> Cell:  # noqa: ARG001
    """PCIe generation and width: ``4×16``; ``?`` or ``-`` if either is unknown."""
    if gpu.link_generation is None or gpu.link_width is None:
        return missing_cell(gpu, "link_generation", "link_width")
    return f"{gpu.link_generation:.0f}×{gpu.link_width:.0f}", ""


def _nvlinks_cell(state: GpuState, gpu: GPU, width: int) -> Cell:  # noqa: ARG001
    """NVLinks that are up of all: ``17/18``; ``?`` or ``-`` if either is unknown."""
    if gpu.links_up is None or gpu.links is None:
        return missing_cell(gpu, "links", "links_up")
    return f"{gpu.links_up:.0f}/{gpu.links:.0f}", ""


def _traffic_column(send: str, receive: str) -> DrawCell:
    """A function that draws the rates of the fields `send` and `receive` (MB/s) as one cell."""

    def draw(state: GpuState, gpu: GPU, width: int) -> Cell:  # noqa: ARG001
        """The cell with the sent and the received rate; one ``?`` or ``-`` if either is unknown."""
        out, back = getattr(gpu, send), getattr(gpu, receive)
        if out is None or back is None:
            return missing_cell(gpu, send, receive)
        return f"{gpu_words.rate_text(out):>5} {gpu_words.rate_text(back):>5}", ""

    return draw


HELD = "held back by"
COLUMNS = (
    Column("", 0, 3, _index_cell, right=True),
    Column("GPU", 9, 10, _name_cell, most=22),
    Column("util", 8, 12, _curve_column("utilization"), most=30),
    Column("%", 1, 3, _number_column("utilization"), right=True),
    Column("memory", 7, 10, _memory_bar_cell, most=16),
    Column("GiB", 6, 4, _number_column("memory_used_mib", gib_text), right=True),
    Column("W", 4, 4, _number_column("power_w"), right=True),
    Column("power", 10, 10, _curve_column("power_w"), most=20),
    Column("°C", 2, 3, _number_column("temperature_c"), right=True),
    Column("SM MHz", 3, 9, _clock_cell, right=True),
    Column("mem MHz", 13, 7, _number_column("memory_clock_mhz"), right=True),
    Column("PCIe", 11, 4, _pcie_cell, right=True),
    Column("NVLinks", 12, 7, _nvlinks_cell, right=True),
    Column("PCIe ↑↓ MB/s", 15, 12, _traffic_column("pcie_send_mb_s", "pcie_receive_mb_s"), right=True),
    Column("NVLink ↑↓ MB/s", 14, 14, _traffic_column("nvlink_send_mb_s", "nvlink_receive_mb_s"), right=True),
    Column(HELD, 5, 14, _limit_cell, most=10_000),
)
GAP = 2
"""Blanks behind each column."""


def place_columns(state: GpuState, width: int, left_out: Container[str] = ()) -> list[PlacedColumn]:
    """The columns that fit in `width`, picked by importance, in table order; those that can grow share what is left.

    Columns named in `left_out` and columns that tell nothing here are not placed; the index column always is.
    """
    widths: dict[str, int] = {}
    room = width
    columns = (column for column in _columns_with_data(state) if column.name not in left_out)
    for column in sorted(columns, key=lambda column: column.rank):
        if column.width + GAP > room and column.rank:
            break
        widths[column.name] = column.width
        room -= column.width + GAP
    chosen = [column for column in COLUMNS if column.name in widths]
    for column in sorted((other for other in chosen if other.most), key=lambda other: (other.name == HELD, other.rank)):
        free = room if column.name == HELD else room - _MIN_LIMIT_WIDTH
        extra = max(min(free, _max_width(state, column) - column.width), 0)
        widths[column.name] += extra
        room -= extra
    return [PlacedColumn(column, widths[column.name], _heading(state, column)) for column in chosen]


_MIN_LIMIT_WIDTH = 10
"""Columns that what holds a GPU back gets before any curve grows."""


def _columns_with_data(state: GpuState) -> Sequence[Column]:
    """`COLUMNS` without those that tell nothing here: curves without a scale, links no GPU has, a name all share."""
    gpus = state.gpus.values()
    silent = {
        "GPU": len({gpu.name for gpu in gpus if gpu.name}) < 2,  # else the band names them all
        "NVLinks": all(not gpu.links for gpu in gpus),
        "NVLink ↑↓ MB/s": all(gpu.nvlink_send_mb_s is None for gpu in gpus),
        "PCIe ↑↓ MB/s": all(gpu.pcie_send_mb_s is None for gpu in gpus),
        "util": "utilization" not in state.axes,
        "power": "power_w" not in state.axes,
    }
    return [column for column in COLUMNS if not silent.get(column.name)]


def _max_width(state: GpuState, column: Column) -> int:
    """The width up to which a column may grow: the longest short GPU name for ``GPU``, else the column's `most`."""
    if column.name == "GPU":
        return max((len(summary.short_name(gpu.name)) for gpu in state.gpus.values()), default=0)
    return column.most


_CURVES = {"util": ("utilization", "%"), "power": ("power_w", "W")}
"""The columns that are curves: their field and its unit."""


def _heading(state: GpuState, column: Column) -> str:
    """The heading: ``of 80 GiB`` for memory if all GPUs have as much; unit and scale for a curve; else the name."""
    if column.name in _CURVES:
        field, unit = _CURVES[column.name]
        return f"{unit} {axis_text(state.axes[field])}"
    sizes = {gpu.memory_mib for gpu in state.gpus.values() if gpu.memory_mib}
    if column.name == "memory" and len(sizes) == 1:
        return say("of {total} GiB", total=gib_text(sizes.pop()))
    return say(column.name)


def gpu_cells(places: Sequence[PlacedColumn], state: GpuState, gpu: GPU) -> list[Cell]:
    """The row of a GPU, neighbours of one style joined; outdated numbers are struck through, but not the index."""
    old = gpu.index in state.struck
    row: list[Cell] = []
    for place in places:
        text, look = place.column.draw(state, gpu, place.width)
        if old and look in ("", "curve", "dim") and place.column.rank:
            look = "struck" if text.strip() else ""
        row += _padded(text, look, place)
    return merge_cells(row)


def merge_cells(row: Sequence[Cell]) -> list[Cell]:
    """The cells with neighbours of the same style joined, which draws faster."""
    out: list[Cell] = []
    for text, look in row:
        if out and out[-1][1] == look:
            out[-1] = (out[-1][0] + text, look)
        else:
            out.append((text, look))
    return out


def _padded(text: str, look: str, place: PlacedColumn) -> list[Cell]:
    """The text cut or padded to its column, with a gap behind.

    It is split in cells so that only text is struck through, and the empty part of a bar has the style ``track``.
    """
    text = text if cell_len(text) <= place.width else fit(text, place.width)
    pad = " " * (place.width - cell_len(text))
    gap = " " * GAP
    if look == "struck":
        return [(pad, ""), (text, look), (gap, "")] if place.column.right else [(text, look), (pad + gap, "")]
    if text.endswith(_EMPTY):
        full = text.rstrip(_EMPTY)
        return [(full, look), (text[len(full) :], "track"), (pad + gap, "")]
    return [(f"{pad}{text}{gap}" if place.column.right else f"{text}{pad}{gap}", look)]


def column_headings(places: Sequence[PlacedColumn]) -> list[Cell]:
    """The headings aligned with their columns, all in one cell."""
    out = []
    for place in places:
        name = cut(place.heading, place.width)
        pad = " " * (place.width - width(name))
        out.append(pad + name if place.column.right else name + pad)
    return [(" " + "".join(text + " " * GAP for text in out), "head")]


def mig_cells(instance: Instance, last: bool) -> list[Cell]:
    """The row of a MIG device under its GPU: index, profile, bar and size of used memory; `last` ends the branch."""
    full = bar(instance.memory_used_mib, instance.memory_mib, 10)
    memory = ""
    if instance.memory_used_mib is not None and instance.memory_mib is not None:
        memory = say(
            "  {used} of {total} GiB", used=gib_text(instance.memory_used_mib), total=gib_text(instance.memory_mib)
        )
    return [
        (f"   {'└' if last else '├'} MIG {instance.index:<2} ", "dim"),
        (f"{padded(one_line(instance.profile) or say('profile not told'), 12)} ", ""),
        (full.rstrip(_EMPTY), "curve"),
        (full[len(full.rstrip(_EMPTY)) :], "track"),
        (memory, ""),
    ]


# ---- The table: with each sample what is seen of it is drawn anew ----

Key = tuple[int, int]
"""A GPU's index, and the place of a MIG device of it or -1."""
_ORDER = ("error", "warning", "info", None)


class GPUTable(Rows):
    """The table of GPUs; the cursor stays on its GPU however the rows are sorted."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--struck", "rows--curve", "rows--track"}
    DEFAULT_CSS = """
    GPUTable > .rows--struck { text-style: dim strike; }
    GPUTable > .rows--curve { text-style: dim; }
    GPUTable > .rows--track { text-style: dim; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "next(1)", "next bad"),
        Binding("N", "next(-1)", "Previous bad GPU", show=False),
        Binding("s", "sort", "sort"),
    ]

    def __init__(self) -> None:
        super().__init__(id="gpus", classes="pane")
        self.shown = GpuState()
        self.found_first = False
        self.left_out: tuple[str, ...] = ()
        """Columns that make room for others."""
        self._keys: list[Key] = []
        self._places: list[PlacedColumn] = []
        self._layout: object = None
        self._chosen_key: Key | None = None
        self._moving_by_code = False

    @property
    def gpu(self) -> GPU | None:
        """The GPU under the cursor; None without one."""
        return None if self.gpu_index is None else self.shown.gpus.get(self.gpu_index)

    @property
    def gpu_index(self) -> int | None:
        """Index of the GPU under the cursor, or of the MIG device's GPU; None without one."""
        return self._keys[self.cursor][0] if self._keys else None

    def put(self, state: GpuState) -> None:
        """Redraw from this state, and set its `axes`; the cursor stays where the user put it, else is on the worst GPU.

        Posts `Moved` if the cursor is on another GPU than before.
        """
        self.shown = state
        shown = state.gpus.values()
        state.axes = {name: scale for name, _ in _CURVES.values() if (scale := state.axis(name, shown))}
        self._update_layout()
        gpus = state.gpus
        keys = [(index, place) for index in self._sorted() for place in range(-1, len(gpus[index].instances))]
        before = self.gpu_index
        self._moving_by_code = True
        if keys != self._keys:
            self._keys = keys
            self.fill(len(keys))
        self.cursor = keys.index(self._chosen_key) if self._chosen_key in keys else self._worst()
        self._moving_by_code = False
        self.refresh()
        if self.gpu_index != before:
            self.post_message(self.Moved(self))

    def _worst(self) -> int:
        """Row of the GPU with the most severe finding, the first of several; 0 without findings or GPUs."""
        ranks = [_ORDER.index(self.shown.health.severity(index)) for index, _ in self._keys]
        return ranks.index(min(ranks)) if ranks else 0

    def _sorted(self) -> list[int]:
        """Indices of the GPUs in the order shown: ascending, or worst findings first, then GPUs without an answer."""
        indices = sorted(self.shown.gpus)
        if self.found_first:
            indices.sort(key=lambda index: (_ORDER.index(self.shown.health.severity(index)), not self._silent(index)))
        return indices

    def _silent(self, index: int) -> bool:
        """True if the GPU's numbers are outdated or it does not answer."""
        return index in self.shown.struck or bool(self.shown.gpus[index].error)

    def _update_layout(self) -> None:
        """Choose columns and headings anew if the width, the number of GPUs, scales or hidden columns have changed."""
        width = max((self.scrollable_content_region.width or self.size.width) - 1, 0)
        layout = (width, len(self.shown.gpus), tuple(self.shown.axes.items()), len(self.shown.struck), self.left_out)
        if layout != self._layout or not self._places:
            self._layout = layout
            self._places = place_columns(self.shown, width, self.left_out)
            self.heading = column_headings(self._places) if self.shown.gpus else ()

    def on_resize(self, event: events.Resize) -> None:  # noqa: ARG002 - Textual's signature
        """Choose the columns for the new width, and redraw."""
        self._update_layout()
        self.refresh()

    def row(self, index: int) -> Iterable[Cell]:
        """The cells of that row of the table: a GPU, or a MIG device under its GPU."""
        gpu_index, place = self._keys[index]
        gpu = self.shown.gpus[gpu_index]
        if place >= 0:
            return mig_cells(gpu.instances[place], place == len(gpu.instances) - 1)
        return gpu_cells(self._places, self.shown, gpu)

    def watch_cursor(self) -> None:
        """Remember the row as the user's choice unless code moved the cursor; then scroll and post `Moved`."""
        if not self._moving_by_code and self._keys:
            self._chosen_key = self._keys[self.cursor]
        super().watch_cursor()

    def go(self, index: int) -> bool:
        """Put the cursor on the GPU of that index; False if it is not listed."""
        if (index, -1) not in self._keys:
            return False
        self.cursor = self._keys.index((index, -1))
        return True

    def action_next(self, by: int) -> None:
        """Move to the next GPU with a finding or without an answer, wrapping round; `by` -1: the previous."""
        bad = [
            at
            for at, (index, place) in enumerate(self._keys)
            if place < 0 and (self.shown.health.of(index) or self._silent(index))
        ]
        self.move_to_next(bad, by)

    def action_sort(self) -> None:
        """Switch between order by index and findings first; the cursor stays on its GPU."""
        self.found_first = not self.found_first
        if self._chosen_key is None and self._keys:
            self._chosen_key = self._keys[self.cursor]
        self.put(self.shown)
