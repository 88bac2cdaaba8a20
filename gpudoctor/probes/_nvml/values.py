"""What NVML's numbers, structs and bit masks mean, as the values of facts.

Each function takes one answer as the child told it and returns the fact's value; None where NVML says that there is
none. An answer of another shape raises one of `MALFORMED_ERRORS`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from gpudoctor.core.fact import Value
from gpudoctor.target.protocol import printable

Reading: TypeAlias = Callable[[Any], Value]
MALFORMED_ERRORS = (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError)

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
DRIVER_MODELS = {0: "WDDM", 1: "TCC", 2: "MCDM"}
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


def named(table: Mapping[int, str]) -> Reading:
    """A parser that looks an integer up in `table`; ``unknown (42)`` for a number that it lacks."""
    return lambda raw: table.get(int(raw), f"unknown ({int(raw)})")


def item(key: str | int, parse: Reading | None = None) -> Reading:
    """A parser of one struct field or tuple item, given by `key`; the item goes to `parse`, by default `as_int`."""
    return (lambda raw: parse(raw[key])) if parse else (lambda raw: as_int(raw[key]))


def as_int(raw: Any) -> int:
    """The answer as an integer; raises `TypeError` or `ValueError` if it is none."""
    return int(raw)


def count_or_length(raw: Any) -> int:
    """The answer if it is an integer, or its length if it is a list."""
    return len(raw) if isinstance(raw, list) else int(raw)


def as_bool(raw: Any) -> bool:
    """True for any number but zero."""
    return bool(int(raw))


def printable_text(raw: Any) -> str | None:
    """The text with its control characters escaped; None if it is empty."""
    return printable(raw) or None


def nonzero_mib(raw: Any) -> int:
    """Bytes as whole MiB, rounded down; zero or less raises `ValueError`."""
    if int(raw) <= 0:
        raise ValueError(raw)
    return mib(raw)


def version(raw: Any) -> str | None:
    """A dotted version such as 550.163.01; None if empty, `ValueError` for anything else."""
    if raw and not re.fullmatch(r"\d+(?:\.\d+)+", str(raw)):
        raise ValueError(raw)
    return printable_text(raw)


def mib(raw: Any) -> int:
    """Bytes as whole MiB, rounded down."""
    return int(raw) >> 20


def watts(raw: Any) -> int:
    """Milliwatts as whole watts, rounded down."""
    return int(raw) // 1000


def pci_address(raw: Any) -> str:
    """A PCI address as the kernel writes it: ``00000000:3B:00.0`` is ``0000:3b:00.0``."""
    domain, colon, rest = printable(raw).strip().lower().partition(":")
    return f"{domain[-4:] if domain.startswith('0000') else domain}{colon}{rest}"


def dotted_pair(raw: Any) -> str:
    """The pair (major, minor) as ``major.minor``."""
    major, minor = raw
    return f"{int(major)}.{int(minor)}"


def cuda_version(raw: Any) -> str:
    """A CUDA version number as text: 12080 is 12.8; below 1000 raises `ValueError`."""
    if int(raw) < 1000:
        raise ValueError(raw)
    return f"{int(raw) // 1000}.{int(raw) % 1000 // 10}"


def throttle_reasons(raw: Any) -> tuple[str, ...]:
    """Names of the clock-event reasons whose bits are set in the mask; unknown bits are ignored."""
    return tuple(name for bit, name in _REASONS if int(raw) & bit)


def set_bits(raw: Any) -> tuple[int, ...]:
    """Positions of the set bits in a list of 64-bit words."""
    return tuple(64 * n + bit for n, word in enumerate(raw) for bit in range(64) if int(word) >> bit & 1)


def lowest_set_bit(raw: Any) -> int | None:
    """Position of the lowest set bit in a list of 64-bit words; None if no bit is set."""
    return next(iter(set_bits(raw)), None)


def cpu_ranges(raw: Any) -> str | None:
    """A CPU mask (a list of 64-bit words) as ranges such as ``0-55,112-167``; None if it is empty."""
    spans: list[list[int]] = []
    for place in set_bits(raw):
        if spans and spans[-1][1] == place - 1:
            spans[-1][1] = place
        else:
            spans.append([place, place])
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in spans) or None


def fabric_problems(raw: Any) -> tuple[str, ...]:
    """Names of the problems that the NVLink fabric's health mask reports; empty if it is healthy."""
    mask = int(raw)
    problems = [name for shift, name in _HEALTH if mask >> shift & 3 == 1]
    return tuple(problems + ["incorrect configuration"] * (mask >> 8 & 15 > 1))


def dashed_uuid(raw: Any) -> str:
    """32 hexadecimal digits with the dashes of a UUID, 8-4-4-4-12; how many there are is not checked."""
    plain = printable(raw)
    return "-".join((plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:]))


def license_state(raw: Any) -> str | None:
    """A vGPU's licence: licensed, expired, unlicensed (also restricted or unrestricted), uninitialized or unknown.

    None if its product needs none. Of several features, the one that is enabled.
    """
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
    """A MIG profile such as ``1g.10gb``, from the device name, else from its slices and memory; None without either.

    A compute instance of part of the slices is ``1c.3g.40gb``.
    """
    _, mark, rest = str(name).partition(" MIG ")
    if mark:
        return printable_text(rest)
    if not isinstance(attributes, Mapping):
        return None
    slices, cut = int(attributes["gpuInstanceSliceCount"]), int(attributes["computeInstanceSliceCount"])
    compute_prefix = "" if cut == slices else f"{cut}c."
    return f"{compute_prefix}{slices}g.{-(-int(attributes['memorySizeMB']) // 1024)}gb"
