"""What the GPUs of a machine did when they were read: heat, clocks, power, memory; a bar for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.document import is_number
from gpudoctor.model.sample import GPU, sample_of
from gpudoctor.views._measured import figure as digits
from gpudoctor.views.plots._panel import Bar, Look, Panel


class _Quantity(NamedTuple):
    """A field of a `GPU`, and that of its limit with the words before it; `per` makes the unit of the field's."""

    title: str
    unit: str
    field: str
    limit: str = ""
    before: str = ""
    per: float = 1

    def of(self, gpu: GPU) -> float | None:
        """What it is."""
        return _number(gpu, self.field, self.per)

    def most(self, gpu: GPU) -> float | None:
        """What it can be at most."""
        return _number(gpu, self.limit, self.per) if self.limit else None


_PANELS = (
    _Quantity("Temperature", "°C", "temperature_c", "temperature_slowdown_c", "slows down at"),
    _Quantity("SM clock", "MHz", "clock_mhz", "clock_max_mhz", "at most"),
    _Quantity("Power", "W", "power_w", "power_limit_w", "limited to"),
    _Quantity("Memory used", "GiB", "memory_used_mib", "memory_mib", "of", 1024),
    _Quantity("Utilization", "%", "utilization"),
)
_HELD_BACK = frozenset({"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"})
"""Clock-event reasons that are no mere lack of work."""
_SLOWED = ("temperature_c", "clock_mhz")
_HOT = 3
"""Degrees below the slowdown from which a GPU is hot."""


def figures(diagnosis: Diagnosis) -> Iterator[str]:
    """A picture for each quantity that is known of some GPU."""
    gpus = sample_of(diagnosis.snapshot).gpus
    for quantity in _PANELS:
        if any(quantity.of(gpu) is not None for gpu in gpus):
            limits = {quantity.most(gpu) for gpu in gpus}
            most = limits.pop() if len(limits) == 1 else None
            bars = [_bar(gpu, quantity) for gpu in gpus]
            yield Panel(quantity.title, quantity.unit, bars, most=100.0 if quantity.unit == "%" else most).draw()


def _bar(gpu: GPU, quantity: _Quantity) -> Bar:
    value, most = quantity.of(gpu), quantity.most(gpu)
    if value is None:
        return Bar(str(gpu.index), None, f"GPU {gpu.index}: {gpu.why(quantity.field)}")
    said = f"GPU {gpu.index}: {digits(value)} {quantity.unit}"
    said += f", {quantity.before} {digits(most)}" if most else ""
    look: Look = "plain"
    if quantity.field == "temperature_c" and most and value >= most - _HOT:
        look = "error"
    elif quantity.field in _SLOWED and (held := _HELD_BACK & set(gpu.throttle_reasons or ())):
        look, said = "warning", f"{said}, held back: {', '.join(sorted(held))}"
    return Bar(str(gpu.index), value, said, look)


def _number(gpu: GPU, field: str, per: float) -> float | None:
    """The field, in that unit; None where the document has something else."""
    value = getattr(gpu, field)
    return value / per if is_number(value) else None
