"""One rank, seen from the process that started it: what it says, and what became of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Set

_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
_MOST = 1 << 20
"""Bytes of a rank's standard error that are kept."""
_GAVE_UP = re.compile(r"Watchdog caught (collective operation timeout: [^\n]*)")
"""What torch writes before it ends a process that waited in vain for another rank, by SIGABRT."""
_SHARED = re.compile(r"/dev/shm/nccl-\w+$", re.MULTILINE)
"""Where NCCL's ranks meet: a file of up to 33 MB, which is removed only once both have opened it."""


def _mapped(pid: int) -> Set[str]:
    """Such files of that process, which nobody removes once it is killed."""
    try:
        with open("/proc/%d/maps" % pid) as file:
            return set(_SHARED.findall(file.read()))
    except OSError:
        return set()


def gave_up(status: Optional[int], err: str) -> str:
    """What torch says where it ended that process for a wait in vain; empty where it did not."""
    found = _GAVE_UP.search(err) if status == -signal.SIGABRT else None
    return found.group(1)[:300] if found else ""


class End(NamedTuple):
    """What became of one rank: its `answer`, or `why` there is none."""

    rank: int
    answer: Optional[Dict[str, Any]] = None
    why: str = ""
    cannot: bool = False
    """Whether it raised `CannotRun`, which is no failure."""
    step: str = ""
    """The last step it said."""
    steps: int = 0
    order: int = 0
    """How many ranks ended before it."""
    err: str = ""
    """Its standard error."""
    notes: Mapping[str, Any] = {}
    """What it noted on its way."""
    signal: int = 0
    """The number of the signal that killed it; 0 where none did, or we did."""

    @property
    def words(self) -> str:
        """``rank 1 was killed by SIGSEGV at "all-reduce"``."""
        return "rank %d %s%s" % (self.rank, self.why, ' at "%s"' % self.step if self.step else "")


class Rank:
    """One process, seen from the one that started it."""

    def __init__(self, wanted: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self.rank = int(wanted["rank"])
        self.said: List[Dict[str, Any]] = []
        self.order = sys.maxsize
        self.late = False
        self._shared: Set[str] = set()
        self._rest = b""
        self._err = b""
        self.process = subprocess.Popen(
            [sys.executable, _PROGRAM, json.dumps(wanted)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environ),
        )

    @property
    def streams(self) -> List[Any]:
        """Its standard output and error."""
        return [self.process.stdout, self.process.stderr]

    def take(self, stream: Any) -> bool:
        """Read what is there; False where the stream is at its end."""
        got = os.read(stream.fileno(), 1 << 16)
        if stream is self.process.stderr:
            self._err += got[: _MOST - len(self._err)]
        else:
            lines = (self._rest + got).split(b"\n")
            self._rest = lines.pop()
            self.said += [json.loads(line[11:].decode()) for line in lines if line.startswith(b"@gpudoctor ")]
        return bool(got)

    def over(self) -> bool:
        """Whether it said its last word, good or bad."""
        return bool(self.said) and ("answer" in self.said[-1] or "why" in self.said[-1])

    def well(self) -> bool:
        """Whether that word is an answer."""
        return self.over() and "answer" in self.said[-1]

    def kill(self) -> None:
        """Have it end."""
        self.late = self.process.poll() is None and not self.over()
        if self.process.poll() is None:
            self._shared = _mapped(self.process.pid)
            self.process.kill()

    def stop(self, seconds: float) -> None:
        """Wait for its end; one that not even SIGKILL ends within so many seconds is left behind."""
        for stream in self.streams:
            stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        for path in self._shared:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def end(self) -> End:
        """What became of it."""
        steps = [said["step"] for said in self.said if "step" in said]
        last = self.said[-1] if self.over() else {}
        found = End(self.rank, step=steps[-1] if steps else "", steps=len(steps), order=self.order)
        notes = {name: value for said in self.said for name, value in said.get("note", {}).items()}
        found = found._replace(err=self._err.decode("utf-8", "replace"), notes=notes)
        if "answer" in last:
            return found._replace(answer=last["answer"])
        if last:
            why = last["why"] if last["cannot"] else "failed: " + last["why"]
            return found._replace(why=why, cannot=last["cannot"])
        return found._replace(why=self._how(), signal=self._signal())

    def _signal(self) -> int:
        """The signal that killed it, if neither we nor torch sent it."""
        status = self.process.returncode
        if self.late or status is None or status >= 0 or gave_up(status, self._err.decode("utf-8", "replace")):
            return 0
        return int(-status)

    def _how(self) -> str:
        status, err = self.process.returncode, self._err.decode("utf-8", "replace")
        if self.late or status is None:
            return "did not come to an end" + ("" if status is not None else " and cannot be killed")
        if gave_up(status, err):
            return "failed: " + gave_up(status, err)
        if self._signal():
            return "was killed by " + signal.Signals(self._signal()).name
        lines = [line.strip() for line in err.splitlines() if line.strip()]
        return "ended with exit %d%s" % (status, ": " + lines[-1][:300] if lines else "")
