"""The kernels on this machine: which of them run, what they should give, and the facts that come of it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median

from gpudoctor.app import live_gpus
from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import listed, text_of
from gpudoctor.core.language import say
from gpudoctor.core.measurement import COUNTERS, Device, Meanwhile, Measurements, Run, gain, meanwhile_from_json
from gpudoctor.core.sample import GPU, Sample
from gpudoctor.core.snapshot import Event, Progress, Snapshot
from gpudoctor.diagnosis.knowledge import rates
from gpudoctor.kernels import facts, specs
from gpudoctor.kernels.ladder import Ladder, Meter, OnChange
from gpudoctor.target import Target
from gpudoctor.target.local import Local
from gpudoctor.target.recorded import Recorded


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: the kernels of these names (none: all), on every idle GPU or only on `device` (``cuda:0``, ``cpu``),
    for at most `budget` seconds.
    """

    names: Sequence[str] = ()
    device: str = ""
    budget: float = float("inf")

    def __post_init__(self) -> None:
        """Raise `UsageError` for an unknown kernel name."""
        specs.select_kernels(self.names)


def run(
    target: Target,
    snapshot: Snapshot,
    plan: Plan,
    on_results: OnChange = lambda _: None,
    stop: threading.Event | None = None,
) -> Measurements:
    """Run the planned kernels and return their measurements, with the expected rates (none on the CPU).

    `on_results` gets the measurements so far, `stop` ends the run early. Raises `UsageError` for an unknown device.
    """
    kernels = specs.select_kernels(plan.names)
    gpus = devices_of(snapshot, plan.device)
    cpu = plan.device == CPU
    expected = None if cpu else ExpectedRates(snapshot)

    def report(measurements: Measurements) -> None:
        """Pass the measurements so far on, with expected rates."""
        on_results(expected.filled(measurements) if expected else measurements)

    with meters(target, snapshot, plan.device) as meter:
        ladder = Ladder(target, gpus, kernels, report, stop, meter, cpu=cpu, budget=plan.budget)
        report(ladder.so_far())
        whole = ladder.climb()
    return expected.filled(whole) if expected else whole


class ExpectedRates:
    """Adds to each finished run the rate expected by the tables and its GPU's own limits; each is computed once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._devices = rates.devices_by_index(snapshot)
        self._run_by_kernel_and_gpu: dict[tuple[str, int], Run] = {}

    def filled(self, measurements: Measurements) -> Measurements:
        """The measurements with the rate to expect, by tables and the GPU's limits, in each run that has finished."""
        return replace(measurements, runs=tuple(map(self._with_expected_rate, measurements.runs)))

    def _with_expected_rate(self, run: Run) -> Run:
        """The run with its expected rate; unchanged if it has one, did not finish, had no turn alone (``alone`` is
        false in its details), or its GPU is unknown.
        """
        device = self._devices.get(run.gpu)
        if run.status != "ran" or run.expected or device is None or run.details.get("alone") is False:
            return run
        key = run.kernel, run.gpu
        if key not in self._run_by_kernel_and_gpu:
            rate = rates.expected(run.kernel, device, run.meanwhile, rates.product_side(run.details))
            self._run_by_kernel_and_gpu[key] = replace(run, expected=rate)
        return self._run_by_kernel_and_gpu[key]


DEEP_SECONDS = 110.0
"""Seconds for kernels in a diagnosis of level deep, on however many GPUs: they work side by side."""


