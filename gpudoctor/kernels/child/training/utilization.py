"""A short training loop under torch.profiler, or the clock: how much of the time the GPU computes, what limits it."""

from __future__ import annotations

import math
import time
from statistics import median
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

from .._kernel import Outcome, Spec, last_line
from ..eager import Context
from . import _model

KERNELS = (
    Spec("readiness.utilization", "GPU busy in training", "%", "50 M parameters, 64 × 128 tokens", seconds=30.0),
)
_SIZE = _model.TIMED._replace(samples=64)
_SIZE_CPU = _model.Size(width=256, layers=2, heads=4, samples=16, tokens=32)
_WARM, _STEPS = 3, 12
_WARM_CPU, _STEPS_CPU = 1, 4
_VOCABULARY = 4096
_POOL = 1024
"""Sequences that batches are picked from."""
_LOOP, _DATA, _COPY, _STEP = ("gpudoctor." + part for part in ("loop", "data", "transfer", "step"))
_NO_WORK = ("gpudoctor.", "Optimizer.", "ProfilerStep", "DataLoader", "enumerate(")
"""How names of ranges begin that the profiler shows on the device beside the kernels inside them."""
_LARGE_US = 50.0
"""Microseconds of its own that an operation on a CPU must take to count as computing, not as being issued."""
_AHEAD_SHARE = 0.9
"""A program that needs less of the time than that to issue its work is ahead of the device."""


def run(context: Context, _: Spec) -> Outcome:
    """Profile a training loop of a language model, on a GPU in half precision; value: % of the time that the device
    computes.
    """
    size = _SIZE_CPU if context.on_cpu else _model.fit_samples(_SIZE, context.free())
    losses: List[Any] = []
    loop = _language_model_loop(context, size, losses)
    warm, steps = (_WARM_CPU, _STEPS_CPU) if context.on_cpu else (_WARM, _STEPS)
    for _warm in range(warm):
        loop.step(loop.copy(loop.data()))
    context.synchronize()
    profile = measure_loop(context, loop, steps)
    finite = math.isfinite(float(losses[0]))
    shares = {name: 100 * share for name, share in profile.shares._asdict().items()}
    return Outcome(
        value=shares["compute"],
        right=finite,
        words=("" if finite else "The loss is not finite. ") + summary(profile, context.on_cpu),
        advice=advice(profile.shares),
        details=dict(
            shares,
            limit=profile.shares.largest,
            step_ms=1e3 * profile.seconds,
            kernels_a_step=profile.kernels,
            kernel_us=profile.kernel_us,
            samples=size.samples,
            by="clock" if profile.blind else "torch.profiler",
        ),
    )


def summary(profile: LoopProfile, on_cpu: bool) -> str:
    """Sentences on where a training loop's time goes, its kernels, and why only the clock was used, if so."""
    shares = profile.shares
    text = "The %s computes in %.0f %% of a training loop, copies in %.0f %%, and waits in %.0f %% for data and in" % (
        "CPU" if on_cpu else "GPU",
        100 * shares.compute,
        100 * shares.transfer,
        100 * shares.data,
    )
    text += " %.0f %% for its next kernel." % (100 * shares.launch)
    if profile.kernels and profile.kernel_us:
        text += " A step is %.0f kernels of %.0f µs." % (profile.kernels, profile.kernel_us)
    if profile.blind:
        text += " By the clock alone, which tells them apart roughly: %s." % profile.blind
    return text


def advice(shares: Shares) -> str:
    """What to do about what limits a training loop most: data, transfer, launch or compute."""
    return _ADVICE[shares.largest]


_ADVICE = {
    "data": (
        "Data limit: more DataLoader workers with persistent_workers=True and prefetch_factor=4, pin_memory=True,"
        " less work per sample (decode smaller, or on the GPU)."
    ),
    "transfer": (
        "Transfers limit: pin_memory=True and .to(device, non_blocking=True), the next batch on a stream of its own,"
        " and fewer bytes (uint8 or bf16, converted on the GPU)."
    ),
    "launch": (
        "Launches limit: the program issues kernels more slowly than they run. torch.compile(mode='reduce-overhead')"
        " or CUDA graphs, a larger batch, fused=True for the optimizer; no .item() or print of a tensor in the step."
    ),
    "compute": (
        "The GPU is the limit, as it should be: faster by less work alone (bf16, torch.compile, attention by SDPA) or"
        " by more GPUs."
    ),
}


