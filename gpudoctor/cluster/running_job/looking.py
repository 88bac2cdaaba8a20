"""Looks at the ranks of a job on this machine over some seconds, and tells what each of them does, as rows.

Nothing is stopped, killed or asked to do anything: stacks are read from outside, the rest is the kernel's. A rank
that ends meanwhile, hangs in the kernel, or is another user's costs its own row alone, for each is looked at in a
thread that is left behind where it does not come back.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TypeVar

from gpudoctor.cluster.running_job.recorded import MachineRecords, Records
from gpudoctor.core.fact import Absent, Fact, Known, Reason, Row, Rows, Unread, number_of, text_of
from gpudoctor.core.sample import GPU, Process, Sample
from gpudoctor.probes._job.members import Job, Member, RankProcess, is_same
from gpudoctor.probes._job.stacks import MEETING, Stack, Stacks, find_program, stacks_of
from gpudoctor.probes._job.traffic import Traffic
from gpudoctor.probes._job.waiting import Progress, Wait, exit_of, gpu_files, is_frozen, progress_of, wait_of
from gpudoctor.probes._reading import Mount
from gpudoctor.target.local import Local

_LOOKS = (0.0, 0.1, 0.3, 0.6, 1.0)
"""When it is looked, as shares of the time given."""
_PY_SPYS_AT_ONCE = 8
_LOOK_SECONDS = 12.0
"""Seconds that one look at all ranks may take: 512 of them on two processors need about half."""
_BUSY_PROCESSORS = 0.2
"""Share of a processor from which on a rank counts as computing: one that waits for a worker uses a hundredth."""
_IDLE_SWITCHES = 20.0
"""Turns of a thread a second from which on it is no longer one that waits: polling waits have a few."""
_MOVED_BYTES = 4096
"""Bytes read or written by which a rank has come on."""
_MOST_FRAMES = 40
_SOURCE = "py-spy and /proc, while it ran"
_STATES = {
    "sleep": "sleeps",
    "lock": "locked",
    "file": "reads",
    "device": "reads",
    "socket": "listens",
    "pipe": "listens",
    "events": "listens",
    "child": "listens",
}
"""What a rank does by what its main thread waits for."""
T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True)
class _Moment:
    """One look at one rank: what its main thread waits for, its acting thread's stack, what its processes have used."""

    wait: Wait | None
    stacks: Stacks | Unread
    own: Progress
    whole: Progress
    at: float
    frozen: bool = False

    @property
    def stack(self) -> Stack | None:
        """The stack of the thread that does the job's work; None if the process's stacks could not be read."""
        return None if isinstance(self.stacks, Unread) else self.stacks.acting


