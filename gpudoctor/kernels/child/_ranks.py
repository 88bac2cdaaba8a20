"""Ranks: processes of one job, as a distributed run has them, started together, heard, and ended together.

A job is a module with ``def rank(me: ThisRank) -> dict``, named to `run_ranks` by its ``__name__``. Each rank runs it
in a process of its own; a rank that fails, dies or hangs is named with its last step, and the others are not waited for
much longer. No rank outlives the process that started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
import traceback
from datetime import timedelta
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Set

from . import _scratch
from ._kernel import CannotRun, last_line, no_memory, reserve_stdout, say

_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
GRACE_SECONDS = 3.0
"""Seconds that the others have to end by themselves once one rank has failed."""
_KILL_SECONDS = 2.0
"""Seconds that all of them have to be gone once they were killed."""
_MOST_STDERR_BYTES = 1 << 20
"""Bytes of a rank's standard error that are kept."""
_PDEATHSIG = 1
_GAVE_UP = re.compile(r"Watchdog caught (collective operation timeout: [^\n]*)")
"""What torch writes before it ends a process that waited in vain for another rank, by SIGABRT."""
_WAITED = re.compile(r"time(?:d )?-?out|(?:closed|reset) by peer|remote process exited", re.IGNORECASE)
"""What a rank says whose failure is another's."""
_SHARED = re.compile(r"/dev/shm/nccl-\w+$", re.MULTILINE)
"""Where NCCL's ranks meet: a file of up to 33 MB, which is removed only once both have opened it."""
ARRIVE_SECONDS = 30.0
"""Seconds that ranks wait for each other before they begin: each imports torch first."""


# ---- Seen from the process that starts them ----


