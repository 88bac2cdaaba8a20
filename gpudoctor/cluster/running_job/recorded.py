"""What was recorded of a running job: by NCCL and torch its collectives, by the kernel and NVML what befell it.

NCCL's RAS is asked when the look at the ranks begins and when it ends: ranks of a sound job differ by some calls at any
moment, and one that is behind by the same numbers twice does not come on.

Of the kernel's log counts what came since the job's ranks began, about their GPUs, processes and control group alone;
of NVML's counters of errors what they gained while the ranks were looked at.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping

from gpudoctor.core.fact import (
    Absent,
    Fact,
    Known,
    Reason,
    Row,
    Rows,
    Unread,
    listed,
    number_of,
    text_of,
    texts_of,
    value_of,
)
from gpudoctor.probes import Collection, kernel_log, nvml
from gpudoctor.probes._job.members import Job, RankProcess, job_cgroup, pids_in
from gpudoctor.probes._job.nccl_records import flight_record, ras_address, ras_report
from gpudoctor.probes._job.waiting import gpu_files
from gpudoctor.probes._log import Log, oom_kills, read_log
from gpudoctor.probes._machine_kind import host_hidden
from gpudoctor.probes._reading import names_in, text
from gpudoctor.readers import read_report
from gpudoctor.readers.tools.flight_recorder import Dump, dump_of
from gpudoctor.target.local import Local

_RAS_SECONDS = 9.0
_MOST_DUMPS = 64
"""Dumps that are read on a machine: of more ranks the first ones."""
_MOST_COLLECTIVES = 200
"""Collectives of a rank that are compared, its latest."""
_RECORDER = "torch's flight recorder"
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Records:
    """NCCL's and torch's records of one job: call `begin` before its ranks are observed, `facts` afterwards."""

    def __init__(self, job: Job, target: Local) -> None:
        self._job = job
        self._target = target
        self._address: tuple[str, int] | Absent | Unread = Absent("no rank of it has loaded NCCL")
        self._reports: list[str | Unread] = []
        self._thread = threading.Thread(target=self._ask, name="ras", daemon=True)

    def begin(self) -> None:
        """Ask NCCL's RAS for the first time, in a thread, if a rank uses NCCL and shares our network."""
        user = next((one for one in self._job.ranks if _uses_nccl(one)), None)
        if user is None:
            return
        environ = user.member.environ
        self._address = ras_address({} if isinstance(environ, Unread) else environ)
        if _namespace(user.member.pid, "net") not in ("", _namespace(os.getpid(), "net")):
            self._address = Unread("the job has a network of its own (a container)", reason=Reason.CONTAINED)
            return
        self._thread.start()

    def facts(self) -> dict[str, Fact]:
        """Facts ``nccl.*`` of two RAS reports, of which the second is asked for now, and ``job.ras``: their address, or
        why there are none. Takes up to some seconds.
        """
        texts, ras = self._ras()
        found: Mapping[str, Fact] = read_report("\n".join(texts), "NCCL's RAS").facts if texts else {}
        nccl = {name: fact for name, fact in found.items() if name.startswith("nccl.") and isinstance(fact, Known)}
        return {**nccl, "job.ras": ras}

    def _ask(self) -> None:
        """Ask NCCL's RAS and store its report, or why there is none; takes up to some seconds."""
        if isinstance(self._address, tuple):
            self._reports.append(ras_report(self._address))

    def _ras(self) -> tuple[list[str], Fact]:
        """(NCCL's RAS reports as text, fact of the address they are from or of why there are none): waits up to 9 s for
        the first one, and asks for the second.
        """
        if not isinstance(self._address, tuple):
            return [], self._address
        self._thread.join(_RAS_SECONDS)
        if self._reports and isinstance(self._reports[0], str):
            self._ask()
        texts = [report for report in self._reports if isinstance(report, str)]
        why = next((report for report in self._reports if isinstance(report, Unread)), None)
        nothing = why or Unread("NCCL's RAS gave no answer", reason=Reason.TIMED_OUT)
        return texts, Known(f"{self._address[0]}:{self._address[1]}", "NCCL's RAS") if texts else nothing

    def dumps(self) -> tuple[dict[int, Row], Fact]:
        """(columns of `dump_columns` by rank, fact of how many flight-recorder dumps were read or why none was). Only
        the first 64 ranks are read.
        """
        columns: dict[int, Row] = {}
        why: Unread | None = None
        for one in self._job.ranks[:_MOST_DUMPS]:
            environ = one.member.environ
            if one.rank is None or isinstance(environ, Unread):
                continue
            pid = one.member.pid
            apart = _namespace(pid, "mnt") not in ("", _namespace(os.getpid(), "mnt"))
            found = flight_record(
                self._target, one.rank, environ, f"/proc/{pid}/root" if apart else "", _started(one.member.start)
            )
            if isinstance(found, Unread):
                why = why or found
                if found.reason is not Reason.MISSING:
                    break
            elif dump := dump_of(found[1], found[0]):
                columns[one.rank] = dump_columns(dump)
        return columns, Known(len(columns), _RECORDER) if columns else why or Absent("no rank is numbered")


