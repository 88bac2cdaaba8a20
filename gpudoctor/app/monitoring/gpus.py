"""What the GPUs did while a command ran: sums, peaks and gains over the samples of NVML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gpudoctor.core.fact import Absent, Fact, Known, Row, Unread, Value
from gpudoctor.core.measurement import COUNTERS, gain
from gpudoctor.core.sample import GPU, Sample

_SOURCE = "NVML, while it ran"
_THROTTLED_SHARE = 0.1
"""Share of the looks in which a reason held the clocks down for it to be told."""
_PROTECTS = frozenset({"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"})
"""Reasons of a GPU that is too hot or gets too little power; a power cap is usual at full load."""
_WORKING_PERCENT = 5.0
"""Percent of use from which on a GPU counts as working."""
_AT_REST = frozenset({"gpu_idle", "sync_boost", "display_clock_setting"})


@dataclass(slots=True)
class _Mean:
    """A running mean."""

    total: float = 0.0
    count: int = 0

    def add(self, total: float, count: int = 1) -> None:
        """Add to the running mean `count` values whose sum is `total`."""
        self.total += total
        self.count += count

    @property
    def value(self) -> float | None:
        """The mean of all values added; None if nothing was added."""
        return self.total / self.count if self.count else None


@dataclass(slots=True)
class _Use:
    """Usage of one GPU, accumulated over all samples."""

    last: GPU
    looks: int = 0
    busy: _Mean = field(default_factory=_Mean)
    memory_peak: float = 0.0
    power: float = 0.0
    power_looks: int = 0
    energy_ws: float = 0.0
    hottest: float | None = None
    at_work: _Mean = field(default_factory=_Mean)
    """Its use from the first to the last look in which it worked."""
    resting: _Mean = field(default_factory=_Mean)
    """Its use since it last worked."""
    clock: _Mean = field(default_factory=_Mean)
    slowed_by: Counter[str] = field(default_factory=Counter)
    slowed_seconds: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    last_counts: dict[str, float] = field(default_factory=dict)
    gains: dict[str, float] = field(default_factory=dict)
    pids: set[int] = field(default_factory=set)
    others: dict[int, tuple[str, int]] = field(default_factory=dict)

    def add(self, gpu: GPU, seconds: float) -> None:
        """Add one sample of the GPU, `seconds` after the previous one, to its sums, peaks, error counts and processes.

        Of a GPU in error only the error is kept.
        """
        if gpu.error:
            self.last = gpu
            return
        self.last = gpu
        self.looks += 1
        if gpu.utilization is not None:
            self._add_utilization(gpu.utilization, gpu.clock_mhz)
        if slowed := _PROTECTS & set(gpu.throttle_reasons or ()):
            self.slowed_by.update(slowed)
            self.slowed_seconds += seconds
        self.memory_peak = max(self.memory_peak, gpu.memory_used_mib or 0.0)
        if gpu.power_w is not None:
            self.power += gpu.power_w
            self.power_looks += 1
            self.energy_ws += gpu.power_w * seconds
        if gpu.temperature_c is not None:
            self.hottest = max(self.hottest or 0.0, gpu.temperature_c)
        self.reasons.update(set(gpu.throttle_reasons or ()) - _AT_REST)
        for name in COUNTERS:
            count = getattr(gpu, name)
            if count is not None:
                last = self.last_counts.get(name, count)
                self.gains[name] = self.gains.get(name, 0.0) + gain((last, count))
                self.last_counts[name] = count
        for process in gpu.processes or ():
            self.pids.add(process.pid)
            name, most = self.others.get(process.pid, (process.name, 0))
            self.others[process.pid] = (name or process.name, max(most, process.memory_mib or 0))

    def _add_utilization(self, busy: float, clock_mhz: float | None) -> None:
        """Add utilization in percent, and the clock if the GPU works; idle samples between busy ones count as work."""
        self.busy.add(busy)
        if busy < _WORKING_PERCENT:
            if self.at_work.count:
                self.resting.add(busy)
            return
        self.at_work.add(self.resting.total + busy, self.resting.count + 1)
        self.resting = _Mean()
        if clock_mhz is not None:
            self.clock.add(clock_mhz)

    def gained(self, name: str) -> int | None:
        """Increase of the error counter `name` since the first sample; None if it cannot be read."""
        return int(self.gains[name]) if name in self.gains else None


class GPUUse:
    """Usage of all GPUs from NVML samples; `add` is called by the sampling thread."""

    def __init__(self, is_own: Callable[[int], bool] = lambda _: False) -> None:
        """`is_own` tells whether a process id belongs to the command; called once per process, while it runs."""
        self._is_own = is_own
        self._asked: dict[int, bool] = {}
        self._uses: dict[int, _Use] = {}
        self._last_seconds: float | None = None
        self.trouble = ""

    def add(self, sample: Sample) -> None:
        """Add one sample of all GPUs, and ask once for each new process whether it is the command's."""
        self.trouble = sample.trouble
        if sample.seconds is None or not sample.gpus:
            return
        seconds = sample.seconds - self._last_seconds if self._last_seconds is not None else 0.0
        self._last_seconds = sample.seconds
        for gpu in sample.gpus:
            for process in gpu.processes or ():
                if process.pid not in self._asked:
                    self._asked[process.pid] = self._is_own(process.pid)
            self._uses.setdefault(gpu.index, _Use(gpu)).add(gpu, max(0.0, seconds))

    @property
    def gained_errors(self) -> bool:
        """True if a GPU had uncorrectable errors since the first sample, or stopped answering."""
        return any(use.last.error or use.gained("ecc_uncorrected") for use in self._uses.values())

    def rows(self, own: Iterable[int]) -> tuple[Row, ...] | Absent | Unread:
        """A row of ``run_gpu`` for each GPU; `own` are the process ids of the command.

        Without a sample `Unread` with NVML's trouble, or `Absent` if it had none.
        """
        if not self._uses:
            return Unread(self.trouble) if self.trouble else Absent("no GPU was seen while it ran")
        pids = frozenset(own) | {pid for pid, is_own in self._asked.items() if is_own}
        uses = [use for _, use in sorted(self._uses.items())]
        return tuple(_row(use, pids, _usual_clock(use, self._used(pids))) for use in uses)

    def facts(self, own: Iterable[int]) -> dict[str, Fact]:
        """run.gpu_busy (mean utilization while at work) and run.gpu_memory_share (the highest peak of one GPU), in
        percent, of the GPUs that the command's processes were seen on.

        `Unread` where they were seen on none or NVML does not give it; `Absent` where no GPU was seen.
        """
        used = self._used(frozenset(own) | {pid for pid, is_own in self._asked.items() if is_own})
        busy = [value for use in used if (value := use.at_work.value) is not None]
        filled = [100 * use.memory_peak / use.last.memory_mib for use in used if use.last.memory_mib]
        unseen = Unread("no process of the command was seen on a GPU") if self._uses else Absent("no GPU was seen")
        idle = Unread("its GPUs were never seen at work, or NVML does not give their use") if used else unseen
        return {
            "run.gpu_busy": Known(round(sum(busy) / len(busy)), _SOURCE) if busy else idle,
            "run.gpu_memory_share": Known(round(max(filled)), _SOURCE) if filled else unseen,
        }

    def _used(self, own: frozenset[int]) -> list[_Use]:
        """The use of each GPU on which a process of `own` was seen."""
        return [use for use in self._uses.values() if use.pids & own]


