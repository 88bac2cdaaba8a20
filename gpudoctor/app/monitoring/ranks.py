"""The ranks of a job on one host: each leaves word of its end in a folder, so that the one that failed first is known.

No network, no daemon: a folder of this user's below TMPDIR, which is the same for the ranks that one launcher starts on
a host, and gone when the last of them is. Whatever fails here leaves a rank by itself, and it says what it has to say.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import sys
import time
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.cluster.preflight.launcher import Place, own_rank
from gpudoctor.core.fact import Absent, Fact, Known, Unread

if TYPE_CHECKING:
    from gpudoctor.core.diagnosis import Diagnosis

assert sys.platform != "win32"  # what follows is POSIX's alone

_SOURCE = "the launcher's environment"
_HERE = "the ranks of this host"
_EARLIER_SECONDS = 60.0
"""Seconds before our begin from which on another rank's end is of the same job: ranks do not begin at once."""
_END_SECONDS, _TICK_SECONDS = 3.0, 0.05
"""Seconds for which a rank that fails by another's end waits for word of that end, and between two looks."""
_ACCOUNT_SECONDS = 15.0
"""Seconds for which the others wait until the first has given its account."""
FIRST = "the first"


@dataclass(frozen=True, slots=True)
class End:
    """How a rank ended, and when by the Unix clock; `of_itself`: neither asked to end nor by another rank's end."""

    rank: int
    end: str
    ended: float
    failed: bool
    of_itself: bool | None
    """None until its output is read."""