def _language_model_loop(context: Context, size: _model.Size, losses: List[Any]) -> Loop:
    """The functions of a training loop over random tokens; a step leaves its loss, on the device, in `losses`."""
    torch = context.torch
    network = _model.language_model(torch, size, _VOCABULARY, context.device)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    half = _model.training_dtype(context)  # many a CPU has no multiplication of 16 bits, and takes seconds a step
    pool = torch.randint(0, _VOCABULARY, (_POOL, size.tokens), generator=context.generator(5))

    def data() -> Any:
        """A batch of picked sequences, pinned for a GPU."""
        picked = pool[torch.randint(0, _POOL, (size.samples,))]
        return picked if context.on_cpu else picked.pin_memory()

    def step(tokens: Any) -> None:
        """One training step on a batch of tokens."""
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(context.device.type, dtype=half, enabled=not context.on_cpu):
            outputs = network(tokens)
        loss = torch.nn.functional.cross_entropy(outputs.flatten(0, 1).float(), tokens.flatten())
        loss.backward()
        optimizer.step()
        losses[:] = [loss.detach()]

    return Loop(data, lambda tokens: tokens.to(context.device, non_blocking=True), step)


# ---- A loop watched: by torch.profiler, or by the clock alone where that cannot see the device ----


class Loop(NamedTuple):
    """Functions of one step: make a batch, bring it to the device, train on it."""

    data: Callable[[], Any]
    copy: Callable[[Any], Any]
    step: Callable[[Any], Any]


class LoopProfile(NamedTuple):
    """Where a loop's time went; `blind` says why the profiler was not used, empty if it was."""

    shares: Shares
    seconds: float
    """Of one step of the loop."""
    kernels: Optional[float] = None
    """In one step."""
    kernel_us: Optional[float] = None
    """Their mean length."""
    blind: str = ""


def measure_loop(context: Context, loop: Loop, steps: int) -> LoopProfile:
    """Profile `steps` steps with torch.profiler, or by the clock where that is not available."""
    try:
        return _measure_by_profiler(context, loop, steps)
    except _ProfilerUnavailable as error:
        return _measure_by_clock(context, loop, steps)._replace(blind=str(error))


class _ProfilerUnavailable(Exception):  # noqa: N818 - no error: the clock is asked instead
    """torch.profiler cannot see the device; the clock is used instead."""


def _measure_by_profiler(context: Context, loop: Loop, steps: int) -> LoopProfile:
    """The loop's profile by torch.profiler; raises `_ProfilerUnavailable` where that fails or sees nothing."""
    try:
        from torch import profiler  # type: ignore[import-not-found,unused-ignore]

        activities = [profiler.ProfilerActivity.CPU]
        if not context.on_cpu:
            activities.append(profiler.ProfilerActivity.CUDA)
            if profiler.ProfilerActivity.CUDA not in profiler.supported_activities():
                raise _ProfilerUnavailable("this torch is built without CUPTI")
        with profiler.profile(activities=activities) as profile:
            _run_marked(context, loop, steps, profiler.record_function)
        events = list(profile.events())
    except (ImportError, AttributeError, RuntimeError) as error:
        raise _ProfilerUnavailable("torch.profiler: " + last_line(error)) from error
    return _profile_from_events(context, events, steps)


def _run_marked(context: Context, loop: Loop, steps: int, mark: Callable[[str], Any]) -> None:
    """Run the loop, the whole and each part in a range that `mark` makes by name; the whole waits for the device."""
    with mark(_LOOP):
        for _ in range(steps):
            with mark(_DATA):
                batch = loop.data()
            with mark(_COPY):
                batch = loop.copy(batch)
            with mark(_STEP):
                loop.step(batch)
        context.synchronize()


def _profile_from_events(context: Context, events: List[Any], steps: int) -> LoopProfile:
    """The profile from the profiler's events; raises `_ProfilerUnavailable` if it saw nothing of the device, or lost
    the ranges of the loop.
    """
    whole, data, copies = (_marked_intervals(events, name) for name in (_LOOP, _DATA, _COPY))
    if not whole:
        raise _ProfilerUnavailable("torch.profiler lost the ranges that mark the loop")
    if context.on_cpu:
        inside = _marked_intervals(events, _STEP)
        kernels = [
            interval
            for interval in _large_operations(events)
            if any(begin <= interval[0] < end for begin, end in inside)
        ]
    else:
        device = [event for event in events if _is_device_work(event)]
        if not device:
            raise _ProfilerUnavailable(
                "torch.profiler saw no kernel: CUPTI may not be allowed, or another profiler holds the GPU"
            )
        copies = [_interval(event) for event in device if _is_copy(event)]
        kernels = [_interval(event) for event in device if not _is_copy(event)]
    lengths = [end - begin for begin, end in kernels]
    return LoopProfile(
        shares_by_profiler(kernels, copies, data, whole[0]),
        (whole[0][1] - whole[0][0]) / 1e6 / steps,
        len(kernels) / steps,
        sum(lengths) / len(lengths) if lengths else None,
    )


def _interval(event: Any) -> Interval:
    """Begin and end of an event, in µs."""
    return float(event.time_range.start), float(event.time_range.end)


