"""All that is known of one GPU, line by line: what was found, its curves, its errors, its links, who uses it."""

from __future__ import annotations

from collections.abc import Iterator

from textual.content import Content

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.fact import Absent, Known
from gpudoctor.model.sample import GPU, NOT_REPORTED
from gpudoctor.views._terminal import one_line, value
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.prose import GAP, Block, plain
from gpudoctor.views.tui.words import gpu as gpu_words
from gpudoctor.views.tui.words import machine
from gpudoctor.views.tui.words.gpu import gib, rate
from gpudoctor.views.tui.words.gpu_columns import Shown

_HANG = 8
_BARS = 30
_VALUE = 9
_NOTE = 17
"""Columns for the limits beside the values."""
_MOST_PROCESSES = 8
_LOOKED_AT = (
    ("pci.nvidia_count", "NVIDIA devices on the PCI bus"),
    ("driver.version", "NVIDIA driver"),
    ("gpu.count", "GPUs that NVML lists"),
    ("nvml.state", "NVML"),
    ("nvml.message", "what it said"),
    ("host.container", "container"),
    ("host.wsl", "WSL"),
)
"""The facts that tell whether there should be a GPU."""


def blocks(shown: Shown, gpu: GPU, width: int) -> Iterator[Block]:
    """The detail pane of that GPU, for so many columns."""
    bars = max(0, min(_BARS, width - _HANG - _VALUE - _NOTE))
    yield from _head(shown, gpu)
    yield GAP
    if gpu.error:
        yield Block(Content("no number of it has been read"))
        return
    yield from _curves(shown, gpu, bars)
    yield _line("memory", _memory(gpu), Content(""))
    yield _line("ECC", _ecc(gpu), Content(""))
    yield _line("links", _links(gpu), Content(""))
    if traffic := _traffic(gpu):
        yield _line("traffic", traffic, Content(""))
    yield from _jobs(gpu)
    if gpu.uuid:
        yield GAP
        yield Block(plain(" · ".join(filter(None, (gpu.uuid, gpu.address))), "dim"))


def title(gpu: GPU) -> str:
    """``GPU 5 · H100 80GB HBM3``."""
    name = one_line(machine.short(gpu.name))
    return f"GPU {gpu.index} · {name}" if name else f"GPU {gpu.index}"


def _head(shown: Shown, gpu: GPU) -> Iterator[Block]:
    if why := shown.struck.get(gpu.index):
        yield Block(plain(why, "bold"), Content.styled(f" {marks.UNREAD} ", "bold reverse $primary"), 4)
    for finding in shown.health.of(gpu.index):
        glyph, _, colour = marks.SEVERITY[finding.severity]
        yield Block(plain(one_line(finding.title), "bold"), Content.styled(f" {glyph} ", f"bold reverse {colour}"), 4)
    held = gpu_words.held_back(gpu)
    if held:
        clock = ""
        if held.startswith("▼") and gpu.clock_mhz is not None and gpu.clock_max_mhz is not None:
            clock = f", at {gpu.clock_mhz:.0f} of {gpu.clock_max_mhz:.0f} MHz"
        yield Block(plain(f"held back by {held[2:]}{clock}" if held.startswith("▼") else held[2:]))
    elif not shown.health.of(gpu.index) and gpu.index not in shown.struck:
        yield Block(Content("nothing found about it, nothing holds it back"))


def _curves(shown: Shown, gpu: GPU, width: int) -> Iterator[Block]:
    limit, slow = gpu.power_limit_w, gpu.temperature_slowdown_c
    rows = (
        ("util", "utilization", "%", 100.0, 0.0, ""),
        ("power", "power_w", "W", limit or 0.0, 0.0, f"limit {limit:.0f} W" if limit else ""),
        ("temp", "temperature_c", "°C", slow or 100.0, 20.0, f"slows at {slow:.0f} °C" if slow else ""),
        ("clock", "clock_mhz", "MHz", gpu.clock_max_mhz or 0.0, 0.0, _most_clock(gpu)),
    )
    for label, name, unit, top, bottom, note in rows:
        number = getattr(gpu, name)
        value = _absent(gpu, name) if number is None else f"{number:.0f} {unit}"
        curve = shown.histories.curve(gpu.index, name)
        bars = f"{shown.bars(gpu, name, width, top, bottom)}  " if width and len(curve) and top else ""
        yield _line(label, f"{value:<{_VALUE}}", Content.assemble((bars, "dim"), (note, "dim")))


def _most_clock(gpu: GPU) -> str:
    return "" if gpu.clock_max_mhz is None else f"of {gpu.clock_max_mhz:.0f} MHz"


def _line(label: str, value: str, more: Content) -> Block:
    return Block(Content.assemble(plain(value), more), Content.styled(label, "dim"), _HANG)


