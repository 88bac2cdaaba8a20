"""Soak: an idle machine worked hard for minutes, round after round, until the time is over or somebody wants it back.

A round is the ladder of `gpudoctor.kernels` with the kernels that heat, test memory and load links, on GPUs that nobody
uses; of all rounds comes one `Measurements`, which is judged as any other.
"""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpudoctor.app.bench import CPU, ExpectedRates, devices_of, meters
from gpudoctor.core.fact import Absent, Fact, Known
from gpudoctor.core.frozen import replace
from gpudoctor.core.measurement import COUNTERS, Device, Meanwhile, Measurements, Run
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.kernels import specs
from gpudoctor.kernels.ladder import Ladder, OnChange
from gpudoctor.probes import collect, nvml
from gpudoctor.target import Target

_ALONE = ("soak.matmul", "soak.memory")
_ON_GPUS = ("driver.memory.all", "matmul.bf16", "matmul.fp16", "copy.device", "copy.to", "copy.from")
"""Patterns by the driver alone, and rates that the tables know, measured while the GPU is hot."""
_LINKS = ("peer.copy", "nccl.all_reduce", "nccl.all_to_all")
_KERNEL_PART = 6
"""A kernel of level soak works for one part of so many of the whole time..."""
_LONGEST_KERNEL_SECONDS = 60.0
"""...and for so many seconds at most, so that a round that is cut off costs little."""
_SOURCE = "gpudoctor soak"


@dataclass(frozen=True, slots=True)
class Soaked:
    """Measurements of all rounds, how many rounds were begun, the seconds that it took, and those that were planned."""

    measurements: Measurements
    rounds: int
    seconds: float
    planned: float

    @property
    def whole(self) -> bool:
        """Whether every device that nobody uses was heated and had its memory tested, in one round at least; a kernel
        that failed counts, too.

        False where there is no such device.
        """
        free = [gpu.index for gpu in self.measurements.devices if not gpu.held]
        wanted = [(name, index) for name in _ALONE for index in free]
        ran = {(run.kernel, run.gpu) for run in self.measurements.runs if run.status in ("ran", "failed")}
        return bool(wanted) and ran.issuperset(wanted)

    def facts(self, ended_by: str) -> dict[str, Fact]:
        """The facts ``soak.*``; `ended_by` is the signal that cut it short, or empty: then soak.ended_by is absent."""
        return {
            "soak.seconds": Known(round(self.seconds, 1), _SOURCE),
            "soak.planned_seconds": Known(round(self.planned, 1), _SOURCE),
            "soak.rounds": Known(self.rounds, _SOURCE),
            "soak.ended_by": Known(ended_by, _SOURCE) if ended_by else Absent("it had its time"),
        }


def run(
    target: Target,
    snapshot: Snapshot,
    seconds: float,
    device: str = "",
    on_results: OnChange = lambda _: None,
    stop: threading.Event | None = None,
) -> Soaked:
    """Work in rounds for `seconds`, on every GPU that nobody uses or on `device` alone; setting `stop` ends it at once.

    `on_results` gets the measurements of the present round so far. A GPU that somebody has begun to use is left alone
    from the next round on. Where neither heat nor memory tests run, without torch for example, there is no second
    round. Raises `UsageError` for an unknown device.
    """
    stop = stop or threading.Event()
    began, rounds = time.monotonic(), 0
    so_far: Measurements | None = None
    with meters(target, snapshot, device) as meter:
        while True:
            rounds += 1
            left = began + seconds - time.monotonic()
            gpus = _devices(snapshot, device)
            work = min(_LONGEST_KERNEL_SECONDS, seconds / _KERNEL_PART)
            ladder = Ladder(target, gpus, _kernels(gpus), on_results, stop, meter, device == CPU, max(left, 0.0), work)
            latest = ladder.climb()
            so_far = latest if so_far is None else _merged(so_far, latest)
            over = stop.is_set() or time.monotonic() - began >= seconds
            if over or not any(run.status == "ran" and run.kernel in _ALONE for run in latest.runs):
                break
            snapshot = _with_present_use(target, snapshot, device)
    found = so_far if device == CPU else ExpectedRates(snapshot).filled(so_far)
    return Soaked(found, rounds, time.monotonic() - began, seconds)


