"""PCIe links as sysfs tells them: lanes and speed of a device, and of the switches between it and the processor."""

from __future__ import annotations

import re

from gpudoctor.model.fact import Absent, Fact, Known, Row, Unread
from gpudoctor.probes._bus.config import asleep
from gpudoctor.probes._bus.tree import place
from gpudoctor.probes._reading import number, real, text
from gpudoctor.target import Target

_BUS = "/sys/bus/pci/devices"
_UPLINK = ("uplink", "uplink_width", "uplink_width_max", "uplink_speed", "uplink_speed_max")


def speed(target: Target, path: str) -> Fact:
    """``16.0 GT/s PCIe`` or, of older kernels, ``8 GT/s``."""
    found = text(target, path, 64)
    if not isinstance(found, str):
        return Unread(found.why)
    match = re.match(r"(\d+(?:\.\d+)?) GT/s", found)
    return Known(float(match[1]), path) if match else Unread(f"{path} says {found[:20]!r}")


def width(target: Target, path: str) -> Fact:
    """Lanes; 0, 63 and 255 are what devices without a link, or without life, answer."""
    found = number(target, path)
    if isinstance(found, Known) and found.value in (0, 63, 255):
        return Unread(f"{path} says {found.value}, which is no width")
    return Unread(found.why) if isinstance(found, Absent) else found


def port(target: Target, folder: str) -> str:
    """The folder of the bridge above, empty where the device hangs on the root itself."""
    above = real(target, folder).rpartition("/")[0]
    return above if re.search(r"/[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$", above) else ""


def uplink(target: Target, folder: str) -> Row:
    """The worst link above the device's own: root port to switch, or switch to switch.

    From the root down the bridges are a root port, then of each switch its upstream and a downstream port: every
    second pair of neighbours is a link, the others are inside a switch. The lower end tells what the link has.
    """
    here = place(target, folder)
    if here is None or len(here.above) < 3 or len(here.above) % 2 == 0:
        return dict.fromkeys(_UPLINK, Absent(f"no PCIe switch above {folder}"))
    links = [_link(target, *ends) for ends in zip(here.above[:-1:2], here.above[1::2], strict=True)]
    unread = next((link for link in links if isinstance(link, Unread)), None)
    if unread:
        return dict.fromkeys(_UPLINK, unread)
    return min((link for link in links if not isinstance(link, Unread)), key=_share)


def _link(target: Target, upper: str, lower: str) -> Row | Unread:
    """The columns of one link; its most is what both ends can."""
    if sleeping := asleep(target, f"{_BUS}/{lower}") or asleep(target, f"{_BUS}/{upper}"):
        return sleeping
    widths = [width(target, f"{_BUS}/{end}/max_link_width") for end in (upper, lower)]
    speeds = [speed(target, f"{_BUS}/{end}/max_link_speed") for end in (upper, lower)]
    now = width(target, f"{_BUS}/{lower}/current_link_width"), speed(target, f"{_BUS}/{lower}/current_link_speed")
    for state in (*now, *widths, *speeds):
        if not isinstance(state, Known):
            return Unread(state.why)
    states = (Known(lower, _BUS), now[0], min(widths, key=_number), now[1], min(speeds, key=_number))
    return dict(zip(_UPLINK, states, strict=True))


def _share(link: Row) -> float:
    """How much of what it could carry a link carries."""
    lanes, most_lanes, rate, highest = (_number(link[name]) for name in _UPLINK[1:])
    return lanes * rate / (most_lanes * highest or 1.0)


def _number(state: object) -> float:
    return float(state.value) if isinstance(state, Known) and isinstance(state.value, (int, float)) else 0.0
