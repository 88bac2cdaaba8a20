"""Where and when a copy is measured: on processors near the GPU, and while no other GPU of ours copies."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import Any, Iterator, Set

_PATIENCE = 60.0
"""Seconds to wait for one's turn: eight GPUs of two seconds each, four times over."""


@contextmanager
def alone() -> Iterator[bool]:
    """Wait until no other child of ours is in here; False where that cannot be had (no such locks, or no end)."""
    try:
        import fcntl

        turn = os.open(__file__, os.O_RDONLY)
    except (ImportError, OSError):
        yield False
        return
    try:
        yield _locked(fcntl, turn)
    finally:
        os.close(turn)


def _locked(fcntl: Any, turn: int) -> bool:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        except OSError:  # a file system without locks
            return False
        else:
            return True
    return False


@contextmanager
def near(context: Any) -> Iterator[bool]:
    """On the processors beside the GPU, so that no copy crosses sockets; False where they are not known or not ours."""
    before = _allowed()
    wanted = before & _beside(context)
    if not wanted:
        yield False
        return
    os.sched_setaffinity(0, wanted)
    try:
        yield True
    finally:
        os.sched_setaffinity(0, before)


def _allowed() -> Set[int]:
    return set(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else set()


def _beside(context: Any) -> Set[int]:
    """The processors of the GPU's NUMA node, as Linux lists them."""
    if context.on_cpu:
        return set()
    device = context.torch.cuda.get_device_properties(context.device)
    try:
        address = "%04x:%02x:%02x.0" % (device.pci_domain_id, device.pci_bus_id, device.pci_device_id)
        with open("/sys/bus/pci/devices/%s/local_cpulist" % address) as file:
            return numbers(file.read())
    except (AttributeError, OSError, ValueError):  # an older torch, no sysfs
        return set()


def numbers(text: str) -> Set[int]:
    """``0-3,8`` as 0, 1, 2, 3 and 8; raises `ValueError`."""
    found: Set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
