"""How many NVIDIA GPUs are on the PCI bus, which says how long it may take to wake them."""

from __future__ import annotations

from gpudoctor.model.fact import Known
from gpudoctor.probes._reading import line
from gpudoctor.target import Target

WAKING = 5.0
"""Seconds to give each GPU that may have to wake: 1-3 s are usual, 0.5 s to 3.2 s were seen."""

_DEVICES = "/sys/bus/pci/devices"


def gpus(target: Target) -> int:
    """NVIDIA's display and 3D controllers; 0 where the bus is not to be seen. The kernel knows both: none is woken."""
    try:
        names = target.listing(_DEVICES)
    except OSError:
        return 0
    return sum(
        _is(target, f"{_DEVICES}/{name}/vendor", "0x10de") and _is(target, f"{_DEVICES}/{name}/class", "0x03")
        for name in names
    )


def _is(target: Target, path: str, start: str) -> bool:
    found = line(target, path)
    return isinstance(found, Known) and str(found.value).startswith(start)
