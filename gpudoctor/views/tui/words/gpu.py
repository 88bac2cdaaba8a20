"""What there is to say of a GPU: what was found about it, what holds it back, its last minute, all of it by line."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from textual.content import Content

from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.fact import Absent, Known, Row, listed, text_of, value_of
from gpudoctor.core.language import phrase, say
from gpudoctor.core.rule import Severity
from gpudoctor.core.sample import GPU, NOT_REPORTED, Process
from gpudoctor.views._terminal import one_line, padded, value
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.prose import GAP, Block, badge, labelled, plain
from gpudoctor.views.tui.words import summary

REASONS = (
    ("hw_thermal_slowdown", "heat"),
    ("sw_thermal_slowdown", "heat"),
    ("hw_power_brake_slowdown", "power brake"),
    ("sw_power_cap", "power cap"),
    ("sync_boost", "sync boost"),
    ("applications_clocks_setting", "clocks set by an administrator"),
    ("display_clocks_setting", "clocks of the display"),
    ("board_limit", "board limit"),
    ("reliability", "voltage limit"),
)
"""NVML's clock-event reasons that hold clocks down, in words, the most telling first."""
_HELD_MIB = 64
"""Memory in use that an idle GPU has even without a process: the driver's own."""
_ORDER: tuple[Severity, ...] = ("error", "warning", "info")


def held_back(gpu: GPU) -> str:
    """What limits the GPU's clocks: ``▼ heat, power cap``, or ``z idle, 37 GiB held``; empty if nothing or unknown."""
    if gpu.throttle_reasons is None:
        return ""
    reasons = list(dict.fromkeys(say(word) for name, word in REASONS if name in gpu.throttle_reasons))
    if not reasons and "hw_slowdown" in gpu.throttle_reasons:
        reasons = [say("hardware slowdown")]
    if reasons:
        return f"▼ {say(', ').join(reasons)}"
    if "gpu_idle" not in gpu.throttle_reasons:
        return ""
    used = gpu.memory_used_mib or 0
    return say("z idle, {used} GiB held", used=gib_text(used)) if used >= _HELD_MIB and gpu.processes else say("z idle")


def gib_text(mib: float) -> str:
    """MiB as GiB, without the unit: 79, 9.2, 0.1, 0."""
    size = mib / 1024
    return f"{size:.0f}" if size >= 9.95 or size < 0.05 else f"{size:.1f}"


def rate_text(mb_s: float) -> str:
    """MB/s in at most five characters, without the unit: 12, 940, 1.4k, 12.3k, 120k."""
    return f"{mb_s:.0f}" if mb_s < 999.5 else f"{mb_s / 1000:.1f}k" if mb_s < 99_500 else f"{mb_s / 1000:.0f}k"


def process_text(program: Process) -> str:
    """A process as ``pid 41207 train.py 9.0 GiB alice``; ``name not told`` without a name, and memory and user only if
    they are known.
    """
    memory = "" if program.memory_mib is None else f"{gib_text(program.memory_mib)} GiB"
    return "  ".join(filter(None, (f"pid {program.pid}", program.name or say("name not told"), memory, program.user)))


@dataclass(frozen=True, slots=True)
class Health:
    """Findings about each GPU, by its index, the most severe first."""

    by_gpu: Mapping[int, Sequence[Finding]]

    def of(self, index: int) -> Sequence[Finding]:
        """Findings about the GPU of that index, the most severe first; empty if there are none."""
        return self.by_gpu.get(index, ())

    def severity(self, index: int) -> Severity | None:
        """The worst severity of the findings about the GPU of that index; None without a finding."""
        return next((finding.severity for finding in self.of(index)), None)


NOTHING = Health({})


