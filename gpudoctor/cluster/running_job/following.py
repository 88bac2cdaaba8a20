"""A running job of this machine, followed: its processes at each look, the stacks of its ranks now and then.

Between two readings of the stacks a rank is said to do what it did then, unless the kernel alone tells otherwise: that
it has ended, or is stopped or frozen. Where that changes, the stacks are read again at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpudoctor.cluster.running_job import job_diagnosis
from gpudoctor.cluster.running_job.looking import Seen, all_go_on, host_row, look_at_workers, look_once, rows_of
from gpudoctor.cluster.running_job.recorded import Records
from gpudoctor.core.about import __version__
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import Fact, Known, Reason, Row, Unread, number_of
from gpudoctor.core.frozen import replace
from gpudoctor.core.sample import Sample
from gpudoctor.probes._job.members import Job, Member, RankProcess, is_same
from gpudoctor.probes._job.stacks import Stacks, find_program, stacks_of
from gpudoctor.probes._job.traffic import Traffic
from gpudoctor.probes._job.waiting import exit_of
from gpudoctor.target.local import Local

_LOOKS_PER_READING = 5
"""Looks of one reading: whether a rank stands still is told by all of them."""
_RECENT_LOOKS = 3
"""Looks over which the use of processors is averaged."""
_NOT_ASKED = Unread("its stack is not read at every look", reason=Reason.NOT_ASKED)
_GPU_COLUMNS = ("gpu_busy", "gpu_memory_mib")


@dataclass(frozen=True, slots=True)
class Look:
    """What is known after a look. `read_at`: when the stacks were read, by the Unix clock; 0 before the first reading.

    `reading` while they are being read; `ended` where no process is left, `exit` how the named one ended, if seen.
    """

    diagnosis: Diagnosis
    read_at: float = 0.0
    reading: bool = False
    ended: bool = False
    exit: str = ""


@dataclass(slots=True)
class _Reading:
    """One reading of the stacks of all ranks, collected over `_LOOKS_PER_READING` looks."""

    job: Job
    seen: list[Seen]
    records: Records
    traffic: Traffic
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    facts: Mapping[str, Fact] = field(default_factory=dict)
    host: Row = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """True once enough looks were taken, or all ranks are known to make progress."""
        looks = min((len(one.moments) for one in self.seen if not one.gone), default=_LOOKS_PER_READING)
        return looks >= _LOOKS_PER_READING or (looks > 1 and all_go_on(self.seen))


class Following:
    """Follows one job: `look` is to be called about once a second; `stacks` may be called from any thread."""

    def __init__(
        self, name: str, job: Job, find: Callable[[Sequence[int]], Job | Unread], rules: Sequence[Path] = ()
    ) -> None:
        """`find` returns the job as it is now, from the known process ids."""
        self._name = name
        self._job = job
        self._find = find
        self._rules = rules
        self._target = Local("quick")
        self._program = find_program(self._target)
        self._root = job.members.get(job.root)
        self._exit = ""
        self._exits: dict[int, str] = {}
        self._recent = {rank.member.pid: Seen(rank) for rank in job.ranks}
        self._reading: _Reading | None = None
        self._last: _Reading | None = None
        self._read_at = 0.0
        self._judged: tuple[float, tuple[str, ...]] = (0.0, ())
        self._diagnosis: Diagnosis | None = None
        self._gpus: Sample | None = None

    def look(self, sample: Sample | None, read: bool) -> Look:
        """Observe the job's processes and diagnose it; `read` starts a reading of all stacks, as does a rank that
        halts. `sample` is NVML's latest.
        """
        if sample and sample.gpus:
            self._gpus = sample
        if self._reading is None and (read or self._last is None or self._halted_anew()):
            self._begin()
        self._look_once()
        if self._reading and self._reading.whole:
            self._finish(self._reading)
        ended = all(one.gone for one in self._recent.values()) and not (self._root and is_same(self._root))
        diagnosis = self._judge(self._rows(sample), ended)
        return Look(diagnosis, self._read_at, self._reading is not None, ended, self._exit)

    def stacks(self, pid: int) -> list[tuple[Member, Stacks | Unread]]:
        """(process, stacks of its threads, read now) of a rank and of the Python processes below it; empty if it is not
        known or has ended.
        """
        rank = self._recent.get(pid)
        if rank is None or rank.gone:
            return []
        below = sorted(self._job.below(pid), key=lambda one: (int(one.start), one.pid))
        chosen = [rank.rank.member, *(one for one in below if one.is_python and not one.is_service)]
        return [(one, stacks_of(self._target, self._program, one.pid)) for one in chosen]

    def _begin(self) -> None:
        """Find the job's processes anew, and begin to read their stacks."""
        self._find_again()
        before = {one.pid: one for one in self._last.seen if one.stack} if self._last else {}
        seen = []
        for rank in self._job.ranks:
            recent = self._recent.setdefault(rank.member.pid, Seen(rank))
            kept = before.get(rank.member.pid) if recent.moments and recent.gone else None
            if kept and not kept.gone:
                kept.moments.append(recent.last)
            seen.append(kept or Seen(rank))
        records = Records(self._job, self._target)
        records.begin()
        self._program = find_program(self._target)
        self._reading = _Reading(self._job, seen, records, Traffic.now())

    def _find_again(self) -> None:
        """Find the job's processes anew; ended ranks are kept, unless a new process has their rank number or the job
        has now fewer ranks than that.
        """
        living = [one.pid for one in self._job.members.values() if is_same(one)]
        found = self._find(living)
        if isinstance(found, Unread):
            return
        numbers, pids = {one.rank for one in found.ranks} - {None}, {one.member.pid for one in found.ranks}
        kept = [one for one in self._job.ranks if not _replaced(one, numbers, pids, found.world)]
        stay = {one.rank for one in kept}
        found.ranks = sorted([*found.ranks, *kept], key=lambda one: (one.rank is None, one.rank or 0, one.member.pid))
        found.missing = tuple(number for number in found.missing if number not in stay)
        found.world = found.world or self._job.world
        self._job = found
        own = {one.member.pid for one in found.ranks}
        self._recent = {pid: seen for pid, seen in self._recent.items() if pid in own}

    def _look_once(self) -> None:
        """Observe the job's processes once; during a reading their stacks as well."""
        recent = list(self._recent.values())
        if self._reading is None:
            look_once(self._job, recent, self._target, _NOT_ASKED)
        else:
            look_once(self._job, self._reading.seen, self._target, self._program)
            for one in self._reading.seen:
                self._recent[one.pid].moments.append(one.last)
                self._exits[one.pid] = self._exits.get(one.pid) or one.exit
        for one in recent:
            one.moments = one.moments[-_RECENT_LOOKS:]
            one.exit = self._exits[one.pid] = self._exits.get(one.pid) or one.exit
        if self._root:
            self._exit = self._exit or exit_of(self._root.pid) or self._exits.get(self._root.pid, "")

    def _halted_anew(self) -> bool:
        """True if a rank has ended, was stopped or frozen, or was resumed since the stacks were read."""
        before = {one.pid: one.halted for one in self._last.seen} if self._last else {}
        return any(one.moments and one.halted != before.get(pid, "") for pid, one in self._recent.items())

    def _finish(self, reading: _Reading) -> None:
        """Make a completed reading of all stacks the current one, with NCCL's records and stuck workers read now."""
        look_at_workers(reading.job, reading.seen, self._target, self._program)
        reading.seconds = time.monotonic() - reading.began
        reading.facts, reading.host = reading.records.facts(), host_row(reading.traffic)
        self._last, self._reading, self._read_at = reading, None, time.time()

    def _rows(self, sample: Sample | None) -> list[Row]:
        """Rows of the group ``rank``: stacks as last read, processes and GPUs as of now."""
        reading = self._last or self._reading
        assert reading
        rows = rows_of(reading.job, reading.seen, [self._gpus] if self._gpus else [])
        return [{**row, **self._as_now(row), **_silence(row, sample)} for row in rows]

    def _as_now(self, row: Row) -> Row:
        """Columns of the row's rank by the latest looks (state, processor use, exit); empty if it is not observed."""
        seen = self._recent.get(int(number_of(row.get("pid")) or 0))
        if seen is None or not seen.moments:
            return {}
        now: dict[str, Fact] = {"cpu": Known(round(100 * seen.cpu, 1), "/proc")}
        if seen.exit:
            now["exit"] = Known(seen.exit, "/proc")
        if seen.halted:
            now |= {"state": Known(seen.halted, "/proc"), "still": Known(True, "/proc")}
        if wait := seen.last.wait:
            now["kernel_state"] = Known(wait.state, "/proc")
        return now

    def _judge(self, rows: Sequence[Row], ended: bool) -> Diagnosis:
        """The diagnosis of these rows of ranks, judged anew if stacks were read or a rank halted since, unless all have
        `ended`; else the former findings with these rows. Without findings before the first reading is complete.
        """
        reading = self._last or self._reading
        assert reading
        basis = self._read_at, tuple(one.halted for one in self._recent.values() if one.moments)
        hosts = [reading.host] if reading.host else []
        parts = (self._name, rows, reading.seconds, reading.facts, hosts)
        if self._last is None:
            return Diagnosis(job_diagnosis.snapshot_of(*parts), "unknown", (), (), (), __version__)
        if self._diagnosis is None or (basis != self._judged and not ended):
            self._diagnosis, self._judged = job_diagnosis.diagnose(*parts, self._rules), basis
            return self._diagnosis
        return replace(self._diagnosis, snapshot=job_diagnosis.snapshot_of(*parts))


def _replaced(rank: RankProcess, numbers: set[int | None], pids: set[int], world: int | None) -> bool:
    """True if the ended rank is not to be kept: it was found again, its number is another process's, or is not below
    `world`.
    """
    if rank.rank is None:
        return rank.member.pid in pids or is_same(rank.member)
    return rank.rank in numbers or (world is not None and rank.rank >= world)


def _silence(row: Row, sample: Sample | None) -> Row:
    """Unread GPU columns if NVML did not answer in `sample`, so that old values do not pass for current; else none."""
    if sample is None or not sample.trouble:
        return {}
    unread = Unread(f"NVML: {sample.trouble}", reason=Reason.NVML_FAILED)
    known = isinstance(row.get("gpu"), Known)
    return dict.fromkeys(_GPU_COLUMNS if known else ("gpu", "gpus", *_GPU_COLUMNS), unread)