@dataclass(slots=True)
class Seen:
    """All looks at one rank."""

    rank: RankProcess
    moments: list[_Moment] = field(default_factory=list)
    worker: tuple[int, Member, Stack | None, Wait | None] | None = None
    exit: str = ""
    """How it ended, where its status was still to be read."""

    @property
    def pid(self) -> int:
        """Process id of the rank."""
        return self.rank.member.pid

    @property
    def last(self) -> _Moment:
        """The latest look at the rank; IndexError before the first."""
        return self.moments[-1]

    @property
    def stack(self) -> Stack | None:
        """The rank's latest stack that any look could read, None without: some looks at a running process may fail."""
        return next((moment.stack for moment in reversed(self.moments) if moment.stack), None)

    @property
    def gone(self) -> bool:
        """True if the rank's process had ended, or was a zombie, at the latest look."""
        wait = self.last.wait
        return wait is None or wait.state in ("Z", "X")

    @property
    def same_stack(self) -> bool:
        """True if the rank's working thread had the same frames in every look that could read them, or fewer than two
        could.
        """
        stacks = [moment.stack.frames for moment in self.moments if moment.stack]
        return len(set(stacks)) < 2

    @property
    def cpu(self) -> float:
        """Mean number of processors that the rank and its child processes kept busy from the first look to the last."""
        return self._rate(lambda one: one.whole.cpu_seconds)

    @property
    def still(self) -> bool:
        """True if the rank made no progress between at least two looks: all stacks alike, and not for want of a
        processor. One that waits for ranks or for its GPU must wake less than 20 times a second (except when it polls a
        rendezvous store); any other must use less than 0.2 processors and less than 4 KiB of I/O.
        """
        if not self.same_stack or len(self.moments) < 2 or self._wants_processor:
            return False
        if self._waits_for_ranks or self._spins:
            meets = bool(self.stack and self.stack.collective == MEETING)  # polls its store 100 times a second
            return meets or self._rate(lambda one: one.own.turns) < _IDLE_SWITCHES
        moved = self.last.whole.moved - self.moments[0].whole.moved
        return self.cpu < _BUSY_PROCESSORS and moved < _MOVED_BYTES

    @property
    def halted(self) -> str:
        """``gone`` (ended or zombie), ``stopped`` (by signal or debugger) or ``frozen`` (by its cgroup); "" for any
        other.
        """
        if self.gone:
            return "gone"
        if self.last.wait and self.last.wait.state in "tT":
            return "stopped"
        return "frozen" if self.last.frozen else ""

    @property
    def state(self) -> str:
        """What the rank does, in one word: ``gone``, ``stopped``, ``frozen``; ``waits`` (for ranks or its GPU);
        ``computes`` or ``moves`` (it makes progress); ``loads`` (waits for a DataLoader); ``unseen`` (the kernel hides
        what it waits for); or by what its main thread waits for ``sleeps``, ``locked``, ``reads``, ``listens``, else
        ``idles``.
        """
        wait, stack = self.last.wait, self.stack
        if self.halted:
            return self.halted
        assert wait
        if self._waits_for_ranks or self._spins:
            return "waits"
        if not self.still and len(self.moments) > 1:
            return "computes" if self.same_stack and self.cpu >= _BUSY_PROCESSORS else "moves"
        if stack and stack.loads:
            return "loads"
        if wait.kind == "hidden":
            return "unseen"
        return _STATES.get(wait.kind, "idles")

    @property
    def _wants_processor(self) -> bool:
        """True if the rank was runnable in two or more looks, yet used less than 0.8 processors: starved, not hung."""
        runnable = sum(bool(moment.wait and moment.wait.state == "R") for moment in self.moments)
        return runnable > 1 and self._rate(lambda one: one.own.cpu_seconds) < 1 - _BUSY_PROCESSORS

    @property
    def _waits_for_ranks(self) -> bool:
        """True if the rank's latest stack is in a function in which ranks wait for each other, such as a collective."""
        return bool(self.stack and self.stack.collective)

    @property
    def _spins(self) -> bool:
        """True if the rank busy-waits for its GPU: in three or more looks at one line, over 0.8 of a processor in use,
        no system call, and a GPU device open. CUDA waits like this for work that it was given before, collectives among
        it.
        """
        wait = self.last.wait
        busy = self._rate(lambda one: one.own.cpu_seconds)
        return bool(
            len(self.moments) > 2
            and self.stack
            and self.same_stack
            and busy > 1 - _BUSY_PROCESSORS
            and wait
            and wait.kind == "nothing"
            and gpu_files(self.pid)
        )

    def _rate(self, counter: Callable[[_Moment], float]) -> float:
        """Increase per second of a counter from the first look to the last."""
        first, last = self.moments[0], self.last
        return (counter(last) - counter(first)) / max(0.01, last.at - first.at)


@dataclass(frozen=True, slots=True)
class Looked:
    """Result of observing a job on one machine: rows of its ranks, seconds taken, records, and the machine's row."""

    rows: tuple[Row, ...]
    seconds: float
    records: Mapping[str, Fact]
    host: Row
    """What the machine's network carried meanwhile, as a row ``job_host``."""
    groups: Mapping[str, Rows] = field(default_factory=dict)
    """What befell its GPUs and processes since the job began (`recorded.MachineRecords`)."""


def look(
    job: Job, seconds: float, samples: Sequence[Sample] = (), stop: threading.Event | None = None, records: bool = True
) -> Looked:
    """Observe the job's ranks on this machine for `seconds`, or until all are known to make progress, or `stop` is set:
    their rows, and what was recorded of the job. `samples` are NVML's, and may be appended to meanwhile; without
    `records` no NCCL, torch or kernel records are read.
    """
    target, began, before = Local("quick"), time.monotonic(), Traffic.now()
    recorded, machine = Records(job, target), MachineRecords(job, target)
    if records:
        recorded.begin()
        machine.begin()
    seen = look_at(job, seconds, target, find_program(target), stop)
    took = time.monotonic() - began
    traffic = host_row(before)
    rows = rows_of(job, seen, samples)
    if not records:
        return Looked(rows, took, {}, traffic)
    facts, groups = machine.read()
    dumps, dumps_read = recorded.dumps()
    rows = tuple(
        {**row, **_blocked(row, machine), **dumps.get(int(number_of(row.get("rank")) or 0), {})} for row in rows
    )
    return Looked(rows, took, {**recorded.facts(), **facts, "job.records": dumps_read}, traffic, groups)


