"""What the GPUs did while a command ran: sums, peaks and gains over the samples of NVML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gpudoctor.core.fact import Absent, Fact, Known, Row, Unread, Value
from gpudoctor.core.sample import GPU, Sample

_SOURCE = "NVML, while it ran"
_OFTEN = 0.1
"""Share of the looks in which a reason held the clocks down for it to be told."""
_AT_REST = frozenset({"gpu_idle", "sync_boost", "display_clock_setting"})


@dataclass(slots=True)
class _Use:
    """One GPU over all looks."""

    last: GPU
    looks: int = 0
    busy: float = 0.0
    busy_looks: int = 0
    memory_peak: float = 0.0
    power: float = 0.0
    power_looks: int = 0
    energy_ws: float = 0.0
    hottest: float | None = None
    reasons: Counter[str] = field(default_factory=Counter)
    first_counts: dict[str, float] = field(default_factory=dict)
    last_counts: dict[str, float] = field(default_factory=dict)
    pids: set[int] = field(default_factory=set)
    others: dict[int, tuple[str, int]] = field(default_factory=dict)

    def add(self, gpu: GPU, seconds: float) -> None:
        """Take in one look, so many seconds after the one before."""
        if gpu.error:
            self.last = gpu
            return
        self.last = gpu
        self.looks += 1
        if gpu.utilization is not None:
            self.busy += gpu.utilization
            self.busy_looks += 1
        self.memory_peak = max(self.memory_peak, gpu.memory_used_mib or 0.0)
        if gpu.power_w is not None:
            self.power += gpu.power_w
            self.power_looks += 1
            self.energy_ws += gpu.power_w * seconds
        if gpu.temperature_c is not None:
            self.hottest = max(self.hottest or 0.0, gpu.temperature_c)
        self.reasons.update(set(gpu.throttle_reasons or ()) - _AT_REST)
        for name in ("ecc_corrected", "ecc_uncorrected"):
            count = getattr(gpu, name)
            if count is not None:
                self.first_counts.setdefault(name, count)
                self.last_counts[name] = count
        for process in gpu.processes or ():
            self.pids.add(process.pid)
            name, most = self.others.get(process.pid, (process.name, 0))
            self.others[process.pid] = (name or process.name, max(most, process.memory_mib or 0))

    def gained(self, name: str) -> int | None:
        """What a counter of errors gained; None where it cannot be read."""
        return int(max(0.0, self.last_counts[name] - self.first_counts[name])) if name in self.last_counts else None


class GPUUse:
    """Collects samples; `add` is called by the thread that takes them."""

    def __init__(self, is_own: Callable[[int], bool] = lambda _: False) -> None:
        """`is_own` is asked once of each process that is seen, while it is there."""
        self._is_own = is_own
        self._asked: dict[int, bool] = {}
        self._uses: dict[int, _Use] = {}
        self._last_seconds: float | None = None
        self.trouble = ""

    def add(self, sample: Sample) -> None:
        """Take in one sample of all GPUs."""
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
        """Whether a GPU had uncorrectable errors meanwhile, or does not answer any more."""
        return any(use.last.error or use.gained("ecc_uncorrected") for use in self._uses.values())

    def rows(self, own: Iterable[int]) -> tuple[Row, ...] | Absent | Unread:
        """A row for each GPU; `own` are the process ids of the command."""
        if not self._uses:
            return Unread(self.trouble) if self.trouble else Absent("no GPU was seen while it ran")
        pids = frozenset(own) | {pid for pid, is_own in self._asked.items() if is_own}
        return tuple(_row(use, pids) for _, use in sorted(self._uses.items()))


def _row(use: _Use, own: frozenset[int]) -> Row:
    """The row of one GPU."""
    gpu = use.last
    others = {pid: entry for pid, entry in use.others.items() if pid not in own}
    held = [reason for reason, count in use.reasons.most_common() if count >= _OFTEN * use.looks]
    row: dict[str, Fact] = {
        "index": Known(gpu.index, _SOURCE),
        "name": _known(gpu.name),
        "uuid": _known(gpu.uuid),
        "address": _known(gpu.address),
        "used": Known(bool(use.pids & own), _SOURCE) if use.pids else Unread("NVML names no processes"),
        "utilization": _known(use.busy / use.busy_looks if use.busy_looks else None, round),
        "memory_mib": _known(gpu.memory_mib, int),
        "memory_peak_mib": _known(use.memory_peak or None, int),
        "others_mib": Known(sum(most for _, most in others.values()), _SOURCE),
        "others": Known(tuple(f"{name or 'a process'} (pid {pid})" for pid, (name, _) in others.items()), _SOURCE),
        "power_w": _known(use.power / use.power_looks if use.power_looks else None, round),
        "energy_wh": _known(use.energy_ws / 3600 if use.power_looks else None, lambda value: round(value, 2)),
        "temperature_c": _known(use.hottest),
        "held_down": Known(tuple(held), _SOURCE),
        "ecc_corrected": _known(use.gained("ecc_corrected")),
        "ecc_uncorrected": _known(use.gained("ecc_uncorrected")),
        "error": Known(gpu.error, _SOURCE) if gpu.error else Absent("it answered"),
    }
    return row


def _known(value: float | str | None, form: Callable[[float], float] | None = None) -> Fact:
    """The value as a fact; unread where there is none."""
    if value is None or value == "":
        return Unread("NVML does not tell")
    found: Value = form(value) if form and not isinstance(value, str) else value
    return Known(found, _SOURCE)
