"""A rank's side: it comes to the meeting, says that it lives, does what it is asked, and hears what has come of it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.job.guest import TERMINATED
from gpudoctor.job.meeting import BEAT, NotOursError, admitted
from gpudoctor.job.place import Place
from gpudoctor.job.wire import SEGMENT, GoneError, Line, Message
from gpudoctor.links.reach import Reached, opened

TRY = 2.0
"""Seconds of one attempt to connect: a lost first packet is sent again after one."""
_OWN = 10.0
"""Seconds in which the hub answers its own rank, however many others come at the same moment."""
_PAUSE = 0.25
_OPENS = 5.0
"""Seconds until a rank 0 that was started at the same time has opened its door."""

Task = Callable[[Mapping[str, Any]], Message]
"""What a rank can be asked to do, and its answer. It is called in a thread of its own."""


class NotMetError(Exception):
    """This rank did not come, or heard no last word. `ways` is what became of each of the hub's ports."""

    def __init__(self, why: str, ways: Mapping[int, Reached] | None = None) -> None:
        super().__init__(why)
        self.ways = dict(ways or {})


@dataclass
class Member:
    """This rank at the meeting."""

    line: Line
    ways: Mapping[int, Reached]
    """What became of connecting to each of the hub's ports."""
    step: str = "here"
    _over: threading.Event = field(default_factory=threading.Event)

    def tell(self, **what: Any) -> None:
        """Say something unasked; silently nothing once the meeting is over."""
        with contextlib.suppress(GoneError):
            self.line.send(tell=what)

    def does(self, step: str) -> None:
        """Say what is done next: if it is the last, it is named."""
        self.step = step
        with contextlib.suppress(GoneError):
            self.line.send(step=step)

    def attend(self, tasks: Mapping[str, Task], seconds: float) -> Message:
        """Do what is asked until the meeting says what has come of it; raises `NotMetError` where it never does."""
        end = time.monotonic() + seconds
        threading.Thread(target=self._beat, name="beat", daemon=True).start()
        try:
            while (left := end - time.monotonic()) > 0:
                for message in self.line.receive() if self.line.speaks(left) else ():
                    if "verdict" in message:
                        return message
                    threading.Thread(target=self._do, args=(message, tasks), name="task", daemon=True).start()
        except GoneError as error:
            raise NotMetError(
                f"the meeting ended without a word ({error}), while we did: {self.step}", self.ways
            ) from error
        except (KeyboardInterrupt, SystemExit):
            self.tell(**{TERMINATED: True})
            raise
        finally:
            self._over.set()
            self.line.close()
        raise NotMetError(f"the meeting said nothing in {seconds:.0f} s", self.ways)

    def _do(self, message: Message, tasks: Mapping[str, Task]) -> None:
        task = tasks.get(str(message.get("task")))
        try:
            answer = task(message) if task else {"because": f"this gpudoctor knows no {message.get('task')!r}"}
        except Exception as error:  # whatever fails here is this rank's answer, not its end
            answer = {"because": f"{type(error).__name__}: {error}"}
        with contextlib.suppress(GoneError):
            self.line.send(answer=message.get("id"), **answer)

    def _beat(self) -> None:
        while not self._over.wait(BEAT):
            with contextlib.suppress(GoneError):
                self.line.send(step=self.step)


def connect_to_own_hub(place: Place, hello: Message, door: tuple[str, int]) -> Member:
    """As `come`, for the hub itself: it is there already, and looks once whether the others' way leads to it.

    `door` is an address and a port at which it listens.
    """
    address, port = door
    if not port:
        raise NotMetError(f"all ports on which the ranks could meet are taken: {', '.join(map(str, place.ports))}")
    link, reached = opened(address, port, TRY)
    if link is None:
        raise NotMetError(f"the hub does not reach itself: {reached.words}")
    line = Line(link)
    try:
        own = admitted(line, place, _OWN)
    except (GoneError, NotOursError) as error:
        line.close()
        raise NotMetError(f"the hub does not answer itself: {error}") from error
    search = _Search(place, 0.0)
    if place.port and not place.store:
        other, search.ways[place.port] = _the_others_way(place)
        if other and _is_another(Line(other), own, place, hello):
            hello = {**hello, "elsewhere": place.master}
    return _introduced(line, place, hello, search)


