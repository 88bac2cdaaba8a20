"""Small programs run on every GPU by the driver alone, their results checked: level standard.

As a training job does, each takes its turn beside whoever else is on the GPU: 64 MiB of memory that is free and some
milliseconds. A GPU that takes one process only is left to the jobs that must be alone on it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.core.fact import Absent, Fact, Rows, Unread
from gpudoctor.core.measurement import Device
from gpudoctor.kernels import facts
from gpudoctor.target import Target
from gpudoctor.target.protocol import WAKE_SECONDS, answers, gpus_on_bus, patience, printable, seconds_to_wake

WAITS = True
LEVEL = "standard"
MOOT = {"cuda_driver.state": "hung"}
"""Where it is so, nothing that loads libcuda comes to an end."""

LISTING = patience("GPUDOCTOR_CUDA_TIMEOUT", WAKE_SECONDS)
"""Seconds for each GPU on the bus until all are known: the driver's start."""
SECONDS = patience("GPUDOCTOR_KERNEL_TIMEOUT", 14.0)
"""Seconds for all kernels, and `WAKE_SECONDS` for each GPU on the bus; sound ones that are awake need one."""

FACTS = tuple(spec for spec in facts.FACTS if spec.name.startswith(("measured.", "rung.")))
"""What kernels say themselves; what follows from it is reckoned with the tables."""

_FAMILY = "driver"


def deadline(target: Target) -> float:
    """Time limit in seconds of the probe that runs small kernels: to start the driver, for all kernels, and 8 more."""
    return seconds_to_wake(target, LISTING) + _kernel_seconds(target) + 8.0


def _kernel_seconds(target: Target) -> float:
    """Seconds that all kernels together may take, with this machine's number of GPUs."""
    return SECONDS + WAKE_SECONDS * gpus_on_bus(target)


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the groups ``measured`` and ``rung``: what each kernel measured on each GPU, and whether it was right."""
    from gpudoctor.kernels import ladder, specs  # with ctypes, and not for level quick

    devices = _devices(target, specs.program())
    if not isinstance(devices, tuple):
        yield from (("measured", devices), ("rung", devices))
        return
    kernels = [one for one in specs.select_kernels([_FAMILY]) if one.spec.level == LEVEL]
    runs, rungs = facts.rows(ladder.Ladder(target, devices, kernels, budget=_kernel_seconds(target)).climb())
    yield from (("measured", runs), ("rung", rungs))


def _devices(target: Target, program: str) -> tuple[Device, ...] | Absent | Unread:
    """The GPUs as CUDA numbers them in this session, by a child that creates no context.

    Absent if CUDA lists none, unread if the child fails or reports an error.
    """
    wanted = {"family": _FAMILY, "device": "node", "kernels": []}
    try:
        answer = target.run(
            [sys.executable, "-E", "-s", program, json.dumps(wanted)], timeout=seconds_to_wake(target, LISTING)
        )
    except OSError as error:
        return Unread(error.strerror or str(error))
    entries: dict[str, Any] = {}
    for entry in answers(answer.out):
        entries.update(entry)
    if "closed" in entries:
        return Unread(printable(entries["closed"], 600))
    listing = entries.get("opened")
    if not isinstance(listing, dict) or not isinstance(listing.get("devices"), list):
        return Unread(f"the child that lists the GPUs did not finish: {printable(answer.how)}", reason=answer.reason)
    found = tuple(_device(item) for item in listing["devices"] if isinstance(item, dict))
    return found or Absent(printable(listing.get("because", "CUDA lists no device"), 600))


def _device(item: Mapping[str, Any]) -> Device:
    """One GPU of the child's list as a `Device`; in compute mode Exclusive_Process with the reason to leave it."""
    name = printable(item.get("name", "")).removeprefix("NVIDIA ")
    reserved_for = "jobs that must be alone on it (compute mode Exclusive_Process)"
    return Device(int(item.get("index", 0)), name, reserved_for if item.get("exclusive") else "")
