"""Small programs run on every GPU by the driver alone, their results checked: level standard.

As a training job does, each takes its turn beside whoever else is on the GPU: 64 MiB of memory that is free and some
milliseconds. A GPU that takes one process only is left to the jobs that must be alone on it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpudoctor.kernels import facts
from gpudoctor.model.fact import Absent, Fact, Rows, Unread
from gpudoctor.target import Target
from gpudoctor.target.protocol import answers, patience, printable
from gpudoctor.target.waiting import WAKING, gpus_on_bus, seconds_to_wake

if TYPE_CHECKING:
    from gpudoctor.model.measurement import Device

WAITS = True
LEVEL = "standard"
MOOT = {"cuda_driver.state": "hung"}
"""Where it is so, nothing that loads libcuda comes to an end."""

LISTING = patience("GPUDOCTOR_CUDA_TIMEOUT", WAKING)
"""Seconds for each GPU on the bus until all are known: the driver's start."""
SECONDS = patience("GPUDOCTOR_KERNEL_TIMEOUT", 14.0)
"""Seconds for all kernels, and `WAKING` for each GPU on the bus; sound ones that are awake need one."""

FACTS = tuple(spec for spec in facts.FACTS if spec.name.startswith(("measured.", "rung.")))
"""What kernels say themselves; what follows from it is reckoned with the tables."""

_FAMILY = "driver"


def deadline(target: Target) -> float:
    """Seconds for all of it on this machine."""
    return seconds_to_wake(target, LISTING) + _running(target) + 8.0


def _running(target: Target) -> float:
    return SECONDS + WAKING * gpus_on_bus(target)


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """What was measured on each GPU, and whether the rung holds there."""
    devices = _devices(target)
    if not isinstance(devices, tuple):
        yield from (("measured", devices), ("rung", devices))
        return
    from gpudoctor.kernels import specs
    from gpudoctor.kernels.ladder import Ladder

    kernels = [one for one in specs.chosen([_FAMILY]) if one.spec.level == LEVEL]
    runs, rungs = facts.rows(Ladder(target, devices, kernels, budget=_running(target)).climb())
    yield from (("measured", runs), ("rung", rungs))


def _devices(target: Target) -> tuple[Device, ...] | Absent | Unread:
    """The GPUs as CUDA numbers them in this session, by a child that makes no context."""
    from gpudoctor.kernels.place import program

    wanted = {"family": _FAMILY, "device": "node", "kernels": []}
    try:
        answer = target.run(
            [sys.executable, "-E", "-s", program(), json.dumps(wanted)], timeout=seconds_to_wake(target, LISTING)
        )
    except OSError as error:
        return Unread(error.strerror or str(error))
    said: dict[str, Any] = {}
    for entry in answers(answer.out):
        said.update(entry)
    if "closed" in said:
        return Unread(printable(said["closed"], 600))
    told = said.get("opened")
    if not isinstance(told, dict) or not isinstance(told.get("devices"), list):
        return Unread(f"the child that lists the GPUs did not finish: {printable(answer.how)}")
    found = tuple(_device(item) for item in told["devices"] if isinstance(item, dict))
    return found or Absent(printable(told.get("because", "CUDA lists no device"), 600))


def _device(item: Mapping[str, Any]) -> Device:
    from gpudoctor.model.measurement import Device

    name = printable(item.get("name", "")).removeprefix("NVIDIA ")
    held = "jobs that must be alone on it (compute mode Exclusive_Process)"
    return Device(int(item.get("index", 0)), name, held if item.get("exclusive") else "")
