"""Which processes of this machine belong to a job, and which of them are its ranks.

To a job belong the process that is named and its descendants; where it leads a session or a process group, all of
that; what shares its control group, where that is a Slurm step's or a container's; and what a launcher gave the same
meeting point or step. One that leaves its parent is found by these.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TypeVar

from gpudoctor.core.fact import Reason, Unread
from gpudoctor.core.secrets import without_secrets
from gpudoctor.target import proc
from gpudoctor.target.proc import names, stat_fields

RANK_VARIABLES = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", ""),
)
"""What launchers set: a rank's number, its number on its machine, and how many there are in all and on the machine."""
_KEYS = (
    ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ("TORCHELASTIC_RUN_ID", "MASTER_PORT"),
    ("PMIX_NAMESPACE",),
    ("MASTER_ADDR", "MASTER_PORT"),
)
"""Variables that are the same for all processes of one job, and for no other."""
_OF_A_JOB = re.compile(r"/(?:job_\d+/step_\w+|docker[/-]\w{12,}|libpod-\w{12,}|cri-containerd-\w{12,}|crio-\w{12,})")
"""Control groups that hold one job's processes: of a Slurm step, or of a container."""
_PYTHON = re.compile(r"(?:python[\d.]*t?|pypy[\d.]*)")
_MODULE_OR_CODE = re.compile(r"-[A-Za-z]*([cm])")
_OPTIONS_WITH_VALUE = ("-W", "-X")
_SERVICES = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "torch._inductor.compile_worker")
_NODE = "SLURMD_NODENAME"
"""Where several slurmd run on one machine, each is a node of its own."""
_OURS = ("gpudoctor", "gpudoctor.pyz")
_DOOR = "gpudoctor.__main__"
"""What the code imports by which gpudoctor starts itself again."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MOST_RANKS = 1 << 14
_READ_SECONDS = 2.0
"""Seconds for the environment and command line of all: the kernel locks a process's memory for each."""
_MOST_ENVIRON_BYTES = 1 << 20
T = TypeVar("T")


@dataclass(slots=True)
class Member:
    """A process of a job. `environ` is unread where the process is another user's or hangs with its memory locked."""

    pid: int
    start: bytes
    parent: int
    group: int
    session: int
    state: str
    name: str
    command: tuple[str, ...] = ()
    environ: Mapping[str, str] | Unread = field(default_factory=dict)

    @property
    def is_python(self) -> bool:
        """True if the process runs a Python interpreter, by its executable or its command line."""
        words = (self.program, self.command[0] if self.command else "")
        return any(_PYTHON.fullmatch(word.rpartition("/")[2]) for word in words)

    @property
    def is_service(self) -> bool:
        """True for helper processes of Python, torch or gpudoctor that do none of the job's work."""
        words = self.command[:4]
        doctor = any(word.rpartition("/")[2] in _OURS or _DOOR in word for word in words)
        return doctor or any(service in word for word in words[1:] for service in _SERVICES)

    @property
    def program(self) -> str:
        """Path of the process's executable; ``""`` if not readable."""
        return proc.link(f"/proc/{self.pid}/exe").removesuffix(" (deleted)")

    @property
    def title(self) -> str:
        """Of a Python process, its program and what that runs: ``python3 train.py``, ``python3 -m
        torch.distributed.run``.

        The kernel's name of the process if it is no Python, or its command line cannot be read.
        """
        if not self.command or not self.is_python:
            return self.name
        program, *words = self.command
        parts = [program.rpartition("/")[2]]
        left = iter(words)
        for word in left:
            if option := _MODULE_OR_CODE.fullmatch(word):
                parts += ["-m", next(left, "")] if option[1] == "m" else ["-c"]
                break
            if word in _OPTIONS_WITH_VALUE:
                next(left, "")
            elif not word.startswith("-"):
                parts.append(word.rpartition("/")[2])
                break
        return without_secrets(" ".join(parts))

    def variable(self, name: str) -> str:
        """Value of an environment variable; ``""`` if unset or not readable."""
        return "" if isinstance(self.environ, Unread) else self.environ.get(name, "")

    def number(self, name: str) -> int | None:
        """Whole number in an environment variable, at most seven digits; None if unset or anything else."""
        value = self.variable(name) if name else ""
        return int(value) if value.isascii() and value.isdecimal() and len(value) < 8 else None