def _usual_clock(use: _Use, used: Sequence[_Use]) -> float | None:
    """Median clock of the busy GPUs in `used` with the same name as that of `use`; None for fewer than three."""
    alike = sorted(one.clock.value for one in used if one.clock.value and one.last.name == use.last.name)
    return alike[len(alike) // 2] if len(alike) > 2 else None


def _row(use: _Use, own: frozenset[int], usual: float | None) -> Row:
    """The row of ``run_gpu`` for one GPU; `usual` is the clock of those like it, `own` the command's process ids.

    What NVML did not give is `Unread`; ``error`` is `Absent` while the GPU answers.
    """
    gpu = use.last
    others = {pid: entry for pid, entry in use.others.items() if pid not in own}
    held = [reason for reason, count in use.reasons.most_common() if count >= _THROTTLED_SHARE * use.looks]
    return {
        "index": Known(gpu.index, _SOURCE),
        "name": _known(gpu.name),
        "uuid": _known(gpu.uuid),
        "address": _known(gpu.address),
        "used": Known(bool(use.pids & own), _SOURCE) if use.pids else Unread("NVML names no processes"),
        "utilization": _known(use.busy.value, round),
        "memory_mib": _known(gpu.memory_mib, int),
        "memory_peak_mib": _known(use.memory_peak or None, int),
        "others_mib": Known(sum(most for _, most in others.values()), _SOURCE),
        "others": Known(tuple(f"{name or 'a process'} (pid {pid})" for pid, (name, _) in others.items()), _SOURCE),
        "power_w": _known(use.power / use.power_looks if use.power_looks else None, round),
        "energy_wh": _known(use.energy_ws / 3600 if use.power_looks else None, lambda value: round(value, 2)),
        "temperature_c": _known(use.hottest),
        "held_down": Known(tuple(held), _SOURCE),
        "slowed_by": Known(tuple(reason for reason, _ in use.slowed_by.most_common()), _SOURCE),
        "slowed_seconds": Known(round(use.slowed_seconds), _SOURCE),
        "clock_mhz": _known(use.clock.value, round),
        "clock_share": _known(100 * use.clock.value / usual if use.clock.value and usual else None, round),
        **{name: _known(use.gained(name)) for name in COUNTERS},
        "error": Known(gpu.error, _SOURCE) if gpu.error else Absent("it answered"),
    }


def _known(value: float | str | None, form: Callable[[float], float] | None = None) -> Fact:
    """The value, by `form` if given, as a fact; `Unread` for None or an empty text."""
    if value is None or value == "":
        return Unread("NVML does not tell")
    found: Value = form(value) if form and not isinstance(value, str) else value
    return Known(found, _SOURCE)
