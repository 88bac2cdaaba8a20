"""The kernels on this machine: which of them run, what they should give, and the facts that come of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median

from gpudoctor.bench import devices
from gpudoctor.bench.devices import CPU, rows, value
from gpudoctor.kernels import facts, specs
from gpudoctor.kernels.ladder import Ladder, Meter, Tell
from gpudoctor.knowledge import rates
from gpudoctor.model.fact import Absent
from gpudoctor.model.measurement import Meanwhile, Measurements, Run
from gpudoctor.model.measurement_json import meanwhile
from gpudoctor.model.sample import GPU, Sample
from gpudoctor.model.snapshot import Event, Progress, Snapshot
from gpudoctor.target import Target
from gpudoctor.target.local import Local
from gpudoctor.target.recorded import Recorded


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


# ---- What NVML says of the GPUs while kernels run there ----


@contextmanager
def meters(target: Target, snapshot: Snapshot, device: str) -> Iterator[Meter | None]:
    """NVML, asked four times a second while kernels run; None where it has no GPU to tell of."""
    if isinstance(target, Recorded):
        yield lambda kernel, gpu: lambda: meanwhile(target.meanwhile(kernel, gpu))
        return
    if device == CPU or not rows(snapshot, "gpu") or not isinstance(target, Local):
        yield None
        return
    from gpudoctor import live

    samples = _Samples(snapshot)
    end = live.watch(samples.hear, target, interval=0.25)
    try:
        yield samples.begin
    finally:
        end()


class _Samples:
    """Samples of the kernels that run now, by the number of their device."""

    def __init__(self, snapshot: Snapshot) -> None:
        numbers = {value(row, "uuid"): value(row, "index") for row in rows(snapshot, "gpu")}
        self._nvml = {
            int(value(row, "index") or at): int(numbers.get(value(row, "uuid")) or -1)
            for at, row in enumerate(rows(snapshot, "cuda_device"))
        }
        self._lock = threading.Lock()
        self._last: dict[int, GPU] = {}
        self._seen: dict[int, list[GPU]] = {}

    def hear(self, sample: Sample) -> None:
        """A round of NVML."""
        with self._lock:
            for gpu in sample.gpus:
                self._last[gpu.index] = gpu
                if gpu.index in self._seen:
                    self._seen[gpu.index].append(gpu)

    def begin(self, _: str, device: int) -> Callable[[], Meanwhile | None]:
        """Watch it until what is returned is called."""
        index = self._nvml.get(device, -1)
        with self._lock:
            self._seen[index] = []
            before = self._last.get(index)

        def end() -> Meanwhile | None:
            with self._lock:
                return _summed(self._seen.pop(index, []), before)

        return end


def _summed(seen: Sequence[GPU], before: GPU | None = None) -> Meanwhile | None:
    """Of those samples in which the GPU worked: median clock, most power and heat, every reason, widest link.

    Of all samples: the errors of its memory, from the one `before` on.
    """
    busy = [gpu for gpu in seen if (gpu.utilization or 0) >= 50] or list(seen)
    if not busy:
        return None

    def of(name: str, pick: Callable[[list[float]], float]) -> float | None:
        values = [value for gpu in busy if (value := getattr(gpu, name)) is not None]
        return pick(values) if values else None

    def anew(name: str) -> float | None:
        counts = [count for gpu in (before, *seen) if gpu and (count := getattr(gpu, name)) is not None]
        return max(0.0, counts[-1] - counts[0]) if counts else None

    reasons = dict.fromkeys(reason for gpu in busy for reason in gpu.throttle_reasons or () if reason != "gpu_idle")
    return Meanwhile(
        of("clock_mhz", median),
        of("clock_max_mhz", max),
        of("power_w", max),
        of("power_limit_w", min),
        of("temperature_c", max),
        tuple(reasons),
        of("link_generation", max),
        of("link_width", max),
        of("utilization", max),
        anew("ecc_corrected"),
        anew("ecc_uncorrected"),
    )