def _blocked(row: Row, machine: MachineRecords) -> Row:
    """Column ``blocked``: the kernel log's line about a rank, or worker of one, in uninterruptible sleep (state D);
    Absent if the log has none, Unread if it cannot be read. Empty for a rank in another state.
    """
    if "D" not in (text_of(row.get("kernel_state")), text_of(row.get("worker_state"))):
        return {}
    line = machine.blocked(int(number_of(row.get("pid")) or 0))
    return {"blocked": line if isinstance(line, Unread) else _text(line, "the kernel's log has no word of it")}


def look_at(
    job: Job,
    seconds: float,
    target: Local,
    program: str | Unread,
    stop: threading.Event | None = None,
) -> list[Seen]:
    """One `Seen` for each rank, observed up to five times within `seconds`; fewer if `stop` is set or all make
    progress. Stuck DataLoader workers are looked at last. `program` is py-spy's path, or why there is none.
    """
    seen = [Seen(rank) for rank in job.ranks]
    began = time.monotonic()
    for share in _LOOKS:
        delay = began + share * seconds - time.monotonic()
        if delay < 0 and _LOOKS[1] < share < 1.0:  # so many ranks that a look takes longer
            continue
        if delay > 0 and (stop or threading.Event()).wait(delay):
            break
        look_once(job, seen, target, program)
        if share and all_go_on(seen):
            break
    look_at_workers(job, seen, target, program)
    return seen


def all_go_on(seen: Sequence[Seen]) -> bool:
    """True if every rank that has not ended is in the state ``moves`` or ``computes``: no further look is needed."""
    return all(one.state in ("moves", "computes") for one in seen if not one.gone)


def look_at_workers(job: Job, seen: Sequence[Seen], target: Local, program: str | Unread) -> None:
    """Set `worker` of each rank in the state ``loads`` to its first DataLoader worker that is not idle, or to None."""
    for one in seen:
        if one.state == "loads":
            one.worker = _stuck_worker(job, one.pid, target, program)


def rows_of(job: Job, seen: Sequence[Seen], samples: Sequence[Sample]) -> tuple[Row, ...]:
    """Rows of the group ``rank``: one for each rank in `seen`, then one with the state ``gone`` for each rank that the
    launcher placed on this machine and that has no process.
    """
    host = _host_name()
    gpus = _gpus_by_process(samples)
    place = {"host": Known(host, "this machine"), "hosts": Known((host,), "this machine")}
    rows = [{**place, **_row(job, one, gpus, bool(samples))} for one in seen]
    return (*rows, *({**place, **_gone_row(number, job.world)} for number in job.missing))


def host_row(before: Traffic) -> Row:
    """A row of ``job_host``: this machine's mean network rates in MB/s since `before`, and the TCP segments resent."""
    return {"host": Known(_host_name(), "this machine"), **Traffic.now().facts_since(before)}


