"""The kernels on this machine: which of them run, what they should give, and the facts that come of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpudoctor.bench import devices
from gpudoctor.bench.meters import meters
from gpudoctor.kernels import facts, specs
from gpudoctor.kernels.ladder import Ladder, Tell
from gpudoctor.knowledge import rates
from gpudoctor.model.fact import Absent
from gpudoctor.model.measurement import Measurements, Run
from gpudoctor.model.snapshot import Event, Progress, Snapshot
from gpudoctor.target import Target


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: kernels by their names (all where there is none), on every GPU that nobody uses or on `device`
    (``cuda:0``, ``cpu``) alone, for at most `budget` seconds.
    """

    names: Sequence[str] = ()
    device: str = ""
    budget: float = float("inf")

    def __post_init__(self) -> None:
        """Raise `UsageError` for a kernel that is none."""
        specs.chosen(self.names)


def run(
    target: Target,
    snapshot: Snapshot,
    plan: Plan,
    tell: Tell = lambda _: None,
    stop: threading.Event | None = None,
) -> Measurements:
    """Run what was planned; `tell` hears of it from the beginning on. Raises `UsageError` for a device that is none."""
    kernels = specs.chosen(plan.names)
    found = devices.of(snapshot, plan.device)
    cpu = plan.device == devices.CPU
    expected = None if cpu else _Expecting(snapshot)

    def hear(so_far: Measurements) -> None:
        tell(expected.filled(so_far) if expected else so_far)

    with meters(target, snapshot, plan.device) as meter:
        ladder = Ladder(target, found, kernels, hear, stop, meter, cpu=cpu, budget=plan.budget)
        hear(ladder.so_far())
        whole = ladder.climb()
    return expected.filled(whole) if expected else whole


def expecting(snapshot: Snapshot, found: Measurements) -> Measurements:
    """The runs on those GPUs with what a sound GPU does, by the tables and the GPU's own limits."""
    return _Expecting(snapshot).filled(found)


class _Expecting:
    """What each run that is over should have given, by the tables and its GPU's own limits; worked out once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._devices = rates.devices(snapshot)
        self._known: dict[tuple[str, int], Run] = {}

    def filled(self, found: Measurements) -> Measurements:
        """The same with what was to be expected."""
        return replace(found, runs=tuple(map(self._with, found.runs)))

    def _with(self, run: Run) -> Run:
        device = self._devices.get(run.gpu)
        if run.status != "ran" or run.expected or device is None or run.details.get("alone") is False:
            return run
        key = run.kernel, run.gpu
        if key not in self._known:
            told = rates.expected(run.kernel, device, run.meanwhile, rates.side(run.details))
            self._known[key] = replace(run, expected=told)
        return self._known[key]


DEEP = 110.0
"""Seconds for kernels in a diagnosis of level deep, on however many GPUs: they work side by side."""


def deepened(
    target: Target,
    snapshot: Snapshot,
    progress: Progress,
    tell: Callable[[Snapshot], None],
    stop: threading.Event | None = None,
) -> Snapshot:
    """The snapshot with what every kernel measured, on GPUs that nobody uses; `tell` hears when one is over."""
    before: dict[tuple[str, int], str] = {}

    def hear(found: Measurements) -> None:
        over = False
        for run in found.runs:
            if before.get((run.kernel, run.gpu), "waiting") != run.status:
                before[run.kernel, run.gpu] = run.status
                over = over or run.status != "running"
                progress(Event(_named(found, run), "started" if run.status == "running" else "done"))
        if over:
            tell(measured(snapshot, found))

    return measured(snapshot, run(target, snapshot, Plan(budget=DEEP), hear, stop))


def _named(found: Measurements, run: Run) -> str:
    """``matmul.bf16``, and on which GPU where there are several."""
    return f"{run.kernel} on GPU {run.gpu}" if len(found.devices) > 1 and run.gpu >= 0 else run.kernel


def measured(snapshot: Snapshot, found: Measurements) -> Snapshot:
    """The snapshot with what was measured as facts."""
    if not found.devices:
        why = snapshot.rows("cuda_device")
        none = Absent("CUDA lists no GPU") if isinstance(why, tuple) else why
        return replace(snapshot, groups={**snapshot.groups, "measured": none, "rung": none})
    runs, rungs = facts.rows(found)
    return replace(snapshot, groups={**snapshot.groups, "measured": runs, "rung": rungs})