def health(diagnosis: Diagnosis) -> Health:
    """Findings by GPU: those whose subject is the GPU's index or PCI address.

    A finding of the layer ``gpu`` with an unknown address belongs to the only GPU without one, if there is just one.
    """
    gpus = listed(diagnosis.snapshot.rows("gpu"))
    indices = [int_in_row(row, "index", place) for place, row in enumerate(gpus)]
    pairs = [(text_of(row.get("address")), index) for row, index in zip(gpus, indices, strict=True)]
    addresses = {address: index for address, index in pairs if address}
    findings_by_gpu: dict[int, list[Finding]] = {}
    nameless = [index for address, index in pairs if not address]
    for finding in diagnosis.findings:
        named = {str(subject["address"]) for subject in finding.subjects if "address" in subject}
        indices_ = {addresses[address] for address in named if address in addresses}
        indices_ |= {number for subject in finding.subjects if isinstance(number := subject.get("gpu"), int)}
        if not indices_ and named and finding.layer == "gpu" and len(nameless) == 1:
            indices_.update(nameless)  # a GPU that is lost no longer tells its address
        for index in indices_:
            findings_by_gpu.setdefault(index, []).append(finding)
    return Health(
        {
            index: sorted(findings, key=lambda finding: _ORDER.index(finding.severity))
            for index, findings in findings_by_gpu.items()
        }
    )


def int_in_row(row: Row, column: str, default: int) -> int:
    """The integer in that column of a row of facts; the default if the fact is missing, not read or no integer."""
    value = value_of(row.get(column))
    return value if isinstance(value, int) else default


# ---- What the GPUs did in the last minute, as rows of ▁▂▃▄▅▆▇█; never more of it than is drawn ----

SECONDS = 60.0
MOST = 240
"""Numbers kept of one curve: what comes four times a second fills the minute."""
CURVES = ("utilization", "power_w", "temperature_c", "clock_mhz")
_LEVELS = " ▁▂▃▄▅▆▇█"
_ROUND = (1, 2, 5, 10)
"""Of what a scale begins at a multiple, times a power of ten."""

Axis = tuple[float, float]
"""Bottom and top of a curve's scale."""


def axis(lowest: float, highest: float, limit: float) -> Axis:
    """Bottom and top of a curve's scale; the top is the greater of `limit` and `highest`.

    The bottom is 0, or, if `lowest` is half the top or more, a round number not above it: 93 and 95 % look alike on a
    scale from 0, and differ by a quarter of one from 90.
    """
    top = max(limit, highest)
    if lowest < top / 2:
        return 0.0, top
    power = 10.0 ** math.floor(math.log10(top / 10))
    step = power * next(number for number in _ROUND if number * power >= top / 10 - 1e-9)
    bottom = math.floor(lowest / step) * step
    return (bottom if bottom < top else bottom - step), top


def axis_text(of: Axis) -> str:
    """Both ends of a curve's scale: ``90-100``."""
    return f"{of[0]:.0f}-{of[1]:.0f}"


class Curve:
    """Numbers of the last `SECONDS`, each with its moment in seconds, all by one clock (that of the samples)."""

    __slots__ = ("_level_by_place", "_moments", "_numbers", "_scale")

    def __init__(self) -> None:
        self._moments: deque[float] = deque(maxlen=MOST)
        self._numbers: deque[float] = deque(maxlen=MOST)
        self._scale: tuple[int, Axis, int] = (0, (0.0, 0.0), 0)
        """Width, scale and rows of what was drawn last."""
        self._level_by_place: dict[int, int] = {}
        """Its bars by their place in time, without the last one: what is past does not change."""

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def range(self) -> Axis:
        """The lowest and the highest number of the last minute; raises ValueError without one."""
        return min(self._numbers), max(self._numbers)

    def add(self, moment: float, number: float) -> None:
        """Append a number and drop those older than `SECONDS`."""
        while self._moments and self._moments[0] <= moment - SECONDS:
            self._moments.popleft()
            self._numbers.popleft()
        self._moments.append(moment)
        self._numbers.append(number)

    def bars(self, width: int, scale: Axis, until: float, since: float = -math.inf, rows: int = 1) -> list[str]:
        """The last minute up to `until` as `rows` texts of `width` block characters, the top row first.

        Each bar is the mean of its seconds on that scale, blank without data. It keeps covering the same seconds, so
        bars move left one by one. If data begins at `since`, later than the left edge, the bars start at the left and
        blanks follow.
        """
        if width < 1:
            return [""] * rows
        seconds_per_bar = SECONDS / width
        last = int(until / seconds_per_bar)
        first = last - width + 1
        if self._scale != (width, scale, rows):
            self._scale, self._level_by_place = (width, scale, rows), {}
        if any(place not in self._level_by_place for place in range(first, last)):
            past = self._levels_of(first, last, seconds_per_bar)
            self._level_by_place = dict(zip(range(first, last), past, strict=True))
        levels = [self._level_by_place[place] for place in range(first, last)]
        levels += self._levels_of(last, last + 1, seconds_per_bar)
        before = 0 if math.isinf(since) else min(width, max(0, int(since / seconds_per_bar) - first))
        levels = levels[before:] + [0] * before
        bases = range(8 * (rows - 1), -1, -8)
        return ["".join(_LEVELS[min(max(level - base, 0), 8)] for level in levels) for base in bases]

    def _levels_of(self, first: int, end: int, seconds_per_bar: float) -> list[int]:
        """Heights of the bars from place `first` to before `end`, in eighths of a row, at least 1; 0 without data."""
        sums, counts = [0.0] * (end - first), [0] * (end - first)
        for moment, number in zip(reversed(self._moments), reversed(self._numbers), strict=True):
            place = int(moment / seconds_per_bar) - first
            if place < 0:
                break
            if place < end - first:
                sums[place] += number
                counts[place] += 1
        _, (bottom, top), rows = self._scale
        eighths = 8 * rows / max(top - bottom, 1e-9)
        return [
            1 + min(8 * rows - 1, max(0, int((total / count - bottom) * eighths))) if count else 0
            for total, count in zip(sums, counts, strict=True)
        ]