def _host_name() -> str:
    """This machine's name: ``SLURMD_NODENAME`` if set, else the host name."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def look_once(job: Job, seen: Sequence[Seen], target: Local, program: str | Unread) -> None:
    """Append one look to each rank that had not ended before; one that takes longer than 12 s is recorded as unread.
    Also reads the exit status of those that have ended. Without a `program` (py-spy) no stacks are read.
    """

    def look(one: Seen) -> _Moment:
        """One look at a rank now: what it waits for (None if it has ended), its stacks, and counters of its use."""
        wait = wait_of(one.pid)
        ended = wait is None or wait.state in ("Z", "X") or not is_same(one.rank.member)
        stacks = Unread("it has ended", reason=Reason.MISSING) if ended else stacks_of(target, program, one.pid)
        pids = [one.pid, *(member.pid for member in job.below(one.pid))]
        now = time.monotonic()
        frozen = not ended and is_frozen(one.pid)
        return _Moment(None if ended else wait, stacks, progress_of([one.pid]), progress_of(pids), now, frozen)

    there = [one for one in seen if not (one.moments and one.gone)]
    answers = in_time(look, there, _LOOK_SECONDS)
    for one in there:
        late = _Moment(Wait("?", "hidden"), Unread("no look at it came back", reason=Reason.TIMED_OUT), *_NOTHING)
        one.moments.append(answers.get(id(one), late))
        if one.gone:
            one.exit = exit_of(one.pid)


_NOTHING = (Progress(), Progress(), 0.0)


def in_time(ask: Callable[[T], R], items: Sequence[T], seconds: float) -> Mapping[int, R]:
    """Results of `ask` by the `id()` of the item, from up to 8 threads; missing if not done within `seconds` or if it
    raised.
    """
    queue: SimpleQueue[T] = SimpleQueue()
    answers: SimpleQueue[tuple[int, R]] = SimpleQueue()
    for item in items:
        queue.put(item)

    def work() -> None:
        """Store `ask` of queued items until none is left; an exception ends this thread, and its item has no result."""
        while True:
            try:
                item = queue.get_nowait()
            except Empty:
                return
            answers.put((id(item), ask(item)))

    for _ in range(min(_PY_SPYS_AT_ONCE, len(items))):
        threading.Thread(target=work, name="look", daemon=True).start()
    found: dict[int, R] = {}
    deadline = time.monotonic() + seconds
    while len(found) < len(items) and (left := deadline - time.monotonic()) > 0:
        try:
            key, answer = answers.get(timeout=left)
        except Empty:
            break
        found[key] = answer
    return found


def _stuck_worker(
    job: Job, pid: int, target: Local, program: str | Unread
) -> tuple[int, Member, Stack | None, Wait | None] | None:
    """(number, process, stack, wait) of the first DataLoader worker of process `pid` that is not idle, None if all are.
    Workers are numbered from 0 by start time; stack and wait are None where they could not be read.
    """
    children = [one for one in job.members.values() if one.parent == pid and one.is_python and not one.is_service]
    children.sort(key=lambda one: (int(one.start), one.pid))
    answers = in_time(lambda one: (stacks_of(target, program, one.pid), wait_of(one.pid)), children, _LOOK_SECONDS)
    number = 0
    for child in children:
        stacks, wait = answers.get(id(child), (Unread("no look at it came back"), None))
        stack = None if isinstance(stacks, Unread) else stacks.acting
        if stack and not stack.is_loader_worker:
            continue
        if not (stack and any(frame.file.endswith("multiprocessing/queues.py") for frame in stack.frames[:6])):
            return number, child, stack, wait
        number += 1
    return None


# ---- Rows ----


def _row(job: Job, seen: Seen, gpus: Mapping[int, Sequence[tuple[GPU, Process]]], sampled: bool) -> Row:
    """Row of the group ``rank``: identity, GPUs, state, stack, what it waits for, its stuck worker. `gpus` are uses of
    GPUs by process id; of a rank without any, ``gpus`` is empty and the other GPU columns are Absent, for a reason that
    `sampled` (whether NVML was asked) decides.
    """
    rank, stack, wait = seen.rank, seen.stack, seen.last.wait
    pids = [seen.pid, *(member.pid for member in job.below(seen.pid))]
    uses = [use for pid in pids for use in gpus.get(pid, ())]
    used = tuple(sorted({gpu.index for gpu, _ in uses}))
    stacks = seen.last.stacks
    unseen = stacks.why if isinstance(stacks, Unread) and not stack else ""
    frames = tuple(frame.place for frame in (stack.frames if stack else ())[:_MOST_FRAMES])
    nobody = stacks if isinstance(stacks, Unread) and not stack else Absent("in none")
    inside = stack.collective if stack else ""
    unused = Absent("NVML names none of its processes" if sampled else "no GPU was seen")
    return {
        "rank": _number(rank.rank, "no launcher numbers it"),
        "local_rank": _number(rank.local_rank, "no launcher numbers it"),
        "world": _number(job.world, "its launcher does not tell"),
        "pid": Known(seen.pid, "/proc"),
        "process": Known(rank.member.title, "/proc"),
        "gpu": Known(used[0], "NVML") if used else unused,
        "gpus": Known(used, "NVML"),
        **_gpu_columns(uses, unused),
        "state": Known(seen.state, _SOURCE),
        "still": Known(seen.still or seen.state in ("stopped", "frozen", "gone"), _SOURCE),
        "place": Known(stack.place, _SOURCE) if stack else nobody,
        "collective": Known(inside or _GPU_WAIT, _SOURCE) if inside or seen.state == "waits" else nobody,
        "cpu": Known(round(100 * seen.cpu, 1), "/proc"),
        "stack": Known(frames, _SOURCE) if frames else nobody,
        "exit": _text(seen.exit, "it has not ended, or its launcher has taken its status"),
        "unseen": Known(unseen, "py-spy") if unseen else Absent("it is known"),
        "kernel_state": Known(wait.state, "/proc") if wait else Absent("it has ended"),
        "kernel_function": _text(wait.where if wait else "", "the kernel does not tell"),
        **_wait_columns("", wait),
        **_worker_columns(seen.worker),
    }


_GPU_WAIT = "its GPU"
"""Where a rank waits that spins for what it has given to its GPU."""


def _gone_row(number: int, world: int | None) -> Row:
    """Row of the group ``rank`` for a rank without process: state ``gone``, ``still`` True; pid, gpu, unseen are
    Absent.
    """
    return {
        "rank": Known(number, "its launcher's variables"),
        "world": _number(world, "its launcher does not tell"),
        "state": Known("gone", "/proc"),
        "still": Known(True, "/proc"),
        "pid": Absent("it has no process"),
        "gpu": Absent("it has no process"),
        "unseen": Absent("it has no process"),
    }


def _worker_columns(worker: tuple[int, Member, Stack | None, Wait | None] | None) -> dict[str, Fact]:
    """Columns ``worker``, ``worker_pid``, ``worker_place``, ``worker_state`` and those of `_wait_columns` about the
    stuck DataLoader worker; only ``worker``, Absent, if there is none.
    """
    if worker is None:
        return {"worker": Absent("none of its DataLoader is seen to wait")}
    number, member, stack, wait = worker
    return {
        "worker": Known(number, _SOURCE),
        "worker_pid": Known(member.pid, "/proc"),
        "worker_place": _text(stack.place if stack else "", "its stack is not known"),
        "worker_state": _text(wait.state if wait else "", "it has ended"),
        **_wait_columns("worker_", wait),
    }


def _wait_columns(prefix: str, wait: Wait | None) -> dict[str, Fact]:
    """Columns ``waits_in``, ``what``, ``mount``, ``mount_kind``, ``mount_source`` and ``mount_remote``, each after
    `prefix`: what a process waits for. Absent where that does not apply; ``waits_in`` is Unread if the kernel hides it.
    """
    mount: Mount | None = wait.mount if wait else None
    kind = wait.kind if wait else ""
    hidden = Unread("the kernel does not show its system call", reason=Reason.DENIED)
    return {
        f"{prefix}waits_in": hidden if kind == "hidden" else _text(kind, "it has ended"),
        f"{prefix}what": _text(wait.what if wait else "", "not a file or a peer"),
        f"{prefix}mount": _text(mount.point if mount else "", "not a file"),
        f"{prefix}mount_kind": _text(mount.kind if mount else "", "not a file"),
        f"{prefix}mount_source": _text(mount.source if mount else "", "not a file"),
        f"{prefix}mount_remote": Known(mount.remote, "/proc") if mount else Absent("not a file"),
    }


def _text(value: str, absent: str) -> Fact:
    """`value` as Known, read from /proc; Absent for the reason `absent` if it is empty."""
    return Known(value, "/proc") if value else Absent(absent)


def _number(value: int | None, absent: str) -> Fact:
    """`value` as Known, from the launcher's variables; Absent for the reason `absent` if it is None."""
    return Absent(absent) if value is None else Known(value, "its launcher's variables")