@dataclass(slots=True)
class RankProcess:
    """A rank: its process, and what its launcher told it; `rank` is None where no launcher numbers it."""

    member: Member
    rank: int | None = None
    local_rank: int | None = None


@dataclass(slots=True)
class Job:
    """A job's processes on this machine; `missing` are ranks that its launcher placed here and that have no process."""

    root: int
    members: dict[int, Member]
    ranks: list[RankProcess]
    world: int | None = None
    missing: tuple[int, ...] = ()
    hidden: Unread | None = None
    """Why some environments were not read, and so ranks may not be known."""

    @property
    def launcher(self) -> int:
        """Process id of the parent of all ranks, such as torchrun; 0 for one rank, several parents, or init."""
        parents = {one.member.parent for one in self.ranks}
        return parents.pop() if len(self.ranks) > len(parents) == 1 and 1 not in parents else 0

    def below(self, pid: int) -> list[Member]:
        """The job's members that descend from that process, itself not included."""
        found = {pid}
        for member in sorted(self.members.values(), key=lambda one: (int(one.start), one.pid)):
            if member.parent in found:
                found.add(member.pid)
        return [self.members[one] for one in found - {pid} if one in self.members]


def read_job(pids: Sequence[int]) -> Job | Unread:
    """The job of those processes: they, their descendants, what is in a session or process group that one of them
    leads, and what shares their cgroup (a Slurm step's or container's) or job variables.

    Without gpudoctor's own processes; unread where none of `pids` is a process.
    """
    stats = _all_processes()
    roots = [pid for pid in pids if pid in stats]
    if not roots:
        return Unread(f"no process {', '.join(map(str, pids))}", reason=Reason.MISSING)
    below = set(roots) | _descendants(roots, stats)
    ours = ({os.getpid()} | _descendants({os.getpid()}, stats)) - (below if os.getpid() not in below else set())
    seeds = _related_pids(roots, stats)
    found = (seeds | _descendants(seeds, stats)) - ours
    reader = _Reader(_READ_SECONDS)
    for pid in found:
        reader.fill(stats[pid])
    found |= _pids_of_same_job([stats[pid] for pid in found], stats, reader) - ours
    return _job_of(roots[0], {pid: stats[pid] for pid in found})


def find_job(variables: Mapping[str, str]) -> Job:
    """The job of all processes whose environment has these values; without members if there are none, or `variables` is
    empty.

    Left out are gpudoctor and its children, its own Slurm step, and processes of another slurmd on this machine.
    """
    stats = _all_processes()
    own = _environ(os.getpid())
    step = {name: own[name] for name in _KEYS[0] if name in own} if not isinstance(own, Unread) else {}
    ours = {os.getpid()} | _descendants({os.getpid()}, stats)
    reader = _Reader(_READ_SECONDS)
    found: dict[int, Member] = {}
    for pid in stats.keys() - ours:
        member = stats[pid]
        reader.fill(member)
        asked = len(step) == len(_KEYS[0]) and all(member.variable(name) == value for name, value in step.items())
        if asked or member.variable(_NODE) not in ("", os.environ.get(_NODE, member.variable(_NODE))):
            continue
        if variables and all(member.variable(name) == value for name, value in variables.items()):
            found[pid] = member
    return _job_of(min(found, default=0), found)


def find_jobs(on_gpus: Iterable[int] = ()) -> list[Job]:
    """The jobs of this machine that have ranks, the one with the most ranks first.

    A job is what a launcher has numbered as ranks, or a Python program whose process id is among those `on_gpus`.
    """
    stats = _all_processes()
    reader = _Reader(_READ_SECONDS)
    users, ours = set(on_gpus), {os.getpid()} | _descendants({os.getpid()}, stats)
    found: list[Job] = []
    for pid in sorted(stats.keys() - ours, key=lambda one: (one not in users, one)):
        member = stats[pid]
        if any(pid in job.members for job in found):
            continue
        reader.fill(member)
        numbered = any(member.number(names[0]) is not None for names in RANK_VARIABLES)
        if member.is_python and not member.is_service and (numbered or pid in users):
            job = read_job([pid])
            if isinstance(job, Job) and job.ranks:
                found.append(job)
    return sorted(found, key=lambda job: -len(job.ranks))


