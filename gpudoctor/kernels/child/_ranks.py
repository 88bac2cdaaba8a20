"""Ranks: processes of one job, as a distributed run has them, started together, heard, and ended together.

A job is a module with ``def rank(me: Me) -> dict``, named to `together` by its ``__name__``. Each rank runs it in a
process of its own; a rank that fails, dies or hangs is named with its last step, and the others are not waited for
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
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from . import _protocol, _scratch
from ._kernel import CannotRun

GRACE = 3.0
"""Seconds that the others have to end by themselves once one rank has failed."""

_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
_MOST = 1 << 20
"""Bytes of a rank's standard error that are kept."""
_PDEATHSIG = 1
_WAITED = re.compile(r"time(?:d )?-?out|(?:closed|reset) by peer|remote process exited", re.IGNORECASE)
"""What a rank says whose failure is another's."""


class Me:
    """What a rank knows of itself. `store` is a file that does not exist yet, the same for all ranks:
    ``init_process_group(init_method="file://" + me.store)`` needs no port and no host name.
    """

    def __init__(self, rank: int, count: int, ask: Mapping[str, Any], store: str) -> None:
        self.rank = rank
        self.count = count
        self.ask = ask
        self.store = store

    def step(self, what: str) -> None:
        """Say what is done next: if it is the last that this rank does, it is named."""
        _protocol.say(step=what)

    def note(self, **values: Any) -> None:
        """Say what is known already, in case that it does not come to an answer."""
        _protocol.say(note=values)


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

    @property
    def words(self) -> str:
        """``rank 1 was killed by SIGSEGV at "all-reduce"``."""
        return "rank %d %s%s" % (self.rank, self.why, ' at "%s"' % self.step if self.step else "")


def together(
    job: str, count: int, ask: Mapping[str, Any], seconds: float, environ: Optional[Mapping[str, str]] = None
) -> List[End]:
    """Run `job` in `count` ranks for at most so many seconds; `environ` is added to our own environment.

    To be called from the main thread: Linux ends the ranks with the thread that started them.
    """
    ranks: List[_Rank] = []
    with _scratch.Folder() as folder:
        shared = {"entry": "_ranks", "job": job, "count": count, "ask": ask, "parent": os.getpid()}
        shared["store"] = os.path.join(folder, "store")
        try:
            ranks += [_Rank(dict(shared, rank=rank), dict(os.environ, **(environ or {}))) for rank in range(count)]
            _hear(ranks, time.monotonic() + seconds)
        finally:
            for one in ranks:
                one.stop()
    return [one.end() for one in ranks]


def faults(ends: List[End]) -> List[End]:
    """The ranks without an answer, the likeliest culprit first.

    That is who died; then who did not merely wait in vain for another; then who got least far, and who failed first.
    """
    bad = [end for end in ends if end.answer is None]
    return sorted(
        bad,
        key=lambda end: (
            not end.why.startswith("was killed by"),
            bool(_WAITED.search(end.why)),
            end.steps,
            end.order,
        ),
    )


def answers(ends: List[End]) -> List[Dict[str, Any]]:
    """What each rank answered. Raises `CannotRun` where the first fault is one, `RuntimeError` where it is another."""
    bad = faults(ends)
    if not bad:
        return [end.answer or {} for end in ends]
    if bad[0].cannot:
        raise CannotRun(bad[0].why)
    raise RuntimeError("; ".join(end.words for end in bad[:3]))


class _Rank:
    """One process, seen from the one that started it."""

    def __init__(self, wanted: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self.rank = int(wanted["rank"])
        self.said: List[Dict[str, Any]] = []
        self.order = sys.maxsize
        self.late = False
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

    def stop(self) -> None:
        """End it; one that not even SIGKILL ends is left behind."""
        self.late = self.process.poll() is None and not self.over()
        if self.process.poll() is None:
            self.process.kill()
        for stream in self.streams:
            stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2.0)

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
        return found._replace(why=self._how())

    def _how(self) -> str:
        status = self.process.returncode
        if self.late or status is None:
            return "did not come to an end" + ("" if status is not None else " and cannot be killed")
        if status < 0:
            return "was killed by " + signal.Signals(-status).name
        lines = [line.strip() for line in self._err.decode("utf-8", "replace").splitlines() if line.strip()]
        return "ended with exit %d%s" % (status, ": " + lines[-1][:300] if lines else "")


def _hear(ranks: List[_Rank], until: float) -> None:
    """Take in what they say, until all are over, time is up, or `GRACE` after the first that failed."""
    with selectors.DefaultSelector() as heard:
        for one in ranks:
            for stream in one.streams:
                heard.register(stream, selectors.EVENT_READ, one)
        left = list(ranks)
        while left and time.monotonic() < until:
            for key, _ in heard.select(max(0.0, until - time.monotonic())):
                if not key.data.take(key.fileobj):
                    heard.unregister(key.fileobj)
            open_ranks = [key.data for key in heard.get_map().values()]
            for one in [one for one in left if one.over() or one not in open_ranks]:
                left.remove(one)
                one.order = len(ranks) - len(left)
                if not one.well():
                    until = min(until, time.monotonic() + GRACE)


def main(wanted: Mapping[str, Any]) -> None:
    """Be one rank: run the job, say its answer or why there is none."""
    end_with(wanted["parent"])
    _protocol.begin()
    faulthandler.enable()
    me = Me(wanted["rank"], wanted["count"], wanted["ask"], wanted["store"])
    try:
        _protocol.say(answer=importlib.import_module(wanted["job"]).rank(me))
    except CannotRun as error:
        _protocol.say(why=str(error), cannot=True)
    except BaseException as error:  # whatever it is, it is this rank's answer
        traceback.print_exc()
        _protocol.say(why=_protocol.last_line(error), cannot=False)
    sys.stderr.flush()
    os._exit(0)  # a crash while libraries are torn down is no symptom of the patient


def end_with(parent: int) -> None:
    """Have Linux end this process when the one that started it is gone, however that came about."""
    try:
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return  # not Linux: our process group is ended as a whole
    if os.getppid() != parent:
        os._exit(1)
