"""Which facts of a healthy machine another one of its kind must have, too, and how exactly.

What differs between healthy machines is not here: temperatures, clocks and loads of the moment, serial numbers, UUIDs,
addresses, host names, processes, firmware.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gpudoctor.expect.toml import array, quoted, value_text
from gpudoctor.expression.functions import show
from gpudoctor.model.fact import Value
from gpudoctor.model.version import parse

Policy = Callable[[Sequence[Value]], str]
"""The values of all rows and machines, each once, as what they must be in TOML; empty where nothing can be asked."""
SLOWDOWNS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
_FEW = 4


def same(values: Sequence[Value]) -> str:
    """That value; of numbers that differ the least, of texts one of them; flags that differ are left out."""
    if len(values) == 1:
        return value_text(values[0])
    if all(isinstance(value, str) for value in values) and len(values) <= _FEW:
        return array([str(value) for value in values])
    return floor(values) if _numbers(values) else ""


def floor(values: Sequence[Value]) -> str:
    """Not less than the least."""
    numbers = _numbers(values)
    return quoted(f">= {min(numbers):g}") if numbers and min(numbers) > 0 else ""


def roughly(values: Sequence[Value]) -> str:
    """Not less than nine tenths of the least: what firmware keeps for itself differs."""
    numbers = _numbers(values)
    return quoted(f">= {int(0.9 * min(numbers))}") if numbers and min(numbers) > 0 else ""


def not_older(values: Sequence[Value]) -> str:
    """A driver of the same branch, or of the branches seen, and not older than the oldest."""
    versions = sorted((version, str(value)) for value in values if (version := parse(str(value))))
    if len(versions) < len(values):
        return ""
    return quoted(f">= {versions[0][1]}, < {versions[-1][0].release[0] + 1}")


def release(values: Sequence[Value]) -> str:
    """The release, whatever its build: ``2.9.1`` of ``2.9.1+cu128``."""
    return same(sorted({version.public if (version := parse(str(value))) else str(value) for value in values}))


def minor(values: Sequence[Value]) -> str:
    """Any patch release: ``3.12.*`` of ``3.12.3``."""
    found = {f"{version.major}.{version.minor}.*" for value in values if (version := parse(str(value)))}
    return same(sorted(found)) if found else ""


def if_on(values: Sequence[Value]) -> str:
    """True, where it is so everywhere; that it is off asks nothing of others."""
    return "true" if list(values) == [True] else ""


def if_running(values: Sequence[Value]) -> str:
    return same(values) if list(values) == ["running"] else ""


def unlimited(values: Sequence[Value]) -> str:
    return "-1" if list(values) == [-1] else ""


def unhindered(values: Sequence[Value]) -> str:
    """None of the reasons that say that hardware or heat holds the clocks down."""
    if any(reason in show(value) for value in values for reason in SLOWDOWNS):
        return ""
    return f"{{ lacks = {array(SLOWDOWNS)} }}"


def not_there(_: Sequence[Value]) -> str:
    """That there is none, which is what is written where there is none anywhere; a value asks nothing of others."""
    return ""


class Kept(NamedTuple):
    """A fact that is kept."""

    fact: str
    policy: Policy
    more: str = ""
    """What else to say of the line: how to loosen it, where that is not plain."""


KEPT: Mapping[str, Sequence[Kept]] = {
    "The GPUs: how many and which": (
        Kept("gpu.count", same, 'looser: ">= 4"'),
        Kept("gpu.name", same, 'looser: ["A", "B"]'),
        Kept("gpu.memory_mib", same, 'looser: ">= 79 GiB"'),
        Kept("gpu.virtualization", same),
        Kept("gpu.error", not_there),
    ),
    "How they are set up": (
        Kept("gpu.ecc", same),
        Kept("gpu.mig", same),
        Kept("gpu.compute_mode", same),
        Kept("gpu.persistence", if_on),
        Kept("gpu.power_limit_w", floor),
        Kept("gpu.clock_max_mhz", floor),
        Kept("gpu.memory_clock_max_mhz", floor),
        Kept("gpu.application_clock_mhz", floor),
        Kept("gpu.throttle_reasons", unhindered),
    ),
    "How they are connected": (
        Kept("gpu.link_generation_max", same, 'looser: ">= 4"'),
        Kept("gpu.link_width_max", same, 'looser: ">= 8"'),
        Kept("gpu.links", same),
        Kept("nvlink.active", if_on),
        Kept("nvlink.version", same),
        Kept("topology.nvswitches", same),
        Kept("gpu.fabric_state", same),
    ),
    "The driver and what belongs to it": (
        Kept("driver.version", not_older, 'of any newer branch, too: without "< ..."'),
        Kept("driver.module_kind", same),
        Kept("driver.fabric_manager", if_running),
        Kept("driver.persistenced", if_on),
        Kept("driver.peermem_loaded", if_on),
    ),
    "The environment": (
        Kept("python.version", minor),
        Kept("torch.version", release, 'looser: "2.9.*"'),
        Kept("torch.cuda", same, 'looser: ">= 12, < 13"'),
        Kept("torch.nccl", same, "the same on all machines of a job"),
    ),
    "The machine": (
        Kept("host.arch", same),
        Kept("host.distribution", same),
        Kept("host.distribution_version", same),
        Kept("host.memory_mib", roughly),
        Kept("limits.shm_mib", roughly, '">= 64 GiB" goes as well'),
        Kept("limits.memlock_kib", unlimited),
    ),
}
"""By heading."""


def _numbers(values: Sequence[Value]) -> list[float]:
    """Them all as numbers; none where one is not."""
    numbers = [float(value) for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    return numbers if len(numbers) == len(values) else []