def key_of(job: Job) -> dict[str, str]:
    """The launcher's variables, with values, that are the same for all processes of this job, and for no other job.

    Empty where no process has such variables.
    """
    ranks = [one.member for one in job.ranks]
    for key in _KEYS:
        for member in [*ranks, *job.members.values()]:
            if all(map(member.variable, key)):
                return {name: member.variable(name) for name in key}
    return {}


def _job_of(root: int, members: dict[int, Member]) -> Job:
    """`Job` with these processes as members, and its ranks; `root`: process id of its first process."""
    hidden = next((one.environ for one in members.values() if isinstance(one.environ, Unread)), None)
    return _with_ranks(Job(root, members, [], hidden=hidden))


def read_member(pid: int) -> Member | None:
    """Member from the process's /proc stat file, without environment and command line; None if it has ended."""
    fields = stat_fields(f"/proc/{pid}/stat")
    if len(fields) < 21:
        return None
    parent, group, session = map(int, fields[2:5])
    return Member(pid, fields[20], parent, group, session, fields[1].decode(), fields[0].decode("utf-8", "replace"))


def is_same(member: Member) -> bool:
    """True if the same process still runs (same start time, no zombie)."""
    fields = stat_fields(f"/proc/{member.pid}/stat")
    return len(fields) > 20 and fields[20] == member.start and fields[1] not in (b"Z", b"X")


def _all_processes() -> dict[int, Member]:
    """All processes of the machine by process id, read from their stat files alone (no environment or command line)."""
    found = (read_member(int(name)) for name in names("/proc") if name.isdigit())
    return {member.pid: member for member in found if member}


def _descendants(roots: Iterable[int], stats: Mapping[int, Member]) -> set[int]:
    """Process ids of all descendants of `roots`."""
    children: dict[int, list[int]] = {}
    for member in stats.values():
        children.setdefault(member.parent, []).append(member.pid)
    found: set[int] = set()
    queue = list(roots)
    while queue:
        fresh = [child for child in children.get(queue.pop(), ()) if child not in found]
        found.update(fresh)
        queue += fresh
    return found


def _related_pids(roots: Sequence[int], stats: Mapping[int, Member]) -> set[int]:
    """Process ids of `roots`, of sessions and groups that one of them leads, and of their Slurm step or container.

    The last only if gpudoctor itself is not in it.
    """
    leads = set(roots)
    found = {one.pid for one in stats.values() if one.session in leads or one.group in leads} | leads
    places = {place for pid in roots if (place := job_cgroup(pid))}
    if places and not places & {job_cgroup(os.getpid())}:
        found |= {pid for pid in stats if job_cgroup(pid) in places}
    return found


def job_cgroup(pid: int) -> str:
    """The part of the process's cgroup path that names a Slurm step or container, ``/job_7/step_0``; else empty."""
    match = _OF_A_JOB.search(proc.text(f"/proc/{pid}/cgroup"))
    return match[0] if match else ""


def pids_in(cgroup: str) -> set[int]:
    """Process ids in that cgroup (of memory, in version 1) and in those below it; empty for the root cgroup."""
    inside = re.compile(rf"^\d+:(?:|[^:]*\bmemory\b[^:]*):{re.escape(cgroup)}(?:/|$)", re.M)
    pids = filter(str.isdigit, names("/proc")) if cgroup.strip("/") else ()
    return {int(pid) for pid in pids if inside.search(proc.text(f"/proc/{pid}/cgroup"))}


def _pids_of_same_job(found: Sequence[Member], stats: Mapping[int, Member], reader: _Reader) -> set[int]:
    """Ids of processes not in `found` that have the same job key (launcher variables) as the first of `found` with one.

    Fills the environments of all processes in `stats`; empty if none of `found` has a key.
    """
    named = next(((key, one) for key in _KEYS for one in found if all(map(one.variable, key))), None)
    if named is None:
        return set()
    key, first = named
    wanted = [first.variable(name) for name in key]
    own = {one.pid for one in found}
    for pid in stats.keys() - own:
        reader.fill(stats[pid])
    return {pid for pid in stats.keys() - own if [stats[pid].variable(name) for name in key] == wanted}