def _on_device(event: Any) -> bool:
    """True if the profiler's event is of the device, not of the CPU."""
    return not str(event.device_type).endswith("CPU")


def _marked_intervals(events: List[Any], name: str) -> List[Interval]:
    """Intervals of the ranges of that name on the CPU, whose clock the device's events share."""
    return [_interval(event) for event in events if event.name == name and not _on_device(event)]


def _large_operations(events: List[Any]) -> List[Interval]:
    """Intervals of CPU operations whose median own time is 50 µs or more."""
    self_times: Dict[str, List[float]] = {}
    for event in events:
        self_times.setdefault(event.name, []).append(float(event.self_cpu_time_total))
    names = {name for name, times in self_times.items() if name.startswith("aten::") and median(times) >= _LARGE_US}
    return [_interval(event) for event in events if event.name in names]


def _is_device_work(event: Any) -> bool:
    """True for kernels and copies on the device, False for ranges and synchronisation."""
    if not _on_device(event) or getattr(event, "is_user_annotation", False):
        return False
    return not event.name.startswith(_NO_WORK) and not event.name.endswith(" Sync")


def _is_copy(event: Any) -> bool:
    """True for a copy between host and device; one within the device is work of the step."""
    return event.name.startswith("Memcpy") and "DtoD" not in event.name


def _measure_by_clock(context: Context, loop: Loop, steps: int) -> LoopProfile:
    """The loop's profile by the host's clock: shares and seconds of a step, nothing of kernels.

    Parts are not synchronised: a step's time is that of issuing it. Copies are timed by CUDA events.
    """
    data = copy = issue = 0.0
    copies: List[Tuple[Any, Any]] = []
    context.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        times = [time.perf_counter()]
        batch = loop.data()
        times.append(time.perf_counter())
        if not context.on_cpu:
            copies.append(tuple(context.torch.cuda.Event(enable_timing=True) for _ in range(2)))
            copies[-1][0].record()
        batch = loop.copy(batch)
        if copies:
            copies[-1][1].record()
        times.append(time.perf_counter())
        loop.step(batch)
        data, copy = data + times[1] - times[0], copy + times[2] - times[1]
        issue += time.perf_counter() - times[2]
    context.synchronize()
    whole = time.perf_counter() - began
    if context.on_cpu:  # a step is over when it was issued: the two are not told apart
        return LoopProfile(shares_by_clock(data, copy, 0.0, whole), whole / steps)
    copy = sum(first.elapsed_time(last) for first, last in copies) / 1e3
    return LoopProfile(shares_by_clock(data, copy, issue, whole), whole / steps)


# ---- Where the time goes, from intervals on a clock; seconds or microseconds alike ----


Interval = Tuple[float, float]


class Shares(NamedTuple):
    """Shares of the whole time, each from 0 to 1, together 1."""

    data: float
    """Nothing runs on the device while the next batch is made."""
    transfer: float
    """The device copies and computes nothing."""
    launch: float
    """Nothing runs on the device while the program issues the step."""
    compute: float

    @property
    def largest(self) -> str:
        """Name of the largest share, data, transfer, launch or compute: what limits the loop."""
        return max(self._fields, key=lambda name: float(getattr(self, name)))


def shares_by_profiler(
    kernels: List[Interval], copies: List[Interval], data: List[Interval], whole: Interval
) -> Shares:
    """Shares of `whole`; each moment counts once: as computing first, then copying, then data, the rest as launch."""
    total = whole[1] - whole[0]
    compute = _total_length(_merged(kernels, whole))
    busy = _total_length(_merged([*kernels, *copies], whole))
    known = _total_length(_merged([*kernels, *copies, *data], whole))
    return Shares((known - busy) / total, (busy - compute) / total, 1 - known / total, compute / total)


def shares_by_clock(data: float, copy: float, issue: float, whole: float) -> Shares:
    """Shares from seconds: to make the batches, to copy them, to issue the steps, and the whole.

    A program that issues its steps well before they are over is waited for by nobody: the device limits it.
    """
    ahead = data + issue < _AHEAD_SHARE * whole
    data, copy, launch = (min(1.0, part / whole) for part in (data, copy, 0.0 if ahead else issue))
    scale = max(1.0, data + copy + launch)
    data, copy, launch = data / scale, copy / scale, launch / scale
    return Shares(data, copy, launch, 1.0 - data - copy - launch)


def _merged(intervals: Iterable[Interval], whole: Interval) -> List[Interval]:
    """The intervals clipped to `whole`, sorted and without overlaps."""
    merged: List[Interval] = []
    for begin, end in sorted((max(interval[0], whole[0]), min(interval[1], whole[1])) for interval in intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        elif end > begin:
            merged.append((begin, end))
    return merged


def _total_length(intervals: Iterable[Interval]) -> float:
    """Sum of the intervals' lengths."""
    return sum(end - begin for begin, end in intervals)
