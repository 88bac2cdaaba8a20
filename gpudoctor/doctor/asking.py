"""The facts of this machine, or of a stand-in for it: the probes of its level and, at level deep, the kernels."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gpudoctor.collect import Collection, collect
from gpudoctor.model.snapshot import Progress, Snapshot
from gpudoctor.target import Target

_SLOWEST = ("nvml", "libcuda", "torch_live", "driver_kernels")
"""Probes that wait for a child: started first, their children work while the rest is imported and asked."""


def ask(
    target: Target | None, level: str, python: str | None, progress: Progress, wait: float | None = None
) -> Collection:
    """The probes of that level on their way; raises `DoctorError` for an interpreter that is none.

    `wait` is the most seconds that GPUs may take to wake.
    """
    from gpudoctor import probes
    from gpudoctor.discovery import modules_of
    from gpudoctor.target.local import Local

    patient = target or Local(level, python, wait=wait)
    asked = Collection(patient, modules_of(probes, first=_SLOWEST), progress)
    if isinstance(patient, Local):
        patient.verify()
    return asked


def deepened(
    asked: Collection,
    progress: Progress = lambda _: None,
    tell: Callable[[Snapshot], None] = lambda _: None,
    stop: threading.Event | None = None,
) -> Snapshot:
    """What the probes said and, at level deep, what every kernel measured after them; `tell` hears when one is over."""
    snapshot = asked.snapshot()
    if asked.target.level != "deep":
        return snapshot
    from gpudoctor import bench

    return bench.deepened(asked.target, snapshot, progress, tell, stop)


def look(
    level: str = "standard",
    python: str | None = None,
    progress: Progress = lambda _: None,
    target: Target | None = None,
    wait: float | None = None,
) -> Snapshot:
    """The facts of this machine, not judged yet; raises `DoctorError` for an interpreter that is none."""
    return deepened(ask(target, level, python, progress, wait), progress)


def looked_at(patient: Target) -> Snapshot:
    """What level quick asks, and CUDA's devices, which it lists from level standard on."""
    from gpudoctor import probes
    from gpudoctor.discovery import modules_of
    from gpudoctor.target.local import Local

    if isinstance(patient, Local):
        patient.verify()
    return collect(patient, (module for module in modules_of(probes) if not hasattr(module, "LEVEL")))
