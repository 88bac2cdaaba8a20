"""What NVML saw of each GPU while kernels ran on it: newer than what it saw at rest, and what rules about load are for.

``gpu.clock_mhz``, ``power_w``, ``temperature_c``, ``utilization`` and ``throttle_reasons`` become those of the kernel
that tells most of the clocks, ``link_width`` and ``link_generation`` those of the copies to and from the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.knowledge._filling import Facts, Groups, given, number, text
from gpudoctor.knowledge.rates import devices
from gpudoctor.model.fact import Fact, Known, Row, Unread
from gpudoctor.model.pattern import pattern
from gpudoctor.model.snapshot import Snapshot

_HARD = pattern("hw_|thermal|brake")
"""Clock-event reasons by which a GPU protects itself, or is told to."""
_BUSY = 50
"""Percent of utilization from which a sample was taken at work."""
_COUNTED = "NVML, before and after each kernel"
_SEEN = {
    "sm_clock_mhz": "clock_mhz",
    "power_w": "power_w",
    "temperature_c": "temperature_c",
    "utilization": "utilization",
}


def imply_load(snapshot: Snapshot, _: Facts, groups: Groups) -> None:
    """The columns of ``gpu`` as they were at work, where kernels were measured."""
    rows, gpus = groups.get("measured"), groups.get("gpu")
    if not isinstance(rows, tuple) or not isinstance(gpus, tuple):
        return
    runs: dict[float | None, list[Row]] = {}
    for row in rows:
        if given(row, "device") != "CPU" and given(row, "status") == "ran":
            runs.setdefault(number(row, "gpu"), []).append(row)
    of = {device.uuid: runs.get(device.index, []) for device in devices(snapshot).values() if device.uuid}
    groups["gpu"] = tuple({**gpu, **dict(_at_work(gpu, of.get(text(gpu, "uuid"), [])))} for gpu in gpus)


def _at_work(gpu: Row, runs: Sequence[Row]) -> Iterator[tuple[str, Fact]]:
    if not any(isinstance(run.get("sm_clock_mhz"), Known) for run in runs):
        return
    run = _telling(runs)
    if run:
        yield from _during(run)
    yield from _link(gpu, runs, worked=run is not None)
    for name in ("ecc_corrected", "ecc_uncorrected"):
        if any(isinstance(run.get(name), Known) for run in runs):
            count = int(sum(number(run, name) or 0 for run in runs))
            yield f"{name}_at_work", Known(count, _COUNTED)
            before = given(gpu, name)
            if count and isinstance(before, int):
                yield name, Known(before + count, _COUNTED)


def _telling(runs: Sequence[Row]) -> Row | None:
    """The kernel that tells most of the clocks: one during which the GPU protected itself, else the slowest product."""
    held = [run for run in runs if any(_HARD.search(reason) for reason in _reasons(run))]
    busy = [run for run in runs if (number(run, "utilization") or 0) >= _BUSY]
    products = [run for run in busy if text(run, "unit").endswith("OP/s")]
    return min(held or products, key=lambda run: number(run, "sm_clock_mhz") or 0, default=None)


def _during(run: Row) -> Iterator[tuple[str, Fact]]:
    kernel = text(run, "kernel")
    yield "at_work", Known(kernel, "gpudoctor bench")
    yield "throttle_reasons", Known(_reasons(run), f"NVML, while {kernel} ran")
    for seen, column in _SEEN.items():
        if (found := number(run, seen)) is not None:
            yield column, Known(round(found), f"NVML, while {kernel} ran")


def _link(gpu: Row, runs: Sequence[Row], worked: bool) -> Iterator[tuple[str, Fact]]:
    """During copies. Without one the link may rest while the GPU works: then its generation says nothing."""
    copies = [run for run in runs if given(run, "kernel") in ("copy.to", "copy.from")]
    for name in ("link_width", "link_generation"):
        found = [most for run in copies if (most := number(run, name))]
        if found:
            yield name, Known(int(max(found)), "NVML, during copies")
        elif worked and name == "link_generation" and isinstance(gpu.get(name), Known):
            yield name, Unread("read at rest, and no copy was measured")


def _reasons(run: Row) -> tuple[str, ...]:
    found = given(run, "throttle_reasons")
    return tuple(map(str, found)) if isinstance(found, tuple) else ()