def run_ranks(
    job: str, count: int, ask: Mapping[str, Any], seconds: float, environ: Optional[Mapping[str, str]] = None
) -> List[End]:
    """Run the module `job` in `count` rank processes for at most `seconds`; returns how each ended, by rank.

    `environ` is added to our own environment. Call it from the main thread: Linux ends the ranks together with the
    thread that started them. Raises `CannotRun` on Windows, where pipes cannot be waited for.
    """
    if sys.platform == "win32":
        raise CannotRun("processes of one job are not measured on Windows")
    ranks: List[Rank] = []
    with _scratch.Folder() as folder:
        shared = {"entry": "_ranks", "job": job, "count": count, "ask": ask, "parent": os.getpid()}
        shared["store"] = os.path.join(folder, "store")
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        variables = {"OMP_NUM_THREADS": str(max(1, cores // count)), **os.environ, **(environ or {})}
        try:
            for rank in range(count):
                ranks.append(Rank(dict(shared, rank=rank), variables))  # noqa: PERF401 - if one fails, these are ended
            _collect(ranks, time.monotonic() + seconds)
        finally:
            _kill_ranks(ranks)
    return [one.end() for one in ranks]


def _collect(ranks: List[Rank], until: float) -> None:
    """Read the ranks' output until all are over, `until` (monotonic seconds), or 3 s after the first failure.

    Sets `order` of each rank that is over: its place among them, from 1.
    """
    with selectors.DefaultSelector() as selector:
        for rank in ranks:
            for stream in rank.streams:
                selector.register(stream, selectors.EVENT_READ, rank)
        running = list(ranks)
        while running and time.monotonic() < until:
            for key, _ in selector.select(max(0.0, until - time.monotonic())):
                if not key.data.take(key.fileobj):
                    selector.unregister(key.fileobj)
            open_ranks = [key.data for key in selector.get_map().values()]
            for rank in [rank for rank in running if rank.is_over() or rank not in open_ranks]:
                running.remove(rank)
                rank.order = len(ranks) - len(running)
                if not rank.is_over() or "answer" not in rank.entries[-1]:
                    until = min(until, time.monotonic() + GRACE_SECONDS)


def _kill_ranks(ranks: List[Rank]) -> None:
    """Kill all ranks and wait up to two seconds in all for their end."""
    for rank in ranks:
        rank.kill()
    until = time.monotonic() + _KILL_SECONDS
    for rank in ranks:
        rank.stop(max(0.0, until - time.monotonic()))


def answers(ends: List[End]) -> List[Dict[str, Any]]:
    """Each rank's answer, by rank.

    Where a rank has none, raises `CannotRun` if the likeliest culprit raised that, else `RuntimeError`.
    """
    failed = faults(ends)
    if not failed:
        return [end.answer or {} for end in ends]
    if failed[0].cannot:
        raise CannotRun(failed[0].why)
    raise RuntimeError("; ".join(end.words for end in failed[:3]))


def faults(ends: List[End]) -> List[End]:
    """The ranks without an answer, the likeliest culprit first.

    Those killed by a signal, then those that did not merely wait for another; then by fewest steps and earliest end.
    """
    failed = [end for end in ends if end.answer is None]
    return sorted(failed, key=lambda end: (not end.signal, is_secondary(end), end.steps, end.order))


def is_secondary(end: End) -> bool:
    """True if the rank failed because another did: it timed out waiting, or its peer closed the connection."""
    return bool(_WAITED.search(end.why))


class End(NamedTuple):
    """How one rank ended: its `answer`, or `why` there is none."""

    rank: int
    answer: Optional[Dict[str, Any]] = None
    why: str = ""
    cannot: bool = False
    """Whether it raised `CannotRun`, which is no failure."""
    step: str = ""
    """The last step it said."""
    steps: int = 0
    order: int = 0
    """Its place among those that ended, from 1; `sys.maxsize` for one that has not."""
    err: str = ""
    """Its standard error."""
    notes: Mapping[str, Any] = {}
    """What it noted on its way."""
    signal: int = 0
    """The number of the signal that killed it; 0 where none did, or we did."""

    @property
    def words(self) -> str:
        """``rank 1 was killed by SIGSEGV at "all-reduce"``: for messages."""
        return "rank %d %s%s" % (self.rank, self.why, ' at "%s"' % self.step if self.step else "")


def watchdog_message(status: Optional[int], err: str) -> str:
    """What torch's watchdog wrote before it aborted the process over a collective's time-out; empty otherwise."""
    match = _GAVE_UP.search(err) if status == -signal.SIGABRT else None
    return match.group(1)[:300] if match else ""


class Rank:
    """A rank process, seen from the process that started it."""

    def __init__(self, request: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self.rank = int(request["rank"])
        self.entries: List[Dict[str, Any]] = []
        self.order = sys.maxsize
        self.late = False
        self._shared: Set[str] = set()
        self._rest = b""
        self._err = b""
        self.process = subprocess.Popen(
            [sys.executable, _PROGRAM, json.dumps(request)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environ),
        )

    @property
    def streams(self) -> List[Any]:
        """Its standard output and standard error."""
        return [self.process.stdout, self.process.stderr]

    def take(self, stream: Any) -> bool:
        """Read up to 64 KiB from one of its streams, keep its entries or error text; False at the end of the stream."""
        data = os.read(stream.fileno(), 1 << 16)
        if stream is self.process.stderr:
            self._err += data[: _MOST_STDERR_BYTES - len(self._err)]
        else:
            lines = (self._rest + data).split(b"\n")
            self._rest = lines.pop()
            self.entries += [json.loads(line[11:].decode()) for line in lines if line.startswith(b"@gpudoctor ")]
        return bool(data)

    def is_over(self) -> bool:
        """True once its last entry is the final one, an ``answer`` or ``why`` there is none."""
        return bool(self.entries) and ("answer" in self.entries[-1] or "why" in self.entries[-1])

    def kill(self) -> None:
        """Send SIGKILL if it still runs; `late` is then whether it had not answered, and its NCCL files are noted."""
        self.late = self.process.poll() is None and not self.is_over()
        if self.process.poll() is None:
            self._shared = _shared_memory_files(self.process.pid)
            self.process.kill()

    def stop(self, seconds: float) -> None:
        """Wait up to `seconds` for its end, read the rest of its error text, and remove NCCL's files in /dev/shm."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        if sys.platform != "win32" and self.process.stderr:
            os.set_blocking(self.process.stderr.fileno(), False)
            with contextlib.suppress(BlockingIOError):  # a child of it may hold it open
                while len(self._err) < _MOST_STDERR_BYTES and self.take(self.process.stderr):
                    pass
        for stream in self.streams:
            stream.close()
        for path in self._shared:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def end(self) -> End:
        """How the rank ended, from its entries, exit status and standard error."""
        steps = [entry["step"] for entry in self.entries if "step" in entry]
        last = self.entries[-1] if self.is_over() else {}
        end = End(self.rank, step=steps[-1] if steps else "", steps=len(steps), order=self.order)
        notes = {name: value for entry in self.entries for name, value in entry.get("note", {}).items()}
        end = end._replace(err=self._err.decode("utf-8", "replace"), notes=notes)
        if "answer" in last:
            return end._replace(answer=last["answer"])
        if last:
            why = last["why"] if last["cannot"] else "failed: " + last["why"]
            return end._replace(why=why, cannot=last["cannot"])
        return end._replace(why=self._end_message(), signal=self._signal())

    def _signal(self) -> int:
        """Number of the signal that killed it; 0 if none did, or if we or torch's watchdog sent it."""
        status = self.process.returncode
        if self.late or status is None or status >= 0 or watchdog_message(status, self._err.decode("utf-8", "replace")):
            return 0
        return int(-status)

    def _end_message(self) -> str:
        """Why there is no final entry: time-out, torch's watchdog, signal, or exit status with the last error line."""
        status, err = self.process.returncode, self._err.decode("utf-8", "replace")
        if self.late or status is None:
            return "did not come to an end" + ("" if status is not None else " and cannot be killed")
        if watchdog_message(status, err):
            return "failed: " + watchdog_message(status, err)
        if self._signal():
            return "was killed by " + signal.Signals(self._signal()).name
        lines = [line.strip() for line in err.splitlines() if line.strip()]
        return "ended with exit %d%s" % (status, ": " + lines[-1][:300] if lines else "")


def _shared_memory_files(pid: int) -> Set[str]:
    """Paths of the NCCL files in /dev/shm that the process maps; empty if its maps cannot be read."""
    try:
        with open("/proc/%d/maps" % pid) as file:
            return set(_SHARED.findall(file.read()))
    except OSError:
        return set()


# ---- Within a rank ----


class ThisRank:
    """A rank, seen from within: its number, how many there are, what it is asked.

    `store` is a file that does not exist yet, the same for all ranks: ``init_process_group(init_method="file://" +
    me.store)`` needs no port and no host name.
    """

    def __init__(self, rank: int, count: int, ask: Mapping[str, Any], store: str) -> None:
        self.rank = rank
        self.count = count
        self.ask = ask
        self.store = store

    def step(self, what: str) -> None:
        """Report the step that begins now; a rank that dies or hangs is named with its last step."""
        say(step=what)

    def note(self, **values: Any) -> None:
        """Report partial results, kept even if the rank never comes to an answer."""
        say(note=values)


def main(request: Mapping[str, Any]) -> None:
    """Run the requested job in this rank's process, report its answer or why there is none, and exit with status 0."""
    die_with_parent(request["parent"])
    reserve_stdout()
    faulthandler.enable()
    me = ThisRank(request["rank"], request["count"], request["ask"], request["store"])
    try:
        say(answer=importlib.import_module(request["job"]).rank(me))
    except CannotRun as error:
        say(why=str(error), cannot=True)
    except BaseException as error:  # whatever it is, it is this rank's answer
        why = last_line(error)
        lacking = no_memory(why)
        if not lacking:
            traceback.print_exc()
        say(why="no memory is free for rank %d: %s" % (me.rank, why) if lacking else why, cannot=lacking)
    sys.stderr.flush()
    os._exit(0)  # a crash while libraries are torn down is no symptom of the patient


def die_with_parent(parent: int) -> None:
    """Have Linux kill this process when `parent` (its pid) ends; exits at once if it has; nothing on other systems."""
    if sys.platform == "win32":
        return  # our job is ended as a whole
    try:
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return  # not Linux: our process group is ended as a whole
    if os.getppid() != parent:
        os._exit(1)


def init_group(torch: Any, me: ThisRank, backend: str, seconds: float) -> Any:
    """Wait for all ranks, then initialise torch.distributed with them over `backend`; returns torch.distributed.

    No wait of the group is longer than `seconds`.
    """
    exchange_values(torch, me, "here", "")
    me.step("init_process_group")
    torch.distributed.init_process_group(
        backend,
        store=torch.distributed.PrefixStore("group", _store(torch, me)),
        rank=me.rank,
        world_size=me.count,
        timeout=timedelta(seconds=seconds),
    )
    return torch.distributed


def exchange_values(torch: Any, me: ThisRank, name: str, value: str) -> List[str]:
    """The values that all ranks gave under `name`, by rank; waits up to 30 s for each, and needs no process group."""
    me.step("wait for all ranks")
    store = _store(torch, me)
    store.set("%s-%d" % (name, me.rank), value)
    return [store.get("%s-%d" % (name, rank)).decode() for rank in range(me.count)]


def _store(torch: Any, me: ThisRank) -> Any:
    """The ranks' common file store, in which no wait is longer than `ARRIVE_SECONDS` seconds."""
    store = torch.distributed.FileStore(me.store, -1)  # -1: the file is not removed with its last user
    store.set_timeout(timedelta(seconds=ARRIVE_SECONDS))
    return store