class Histories:
    """The curves of each GPU, by its index; curves of GPUs that are no longer listed are dropped."""

    def __init__(self) -> None:
        self._curve_blocks: dict[int, dict[str, Curve]] = {}
        self.since = math.inf
        """The first moment of all."""

    def add(self, moment: float, gpus: Iterable[GPU]) -> None:
        """Append the numbers of each GPU at that moment; curves of GPUs that are not among them are dropped."""
        self.since = min(self.since, moment)
        before = self._curve_blocks
        self._curve_blocks = {}
        for gpu in gpus:
            curves = before.get(gpu.index) or {name: Curve() for name in CURVES}
            self._curve_blocks[gpu.index] = curves
            for name, curve in curves.items():
                number = getattr(gpu, name)
                if number is not None:
                    curve.add(moment, number)

    def curve(self, index: int, name: str) -> Curve:
        """The curve of that field of the GPU with that index; an empty one if there is none."""
        return self._curve_blocks.get(index, {}).get(name) or Curve()

    def __len__(self) -> int:
        return sum(len(curve) for curves in self._curve_blocks.values() for curve in curves.values())


# ---- All that is known of one GPU, line by line ----


@dataclass(slots=True)
class GpuState:
    """State of the GPU table: last samples, findings and curves; `struck` says why a GPU's numbers are outdated."""

    gpus: dict[int, GPU] = field(default_factory=dict)
    health: Health = NOTHING
    histories: Histories = field(default_factory=Histories)
    moment: float = 0.0
    struck: dict[int, str] = field(default_factory=dict)
    axes: dict[str, Axis] = field(default_factory=dict)
    """The scales of the curves in the table, by the names of `CURVES`."""

    def axis(self, name: str, gpus: Collection[GPU]) -> Axis | None:
        """Bottom and top of the scale on which these GPUs' curves can be compared; None without a number or a limit."""
        curves = [self.histories.curve(gpu.index, name) for gpu in gpus]
        ranges = [curve.range for curve in curves if len(curve)]
        limit = max((LIMITS[name](gpu) or 0.0 for gpu in gpus), default=0.0)
        if not ranges or not limit:
            return None
        return axis(min(low for low, _ in ranges), max(high for _, high in ranges), limit)

    def bars(self, gpu: GPU, name: str, width: int, scale: Axis, rows: int = 1) -> list[str]:
        """The GPU's curve of that field as rows of bars, the top one first, up to the same moment for all GPUs."""
        curve = self.histories.curve(gpu.index, name)
        return curve.bars(width, scale, self.moment, self.histories.since, rows)