def deepened(
    target: Target,
    snapshot: Snapshot,
    progress: Progress,
    on_snapshot: Callable[[Snapshot], None],
    stop: threading.Event | None = None,
) -> Snapshot:
    """The snapshot with what every kernel measured, run on the idle GPUs within `DEEP_SECONDS` seconds.

    `on_snapshot` gets the snapshot so far whenever a run ends, `progress` the start and end of each; `stop` ends it
    early.
    """
    status_before: dict[tuple[str, int], str] = {}

    def follow(measurements: Measurements) -> None:
        """Report each run whose status changed to `progress`; if one ended, give the snapshot to `on_snapshot`."""
        any_ended = False
        for run in measurements.runs:
            if status_before.get((run.kernel, run.gpu), "waiting") != run.status:
                status_before[run.kernel, run.gpu] = run.status
                any_ended = any_ended or run.status != "running"
                where = f" on GPU {run.gpu}" if len(measurements.devices) > 1 and run.gpu >= 0 else ""
                progress(Event(f"{run.kernel}{where}", "started" if run.status == "running" else "done"))
        if any_ended:
            on_snapshot(facts.measured(snapshot, measurements))

    return facts.measured(snapshot, run(target, snapshot, Plan(budget=DEEP_SECONDS), follow, stop))


# ---- What NVML says of the GPUs while kernels run there ----


@contextmanager
def meters(target: Target, snapshot: Snapshot, device: str) -> Iterator[Meter | None]:
    """Context with a `Meter`, which samples NVML four times a second during a run; None on the CPU, where NVML has no
    GPU, and for a target that is not this machine.

    For a recorded target it gives the recorded values.
    """
    if isinstance(target, Recorded):
        yield lambda kernel, gpu: lambda: meanwhile_from_json(target.meanwhile(kernel, gpu))
        return
    if device == CPU or not listed(snapshot.rows("gpu")) or not isinstance(target, Local):
        yield None
        return
    samples = _Samples(snapshot)
    end = live_gpus.watch(samples.add, target, interval=0.25)
    try:
        yield samples.begin
    finally:
        end()


class _Samples:
    """NVML samples taken while kernels run, by CUDA device number."""

    def __init__(self, snapshot: Snapshot) -> None:
        numbers = {text_of(row.get("uuid")): text_of(row.get("index")) for row in listed(snapshot.rows("gpu"))}
        self._nvml_index = {
            int(text_of(row.get("index")) or at): int(numbers.get(text_of(row.get("uuid"))) or -1)
            for at, row in enumerate(listed(snapshot.rows("cuda_device")))
        }
        self._lock = threading.Lock()
        self._last: dict[int, _Moment] = {}
        self._samples_by_gpu: dict[int, list[_Moment]] = {}

    def add(self, sample: Sample) -> None:
        """Keep each GPU's latest NVML sample, and all those of the GPUs for which `begin` was called."""
        with self._lock:
            for gpu in sample.gpus:
                self._last[gpu.index] = moment = (sample.seconds or 0.0, gpu)
                if gpu.index in self._samples_by_gpu:
                    self._samples_by_gpu[gpu.index].append(moment)

    def begin(self, _: str, device: int) -> Callable[[], Meanwhile | None]:
        """Start collecting NVML's samples of a CUDA device.

        The returned function ends it and gives their summary, None if there were none.
        """
        index = self._nvml_index.get(device, -1)
        with self._lock:
            self._samples_by_gpu[index] = []
            before = self._last.get(index)

        def end() -> Meanwhile | None:
            """Stop collecting; the summary of the samples, None if there were none."""
            with self._lock:
                return _summary(self._samples_by_gpu.pop(index, []), before)

        return end


_Moment = tuple[float, GPU]
"""A sample of one GPU, and its time in seconds of the Unix clock."""
_THROTTLED_SHARE = 0.1
"""Share of the samples in which a reason must have held the clocks down."""


