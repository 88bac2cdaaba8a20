"""What the GPUs of the demo machines did: a minute and a half each, made from what their records say of one moment.

The values are invented; they swing as those of a training step do, and a GPU that is held back slows down on the way.
"""

from __future__ import annotations

import math
import random
from typing import Any

from gpudoctor.app.demos.playing import LIVE_SCHEMA
from gpudoctor.core.sample import GPU, Sample

EVERY = 0.5
MOMENTS = 200
SLOWS_AT = 130
"""The moment when a GPU that is too hot begins to slow down, one of those that are told at once."""
AGAIN = 152
_EVALUATES = 48
"""Moments from one evaluation to the next, during which all GPUs do less."""
_LINK_MB_S = 148_000


def document(first: Sample, seed: int) -> dict[str, Any]:
    """The document that `gpudoctor.app.demos.playing` plays."""
    noise = random.Random(seed)
    rows = [[_numbers(gpu, moment, noise) for gpu in first.gpus] for moment in range(MOMENTS)]
    names = {name: None for row in rows for numbers in row for name in numbers}
    return {
        "schema": LIVE_SCHEMA,
        "every": EVERY,
        "again": AGAIN,
        "first": first.to_json(),
        "series": {name: [[numbers.get(name) for numbers in row] for row in rows] for name in names},
    }


def at_work(gpu: GPU) -> bool:
    """Whether its record was made while a job ran on it."""
    return (gpu.utilization or 0) >= 90


def _numbers(gpu: GPU, moment: int, noise: random.Random) -> dict[str, float]:
    if gpu.error:
        return {}
    if not at_work(gpu):
        return _idle(gpu, noise)
    step = math.sin(2 * math.pi * (moment / 12 + 0.02 * gpu.index))
    rest = 0.45 if moment % _EVALUATES < 9 else 1.0
    held = bool(gpu.throttle_reasons)
    share = 1.0 if not held else min(1.0, max(0.0, (moment - SLOWS_AT) / 16))
    top, power, hot = gpu.clock_max_mhz or 0, gpu.power_w or 0, gpu.temperature_c or 0
    cool, full = 80.0, 655.0
    return {
        "utilization": round(min(100, 97 + 3 * step + noise.uniform(-1, 1)) * rest),
        "power_w": round(((full + (power - full) * share if held else power) + 18 * step) * (rest + 1) / 2),
        "temperature_c": round((cool + (hot - cool) * min(1, share + 0.3)) if held else hot + noise.uniform(-0.6, 0.6)),
        "clock_mhz": 15 * round((top + ((gpu.clock_mhz or top) - top) * share if held else top) / 15),
        "nvlink_send_mb_s": round(_LINK_MB_S * rest * (1 + 0.3 * step) * (0.6 if held else 1)),
        "nvlink_receive_mb_s": round(_LINK_MB_S * rest * (1 + 0.3 * step) * (0.6 if held else 1)),
        "pcie_send_mb_s": round(310 + 60 * step),
        "pcie_receive_mb_s": round(1240 + 200 * step),
    }


def _idle(gpu: GPU, noise: random.Random) -> dict[str, float]:
    return {
        "utilization": gpu.utilization or 0,
        "power_w": round((gpu.power_w or 0) + noise.uniform(-1, 1)),
        "temperature_c": gpu.temperature_c or 0,
        "clock_mhz": gpu.clock_mhz or 0,
    }
