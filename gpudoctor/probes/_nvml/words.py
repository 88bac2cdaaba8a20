"""What NVML's numbers, structs and bit masks mean, as the values of facts.

Each function takes one answer as the child told it and returns the fact's value; None where NVML says that there is
none. An answer of another shape raises one of `ODD`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from gpudoctor.model.fact import Value
from gpudoctor.target.protocol import printable

Reading: TypeAlias = Callable[[Any], Value]
ODD = (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError)

BRANDS = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "GRID",
    5: "GeForce",
    6: "Titan",
    7: "NVIDIA Virtual Applications",
    8: "NVIDIA Virtual PC",
    9: "NVIDIA Virtual Compute Server",
    10: "NVIDIA RTX Virtual Workstation",
    11: "NVIDIA Cloud Gaming",
    12: "Quadro RTX",
    13: "NVIDIA RTX",
    14: "NVIDIA",
    15: "GeForce RTX",
    16: "Titan RTX",
    18: "NVIDIA RTX Virtual Game Dev",
}
ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
COMPUTE_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host vgpu", 4: "host vsga"}
RECOVERY = {
    0: "none",
    1: "reset",
    2: "reboot",
    3: "drain p2p",
    4: "drain and reset",
    5: "recover imex domain",
    6: "bus reset",
    7: "system reboot",
}
FABRIC_STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}
LINK_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
REMOTES = {0: "gpu", 1: "npu", 2: "switch", 255: "unknown"}
PEER_STATES = {
    0: "ok",
    1: "chipset not supported",
    2: "gpu not supported",
    3: "topology not supported",
    4: "disabled by regkey",
    5: "not supported",
    6: "unknown",
}
PATHS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""nvmlGpuTopologyLevel_t as ``nvidia-smi topo -m`` writes it; 0 is two GPUs on one board."""

_REASONS = (
    (0x001, "gpu_idle"),
    (0x002, "applications_clocks_setting"),
    (0x004, "sw_power_cap"),
    (0x008, "hw_slowdown"),
    (0x010, "sync_boost"),
    (0x020, "sw_thermal_slowdown"),
    (0x040, "hw_thermal_slowdown"),
    (0x080, "hw_power_brake_slowdown"),
    (0x100, "display_clocks_setting"),
    (0x200, "board_limit"),
    (0x400, "reliability"),
)
_HEALTH = ((0, "degraded bandwidth"), (2, "route recovery"), (4, "route unhealthy"), (6, "access timeout"))
"""Places in the fabric's health mask where two bits hold 1 for yes, 2 for no, 0 for not supported."""

_LICENSE_STATES = {
    0: "unknown",
    1: "uninitialized",
    2: "unlicensed (unrestricted)",
    3: "unlicensed (restricted)",
    4: "unlicensed",
    5: "licensed",
}


_VALID = 2
"""NVML_GRID_LICENSE_EXPIRY_VALID: the licence has a day on which it ends."""


def words(table: Mapping[int, str]) -> Reading:
    """The table's word for a number; ``unknown (42)`` for one that it lacks."""
    return lambda raw: table.get(int(raw), f"unknown ({int(raw)})")


def part(key: str | int, then: Reading | None = None) -> Reading:
    """The struct's field or the tuple's item of that name, read by `then`."""
    return (lambda raw: then(raw[key])) if then else (lambda raw: whole(raw[key]))


def whole(raw: Any) -> int:
    return int(raw)


def number(raw: Any) -> int:
    """A count, or the length of the list of the things themselves."""
    return len(raw) if isinstance(raw, list) else int(raw)


def yes(raw: Any) -> bool:
    return bool(int(raw))


def text(raw: Any) -> str | None:
    """The text, its control characters escaped; None where it is empty."""
    return printable(raw) or None


def some_mib(raw: Any) -> int:
    """Of what cannot be nothing."""
    if int(raw) <= 0:
        raise ValueError(raw)
    return mib(raw)


def version(raw: Any) -> str | None:
    """550.163.01, 12.550.163.01."""
    if raw and not re.fullmatch(r"\d+(?:\.\d+)+", str(raw)):
        raise ValueError(raw)
    return text(raw)


def mib(raw: Any) -> int:
    return int(raw) >> 20


def watts(raw: Any) -> int:
    return int(raw) // 1000


def address(raw: Any) -> str:
    """``00000000:3B:00.0`` as the kernel writes it: ``0000:3b:00.0``."""
    domain, colon, rest = printable(raw).strip().lower().partition(":")
    return f"{domain[-4:] if domain.startswith('0000') else domain}{colon}{rest}"


def dotted(raw: Any) -> str:
    major, minor = raw
    return f"{int(major)}.{int(minor)}"


def cuda(raw: Any) -> str:
    """12080 is 12.8."""
    if int(raw) < 1000:
        raise ValueError(raw)
    return f"{int(raw) // 1000}.{int(raw) % 1000 // 10}"


def reasons(raw: Any) -> tuple[str, ...]:
    return tuple(name for bit, name in _REASONS if int(raw) & bit)


def bits(raw: Any) -> tuple[int, ...]:
    """The places of the bits that are set in a list of 64-bit words."""
    return tuple(64 * n + bit for n, word in enumerate(raw) for bit in range(64) if int(word) >> bit & 1)


def first(raw: Any) -> int | None:
    return next(iter(bits(raw)), None)


def ranges(raw: Any) -> str | None:
    """``0-55,112-167`` of a mask of CPUs; None for an empty one."""
    spans: list[list[int]] = []
    for place in bits(raw):
        if spans and spans[-1][1] == place - 1:
            spans[-1][1] = place
        else:
            spans.append([place, place])
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in spans) or None


def health(raw: Any) -> tuple[str, ...]:
    """What the fabric's health mask complains of."""
    mask = int(raw)
    found = [name for shift, name in _HEALTH if mask >> shift & 3 == 1]
    return tuple(found + ["incorrect configuration"] * (mask >> 8 & 15 > 1))


def cluster(raw: Any) -> str:
    """The fabric's cluster as nvidia-smi writes it, a UUID."""
    plain = printable(raw)
    return "-".join((plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:]))


def license_state(raw: Any) -> str | None:
    """The state of the licence that a vGPU runs under; None where its product needs none."""
    features = raw["gridLicensableFeatures"][: int(raw["licensableFeaturesCount"])]
    if not int(raw["isGridLicenseSupported"]) or not features:
        return None
    best = max(features, key=lambda feature: (int(feature["featureEnabled"]), int(feature["featureState"])))
    if int(best["featureState"]) == 0:  # drivers before the states were told apart
        return "licensed" if int(best["featureEnabled"]) else "unlicensed"
    state = _LICENSE_STATES.get(int(best["featureState"]), "unknown")
    end = best["licenseExpiry"]
    if state != "licensed" and int(end["status"]) == _VALID:
        moment = tuple(int(end[unit]) for unit in ("year", "month", "day", "hour", "min", "sec"))
        state = "expired" if moment < time.gmtime()[:6] else state
    return state


def profile(name: object, attributes: object) -> str | None:
    """``1g.10gb`` from the MIG device's name, else from its slices and memory."""
    _, mark, rest = str(name).partition(" MIG ")
    if mark:
        return text(rest)
    if not isinstance(attributes, Mapping):
        return None
    slices, cut = int(attributes["gpuInstanceSliceCount"]), int(attributes["computeInstanceSliceCount"])
    own = "" if cut == slices else f"{cut}c."
    return f"{own}{slices}g.{-(-int(attributes['memorySizeMB']) // 1024)}gb"