def _absent(gpu: GPU, name: str) -> str:
    why = gpu.why(name)
    return marks.ABSENT if why == NOT_REPORTED else f"{marks.UNREAD} {one_line(why)}"


def _of(gpu: GPU, used: str, total: str) -> str:
    one, all_of_it = getattr(gpu, used), getattr(gpu, total)
    if one is None or all_of_it is None:
        return _absent(gpu, used if one is None else total)
    return f"{gib(one)} of {gib(all_of_it)} GiB"


def _memory(gpu: GPU) -> str:
    clock = "" if gpu.memory_clock_mhz is None else f" · {gpu.memory_clock_mhz:.0f} MHz"
    hot = "" if gpu.temperature_memory_c is None else f" · {gpu.temperature_memory_c:.0f} °C"
    return f"{_of(gpu, 'memory_used_mib', 'memory_mib')}{clock}{hot}"


def _ecc(gpu: GPU) -> str:
    if gpu.ecc_uncorrected is None:
        return _absent(gpu, "ecc_uncorrected")
    said = [f"{gpu.ecc_uncorrected:.0f} uncorrected"]
    if gpu.ecc_corrected:
        said.append(f"{gpu.ecc_corrected:.0f} corrected")
    rows = [count for count in (gpu.remapped_uncorrected, gpu.remapped_corrected) if count is not None]
    pages = [count for count in (gpu.retired_double_bit, gpu.retired_single_bit) if count is not None]
    if rows:
        said.append(f"{sum(rows):.0f} rows remapped")
    if pages:
        said.append(f"{sum(pages):.0f} pages retired")
    return " · ".join(said)


def _links(gpu: GPU) -> str:
    said = []
    if gpu.links and gpu.links_up is not None:
        said.append(f"{gpu.links_up:.0f} of {gpu.links:.0f} NVLinks up")
    if gpu.link_generation is not None and gpu.link_width is not None:
        most = ""
        if gpu.link_generation_max is not None and gpu.link_width_max is not None:
            now, best = (gpu.link_generation, gpu.link_width), (gpu.link_generation_max, gpu.link_width_max)
            most = "" if now == best else f" of gen {best[0]:.0f} ×{best[1]:.0f}"
        said.append(f"PCIe gen {gpu.link_generation:.0f} ×{gpu.link_width:.0f}{most}")
    return " · ".join(said) or _absent(gpu, "link_generation")


def _traffic(gpu: GPU) -> str:
    pairs = (
        ("PCIe", gpu.pcie_send_mb_s, gpu.pcie_receive_mb_s),
        ("NVLink", gpu.nvlink_send_mb_s, gpu.nvlink_receive_mb_s),
    )
    said = [
        f"{name} ↑ {rate(send)} ↓ {rate(receive)} MB/s"
        for name, send, receive in pairs
        if send is not None and receive is not None
    ]
    return " · ".join(said)


def _jobs(gpu: GPU) -> Iterator[Block]:
    if gpu.processes is None:
        yield _line("jobs", _absent(gpu, "processes"), Content(""))
        return
    if not gpu.processes:
        yield _line("jobs", "no process uses it", Content(""))
    largest = sorted(gpu.processes, key=lambda one: -(one.memory_mib or 0))
    for place, one in enumerate(largest[:_MOST_PROCESSES]):
        yield _line("" if place else "jobs", gpu_words.process(one), Content(""))
    if (more := len(largest) - _MOST_PROCESSES) > 0:
        yield Block(Content.styled(f"and {more} more", "dim"), hang=_HANG)


def nothing(diagnosis: Diagnosis) -> Iterator[Block]:
    """Why no GPU is shown, and what was looked at to know."""
    causes = [finding for finding in diagnosis.findings if finding.severity != "info"]
    for finding in causes[:2]:
        glyph, _, colour = marks.SEVERITY[finding.severity]
        yield Block(plain(one_line(finding.title), "bold"), Content.styled(f" {glyph} ", f"bold reverse {colour}"), 4)
    yield Block(
        Content("enter opens it, with what to do" if causes else "no GPU is listed, and nothing found says why")
    )
    yield GAP
    yield Block(Content("What was looked at"))
    for name, label in _LOOKED_AT:
        state = diagnosis.snapshot.get(name)
        mark = marks.PASSED if isinstance(state, Known) else marks.ABSENT if isinstance(state, Absent) else marks.UNREAD
        said = value(state) if isinstance(state, Known) else state.why
        source = f"  {state.source}" if isinstance(state, Known) else ""
        lead = Content.styled(f" {mark} {label}", "dim")
        yield Block(Content.assemble(plain(one_line(said)), plain(source, "dim")), lead, 34)
