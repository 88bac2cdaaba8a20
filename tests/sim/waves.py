"""GPUs at work: what NVML answers of them goes up and down by the clock.

A scenario's section ``nvml`` lists them under ``busy``, by index. Utilisation, power, temperature and clock of such a
GPU move together, each GPU at its own moment; what the scenario says of the GPU stays the upper bound where it says
that the GPU is held down. A recorded machine has no clock: there they answer what the scenario says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Wave(NamedTuple):
    """A number between two bounds."""

    low: int
    high: int
    period_ms: int
    phase_ms: int = 0


def laid_over(section: Mapping[str, Any]) -> dict[str, Any]:
    """The section, with waves in the place of constant answers of the GPUs that are busy."""
    busy = set(section.get("busy", ()))
    rest = {key: value for key, value in section.items() if key != "busy"}
    if not busy:
        return rest
    every = section.get("every", {})
    gpus = section.get("gpus", ())
    return {
        **rest,
        "gpus": [
            {**own, **_waves(index, {**every, **own})} if index in busy else own for index, own in enumerate(gpus)
        ],
    }


def _waves(index: int, told: Mapping[str, Any]) -> dict[str, Any]:
    period, phase = 14_000 + 1_700 * (index % 5), 3_300 * index
    limit = int(told.get("nvmlDeviceGetEnforcedPowerLimit", 300_000))
    slows = int(told.get("nvmlDeviceGetTemperatureThreshold(1)", 90))
    most = int(told.get("nvmlDeviceGetMaxClockInfo(1)", 1980))
    reasons = told.get("nvmlDeviceGetCurrentClocksEventReasons", 0)
    held = isinstance(reasons, int) and reasons & ~1  # something other than being idle
    clock, hot = int(told.get("nvmlDeviceGetClockInfo(1)", most)), int(told.get("nvmlDeviceGetTemperature(0)", 40))
    out: dict[str, Any] = {
        "nvmlDeviceGetUtilizationRates": {
            "gpu": Wave(68 - index % 3 * 9, 100, period, phase),
            "memory": Wave(20, 60, period, phase),
        },
        "nvmlDeviceGetMemoryInfo": _memory(index, told.get("nvmlDeviceGetMemoryInfo", {})),
        "nvmlDeviceGetCurrentClocksEventReasons": reasons if held else 0,
        "nvmlDeviceGetPowerUsage": Wave(limit * 6 // 10, limit * 95 // 100, period, phase),
        "nvmlDeviceGetTemperature(0)": Wave(slows - 28, slows - 18, period * 2, phase),
        "nvmlDeviceGetClockInfo(1)": Wave(most * 93 // 100, most, period, phase + period // 2),
        "nvmlDeviceGetFieldValues(138,*)": _counter(index),
        "nvmlDeviceGetFieldValues(139,*)": _counter(index + 1),
    }
    if held:
        out["nvmlDeviceGetPowerUsage"] = Wave(limit * 45 // 100, limit * 6 // 10, period, phase)
        out["nvmlDeviceGetClockInfo(1)"] = Wave(clock * 9 // 10, clock, period, phase)
        out["nvmlDeviceGetTemperature(0)"] = Wave(hot - 3, hot, period, phase)
    return out


def _counter(index: int) -> Wave:
    """KiB that only grow: the rising half of a wave of years, around its middle."""
    return Wave(0, (1 << 49) + (index << 45), 1 << 37, 26 << 30)


def _memory(index: int, told: Any) -> dict[str, Any]:
    total = int(told.get("total", 80 << 30))
    used = total * (3 + index * 7 % 6) // 10
    return {**told, "used": used, "free": total - used}
