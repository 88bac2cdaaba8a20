"""What NVML saw of each GPU while kernels ran on it: newer than what it saw at rest, and what rules about load are for.

``gpu.clock_mhz``, ``power_w``, ``temperature_c`` and ``utilization`` become those of the product that left the lowest
clock, ``throttle_reasons`` all that were in force during any kernel, ``link_width`` and ``link_generation`` those of
the copies to and from the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpudoctor.knowledge._filling import Facts, Groups
from gpudoctor.knowledge.rates import devices
from gpudoctor.model.fact import Fact, Known, Row, Unread
from gpudoctor.model.snapshot import Snapshot

_BUSY = 50
"""Percent of utilization from which a sample was taken at work."""
_COUNTED = "NVML, before and after each kernel"
_OF_A_PRODUCT = {
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
    numbers = {device.uuid: device.index for device in devices(snapshot).values()}
    runs: dict[object, list[Row]] = {}
    for row in rows:
        if _value(row, "device") != "CPU" and _value(row, "status") == "ran":
            runs.setdefault(_value(row, "gpu"), []).append(row)
    groups["gpu"] = tuple({**gpu, **dict(_at_work(gpu, runs.get(_number_of(gpu, numbers), ())))} for gpu in gpus)


def _number_of(gpu: Row, numbers: Mapping[str, int]) -> object:
    return numbers.get(str(_value(gpu, "uuid")), "no number of CUDA's")


def _at_work(gpu: Row, runs: Sequence[Row]) -> Iterator[tuple[str, Fact]]:
    if not any(isinstance(run.get("sm_clock_mhz"), Known) for run in runs):
        return
    products = [run for run in runs if str(_value(run, "unit")).endswith("OP/s") and _measure(run, "utilization") >= _BUSY]
    heaviest = min(products, key=lambda run: _measure(run, "sm_clock_mhz"), default=None)
    if heaviest:
        yield from _of_product(heaviest)
        yield from _link(gpu, runs)
    reasons = dict.fromkeys(reason for run in runs for reason in _listed(run, "throttle_reasons"))
    if heaviest or reasons:
        yield "throttle_reasons", Known(tuple(reasons), "NVML, while kernels ran")
    for name in ("ecc_corrected", "ecc_uncorrected"):
        if any(isinstance(run.get(name), Known) for run in runs):
            count = sum(int(_measure(run, name)) for run in runs)
            yield f"{name}_at_work", Known(count, _COUNTED)
            before = _value(gpu, name)
            if count and isinstance(before, int):
                yield name, Known(before + count, _COUNTED)


def _of_product(run: Row) -> Iterator[tuple[str, Fact]]:
    kernel = str(_value(run, "kernel"))
    yield "at_work", Known(kernel, "gpudoctor bench")
    for seen, column in _OF_A_PRODUCT.items():
        state = run.get(seen)
        if isinstance(state, Known) and isinstance(state.value, (int, float)):
            yield column, Known(round(state.value), f"NVML, while {kernel} ran")


def _link(gpu: Row, runs: Sequence[Row]) -> Iterator[tuple[str, Fact]]:
    """During copies. Without one the link may rest while the GPU works: then its generation says nothing."""
    copies = [run for run in runs if _value(run, "kernel") in ("copy.to", "copy.from")]
    for name in ("link_width", "link_generation"):
        found = [int(_measure(run, name)) for run in copies if isinstance(run.get(name), Known)]
        if found:
            yield name, Known(max(found), "NVML, during copies")
        elif name == "link_generation" and isinstance(gpu.get(name), Known):
            yield name, Unread("read at rest, and no copy was measured")


def _listed(run: Row, column: str) -> tuple[str, ...]:
    value = _value(run, column)
    return tuple(map(str, value)) if isinstance(value, tuple) else ()


def _measure(run: Row, column: str) -> float:
    value = _value(run, column)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _value(row: Row, column: str) -> object:
    state = row.get(column)
    return state.value if isinstance(state, Known) else None
