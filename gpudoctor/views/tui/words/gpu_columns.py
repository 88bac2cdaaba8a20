"""The columns of the GPU table: what each shows, how wide it is, and which go first where there is less room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpudoctor.model.sample import GPU, Instance
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.rows import Cell
from gpudoctor.views.tui.words import gpu as gpu_words
from gpudoctor.views.tui.words import machine
from gpudoctor.views.tui.words.gpu import NOTHING, Health, gib
from gpudoctor.views.tui.words.history import Histories


@dataclass(slots=True)
class Shown:
    """What the table shows: the GPUs as they last answered, and what is to be said of them.

    `struck` are the reasons why numbers of a GPU are old, by its index.
    """

    gpus: dict[int, GPU] = field(default_factory=dict)
    health: Health = NOTHING
    histories: Histories = field(default_factory=Histories)
    moment: float = 0.0
    struck: dict[int, str] = field(default_factory=dict)

    def bars(self, gpu: GPU, name: str, width: int, top: float, bottom: float = 0.0) -> str:
        """That curve of that GPU, in the columns of all curves of that width."""
        return self.histories.curve(gpu.index, name).bars(width, top, self.moment, bottom, self.histories.since)


Drawn = Callable[[Shown, GPU, int], Cell]


@dataclass(frozen=True, slots=True)
class Column:
    """`rank` says how important it is, 0 the most; it is at least `width` wide and grows up to `most`."""

    name: str
    rank: int
    width: int
    draw: Drawn
    most: int = 0
    right: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """A column with the width that it has here."""

    column: Column
    width: int
    heading: str


def _number(name: str, form: Callable[[float], str] = lambda number: f"{number:.0f}") -> Drawn:
    def draw(shown: Shown, gpu: GPU, width: int) -> Cell:  # noqa: ARG001 - a column's signature
        number = getattr(gpu, name)
        return (form(number), "") if number is not None else missing(gpu, name)

    return draw


def missing(gpu: GPU, *names: str) -> Cell:
    """``?`` for what could not be read, ``-`` for what this GPU does not have."""
    unread = gpu.error or any(name in gpu.unanswered for name in names)
    return (marks.UNREAD, "info") if unread else (marks.ABSENT, "dim")


def _index(shown: Shown, gpu: GPU, width: int) -> Cell:
    severity = shown.health.severity(gpu.index)
    if severity:
        return f"{marks.SEVERITY[severity][0]}{gpu.index:>{width - 1}}", severity
    if gpu.index in shown.struck or gpu.error:
        return f"{marks.UNREAD}{gpu.index:>{width - 1}}", "info"
    return f" {gpu.index:>{width - 1}}", ""


def _name(shown: Shown, gpu: GPU, width: int) -> Cell:  # noqa: ARG001
    return one_line(machine.short(gpu.name))[:width], "dim"


def _curve(name: str, top: Callable[[GPU], float | None]) -> Drawn:
    def draw(shown: Shown, gpu: GPU, width: int) -> Cell:
        limit = top(gpu)
        return (shown.bars(gpu, name, width, limit) if limit else "", "curve")

    return draw


def _bar(shown: Shown, gpu: GPU, width: int) -> Cell:  # noqa: ARG001
    return bar(gpu.memory_used_mib, gpu.memory_mib, width), "curve"


def bar(used: float | None, total: float | None, width: int) -> str:
    """How full it is: ``███░░░░░``; what is in use at all shows."""
    if used is None or not total:
        return ""
    full = min(width, round(width * used / total) or (1 if used / total > 0.005 else 0))
    return "█" * full + _EMPTY * (width - full)


_EMPTY = "░"


def _clock(shown: Shown, gpu: GPU, width: int) -> Cell:  # noqa: ARG001
    if gpu.clock_mhz is None:
        return missing(gpu, "clock_mhz")
    most = "" if gpu.clock_max_mhz is None else f"/{gpu.clock_max_mhz:.0f}"
    return f"{gpu.clock_mhz:.0f}{most}", ""


def _held(shown: Shown, gpu: GPU, width: int) -> Cell:  # noqa: ARG001
    if why := shown.struck.get(gpu.index):
        return one_line(why), "info"
    said = gpu_words.held_back(gpu)
    if said.startswith("▼"):
        return said, shown.health.severity(gpu.index) or "bold"
    return said, "dim"


def _pcie(shown: Shown, gpu: GPU, width: int) -> Cell:  # noqa: ARG001
    if gpu.link_generation is None or gpu.link_width is None:
        return missing(gpu, "link_generation", "link_width")
    return f"{gpu.link_generation:.0f}×{gpu.link_width:.0f}", ""


def _links(shown: Shown, gpu: GPU, width: int) -> Cell:  # noqa: ARG001
    if gpu.links_up is None or gpu.links is None:
        return missing(gpu, "links", "links_up")
    return f"{gpu.links_up:.0f}/{gpu.links:.0f}", ""


def _two(send: str, receive: str) -> Drawn:
    def draw(shown: Shown, gpu: GPU, width: int) -> Cell:  # noqa: ARG001
        out, back = getattr(gpu, send), getattr(gpu, receive)
        if out is None or back is None:
            return missing(gpu, send, receive)
        return f"{gpu_words.rate(out):>5} {gpu_words.rate(back):>5}", ""

    return draw


HELD = "held back by"
COLUMNS = (
    Column("", 0, 3, _index, right=True),
    Column("GPU", 9, 10, _name, most=22),
    Column("util 60 s", 8, 12, _curve("utilization", lambda _: 100.0), most=30),
    Column("%", 1, 3, _number("utilization"), right=True),
    Column("memory", 7, 10, _bar, most=16),
    Column("GiB", 6, 4, _number("memory_used_mib", gib), right=True),
    Column("W", 4, 4, _number("power_w"), right=True),
    Column("W 60 s", 10, 8, _curve("power_w", lambda gpu: gpu.power_limit_w), most=20),
    Column("°C", 2, 3, _number("temperature_c"), right=True),
    Column("SM MHz", 3, 9, _clock, right=True),
    Column("mem MHz", 13, 7, _number("memory_clock_mhz"), right=True),
    Column("PCIe", 11, 4, _pcie, right=True),
    Column("NVLinks", 12, 7, _links, right=True),
    Column("PCIe ↑↓ MB/s", 15, 12, _two("pcie_send_mb_s", "pcie_receive_mb_s"), right=True),
    Column("NVLink ↑↓ MB/s", 14, 14, _two("nvlink_send_mb_s", "nvlink_receive_mb_s"), right=True),
    Column(HELD, 5, 14, _held, most=10_000),
)
GAP = 2
"""Blanks behind each column."""


def placed(shown: Shown, width: int) -> list[Placed]:
    """The columns that fit, the most important kept, the rest of the width given to those that can use it."""
    widths: dict[str, int] = {}
    room = width
    for column in sorted(_told(shown), key=lambda column: column.rank):
        if column.width + GAP > room and column.rank:
            break
        widths[column.name] = column.width
        room -= column.width + GAP
    chosen = [column for column in COLUMNS if column.name in widths]
    for column in sorted((one for one in chosen if one.most), key=lambda one: (one.name == HELD, one.rank)):
        more = min(max(room, 0), _most(shown, column) - column.width)
        if column.name != HELD and more > 0:
            more = min(more, max(room - _WORDS, 0) or 0)
        widths[column.name] += max(more, 0)
        room -= max(more, 0)
    return [Placed(column, widths[column.name], _heading(shown, column)) for column in chosen]


_WORDS = 10
"""Columns that what holds a GPU back gets before any curve grows."""


def _told(shown: Shown) -> Sequence[Column]:
    """The columns in which there is anything to show."""
    gpus = shown.gpus.values()
    silent = {
        "GPU": len({gpu.name for gpu in gpus if gpu.name}) < 2,  # else the band names them all
        "NVLinks": all(not gpu.links for gpu in gpus),
        "NVLink ↑↓ MB/s": all(gpu.nvlink_send_mb_s is None for gpu in gpus),
        "PCIe ↑↓ MB/s": all(gpu.pcie_send_mb_s is None for gpu in gpus),
        "util 60 s": not len(shown.histories),
        "W 60 s": not len(shown.histories),
    }
    return [column for column in COLUMNS if not silent.get(column.name)]


def _most(shown: Shown, column: Column) -> int:
    if column.name == "GPU":
        return max((len(machine.short(gpu.name)) for gpu in shown.gpus.values()), default=0)
    return column.most


def _heading(shown: Shown, column: Column) -> str:
    sizes = {gpu.memory_mib for gpu in shown.gpus.values() if gpu.memory_mib}
    if column.name == "memory" and len(sizes) == 1:
        return f"of {gib(sizes.pop())} GiB"
    return column.name


def cells(places: Sequence[Placed], shown: Shown, gpu: GPU) -> list[Cell]:
    """The row of a GPU. Numbers that are old are struck out, or there are none."""
    old = gpu.index in shown.struck
    row: list[Cell] = []
    for place in places:
        text, look = place.column.draw(shown, gpu, place.width)
        if old and look in ("", "curve", "dim") and place.column.rank:
            look = "struck" if text.strip() else ""
        row += _cell(text, look, place)
    return joined(row)


def joined(row: Sequence[Cell]) -> list[Cell]:
    """Neighbours that look alike are one piece: a row is drawn twice a second."""
    out: list[Cell] = []
    for text, look in row:
        if out and out[-1][1] == look:
            out[-1] = (out[-1][0] + text, look)
        else:
            out.append((text, look))
    return out


def _cell(text: str, look: str, place: Placed) -> list[Cell]:
    """The text at its side of the column; only the text itself bears the look."""
    text = text if len(text) <= place.width else f"{text[: place.width - 1]}…"
    pad = " " * (place.width - len(text))
    gap = " " * GAP
    if look == "struck":
        return [(pad, ""), (text, look), (gap, "")] if place.column.right else [(text, look), (pad + gap, "")]
    if text.endswith(_EMPTY):
        full = text.rstrip(_EMPTY)
        return [(full, look), (text[len(full) :], "track"), (pad + gap, "")]
    return [(f"{pad}{text}{gap}" if place.column.right else f"{text}{pad}{gap}", look)]


def heading(places: Sequence[Placed]) -> list[Cell]:
    """The headings over their columns."""
    out = []
    for place in places:
        name = place.heading[: place.width]
        out.append(name.rjust(place.width) if place.column.right else name.ljust(place.width))
    return [(" " + "".join(text + " " * GAP for text in out), "head")]


def instance(one: Instance, last: bool) -> list[Cell]:
    """The row of a MIG device, under its GPU: it has a profile and memory, and no clocks of its own."""
    full = bar(one.memory_used_mib, one.memory_mib, 10)
    memory = ""
    if one.memory_used_mib is not None and one.memory_mib is not None:
        memory = f"  {gib(one.memory_used_mib)} of {gib(one.memory_mib)} GiB"
    return [
        (f"   {'└' if last else '├'} MIG {one.index:<2} ", "dim"),
        (f"{one_line(one.profile) or 'profile not told':<12} ", ""),
        (full.rstrip(_EMPTY), "curve"),
        (full[len(full.rstrip(_EMPTY)) :], "track"),
        (memory, ""),
    ]