def _gpus_by_process(samples: Iterable[Sample]) -> Mapping[int, list[tuple[GPU, Process]]]:
    """(GPU, its use by the process) by process id, from the latest of these samples that has any GPU."""
    latest = next((sample for sample in reversed(list(samples)) if sample.gpus), None)
    found: dict[int, list[tuple[GPU, Process]]] = {}
    for gpu in latest.gpus if latest else ():
        for process in gpu.processes or ():
            found.setdefault(process.pid, []).append((gpu, process))
    return found


def _gpu_columns(uses: Sequence[tuple[GPU, Process]], unused: Absent) -> dict[str, Fact]:
    """Columns ``gpu_busy`` (percent, of the first GPU) and ``gpu_memory_mib`` (held by the processes on all of their
    GPUs). Both are `unused` without any use, and Unread where NVML does not tell.
    """
    if not uses:
        return {"gpu_busy": unused, "gpu_memory_mib": unused}
    busy, held = uses[0][0].utilization, [process.memory_mib for _, process in uses if process.memory_mib is not None]
    unread = Unread("NVML does not tell", reason=Reason.NVML_FAILED)
    return {
        "gpu_busy": unread if busy is None else Known(round(busy), "NVML"),
        "gpu_memory_mib": Known(sum(held), "NVML") if held else unread,
    }
