"""What NCCL and torch have recorded of a running job, as the facts ``nccl.*`` that readers make of it.

NCCL's RAS is asked when the look at the ranks begins and when it ends: ranks of a sound job differ by some calls at any
moment, and one that is behind by the same numbers twice does not come on.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Mapping

from gpudoctor.core.fact import Absent, Fact, Known, Reason, Unread
from gpudoctor.probes._job.members import Job, RankProcess
from gpudoctor.probes._job.nccl_records import flight_record, ras_address, ras_report
from gpudoctor.readers import read_report
from gpudoctor.target.local import Local

_RAS_PATIENCE = 9.0
_MOST_DUMPS = 64
"""Dumps that are read: of a job of more ranks the first ones."""
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Records:
    """What is recorded of one job: `begin` before the look at its ranks, `facts` after it."""

    def __init__(self, job: Job, target: Local) -> None:
        self._job = job
        self._target = target
        self._address: tuple[str, int] | Absent | Unread = Absent("no rank of it has loaded NCCL")
        self._reports: list[str | Unread] = []
        self._thread = threading.Thread(target=self._ask, name="ras", daemon=True)

    def begin(self) -> None:
        """Have NCCL's RAS asked for the first time, where a rank uses NCCL."""
        user = next((one for one in self._job.ranks if _uses_nccl(one)), None)
        if user is None:
            return
        environ = user.member.environ
        self._address = ras_address({} if isinstance(environ, Unread) else environ)
        if _link(user.member.pid, "net") not in ("", _link(os.getpid(), "net")):
            self._address = Unread("the job has a network of its own (a container)", reason=Reason.CONTAINED)
            return
        self._thread.start()

    def facts(self) -> dict[str, Fact]:
        """The facts that the reports and the dumps tell, and where they are from."""
        texts, ras = self._ras()
        dumps, records = self._dumps()
        whole = "\n".join([*texts, *dumps])
        found: Mapping[str, Fact] = read_report(whole, "its records").facts if whole else {}
        nccl = {name: fact for name, fact in found.items() if name.startswith("nccl.") and isinstance(fact, Known)}
        return {**nccl, "job.ras": ras, "job.records": records}

    def _ask(self) -> None:
        """Ask RAS once."""
        if isinstance(self._address, tuple):
            self._reports.append(ras_report(self._address))

    def _ras(self) -> tuple[list[str], Fact]:
        """RAS's two reports, and where they are from."""
        if not isinstance(self._address, tuple):
            return [], self._address
        self._thread.join(_RAS_PATIENCE)
        if self._reports and isinstance(self._reports[0], str):
            self._ask()
        texts = [report for report in self._reports if isinstance(report, str)]
        why = next((report for report in self._reports if isinstance(report, Unread)), None)
        nothing = why or Unread("NCCL's RAS gave no answer", reason=Reason.TIMED_OUT)
        return texts, Known(f"{self._address[0]}:{self._address[1]}", "NCCL's RAS") if texts else nothing

    def _dumps(self) -> tuple[list[str], Fact]:
        """The dumps of the flight recorder, and how many they are."""
        texts: list[str] = []
        why: Unread | None = None
        for one in self._job.ranks[:_MOST_DUMPS]:
            environ = one.member.environ
            if one.rank is None or isinstance(environ, Unread):
                continue
            pid = one.member.pid
            apart = _link(pid, "mnt") not in ("", _link(os.getpid(), "mnt"))
            dump = flight_record(
                self._target, one.rank, environ, f"/proc/{pid}/root" if apart else "", _started(one.member.start)
            )
            if isinstance(dump, str):
                texts.append(dump)
            else:
                why = why or dump
                if dump.reason is Reason.NOT_STATED:
                    break
        return texts, Known(len(texts), "torch's flight recorder") if texts else why or Absent("no rank is numbered")


def _uses_nccl(rank: RankProcess) -> bool:
    """Whether the rank has NCCL loaded, or is told where its RAS is to listen."""
    if rank.member.variable("NCCL_RAS_ADDR"):
        return True
    try:
        with open(f"/proc/{rank.member.pid}/maps", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return any(re.search(r"/libnccl[^/]*\.so", line) for line in file)
    except OSError:
        return False


def _link(pid: int, kind: str) -> str:
    """The process's namespace of that kind; empty where it may not be seen."""
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")  # noqa: PTH115 - text
    except OSError:
        return ""


def _started(start: bytes) -> float:
    """When a process with that start time was started, in whole seconds of the Unix clock."""
    if sys.platform != "linux":
        return 0.0
    return float(int(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + int(start) / _TICKS))
