"""Watching a command while it runs, in threads that cost next to nothing: what it uses, and whether it hangs."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.core.fact import Fact, Known, Rows, Unread, listed, number_of, text_of
from gpudoctor.target import child

if sys.platform != "win32":
    from gpudoctor.target.proc import is_within

if TYPE_CHECKING and sys.platform != "win32":
    from gpudoctor.app.monitoring.gpus import GPUUse
    from gpudoctor.app.monitoring.ranks import Ranks
    from gpudoctor.core.diagnosis import Diagnosis
    from gpudoctor.core.sample import GPU, Sample
    from gpudoctor.probes._job.members import Job
    from gpudoctor.probes._job.processes import Tree
    from gpudoctor.probes._job.shared_resources import SharedResources

assert sys.platform != "win32"  # what follows is POSIX's alone

_FIRST_PAUSE_SECONDS, _PAUSE_SECONDS = 0.1, 1.0
"""Seconds between the first looks, doubled from one to the next, and between all later ones."""
_PAUSE_FACTOR = 300
"""How many times as long as a look took at least passes until the next: a job of thousands is looked at less often."""
_PREPARE_SECONDS = 5.0
"""Seconds after which what the end needs is loaded, so that it is not waited for then."""
_GPU_PAUSE_SECONDS = 1.0
_GPU_DELAY_SECONDS = 1.0
"""Seconds after which the GPUs are watched: a command that is over by then used them for nothing."""
_LAST_LOOK_SECONDS = 1.0
"""Seconds for the last look; where it takes longer (a hung file system), it is left out."""


@dataclass(frozen=True, slots=True)
class Used:
    """What the living processes of the command have used so far: processor seconds of all together, and their ids."""

    cpu_seconds: float
    pids: frozenset[int]


def resources_before() -> SharedResources:
    """The resources that a command shares with others, with their counters as they are now: what they gain is counted
    from here, so it is to be called before the command starts.
    """
    from gpudoctor.probes._job.shared_resources import SharedResources
    from gpudoctor.target.local import Local

    folder = ""
    with contextlib.suppress(OSError):  # the folder may be deleted
        folder = os.getcwd()  # noqa: PTH109 - as text
    return SharedResources.here(Local("quick"), folder)


class Watch:
    """Watches one command until `stop`; nothing here may raise into whoever waits for the command.

    `shared` are the resources with their counters from before its start. `prepare` is called once, 5 s after the start.
    """

    def __init__(
        self,
        pid: int,
        shared: SharedResources,
        ranks: Ranks | None = None,
        on_sample: Callable[[Sample], None] = lambda _: None,
        prepare: Callable[[], object] = lambda: None,
    ) -> None:
        self._pid = pid
        self._prepare: Callable[[], object] | None = prepare
        self._ranks = ranks
        self._samples_gpus = not ranks or ranks.samples_gpus
        self._on_sample = on_sample
        self._stop = threading.Event()
        self._tree: Tree | None = None
        self._shared = shared
        self._gpus: GPUUse | None = None
        self._end_gpus: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="beside", daemon=True)

    def start(self) -> None:
        """Begin to watch the command in a thread; where none may be started, nothing is seen."""
        try:
            self._thread.start()
        except RuntimeError:
            self._stop.set()

    def stop(self) -> None:
        """End the watch of the command, after a last look that is waited for up to a second; NVML's child ends, too."""
        self._stop.set()
        if self._thread.ident:
            self._thread.join(_LAST_LOOK_SECONDS)
        self._end_gpus()

    @property
    def used(self) -> Used:
        """Processor seconds and ids of the command's living processes by the last look; zeros before the first."""
        return Used(*(self._tree.living if self._tree else (0.0, frozenset())))

    @property
    def facts(self) -> dict[str, Fact]:
        """The facts ``run.*`` that were seen so far; those not seen are unread or left out."""
        facts = self._shared.facts()
        if self._tree and self._tree.most:
            facts["run.memory_peak_mib"] = Known(self._tree.peak >> 20, "/proc, while it ran")
            facts["run.processes"] = Known(self._tree.most, "/proc, while it ran")
            facts.update(self._tree.loading.facts())
            own, processors = self._tree.loading.processors, number_of(facts.get("run.processors"))
            if own and (processors is None or own < processors):
                facts["run.processors"] = Known(float(own), "sched_getaffinity of a DataLoader worker")
        if self._gpus and self._samples_gpus:
            facts.update(self._gpus.facts(self._tree.pids if self._tree else ()))
        return facts

    @property
    def groups(self) -> dict[str, Rows]:
        """The groups ``run_process`` and ``run_gpu`` seen so far; run_gpu is unread where another rank watches."""
        groups: dict[str, Rows] = {}
        if self._tree:
            groups["run_process"] = self._tree.rows()
        if not self._samples_gpus:
            groups["run_gpu"] = Unread("another rank of this host watches the GPUs")
        elif self._gpus:
            groups["run_gpu"] = self._gpus.rows(self._tree.pids if self._tree else ())
        return groups

    @property
    def alarming(self) -> bool:
        """True if the kernel killed a process of the command's cgroup for memory, or a GPU had uncorrectable errors or
        stopped answering.
        """
        facts = self.facts
        kills = facts.get("run.oom_kills")
        killed = isinstance(kills, Known) and bool(kills.value)
        return killed or bool(self._gpus and self._gpus.gained_errors)

    def _run(self) -> None:
        """Thread body: look until `stop`, the less often the more processor time a look takes; then once more."""
        from gpudoctor.probes._job.processes import Tree

        began = time.monotonic()
        self._tree = tree = Tree(self._pid, without=child.begun)
        pause = _FIRST_PAUSE_SECONDS
        while True:
            cost = time.thread_time()
            over = self._stop.is_set()
            tree.look()
            self._shared.look()
            cost = time.thread_time() - cost
            if over:
                return
            if self._gpus is None and time.monotonic() - began > _GPU_DELAY_SECONDS:
                self._watch_gpus()
            if self._prepare and time.monotonic() - began > _PREPARE_SECONDS:
                with contextlib.suppress(Exception):  # the end meets it again, and reports it
                    self._prepare()
                self._prepare = None
            self._stop.wait(max(pause, cost * _PAUSE_FACTOR))
            pause = min(_PAUSE_SECONDS, pause * 2)

    def _watch_gpus(self) -> None:
        """Begin to add up the GPUs' use, from a child's NVML samples; without a GPU, or where another rank of this host
        samples them, no child is started.
        """
        from gpudoctor.app import live_gpus
        from gpudoctor.app.monitoring.gpus import GPUUse

        ranks = self._ranks
        use = GPUUse(lambda pid: is_within(pid, ranks.pids())) if ranks else GPUUse()
        self._gpus = use

        def on_sample(sample: Sample) -> None:
            """Add one sample, and pass it on."""
            use.add(sample)
            self._on_sample(sample)

        if self._samples_gpus and live_gpus.has_gpus():
            self._end_gpus = live_gpus.watch(on_sample, interval=_GPU_PAUSE_SECONDS)