def _with_ranks(job: Job) -> Job:
    """The same object with its ranks, world size and missing ranks set.

    For each rank number the topmost Python process that has it, else the topmost process. Without a launcher's numbers:
    the Python processes that the topmost one spawned, else that one; without Python, the first living process.
    """
    living = [one for one in job.members.values() if one.state not in "ZX"]
    for rank, local, world, here in RANK_VARIABLES:
        by_rank: dict[int, list[Member]] = {}
        for member in living:
            if (number := member.number(rank)) is not None:
                by_rank.setdefault(number, []).append(member)
        if not by_rank:
            continue
        for number, members in sorted(by_rank.items()):
            chosen = _topmost([one for one in members if one.is_python and not one.is_service] or members)
            job.ranks.append(RankProcess(chosen, number, chosen.number(local)))
        first = job.ranks[0].member
        job.world = first.number(world)
        job.missing = _missing_ranks(job, first.number(here))
        return job
    pythons = [one for one in living if one.is_python and not one.is_service]
    job.ranks = [RankProcess(one) for one in (_spawned_ranks(pythons) or living[:1])]
    return job


def _missing_ranks(job: Job, here: int | None) -> tuple[int, ...]:
    """Ranks that the launcher started here and that have no process any more; empty if that cannot be known.

    It can if the ranks meet at this machine's loopback address, so that all are here, or if their numbers follow each
    other and the launcher set how many are here (`here`), as torchrun and mpirun do.
    """
    numbers = {one.rank for one in job.ranks if one.rank is not None}
    offsets = {one.rank - one.local_rank for one in job.ranks if one.rank is not None and one.local_rank is not None}
    if job.hidden:
        return ()
    if job.world is not None and job.ranks[0].member.variable("MASTER_ADDR") in _LOOPBACK:
        return tuple(sorted(set(range(min(job.world, _MOST_RANKS))) - numbers))
    if here is None or len(offsets) != 1:
        return ()
    begin = offsets.pop()
    return tuple(sorted(set(range(begin, begin + min(here, _MOST_RANKS))) - numbers))


def _topmost(members: Sequence[Member]) -> Member:
    """The member whose parent is not among the members; the oldest of several."""
    pids = {one.pid for one in members}
    tops = [one for one in members if one.parent not in pids]
    return min(tops or members, key=lambda one: (int(one.start), one.pid))


def _spawned_ranks(pythons: Sequence[Member]) -> list[Member]:
    """Rank processes of a job without a launcher: Python processes that multiprocessing spawned from the topmost one,
    else that one itself; empty for no processes.
    """
    if not pythons:
        return []
    top = _topmost(pythons)
    spawned = [one for one in pythons if one.parent == top.pid and any("spawn_main" in word for word in one.command)]
    return spawned or [top]


class _Reader:
    """Reads environments and command lines, each in a thread that is abandoned if the kernel blocks it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._stuck = 0

    def fill(self, member: Member) -> None:
        """Set the member's environment and command line.

        The environment is `Unread` if another user's, or not read in time. After four that were not read in time no
        more are tried.
        """
        if self._stuck > 3:
            member.environ = Unread("other processes of it did not answer", reason=Reason.GIVEN_UP)
            return
        answer = self._in_time(lambda: (_environ(member.pid), _command(member.pid)))
        if answer is None:
            self._stuck += 1
            member.environ = Unread(f"process {member.pid} holds its memory locked", reason=Reason.TIMED_OUT)
        else:
            member.environ, member.command = answer

    def _in_time(self, read: Callable[[], T]) -> T | None:
        """Result of `read`, run in a thread; None if it takes longer than the reader's limit."""
        answers: SimpleQueue[T] = SimpleQueue()
        threading.Thread(target=lambda: answers.put(read()), name="read", daemon=True).start()
        try:
            return answers.get(timeout=self._seconds)
        except Empty:
            return None


def _environ(pid: int) -> Mapping[str, str] | Unread:
    """The variables that the process was started with; unread if it is another user's, empty if it has ended."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - many
            entries = file.read(_MOST_ENVIRON_BYTES).split(b"\0")
    except PermissionError:
        return Unread(f"the environment of process {pid} is another user's", reason=Reason.DENIED)
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in entries)
    return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, mark, value in pairs if mark}


def _command(pid: int) -> tuple[str, ...]:
    """The words of the process's command line; empty where it has ended."""
    words = proc.text(f"/proc/{pid}/cmdline", 1 << 14).rstrip("\0")
    return tuple(words.split("\0")) if words else ()