def dump_columns(dump: Dump) -> Row:
    """Columns of a rank's dump, all known: ``enqueued``, ``completed``, and of its latest calls, oldest first, lists
    ``call_numbers``, ``calls`` (words) and ``call_types``.
    """
    latest = sorted(dump.calls)[-_MOST_COLLECTIVES:]
    return {
        "enqueued": Known(dump.enqueued, dump.source),
        "completed": Known(dump.completed, dump.source),
        "call_numbers": Known(tuple(latest), dump.source),
        "calls": Known(tuple(dump.calls[number][0] for number in latest), dump.source),
        "call_types": Known(tuple(dump.calls[number][1] for number in latest), dump.source),
    }


def dumps_in(rows: Iterable[Row]) -> dict[int, Dump]:
    """Flight-recorder dumps by rank, restored from the columns (`dump_columns`) in these rows of ranks."""
    found: dict[int, Dump] = {}
    for row in rows:
        rank, enqueued, completed = (number_of(row.get(name)) for name in ("rank", "enqueued", "completed"))
        if rank is None or enqueued is None or completed is None:
            continue
        numbers, words, types = (value_of(row.get(name)) for name in ("call_numbers", "calls", "call_types"))
        calls: dict[int, tuple[str, str]] = {}
        if isinstance(numbers, tuple) and isinstance(words, tuple) and isinstance(types, tuple):
            calls = {
                number: (str(call), str(kind))
                for number, call, kind in zip(numbers, words, types, strict=False)
                if isinstance(number, int)
            }
        found[int(rank)] = Dump(int(enqueued), int(completed), calls, _RECORDER)
    return found


# ---- What befell it ----

_EVENTS = ("xid", "sxid", "aer")
_FALLEN = "kernel_log.fallen_off"
_EARLIER_SECONDS = 2.0
"""Seconds before the first rank's start from which on messages count: the kernel's clock may run apart from ours."""
_NOW = ("index", "name", "uuid", "address", "error", "error_code", "links", "links_lost", "links_down")
"""Columns of a GPU that tell how it is now."""
_COUNTERS = ("ecc_corrected", "ecc_uncorrected", "link_replays")
_LISTED = "/proc/driver/nvidia/gpus"
_OF_PROCESS = re.compile(r"\bpid=(\d{1,10})\b")
_BLOCKED = re.compile(r"INFO: task [^\n]{1,64}:(\d{1,10}) blocked (?:in I/O wait )?for more than \d+ seconds")
"""The kernel's watchdog of hung tasks (kernel/hung_task.c, read 2026-11)."""