# ---- Whether it hangs: once it has long been still, or SIGQUIT asks, its ranks are looked at ----
# Still is a command that has printed nothing for the time given, and whose GPUs stood still or were busy to the same
# degree without moving data (as collectives that wait keep them); one without GPUs has used next to no processor.
# Nothing of the command is stopped or ended. What is found stands in the diagnosis of its end, too.

_HANG_LOOK_SECONDS = 8.0
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 10.0
"""Seconds between two checks whether it is still: a twentieth of the time given, within these."""
_IDLE_PROCESSORS = 0.02
"""Processors that each of its processes may keep busy, on the average, while all are asleep."""
_SAME_PERCENT = 3.0
_SAME_POWER_SHARE = 0.1
_TRAFFIC_MB_S = 20.0
"""MB/s over PCIe or NVLink from which on a GPU moves data: a GPU that spins in a collective has a few."""
_STUCK_STATES, _STUCK_WAITS = ("loads", "locked", "reads"), ("socket", "pipe", "child")
"""States of a rank, and what its process waits for, that may never end by themselves."""


@dataclass(slots=True)
class GPUStillness:
    """Tracks since when (monotonic) each GPU has had constant utilization and no data traffic."""

    _since: dict[int, float] = field(default_factory=dict)
    _like: dict[int, GPU] = field(default_factory=dict)
    pids: dict[int, set[int]] = field(default_factory=dict)
    """The processes on each GPU."""

    def add(self, sample: Sample) -> None:
        """Note which processes each GPU has, and start its time anew if its utilization or power changed, or it moves
        data.
        """
        now = time.monotonic()
        for gpu in sample.gpus:
            self.pids[gpu.index] = {process.pid for process in gpu.processes or ()}
            like = self._like.get(gpu.index)
            if like is None or not _alike(like, gpu):
                self._like[gpu.index], self._since[gpu.index] = gpu, now

    def since(self, own: frozenset[int]) -> float | None:
        """Since when (monotonic) all GPUs used by `own` process ids are still; None if no process is listed on any GPU.

        If none of `own` is listed, all GPUs count.
        """
        used = [index for index, pids in self.pids.items() if pids & own] or (
            list(self.pids) if any(self.pids.values()) else []
        )
        return max((self._since[index] for index in used), default=None)