LIMITS: Mapping[str, Callable[[GPU], float | None]] = {
    "utilization": lambda _: 100.0,
    "power_w": lambda gpu: gpu.power_limit_w,
    "temperature_c": lambda gpu: gpu.temperature_slowdown_c or 100.0,
    "clock_mhz": lambda gpu: gpu.clock_max_mhz,
}
"""The top of each curve of `CURVES`, unless it was exceeded."""
_HANG = 8
_CURVE_COLUMNS = 30
_VALUE = 9
_AXIS = 10
_NOTE = 17
"""Columns for the limits beside the curves."""
_BESIDE_CURVES = 15
"""Lines of the detail that are not curves, as a rule."""
_MOST_ROWS = 5
_MOST_PROCESSES = 8
_PRESENCE_FACTS = (
    ("pci.nvidia_count", "NVIDIA devices on the PCI bus"),
    ("driver.version", "NVIDIA driver"),
    ("gpu.count", "GPUs that NVML lists"),
    ("nvml.state", "NVML"),
    ("nvml.message", "what it said"),
    ("host.container", "container"),
    ("host.wsl", "WSL"),
)
"""The facts that tell whether there should be a GPU."""


def gpu_blocks(state: GpuState, gpu: GPU, width: int, height: int = 0) -> Iterator[Block]:
    """The detail pane of that GPU in `width` columns: findings, curves, memory, ECC, links, traffic, processes.

    Curves have several rows if `height` lines have the room. A GPU that does not answer has only its findings.
    """
    rows = min((height - _BESIDE_CURVES) // len(CURVES), _MOST_ROWS)
    yield from _heading_blocks(state, gpu)
    yield GAP
    if gpu.error:
        yield Block(Content(say("no number of it has been read")))
        return
    yield from _high_curve_blocks(state, gpu, width, rows - 1) if rows > 2 else _curve_blocks(state, gpu, width)
    clock = "" if gpu.memory_clock_mhz is None else f" · {gpu.memory_clock_mhz:.0f} MHz"
    hot = "" if gpu.temperature_memory_c is None else f" · {gpu.temperature_memory_c:.0f} °C"
    yield labelled("memory", f"{_used_of_total(gpu, 'memory_used_mib', 'memory_mib')}{clock}{hot}", _HANG, "dim")
    yield labelled("ECC", _ecc_text(gpu), _HANG, "dim")
    parts = []
    if gpu.links and gpu.links_up is not None:
        parts.append(say("{links_up:.0f} of {links:.0f} NVLinks up", links_up=gpu.links_up, links=gpu.links))
    if gpu.link_generation is not None and gpu.link_width is not None:
        most = ""
        if gpu.link_generation_max is not None and gpu.link_width_max is not None:
            now, best = (gpu.link_generation, gpu.link_width), (gpu.link_generation_max, gpu.link_width_max)
            most = "" if now == best else say(" of gen {best:.0f} ×{best2:.0f}", best=best[0], best2=best[1])
        parts.append(
            say(
                "PCIe gen {link_generation:.0f} ×{link_width:.0f}{most}",
                link_generation=gpu.link_generation,
                link_width=gpu.link_width,
                most=most,
            )
        )
    yield labelled("links", " · ".join(parts) or _absent_text(gpu, "link_generation"), _HANG, "dim")
    if traffic := _traffic_text(gpu):
        yield labelled("traffic", traffic, _HANG, "dim")
    yield from _process_blocks(gpu)
    if gpu.uuid:
        yield GAP
        yield Block(plain(" · ".join(filter(None, (gpu.uuid, gpu.address))), "dim"))


def gpu_title(gpu: GPU) -> str:
    """Title of the GPU's pane: ``GPU 5 · H100 80GB HBM3``; only ``GPU 5`` without a name."""
    name = one_line(summary.short_name(gpu.name))
    return f"GPU {gpu.index} · {name}" if name else f"GPU {gpu.index}"


def _heading_blocks(state: GpuState, gpu: GPU) -> Iterator[Block]:
    """Why the GPU's numbers are outdated, the findings about it, and what limits its clocks, or that nothing does."""
    if why := state.struck.get(gpu.index):
        yield badge(why, marks.UNREAD, "$primary")
    for finding in state.health.of(gpu.index):
        glyph, _, colour = marks.SEVERITY[finding.severity]
        yield badge(one_line(finding.title), glyph, colour)
    held = held_back(gpu)
    if held:
        clock = ""
        if held.startswith("▼") and gpu.clock_mhz is not None and gpu.clock_max_mhz is not None:
            clock = say(", at {clock_mhz:.0f} of {most:.0f} MHz", clock_mhz=gpu.clock_mhz, most=gpu.clock_max_mhz)
        yield Block(
            plain(say("held back by {held}{clock}", held=held[2:], clock=clock) if held.startswith("▼") else held[2:])
        )
    elif not state.health.of(gpu.index) and gpu.index not in state.struck:
        held = say("nothing holds it back" if gpu.throttle_reasons is not None else "what holds it back is not known")
        found = say("not judged yet" if state.health is NOTHING else "nothing found about it")
        yield Block(Content(f"{found}{say(', ')}{held}"))


def _curve_blocks(state: GpuState, gpu: GPU, width: int) -> Iterator[Block]:
    """Utilization, power, temperature and clock, a line each: value, scale, curve of one row, limit."""
    bars = max(0, min(_CURVE_COLUMNS, width - _HANG - _VALUE - _AXIS - _NOTE))
    for label, name, text, note in _curve_texts(gpu):
        scale = state.axis(name, [gpu]) if bars else None
        drawn = f"{axis_text(scale):>{_AXIS - 1}} {state.bars(gpu, name, bars, scale)[0]}  " if scale else ""
        shown = Content.assemble(plain(padded(text, _VALUE)), (drawn, "dim"), (note, "dim"))
        yield labelled(label, shown, _HANG, "dim")


def _high_curve_blocks(state: GpuState, gpu: GPU, width: int, rows: int) -> Iterator[Block]:
    """Utilization, power, temperature and clock as curves of `rows` rows, beside value and limit, gaps between."""
    bars = max(0, min(2 * _CURVE_COLUMNS, width - _HANG - _NOTE - _AXIS))
    for label, name, text, note in _curve_texts(gpu):
        scale = state.axis(name, [gpu])
        lines = state.bars(gpu, name, bars, scale, rows) if scale else [""] * rows
        ends = [f"{scale[1]:.0f} ┤", *[" │"] * (rows - 2), f"{scale[0]:.0f} ┤"] if scale else [""] * rows
        leads, beside = (label, *[""] * (rows - 1)), (text, note, *[""] * (rows - 2))
        for lead, words, end, line in zip(leads, beside, ends, lines, strict=True):
            look = "" if lead else "dim"
            curve = Content.styled(f"{end:>{_AXIS}}{line}", "dim")
            yield Block(plain(padded(words, _NOTE), look) + curve, Content.styled(say(lead), "dim"), _HANG)
        yield GAP


def _curve_texts(gpu: GPU) -> Iterator[tuple[str, str, str, str]]:
    """For each curve: label, field of `GPU`, the current value with its unit (or why there is none), and limit."""
    limit, slow = gpu.power_limit_w, gpu.temperature_slowdown_c
    rows = (
        ("util", "utilization", "%", ""),
        ("power", "power_w", "W", say("limit {limit:.0f} W", limit=limit) if limit else ""),
        ("temp", "temperature_c", "°C", say("slows at {slow:.0f} °C", slow=slow) if slow else ""),
        (
            "clock",
            "clock_mhz",
            "MHz",
            "" if gpu.clock_max_mhz is None else say("of {most:.0f} MHz", most=gpu.clock_max_mhz),
        ),
    )
    for label, name, unit, note in rows:
        number = getattr(gpu, name)
        yield label, name, _absent_text(gpu, name) if number is None else f"{number:.0f} {unit}", note


def _absent_text(gpu: GPU, name: str) -> str:
    """``-`` if the GPU does not report that field; ``?`` and the reason if it could not be read."""
    why = gpu.why(name)
    return marks.ABSENT if why == NOT_REPORTED else f"{marks.UNREAD} {one_line(phrase(why))}"


def _used_of_total(gpu: GPU, used: str, total: str) -> str:
    """``37 of 79 GiB`` of two fields in MiB; ``-`` or ``?`` with the reason if one is not known."""
    used_mib, total_mib = getattr(gpu, used), getattr(gpu, total)
    if used_mib is None or total_mib is None:
        return _absent_text(gpu, used if used_mib is None else total)
    return say("{used} of {total} GiB", used=gib_text(used_mib), total=gib_text(total_mib))


def _ecc_text(gpu: GPU) -> str:
    """Counts of ECC errors, remapped rows and retired pages: ``0 uncorrected · 2 corrected · 1 rows remapped``.

    ``-`` or ``?`` with the reason if the uncorrected errors are not known; other counts that are not known are left
    out.
    """
    if gpu.ecc_uncorrected is None:
        return _absent_text(gpu, "ecc_uncorrected")
    parts = [say("{count:.0f} uncorrected", count=gpu.ecc_uncorrected)]
    if gpu.ecc_corrected:
        parts.append(say("{count:.0f} corrected", count=gpu.ecc_corrected))
    rows = [count for count in (gpu.remapped_uncorrected, gpu.remapped_corrected) if count is not None]
    pages = [count for count in (gpu.retired_double_bit, gpu.retired_single_bit) if count is not None]
    if rows:
        parts.append(say("{count:.0f} rows remapped", count=sum(rows)))
    if pages:
        parts.append(say("{count:.0f} pages retired", count=sum(pages)))
    return " · ".join(parts)


def _traffic_text(gpu: GPU) -> str:
    """Sent and received PCIe and NVLink traffic in MB/s; a link of unknown rates is left out, empty if both are."""
    pairs = (
        ("PCIe", gpu.pcie_send_mb_s, gpu.pcie_receive_mb_s),
        ("NVLink", gpu.nvlink_send_mb_s, gpu.nvlink_receive_mb_s),
    )
    parts = [
        f"{name} ↑ {rate_text(send)} ↓ {rate_text(receive)} MB/s"
        for name, send, receive in pairs
        if send is not None and receive is not None
    ]
    return " · ".join(parts)


def _process_blocks(gpu: GPU) -> Iterator[Block]:
    """The processes that use the GPU, by memory, at most `_MOST_PROCESSES` and how many more.

    One line if there are none, or saying why they are not known.
    """
    if gpu.processes is None:
        yield labelled("jobs", _absent_text(gpu, "processes"), _HANG, "dim")
        return
    if not gpu.processes:
        yield labelled("jobs", say("no process uses it"), _HANG, "dim")
    largest = sorted(gpu.processes, key=lambda program: -(program.memory_mib or 0))
    for place, program in enumerate(largest[:_MOST_PROCESSES]):
        yield labelled("" if place else "jobs", process_text(program), _HANG, "dim")
    if (more := len(largest) - _MOST_PROCESSES) > 0:
        yield Block(Content.styled(say("and {more} more", more=more), "dim"), hang=_HANG)


def no_gpu_blocks(diagnosis: Diagnosis) -> Iterator[Block]:
    """Why no GPU is shown: up to two errors or warnings, and the facts that tell whether there should be one."""
    causes = [finding for finding in diagnosis.findings if finding.severity != "info"]
    for finding in causes[:2]:
        glyph, _, colour = marks.SEVERITY[finding.severity]
        yield badge(one_line(finding.title), glyph, colour)
    yield Block(
        Content(say("enter opens it, with what to do" if causes else "no GPU is listed, and nothing found says why"))
    )
    yield GAP
    yield Block(Content(say("What was looked at")))
    for name, label in _PRESENCE_FACTS:
        state = diagnosis.snapshot.get(name)
        if isinstance(state, Known):
            mark, text, source = " ", value(state), f"  {phrase(state.source)}"
        else:
            mark, text, source = marks.ABSENT if isinstance(state, Absent) else marks.UNREAD, phrase(state.why), ""
        lead = Content.styled(f" {mark} {say(label)}", "dim")
        yield Block(Content.assemble(plain(one_line(text)), plain(source, "dim")), lead, 34)
