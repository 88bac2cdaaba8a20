"""A training loop watched: by torch.profiler, or by the clock alone where that cannot see the device."""

from __future__ import annotations

import time
from statistics import median
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from .._protocol import last_line
from ..eager._rung import Context
from . import _shares
from ._shares import Interval, Shares

_LOOP, _DATA, _COPY, _STEP = ("gpudoctor." + part for part in ("loop", "data", "transfer", "step"))
_NO_WORK = ("gpudoctor.", "Optimizer.", "ProfilerStep", "DataLoader", "enumerate(")
"""How names of ranges begin that the profiler shows on the device beside the kernels inside them."""
_LARGE = 50.0
"""Microseconds of its own that an operation on a CPU must take to count as computing, not as being issued."""


class Loop(NamedTuple):
    """One step each of making a batch, bringing it to the device, and training on it."""

    data: Callable[[], Any]
    copy: Callable[[Any], Any]
    step: Callable[[Any], Any]


class Seen(NamedTuple):
    """Where the time went, and what was counted; `blind` says why the profiler saw nothing."""

    shares: Shares
    seconds: float
    """Of one step of the loop."""
    kernels: Optional[float] = None
    """In one step."""
    kernel_us: Optional[float] = None
    """Their mean length."""
    blind: str = ""


def warmed(context: Context, loop: Loop, steps: int) -> None:
    """So many steps, unwatched."""
    for _ in range(steps):
        loop.step(loop.copy(loop.data()))
    context.synchronize()


def watched(context: Context, loop: Loop, steps: int) -> Seen:
    """So many steps under the profiler, else by the clock."""
    try:
        return _profiled(context, loop, steps)
    except _Blind as error:
        return _timed(context, loop, steps)._replace(blind=str(error))


class _Blind(Exception):  # noqa: N818 - no error: the clock is asked instead
    pass


def _profiled(context: Context, loop: Loop, steps: int) -> Seen:
    try:
        from torch import profiler  # type: ignore[import-not-found,unused-ignore]

        activities = [profiler.ProfilerActivity.CPU]
        if not context.on_cpu:
            activities.append(profiler.ProfilerActivity.CUDA)
            if profiler.ProfilerActivity.CUDA not in profiler.supported_activities():
                raise _Blind("this torch is built without CUPTI")
        with profiler.profile(activities=activities) as profile:
            _run(context, loop, steps, profiler.record_function)
        events = list(profile.events())
    except (ImportError, AttributeError, RuntimeError) as error:
        raise _Blind("torch.profiler: " + last_line(error)) from error
    return _read(context, events, steps)


def _run(context: Context, loop: Loop, steps: int, mark: Callable[[str], Any]) -> None:
    with mark(_LOOP):
        for _ in range(steps):
            with mark(_DATA):
                batch = loop.data()
            with mark(_COPY):
                batch = loop.copy(batch)
            with mark(_STEP):
                loop.step(batch)
        context.synchronize()


def _read(context: Context, events: List[Any], steps: int) -> Seen:
    whole, data, copies = (_ranges(events, name) for name in (_LOOP, _DATA, _COPY))
    if not whole:
        raise _Blind("torch.profiler lost the ranges that mark the loop")
    if context.on_cpu:
        inside = _ranges(events, _STEP)
        kernels = [one for one in _large(events) if any(begin <= one[0] < end for begin, end in inside)]
    else:
        device = [one for one in events if _is_work(one)]
        if not device:
            raise _Blind("torch.profiler saw no kernel: CUPTI may not be allowed, or another profiler holds the GPU")
        copies = [_range(one) for one in device if _is_copy(one)]
        kernels = [_range(one) for one in device if not _is_copy(one)]
    lengths = [end - begin for begin, end in kernels]
    return Seen(
        _shares.seen(kernels, copies, data, whole[0]),
        (whole[0][1] - whole[0][0]) / 1e6 / steps,
        len(kernels) / steps,
        sum(lengths) / len(lengths) if lengths else None,
    )


def _range(event: Any) -> Interval:
    return float(event.time_range.start), float(event.time_range.end)


def _on_device(event: Any) -> bool:
    return not str(event.device_type).endswith("CPU")


def _ranges(events: List[Any], name: str) -> List[Interval]:
    """On the CPU's clock, which is the device's, too."""
    return [_range(one) for one in events if one.name == name and not _on_device(one)]


def _large(events: List[Any]) -> List[Interval]:
    """Operations on a CPU that take `_LARGE` or more as a rule: one that was interrupted is not large for that."""
    own: Dict[str, List[float]] = {}
    for event in events:
        own.setdefault(event.name, []).append(float(event.self_cpu_time_total))
    names = {name for name, times in own.items() if name.startswith("aten::") and median(times) >= _LARGE}
    return [_range(event) for event in events if event.name in names]


def _is_work(event: Any) -> bool:
    if not _on_device(event) or getattr(event, "is_user_annotation", False):
        return False
    return not event.name.startswith(_NO_WORK) and not event.name.endswith(" Sync")


def _is_copy(event: Any) -> bool:
    """Between host and device; a copy within the device is work of the step."""
    return event.name.startswith("Memcpy") and "DtoD" not in event.name


def _timed(context: Context, loop: Loop, steps: int) -> Seen:
    spent = {_DATA: 0.0, _COPY: 0.0, _STEP: 0.0}
    copies: List[Tuple[Any, Any]] = []
    context.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        batch = _clocked(spent, _DATA, loop.data)
        batch = _clocked(spent, _COPY, _between_events, context, copies, loop.copy, batch)
        _clocked(spent, _STEP, loop.step, batch)
    context.synchronize()
    whole = time.perf_counter() - began
    if context.on_cpu:  # a step is over when it was issued: the two are not told apart
        return Seen(_shares.timed(spent[_DATA], spent[_COPY], 0.0, whole), whole / steps)
    copy = sum(first.elapsed_time(last) for first, last in copies) / 1e3
    return Seen(_shares.timed(spent[_DATA], copy, spent[_STEP], whole), whole / steps)


def _clocked(spent: Dict[str, float], part: str, work: Callable[..., Any], *given: Any) -> Any:
    began = time.perf_counter()
    made = work(*given)
    spent[part] += time.perf_counter() - began
    return made


def _between_events(context: Context, copies: List[Tuple[Any, Any]], copy: Callable[[Any], Any], batch: Any) -> Any:
    if context.on_cpu:
        return copy(batch)
    first, last = (context.torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    there = copy(batch)
    last.record()
    copies.append((first, last))
    return there
