"""Ranks: processes of one job, as a distributed run has them, started together, heard, and ended together.

A job is a module with ``def rank(me: Me) -> dict``, named to `together` by its ``__name__``. Each rank runs it in a
process of its own; a rank that fails, dies or hangs is named with its last step, and the others are not waited for
much longer. No rank outlives the process that started it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import os
import re
import selectors
import signal
import sys
import time
import traceback
from typing import Any, Dict, List, Mapping, Optional

from . import _protocol, _scratch
from ._kernel import CannotRun, no_memory
from ._rank import End, Rank

GRACE = 3.0
"""Seconds that the others have to end by themselves once one rank has failed."""

_LAST = 2.0
"""Seconds that all of them have to be gone once they were killed."""
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


def together(
    job: str, count: int, ask: Mapping[str, Any], seconds: float, environ: Optional[Mapping[str, str]] = None
) -> List[End]:
    """Run `job` in `count` ranks for at most so many seconds; `environ` is added to our own environment.

    To be called from the main thread: Linux ends the ranks with the thread that started them.
    """
    ranks: List[Rank] = []
    with _scratch.Folder() as folder:
        shared = {"entry": "_ranks", "job": job, "count": count, "ask": ask, "parent": os.getpid()}
        shared["store"] = os.path.join(folder, "store")
        given = {"OMP_NUM_THREADS": str(threads(count)), **os.environ, **(environ or {})}
        try:
            for rank in range(count):
                ranks.append(Rank(dict(shared, rank=rank), given))  # noqa: PERF401 - if one fails, these are ended
            _hear(ranks, time.monotonic() + seconds)
        finally:
            _end(ranks)
    return [one.end() for one in ranks]


def threads(count: int) -> int:
    """A rank's share of the processors that we may use."""
    return max(1, (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) // count)


def _end(ranks: List[Rank]) -> None:
    for one in ranks:
        one.kill()
    until = time.monotonic() + _LAST
    for one in ranks:
        one.stop(max(0.0, until - time.monotonic()))


def faults(ends: List[End]) -> List[End]:
    """The ranks without an answer, the likeliest culprit first.

    That is who died; then who did not merely wait in vain for another; then who got least far, and who failed first.
    """
    bad = [end for end in ends if end.answer is None]
    return sorted(
        bad,
        key=lambda end: (
            not end.signal,
            waited(end),
            end.steps,
            end.order,
        ),
    )


def waited(end: End) -> bool:
    """Whether it failed because another did: it waited in vain, or that one was gone."""
    return bool(_WAITED.search(end.why))


def answers(ends: List[End]) -> List[Dict[str, Any]]:
    """What each rank answered. Raises `CannotRun` where the first fault is one, `RuntimeError` where it is another."""
    bad = faults(ends)
    if not bad:
        return [end.answer or {} for end in ends]
    if bad[0].cannot:
        raise CannotRun(bad[0].why)
    raise RuntimeError("; ".join(end.words for end in bad[:3]))


def _hear(ranks: List[Rank], until: float) -> None:
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
        why = _protocol.last_line(error)
        lacking = no_memory(why)
        if not lacking:
            traceback.print_exc()
        _protocol.say(why="no memory is free for rank %d: %s" % (me.rank, why) if lacking else why, cannot=lacking)
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