class Ranks:
    """The job's ranks on this host, which exchange how they ended through files in a shared folder."""

    def __init__(self, place: Place, environ: Mapping[str, str]) -> None:
        self.place = place
        self._began = time.time()
        self._folder = _own_folder(place, environ)
        self._count = _ranks_here(environ)
        own_gpus = "gpu" in environ.get("SLURM_TRES_PER_TASK", "") or "SLURM_GPUS_PER_TASK" in environ
        self.samples_gpus = place.local_rank == 0 or own_gpus
        """Whether this rank watches the GPUs: one of a host does, or each where Slurm shows each its own alone."""

    @classmethod
    def here(cls, environ: Mapping[str, str] = os.environ) -> Ranks | None:
        """The ranks that this process is one of; None unless the job has several."""
        place = own_rank(environ)
        return cls(place, environ) if place else None

    def begin(self, pid: int) -> None:
        """Record that this rank's command runs as process `pid`, and delete its records of an earlier job."""
        for kind in ("end", "left"):  # of a job before this one
            with contextlib.suppress(OSError):
                self._path(f"{self.place.rank}.{kind}").unlink()
        self._write("begun", {"pid": pid, "beside": os.getpid()})

    def pids(self) -> frozenset[int]:
        """The process ids of the commands of all of the job's ranks on this host, by what they recorded."""
        return frozenset(pid for entry in self._entries("begun") if isinstance(pid := entry.get("pid"), int))

    def end(self, end: End) -> None:
        """Record for the other ranks how this rank ended, in place of what was recorded before."""
        self._write("end", asdict(end))

    def first(self, own: End, echo: bool) -> End | None:
        """End of the rank that failed first and by itself, this one or another; None if none did.

        It waits up to 3 s for records that are not complete and, with `echo` (this rank failed because of another one),
        for that one's.
        """
        deadline = time.monotonic() + _END_SECONDS
        while True:
            others = [end for end in self._ends() if end.failed and end.rank != own.rank]
            pending = [end for end in others if end.of_itself is None and not (own.of_itself and end.ended > own.ended)]
            failed = [end for end in (*others, own) if end.failed and end.of_itself]
            if (not pending and (failed or not echo)) or time.monotonic() > deadline:
                return min(failed, key=lambda end: (end.ended, end.rank), default=None)
            time.sleep(_TICK_SECONDS)

    def should_report(self, own: End, first: End | None, echo: bool, judged: Diagnosis) -> bool:
        """True if this rank is to print its diagnosis, which no other rank of its host prints; claims it for this rank.

        Of ranks that did not fail rank 0 prints, and one per grave finding. Of failed ranks the first one prints, and
        one per other cause; of those that failed because of the first, one, and only if the first has printed nothing
        within 15 s. Where none failed by itself, one of those with `echo` prints, and rank 0 if it has none.
        """
        if not own.failed:
            grave = [finding.id for finding in judged.findings if finding.severity != "info"]
            claimed = [self.claim(one) for one in grave]
            return own.rank == 0 or any(claimed)
        if first == own:
            self.claim(_cause(judged))
            return True
        if first and self.is_claimed(FIRST, _ACCOUNT_SECONDS):
            return bool(own.of_itself) and self.claim(_cause(judged))
        return self.claim("echo") if first or echo else own.rank == 0

    def claim(self, what: str) -> bool:
        """Claim to report `what`; True if this rank is the first of its host, or where that cannot be known."""
        path = self._claim_file(what)
        for _ in range(2):
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            except FileExistsError:
                if self.is_claimed(what):
                    return False
                with contextlib.suppress(OSError):  # of a job before this one
                    path.unlink()
            except OSError:
                return True
            else:
                return True
        return True

    def is_claimed(self, what: str, patience: float = 0.0) -> bool:
        """Whether a rank of this host has claimed to report `what`, or does within `patience` seconds."""
        deadline = time.monotonic() + patience
        while True:
            with contextlib.suppress(OSError):
                if self._claim_file(what).stat().st_mtime >= self._began - _EARLIER_SECONDS:
                    return True
            if time.monotonic() > deadline or not self._folder:
                return False
            time.sleep(_TICK_SECONDS)

    def _claim_file(self, what: str) -> Path:
        """The file that exists once a rank has claimed to report `what`."""
        return self._path(f"claimed-{zlib.crc32(what.encode()):08x}")

    def _path(self, name: str) -> Path:
        """Path of that name in the folder that the ranks share; a path that cannot exist if there is none."""
        return (self._folder or Path(os.devnull)) / name

    def leave(self) -> None:
        """Record that this rank is done, and delete the folder if it was the last one here."""
        self._write("left", {})
        if not self._folder:
            return
        with contextlib.suppress(OSError):
            begun, left = len(self._entries("begun")), len(self._entries("left"))
            others = {entry.get("beside") for entry in self._entries("begun")} - {os.getpid()}
            living = any(isinstance(pid, int) and Path(f"/proc/{pid}").exists() for pid in others)
            if begun >= self._count and (left >= begun or not living):
                for path in self._folder.iterdir():
                    path.unlink()
                self._folder.rmdir()

    def facts(self, first: End | None, own: End) -> dict[str, Fact]:
        """The facts ``run.*`` about this rank, and about the one that failed first, if this one failed.

        Without such a rank run.first_* are `Absent`, or `Unread` where the ranks share no folder.
        """
        facts: dict[str, Fact] = {
            "run.host": Known(self.place.host, _SOURCE),
            "run.rank": Known(self.place.rank, _SOURCE),
            "run.local_rank": Known(self.place.local_rank, _SOURCE),
            "run.world_size": Known(self.place.world, _SOURCE),
        }
        if first and own.failed:
            facts["run.first_rank"] = Known(first.rank, _HERE)
            facts["run.first_end"] = Known(first.end, _HERE)
            facts["run.first_seconds"] = Known(round(max(0.0, own.ended - first.ended), 2), _HERE)
            return facts
        nobody = "no rank of this host failed of itself" if own.failed else "it did not fail"
        why = Absent(nobody) if self._folder else Unread("each rank is by itself")
        return {**facts, **dict.fromkeys(("run.first_rank", "run.first_end", "run.first_seconds"), why)}

    # ---- The folder ----

    def _ends(self) -> list[End]:
        """Recorded ends of this job's ranks; records of an earlier job or another form are left out."""
        ends = []
        for entry in self._entries("end"):
            with contextlib.suppress(TypeError, ValueError):
                end = End(**entry)  # type: ignore[arg-type] # what is none raises
                if end.ended >= self._began - _EARLIER_SECONDS:
                    ends.append(end)
        return ends

    def _entries(self, kind: str) -> list[dict[str, object]]:
        """Entries of that kind (begun, end, left) written by all ranks here; what cannot be read is left out."""
        entries = []
        with contextlib.suppress(OSError):
            for path in self._folder.glob(f"*.{kind}") if self._folder else ():
                with contextlib.suppress(OSError, ValueError):
                    entry = json.loads(path.read_text("utf-8"))
                    entries.append(entry if isinstance(entry, dict) else {})
        return entries

    def _write(self, kind: str, entry: Mapping[str, object]) -> None:
        """Write this rank's file of that kind, whole or not at all; errors are ignored."""
        if not self._folder:
            return
        path = self._path(f"{self.place.rank}.{kind}")
        draft = path.with_suffix(f".{kind}-draft")
        with contextlib.suppress(OSError):
            draft.write_text(json.dumps(entry), "utf-8")
            draft.replace(path)


def _cause(judged: Diagnosis) -> str:
    """The id of the diagnosis's first finding, else ``failed``; a cause is reported once per host under this key."""
    return judged.findings[0].id if judged.findings else "failed"


def alone() -> dict[str, Fact]:
    """The facts ``run.*`` of a command that is no rank of a launcher's job: the host, and absent ones."""
    names = ("rank", "local_rank", "world_size", "first_rank", "first_end", "first_seconds")
    nobody = Absent("no launcher has started it as one of several ranks")
    host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    return {"run.host": Known(host, "the host's name"), **dict.fromkeys((f"run.{name}" for name in names), nobody)}


def _own_folder(place: Place, environ: Mapping[str, str]) -> Path | None:
    """The folder where the ranks of this host meet, made if need be; None where it cannot be this user's alone."""
    key = zlib.crc32(f"{place.job} {place.host} {place.world}".encode())
    folder = Path(environ.get("TMPDIR") or "/tmp") / f"gpudoctor-{os.geteuid()}-{key:08x}"
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(0o700)
        found = folder.lstat()
    except OSError:
        return None
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return folder if own else None


def _ranks_here(environ: Mapping[str, str]) -> int:
    """Ranks of the job on this host; 0 where the launcher does not tell."""
    for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"):
        if environ.get(name, "").isdecimal():
            return int(environ[name])
    return len(environ["SLURM_GTIDS"].split(",")) if environ.get("SLURM_GTIDS") else 0