def _alike(before: GPU, now: GPU) -> bool:
    """True if utilization and power are about the same (within 3 percentage points and 10 %), and no link now moves
    more than 20 MB/s.
    """
    traffic = (now.pcie_send_mb_s, now.pcie_receive_mb_s, now.nvlink_send_mb_s, now.nvlink_receive_mb_s)
    if any((rate or 0.0) > _TRAFFIC_MB_S for rate in traffic):
        return False
    if abs((now.utilization or 0.0) - (before.utilization or 0.0)) > _SAME_PERCENT:
        return False
    return abs((now.power_w or 0.0) - (before.power_w or 0.0)) <= _SAME_POWER_SHARE * max(before.power_w or 0.0, 30.0)


class HangWatch:
    """Watches for stillness in a thread, from `start` to `stop`; nothing here may raise into who waits for the command.

    `after` is the seconds of stillness; `printed` returns anything that changes when the command prints, `used` what
    its processes use.
    """

    def __init__(
        self, pid: int, after: float, printed: Callable[[], object], used: Callable[[], Used], rules: tuple[Path, ...]
    ) -> None:
        self._pid = pid
        self._after = after
        self._printed = printed
        self._used = used
        self._rules = rules
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._asked = False
        self.gpus = GPUStillness()
        self.samples: list[Sample] = []
        """The latest sample of the GPUs, for whose are whose."""
        self._found: Diagnosis | None = None
        self._reported_stuck = False
        self._thread = threading.Thread(target=self._run, name="hanging", daemon=True)

    def start(self) -> None:
        """Begin to watch in a thread whether the command hangs; where none may be started, nothing is seen."""
        with contextlib.suppress(RuntimeError):
            self._thread.start()

    def ask(self) -> None:
        """Have the ranks looked at now, whether the command is still or not (SIGQUIT)."""
        self._asked = True
        self._wake.set()

    def stop(self) -> None:
        """End the watch for a hang, without waiting for its thread; a look under way is given up."""
        self._stop.set()
        self._wake.set()

    def add(self, sample: Sample) -> None:
        """Keep the sample of the GPUs as the latest, and note which of them are still."""
        self.gpus.add(sample)
        self.samples[:] = [sample]

    @property
    def facts(self) -> dict[str, Fact]:
        """The facts ``job.*`` and ``nccl.*`` of the last look that found something; empty without one."""
        facts = self._found.snapshot.facts if self._found else {}
        return {name: fact for name, fact in facts.items() if name.startswith(("job.", "nccl."))}

    @property
    def groups(self) -> dict[str, Rows]:
        """The groups ``rank``, ``rank_group``, ``job_host`` of the last look that found something; else none."""
        groups = self._found.snapshot.groups if self._found else {}
        return {name: groups[name] for name in ("rank", "rank_group", "job_host") if name in groups}

    def _run(self) -> None:
        """Thread body: watch until stopped; an exception ends only this thread."""
        with contextlib.suppress(Exception):
            self._watch()

    def _watch(self) -> None:
        """Look at the ranks whenever nothing was printed and the GPUs were still for the set time, and when requested.

        Where no process is listed on any GPU, the command's processes must have used next to no processor instead.
        After a look a new period begins.
        """
        pause = min(_LONGEST_PAUSE_SECONDS, max(_SHORTEST_PAUSE_SECONDS, self._after / 20))
        printed, used = self._printed(), self._used()
        printed_at = busy_at = looked_at = time.monotonic()
        checked = looked_at
        while not self._stop.is_set():
            self._wake.wait(pause)
            self._wake.clear()
            now = time.monotonic()
            if (latest := self._printed()) != printed:
                printed, printed_at = latest, now
            uses = self._used()
            idle = _IDLE_PROCESSORS * max(1, len(uses.pids)) * max(0.01, now - checked)
            if uses.cpu_seconds - used.cpu_seconds > idle:
                busy_at = now
            used, checked = uses, now
            on_gpus = self.gpus.since(uses.pids)
            quiet_since = max(printed_at, busy_at if on_gpus is None else on_gpus, looked_at)
            if self._asked or now - quiet_since >= self._after:
                self._look(self._asked)
                looked_at = time.monotonic()
                used, checked = self._used(), looked_at

    def _look(self, asked: bool) -> None:
        """Look at the ranks; a diagnosis with findings is kept and printed. One without is printed if `asked`, or once
        if a process waits for what may never come.

        Nothing where the job cannot be read, the watch is stopped or, unless `asked`, another rank's gpudoctor on this
        host reports.
        """
        from gpudoctor.cluster.running_job import job_diagnosis
        from gpudoctor.cluster.running_job.looking import look
        from gpudoctor.probes._job.members import read_job

        self._asked = False
        job = read_job([self._pid])
        if isinstance(job, Unread) or self._stop.is_set() or not (asked or _reports_for(job, self._pid)):
            return
        looked = look(job, _HANG_LOOK_SECONDS, self.samples, self._stop)
        if self._stop.is_set():
            return
        name = f"job of process {self._pid}"
        diagnosis = job_diagnosis.diagnose(
            name, looked.rows, looked.seconds, looked.records, [looked.host], self._rules, events=looked.groups
        )
        if diagnosis.findings:
            self._found = diagnosis
        stuck = not self._reported_stuck and _is_stuck(diagnosis)
        if diagnosis.findings or asked or stuck:
            self._reported_stuck = self._reported_stuck or stuck
            _tell(diagnosis, 0.0 if asked else self._after)