def _the_others_way(place: Place) -> tuple[socket.socket | None, Reached]:
    """To where the others meet. It is our own door, or another rank 0's, which may not be open yet."""
    until = time.monotonic() + _OPENS
    while True:
        other, reached = opened(place.master, place.port, TRY, segment=SEGMENT)
        if reached.outcome != "refused" or time.monotonic() > until:
            return other, reached
        time.sleep(_PAUSE)


def _is_another(line: Line, own: str, place: Place, hello: Message) -> bool:
    """Whether the way of all others leads to another meeting of the same job, which then hears of us, too."""
    try:
        another = admitted(line, place, TRY) != own
        if another:
            _introduced(line, place, hello, _Search(place, 0.0)).line.wait(TRY)
    except (GoneError, NotOursError, NotMetError):
        return False
    finally:
        line.close()
    return another


def come(place: Place, hello: Message, seconds: float) -> Member:
    """Connect to the hub, by whichever of its ports lets us in; raises `NotMetError` where none does in that time."""
    search = _Search(place, time.monotonic() + seconds)
    line = search.found()
    if line is None:
        raise NotMetError(search.why(), search.ways)
    return _introduced(line, place, hello, search)


def _introduced(line: Line, place: Place, hello: Message, search: _Search) -> Member:
    try:
        line.send(rank=place.rank, host=place.host, **hello, ways=search.outcomes())
    except GoneError as error:
        raise NotMetError(f"the meeting ended when we came ({error})", search.ways) from error
    return Member(line, search.ways)


class _Search:
    """All ports of the hub at the same time, each again and again; the first that greets us is it."""

    def __init__(self, place: Place, end: float) -> None:
        self.place = place
        self.ways: dict[int, Reached] = {}
        self._end = end
        self._lines: list[Line] = []
        self._found = threading.Event()
        self._tried = {port: threading.Event() for port in place.ports}
        self._lock = threading.Lock()
        self._strangers: dict[int, str] = {}
        """By port, why whoever answered there is not our hub."""

    def found(self) -> Line | None:
        """The line; then the job's own port has one attempt more to show whether it is open, too."""
        for port in self.place.ports:
            threading.Thread(target=self._try, args=(port,), name=f"port {port}", daemon=True).start()
        self._found.wait(max(0.0, self._end - time.monotonic()))
        self._found.set()
        if self._lines and self.place.port in self._tried:
            self._tried[self.place.port].wait(TRY + 0.5)
        with self._lock:
            return self._lines[0] if self._lines else None

    def _try(self, port: int) -> None:
        met = False
        while not met and time.monotonic() < self._end:
            searched_on = not self._found.is_set()
            link, self.ways[port] = opened(self.place.master, port, TRY, segment=SEGMENT)
            met = link is not None and self._greeted(port, Line(link))
            if met or not searched_on:
                break
            self._found.wait(_PAUSE)
        self._tried[port].set()

    def _greeted(self, port: int, line: Line) -> bool:
        """Whether it is our hub that answers, and has proven it; the first such line is kept."""
        why = ""
        try:
            admitted(line, self.place, TRY)
        except NotOursError as error:
            why = str(error)
        except GoneError as error:
            why = f"whoever answers there is not of this job, or has another GPUDOCTOR_JOB_KEY ({error})"
        with self._lock:
            if not why and not self._lines:
                self._lines.append(line)
                self._found.set()
            else:
                line.close()
            self._strangers.pop(port, None)
            if why:
                self._strangers[port] = why
        return not why

    def outcomes(self) -> list[Message]:
        """For the hub: how its ports look from here."""
        return [
            {"port": port, "outcome": way.outcome, "words": way.words, "stranger": port in self._strangers}
            for port, way in sorted(self.ways.items())
        ]

    def why(self) -> str:
        """Of all ports, in words."""
        message = dict.fromkeys(
            f"{way.words}, but {self._strangers[port]}" if port in self._strangers else way.words
            for port, way in sorted(self.ways.items())
        )
        return f"no way to {self.place.master}: " + "; ".join(message)