def _devices(snapshot: Snapshot, device: str) -> tuple[Device, ...]:
    """The devices to work on: all, or `device` alone; unlike in ``bench`` a named one may count as in use."""
    if device in ("", CPU):
        return devices_of(snapshot, device)
    named = {gpu.index for gpu in devices_of(snapshot, device)}
    return tuple(gpu for gpu in devices_of(snapshot) if gpu.index in named)


def _kernels(gpus: Sequence[Device]) -> tuple[specs.KernelEntry, ...]:
    """The kernels of a round: links only where two GPUs are free."""
    if [gpu.name for gpu in gpus] == ["CPU"]:
        return specs.select_kernels(_ALONE)
    several = sum(not gpu.held for gpu in gpus) > 1
    return specs.select_kernels([*_ALONE, *_ON_GPUS, *(_LINKS if several else ())])


def _with_present_use(target: Target, snapshot: Snapshot, device: str) -> Snapshot:
    """The snapshot with the processes that use GPUs now, between two rounds, when none of ours does."""
    if device == CPU:
        return snapshot
    now = collect(target, (nvml,)).groups
    used = {name: now[name] for name in ("gpu_process",) if name in now}
    return replace(snapshot, groups={**snapshot.groups, **used})


def _merged(before: Measurements, latest: Measurements) -> Measurements:
    """Both measurements as one: of each kernel on each GPU the worse run, the later if they are as good.

    What was compared and counted in both rounds is added up.
    """
    runs = {(run.kernel, run.gpu): run for run in before.runs}
    for run in latest.runs:
        earlier = runs.get((run.kernel, run.gpu))
        runs[run.kernel, run.gpu] = _merged_run(earlier, run) if earlier else run
    return replace(latest, kernels=before.kernels, devices=before.devices, runs=tuple(runs.values()))


def _merged_run(before: Run, latest: Run) -> Run:
    """The worse of both runs, the latest if they are as bad; what was compared and counted in both is added up.

    If neither has the status ``ran``, nothing is added up, and of two that are as bad it is the earlier, whose reason
    explains more.
    """
    run = max(latest, before, key=_badness)
    if "ran" not in (before.status, latest.status):
        return (
            before if run is latest and _badness(before) == _badness(latest) else run
        )  # its reason is the telling one
    ended = [one for one in (before, latest) if one.status == "ran"]
    rounds = sum(_rounds(one) for one in ended)
    return replace(
        run,
        differ=_sum(one.differ for one in ended),
        compared=_sum(one.compared for one in ended),
        meanwhile=_merged_meanwhile(before.meanwhile, latest.meanwhile),
        details={**run.details, "rounds": rounds},
    )


def _badness(run: Run) -> int:
    """Rank of what a run proves against its GPU: 4 failed, 3 ran with wrong values, 2 unfinished, 1 ran without any, 0
    did not run.
    """
    if run.status == "failed":
        return 4
    if run.status == "ran":
        return 3 if run.right is False else 1
    return 2 if run.details.get("unfinished") else 0


def _rounds(run: Run) -> int:
    """The number of rounds whose results the run holds, 1 if it does not say."""
    rounds = run.details.get("rounds")
    return rounds if isinstance(rounds, int) else 1


def _sum(counts: Iterable[int | None]) -> int | None:
    """The sum of the counts that are known; None if none is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _merged_meanwhile(before: Meanwhile | None, latest: Meanwhile | None) -> Meanwhile | None:
    """NVML's readings of the latest run, with the greatest heat and power of both, and the errors and seconds of both
    added up.

    Of one that is None, the other.
    """
    if before is None or latest is None:
        return latest or before
    gains = {name: _of_both(operator.add, getattr(before, name), getattr(latest, name)) for name in COUNTERS}
    return replace(
        latest,
        power_w=_of_both(max, before.power_w, latest.power_w),
        temperature_c=_of_both(max, before.temperature_c, latest.temperature_c),
        seconds=_of_both(operator.add, before.seconds, latest.seconds),
        **gains,  # type: ignore[arg-type] # each of them is a number
    )


def _of_both(choose: Callable[[float, float], float], first: float | None, second: float | None) -> float | None:
    """`choose` of both values; the one that is known where the other is not; None if neither is."""
    if first is None or second is None:
        return second if first is None else first
    return choose(first, second)