def _summary(samples: Sequence[_Moment], before: _Moment | None = None) -> Meanwhile | None:
    """Summary of NVML samples taken during a run; None without a sample.

    Over the samples at 50 % utilization or more (all if none is): median clock, maximum power and temperature, throttle
    reasons of a tenth of them and more, widest link. Errors are counted over all samples from `before` on, and the
    seconds these span.
    """
    busy = [gpu for _, gpu in samples if (gpu.utilization or 0) >= 50] or [gpu for _, gpu in samples]
    whole = [moment for moment in (before, *samples) if moment]
    if not busy:
        return None

    def over_busy_samples(name: str, choose: Callable[[list[float]], float]) -> float | None:
        """`choose` applied to the known values of a field over the busy samples; None if none is known."""
        values = [value for gpu in busy if (value := getattr(gpu, name)) is not None]
        return choose(values) if values else None

    def increase(name: str) -> float | None:
        """How much a counter rose from the first sample to the last; None if it is unknown."""
        counts = [count for _, gpu in whole if (count := getattr(gpu, name)) is not None]
        return gain(counts) if counts else None

    counts = Counter(reason for gpu in busy for reason in gpu.throttle_reasons or () if reason != "gpu_idle")
    reasons = [reason for reason, count in counts.items() if count >= _THROTTLED_SHARE * len(busy)]
    return Meanwhile(
        over_busy_samples("clock_mhz", median),
        over_busy_samples("clock_max_mhz", max),
        over_busy_samples("power_w", max),
        over_busy_samples("power_limit_w", min),
        over_busy_samples("temperature_c", max),
        tuple(reasons),
        over_busy_samples("link_generation", max),
        over_busy_samples("link_width", max),
        over_busy_samples("utilization", max),
        seconds=round(whole[-1][0] - whole[0][0], 3),
        **{name: increase(name) for name in COUNTERS},
    )


# ---- The GPUs that there are to run kernels on, by CUDA's numbers, and who uses them ----

CPU = "cpu"


def devices_of(snapshot: Snapshot, device: str = "") -> tuple[Device, ...]:
    """The GPUs by CUDA's numbers, each with the program that uses it, or the exclusive compute mode that reserves it,
    if any; `device` is ``cpu``, ``cuda:N`` or N.

    Raises `UsageError` for an unknown device. A GPU asked for by number counts as free.
    """
    if device == CPU:
        return (Device(0, "CPU"),)
    holders = _holder_by_uuid(snapshot)
    gpus = []
    for at, row in enumerate(listed(snapshot.rows("cuda_device"))):
        index = int(text_of(row.get("index")) or at)
        uuid = text_of(row.get("uuid"))
        name = text_of(row.get("name")).removeprefix("NVIDIA ")
        mode = text_of(row.get("compute_mode"))
        alone = f"jobs that must be alone on it (compute mode {mode})" if mode.startswith("Exclusive") else ""
        gpus.append(Device(index, name, "" if device else holders.get(uuid, alone), uuid))
    if not device:
        return tuple(gpus)
    chosen = tuple(gpu for gpu in gpus if device in (f"cuda:{gpu.index}", str(gpu.index)))
    if not chosen:
        available = ", ".join(f"cuda:{gpu.index}" for gpu in gpus) or "no GPU that CUDA lists"
        raise UsageError(
            say(
                "--device {device}: no such device; available: {available}, and cpu", device=device, available=available
            )
        )
    return chosen


def _holder_by_uuid(snapshot: Snapshot) -> dict[str, str]:
    """The first program that computes on each GPU and MIG device, as ``pid 7, python``, by UUID."""
    uuids = [(text_of(row.get("index")), text_of(row.get("uuid"))) for row in listed(snapshot.rows("gpu"))]
    uuids += [(text_of(row.get("gpu")), text_of(row.get("uuid"))) for row in listed(snapshot.rows("mig"))]
    holders: dict[str, str] = {}
    for row in listed(snapshot.rows("gpu_process")):
        if text_of(row.get("kind")) == "graphics":
            continue
        holder = f"pid {text_of(row.get('pid'))}, {text_of(row.get('name')).rpartition('/')[2]}".rstrip(", ")
        for index, uuid in uuids:
            if index == text_of(row.get("gpu")):
                holders.setdefault(uuid, holder)
    return holders