class MachineRecords:
    """Kernel log and NVML counters about a job on this machine: `begin` before its ranks are observed, `read` after."""

    def __init__(self, job: Job, target: Local) -> None:
        self._job = job
        self._target = target
        self._pids = frozenset(job.members)
        self._files = frozenset(file for pid in self._pids for file in gpu_files(pid))
        self._before: Collection | None = None
        self._log: Log | Unread = Unread("the kernel's log was not read")
        self._hidden = host_hidden(target)

    def begin(self) -> None:
        """Read NVML's counters for the first time, in a thread, if a process of the job has a GPU open."""
        if self._files:
            self._before = Collection(self._target, (nvml,))

    def read(self) -> tuple[dict[str, Fact], dict[str, Rows]]:
        """(fact ``kernel_log.fallen_off``, groups ``gpu``, ``oom``, ``xid``, ``sxid``, ``aer``) about the job's GPUs
        and processes alone, since it began; all but ``gpu`` are Unread where the kernel's log may not be read.
        """
        gpus, addresses = self._gpus()
        log = self._log = read_log(self._target)
        if isinstance(log, Unread):
            return {_FALLEN: log}, {"gpu": gpus, **dict.fromkeys((*_EVENTS, "oom"), log)}
        began = min((int(one.member.start) for one in self._job.ranks), default=0)
        log = self._log = log.since(began / _TICKS - _EARLIER_SECONDS)
        found = dict(kernel_log.read(self._target, log))
        groups: dict[str, Rows] = {"gpu": gpus, "oom": self._kills(log)}
        for name in _EVENTS:
            rows = (row for row in listed(found[name]) if self._concerns(name, row, addresses))  # type: ignore[arg-type]
            groups[name] = tuple(rows)
        fallen = tuple(address for address in addresses if address in texts_of(found[_FALLEN]))  # type: ignore[arg-type]
        return {_FALLEN: Known(fallen, log.source)}, groups

    def blocked(self, pid: int) -> str | Unread:
        """The kernel's last log line about a blocked process of rank `pid`, without its time stamp; ``""`` if there is
        none, Unread where the log cannot be read, or in a container, whose process ids are not the log's. Call `read`
        first.
        """
        if isinstance(self._log, Unread) or self._hidden:
            return Unread(self._log.why if isinstance(self._log, Unread) else self._hidden)
        own = {pid, *(member.pid for member in self._job.below(pid))}
        lines = reversed(self._log.lines_with(" blocked "))
        blocked = ((line, int(match[1])) for line in lines if (match := _BLOCKED.search(line)))
        return next((self._log.without_stamp(line) for line, pid in blocked if pid in own), "")

    def _concerns(self, group: str, row: Row, addresses: frozenset[str]) -> bool:
        """True if an event is of one of the job's GPUs or processes; one of an NVSwitch if the job has several GPUs."""
        if group == "sxid":  # an NVSwitch is between all GPUs of the machine
            return len(addresses) > 1
        process = _OF_PROCESS.search(text_of(row.get("line")))
        if process and not self._hidden and int(process[1]) in self._pids:
            return True
        return text_of(row.get("gpu" if group == "aer" else "address")) in addresses

    def _kills(self, log: Log) -> Rows:
        """Rows of processes that the kernel killed for memory and that are the job's by their id or cgroup. Unread in a
        container that does not show the cgroups of what was killed.
        """
        kills = oom_kills(log)
        own = tuple(
            row
            for row in kills
            if (not self._hidden and value_of(row["pid"]) in self._pids) or self._is_own_cgroup(text_of(row["cgroup"]))
        )
        if self._hidden and not own and not all(pids_in(text_of(row["cgroup"])) for row in kills):
            return Unread(f"the log is the whole host's: {self._hidden}", reason=Reason.CONTAINED)
        return own

    def _is_own_cgroup(self, path: str) -> bool:
        """True if the cgroup is of the job's Slurm step or container, or has processes of the job and no others."""
        if not path.strip("/"):
            return False
        if any((place := job_cgroup(one.member.pid)) and place in path for one in self._job.ranks):
            return True
        inside = pids_in(path) - {os.getpid()}
        return bool(inside) and inside <= self._pids

    def _gpus(self) -> tuple[Rows, frozenset[str]]:
        """(rows of the job's GPUs, their PCI addresses); Absent if it has none open, Unread by NVML's reason."""
        if self._before is None:
            return Absent("no process of the job has a GPU open"), frozenset()
        before, now = self._before.snapshot(), Collection(self._target, (nvml,)).snapshot()
        opened = frozenset(self._opened())
        rows = now.rows("gpu")
        if not isinstance(rows, tuple):
            return rows, opened
        processes = listed(now.rows("gpu_process"))
        used = {value_of(row.get("gpu")) for row in processes if value_of(row.get("pid")) in self._pids}
        counted = {value_of(row.get("index")): row for row in listed(before.rows("gpu"))}
        listing = names_in(self._target, _LISTED)
        own: list[Row] = []
        addresses: set[str] = set()
        for row in rows:
            index = value_of(row.get("index"))
            address = text_of(row.get("address")) or (
                listing[index] if isinstance(index, int) and index < len(listing) else ""
            )
            silent = isinstance(row.get("error"), Known)  # NVML does not tell who uses it
            if index in used or (address in opened and (silent or not used)):
                own.append(_gained(row, counted.get(index, {})))
                addresses.add(address)
        return tuple(own), frozenset(addresses - {""})

    def _opened(self) -> Iterator[str]:
        """PCI addresses of the GPUs whose device files the job's processes have open."""
        for address in names_in(self._target, _LISTED):
            note = text(self._target, f"{_LISTED}/{address}/information", 4096)
            minor = re.search(r"^Device Minor:\s*(\d+)", note, re.M) if isinstance(note, str) else None
            if minor and f"nvidia{minor[1]}" in self._files:
                yield address


def _gained(row: Row, before: Row) -> Row:
    """The row of a GPU: identity, errors, links, and those error counters that rose since `before`; the others are
    Unread, for they may predate the job.
    """
    kept: dict[str, Fact] = {name: row[name] for name in _NOW if name in row}
    for name in _COUNTERS:
        now, then = value_of(row.get(name)), value_of(before.get(name))
        rose = isinstance(now, int) and isinstance(then, int) and now > then
        standing = Unread("counted since the driver was loaded, and not risen while the job was looked at")
        kept[name] = row[name] if rose else standing
    return kept


def _uses_nccl(rank: RankProcess) -> bool:
    """True if the rank has NCCL loaded, or NCCL_RAS_ADDR set."""
    if rank.member.variable("NCCL_RAS_ADDR"):
        return True
    try:
        with open(f"/proc/{rank.member.pid}/maps", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return any(re.search(r"/libnccl[^/]*\.so", line) for line in file)
    except OSError:
        return False


def _namespace(pid: int, kind: str) -> str:
    """Id of the process's namespace of that kind (``net:[4026531840]``); ``""`` if not readable."""
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")  # noqa: PTH115 - text
    except OSError:
        return ""


def _started(start: bytes) -> float:
    """Unix time in whole seconds at which a process began; `start` is its start time in clock ticks since boot. 0 where
    the system is not Linux.
    """
    if sys.platform != "linux":
        return 0.0
    return float(int(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + int(start) / _TICKS))