def _reports_for(job: Job, pid: int) -> bool:
    """True if the gpudoctor whose command is process `pid` reports on the job: of several on this host, only that of
    the lowest rank does; also if `pid` and its children are no rank.
    """
    own = {pid, *(member.pid for member in job.below(pid))}
    mine = [one.rank for one in job.ranks if one.rank is not None and one.member.pid in own]
    return not mine or min(mine) == min(one.rank for one in job.ranks if one.rank is not None)


def _is_stuck(diagnosis: Diagnosis) -> bool:
    """True if the job stands still and one of its processes waits for another, a lock, a file or a device.

    One that only sleeps or waits for events, as a server does between two requests, is idle.
    """
    snapshot = diagnosis.snapshot
    rows = listed(snapshot.rows("rank"))
    return bool(snapshot.value("job.still")) and any(
        text_of(row.get("state")) in _STUCK_STATES or text_of(row.get("waits_in")) in _STUCK_WAITS for row in rows
    )


def _tell(diagnosis: Diagnosis, after: float) -> None:
    """Write to standard error what the ranks do and what was found, in a few lines; errors in writing are ignored.
    `after` is for how many seconds nothing was printed, 0 if the look was requested.
    """
    from gpudoctor.views import job as view
    from gpudoctor.views._terminal import style_of

    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{view.render_short(diagnosis, after, style_of(sys.stderr))}\n")
        sys.stderr.flush()
