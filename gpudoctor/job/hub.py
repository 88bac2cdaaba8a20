"""The rank at which all meet: it holds the meeting in a thread of its own, and tells everybody what has come of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor import rulebook
from gpudoctor.job.diagnosis import diagnosed
from gpudoctor.job.door import Door, addresses
from gpudoctor.job.found import Found
from gpudoctor.job.guest import Guest
from gpudoctor.job.meeting import Meeting
from gpudoctor.job.place import Place
from gpudoctor.job.stages import Stages
from gpudoctor.job.verdict import UNKNOWN, code_of
from gpudoctor.job.wire import Message
from gpudoctor.model.errors import DoctorError
from gpudoctor.rulebook import Rulebook

if TYPE_CHECKING:
    from gpudoctor.job.wanted import Wanted
    from gpudoctor.model.diagnosis import Diagnosis

_LAST = 4.0
"""Seconds that the meeting has to come to its end once it was told to."""


class _Rules(threading.Thread):
    """The pages, read beside the meeting: where nobody has read them before, that takes longer than to come."""

    def __init__(self, more: Sequence[Path]) -> None:
        super().__init__(name="rules", daemon=True)
        self._more = more
        self._book: Rulebook | Exception | None = None

    def run(self) -> None:
        try:
            self._book = rulebook.load(self._more)
        except Exception as error:  # for whoever asks
            self._book = error

    def book(self) -> Rulebook:
        """Once they are read; raises what is wrong with them."""
        self.join()
        if not isinstance(self._book, Rulebook):
            raise self._book or RuntimeError("the rules were not read")
        return self._book


class Hub:
    """Opens the door at once, so that whoever comes finds it."""

    def __init__(self, place: Place, wanted: Wanted, tell: Callable[[str], None]) -> None:
        self._found = Found(place, checked=not wanted.network)
        """What is known so far."""
        door = Door(place.ports, addresses(place))
        if place.port in door.taken:
            self._found.taken = holder(place.port)
        self.door = door.own
        """Address and port at which its own rank finds it; port 0 where all its ports are taken."""
        self._meeting = Meeting(place, door)
        self._stages = Stages(self._meeting, self._found, wanted.limits, tell, wanted.level)
        self._diagnosis: Diagnosis | None = None
        self._rules = _Rules(wanted.rules)
        self._rules.start()
        self._thread = threading.Thread(target=self._hold, name="meeting", daemon=True)
        self._thread.start()

    def over(self, cut: str = "") -> Diagnosis:
        """The diagnosis; with `cut` the meeting is ended first, for that reason, and it is of what is known by then.

        Raises what is wrong with the rules.
        """
        if cut and self._thread.is_alive():
            self._found.cut = cut
            self._meeting.stop.set()
        self._thread.join(_LAST)
        return self._diagnosis or diagnosed(self._found, self._rules.book())

    def _hold(self) -> None:
        try:
            self._stages.all()
        except Exception as error:  # what is known by then is told
            self._found.cut = self._found.cut or f"{type(error).__name__}: {error}"
        self._stages.note()
        try:
            with contextlib.suppress(DoctorError):  # which `over` raises: that of the rules
                self._diagnosis = diagnosed(self._found, self._rules.book())
        finally:
            self._meeting.close(self._last)

    def _last(self, _: Guest) -> Message:
        diagnosis = self._diagnosis
        if diagnosis is None or diagnosis.fleet is None:
            return {"verdict": "unknown", "code": UNKNOWN, "words": "the meeting's own diagnosis failed"}
        words = diagnosis.findings[0].title if diagnosis.findings else ""
        return {"verdict": diagnosis.fleet.verdict, "code": code_of(diagnosis), "words": words}


# ---- Who listens on a port of this machine ----
# From /proc, which tells the process only to its owner and to root.

_LISTEN = "0A"


def holder(port: int) -> str:
    """``python (pid 4711)``; ``another program`` where it is not ours to know."""
    inodes = set(_inodes(port))
    for pid in _pids():
        for target in _open_files(pid):
            if target.startswith("socket:[") and target[8:-1] in inodes:
                return f"{_name(pid)} (pid {pid})"
    return "another program"


def _inodes(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[3] == _LISTEN and int(columns[1].rpartition(":")[2], 16) == port:
                    yield columns[9]


def _pids() -> list[str]:
    with contextlib.suppress(OSError):
        return [folder.name for folder in Path("/proc").iterdir() if folder.name.isdecimal()]
    return []


def _open_files(pid: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(file.readlink())


def _name(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "a program"
