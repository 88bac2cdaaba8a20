"""A rank's side: it joins the meeting, sends signs of life, runs the coordinator's tasks, and receives the verdict."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.cluster.links.tcp import SMALL_SEGMENT, Reached, open_connection
from gpudoctor.cluster.preflight.launcher import Place
from gpudoctor.cluster.preflight.meeting import BEAT_SECONDS, TERMINATED, NotOursError, authenticate_to_coordinator
from gpudoctor.cluster.preflight.wire import GoneError, Line, Message

CONNECT_SECONDS = 2.0
"""Seconds of one attempt to connect: a lost first packet is sent again after one."""
_OWN_RANK_SECONDS = 10.0
"""Seconds in which the coordinator answers its own rank, however many others come at the same moment."""
_RETRY_SECONDS = 0.25
_LISTEN_SECONDS = 5.0
"""Seconds until a rank 0 that was started at the same time listens."""

Task = Callable[[Mapping[str, Any]], Message]
"""What a rank can be asked to do, and its answer. It is called in a thread of its own."""


class NotMetError(Exception):
    """This rank met nobody, or heard no verdict; `outcomes` of connecting are by port of the coordinator."""

    def __init__(self, why: str, outcomes: Mapping[int, Reached] | None = None) -> None:
        """`why` is the message; `outcomes` those of connecting, by port of the coordinator."""
        super().__init__(why)
        self.outcomes = dict(outcomes or {})


@dataclass
class Member:
    """This rank's connection to the meeting."""

    line: Line
    outcomes: Mapping[int, Reached]
    """What became of connecting to each of the coordinator's ports."""
    step: str = "here"
    _over: threading.Event = field(default_factory=threading.Event)

    def tell(self, **report: Any) -> None:
        """Send an unsolicited report to the coordinator; an error is ignored, as when the meeting is over."""
        with contextlib.suppress(GoneError):
            self.line.send(tell=report)

    def set_step(self, step: str) -> None:
        """Set and send the current step, by which the rank is described if it hangs or ends; send errors are
        ignored.
        """
        self.step = step
        with contextlib.suppress(GoneError):
            self.line.send(step=step)

    def attend(self, tasks: Mapping[str, Task], seconds: float) -> Message:
        """Run the coordinator's tasks, each in a thread, until its message with the verdict comes, and return that; the
        connection is then closed. Raises `NotMetError` if the meeting ends, or `seconds` pass, without one. An
        interruption is reported to it and raised again.
        """
        end = time.monotonic() + seconds
        threading.Thread(target=self._beat, name="beat", daemon=True).start()
        try:
            while (left := end - time.monotonic()) > 0:
                for message in self.line.receive() if self.line.readable(left) else ():
                    if "verdict" in message:
                        return message
                    threading.Thread(target=self._run_task, args=(message, tasks), name="task", daemon=True).start()
        except GoneError as error:
            raise NotMetError(
                f"the meeting ended without a word ({error}), while we did: {self.step}", self.outcomes
            ) from error
        except (KeyboardInterrupt, SystemExit):
            self.tell(**{TERMINATED: True})
            raise
        finally:
            self._over.set()
            self.line.close()
        raise NotMetError(f"the meeting said nothing in {seconds:.0f} s", self.outcomes)

    def _run_task(self, message: Message, tasks: Mapping[str, Task]) -> None:
        """Run the task that the message asks for and send its answer; ``because`` for an exception or an unknown
        task.
        """
        task = tasks.get(str(message.get("task")))
        try:
            answer = task(message) if task else {"because": f"this gpudoctor knows no {message.get('task')!r}"}
        except Exception as error:  # whatever fails here is this rank's answer, not its end
            answer = {"because": f"{type(error).__name__}: {error}"}
        with contextlib.suppress(GoneError):
            self.line.send(answer=message.get("id"), **answer)

    def _beat(self) -> None:
        """Send the current step every `BEAT_SECONDS` seconds until the meeting is over."""
        while not self._over.wait(BEAT_SECONDS):
            with contextlib.suppress(GoneError):
                self.line.send(step=self.step)


def connect_to_own_coordinator(place: Place, hello: Message, listening: tuple[str, int]) -> Member:
    """Member for the rank that holds the meeting itself; `listening` is the (address, port) of its own listener.
    Also connects once by MASTER_ADDR, to see whether that leads to another rank 0's meeting. Raises `NotMetError`.
    """
    address, port = listening
    if not port:
        raise NotMetError(f"all ports on which the ranks could meet are taken: {', '.join(map(str, place.ports))}")
    link, reached = open_connection(address, port, CONNECT_SECONDS)
    if link is None:
        raise NotMetError(f"the coordinator does not reach itself: {reached.words}")
    line = Line(link)
    try:
        own = authenticate_to_coordinator(line, place, _OWN_RANK_SECONDS)
    except (GoneError, NotOursError) as error:
        line.close()
        raise NotMetError(f"the coordinator does not answer itself: {error}") from error
    search = _Search(place, 0.0)
    if place.port and not place.store:
        other, search.outcomes[place.port] = _connect_to_master(place)
        if other and _is_another_meeting(Line(other), own, place, hello):
            hello = {**hello, "elsewhere": place.master}
    return _introduced(line, place, hello, search)


def _connect_to_master(place: Place) -> tuple[socket.socket | None, Reached]:
    """(connection or None, outcome) of connecting to MASTER_ADDR and MASTER_PORT; refusals are tried again for 5 s."""
    until = time.monotonic() + _LISTEN_SECONDS
    while True:
        other, reached = open_connection(place.master, place.port, CONNECT_SECONDS, segment=SMALL_SEGMENT)
        if reached.outcome != "refused" or time.monotonic() > until:
            return other, reached
        time.sleep(_RETRY_SECONDS)


def _is_another_meeting(line: Line, own_id: str, place: Place, hello: Message) -> bool:
    """True if the connection, which is closed, leads to a meeting of this job other than `own_id`; that one is then
    told of this rank.
    """
    try:
        another = authenticate_to_coordinator(line, place, CONNECT_SECONDS) != own_id
        if another:
            _introduced(line, place, hello, _Search(place, 0.0)).line.wait(CONNECT_SECONDS)
    except (GoneError, NotOursError, NotMetError):
        return False
    finally:
        line.close()
    return another


def join_meeting(place: Place, hello: Message, seconds: float) -> Member:
    """Connection to the meeting by whichever of the coordinator's ports accepts us; `NotMetError` after `seconds`."""
    search = _Search(place, time.monotonic() + seconds)
    line = search.find_coordinator()
    if line is None:
        raise NotMetError(search.why(), search.outcomes)
    return _introduced(line, place, hello, search)


def _introduced(line: Line, place: Place, hello: Message, search: _Search) -> Member:
    """Send this rank's introduction and return it as a member; raises `NotMetError` if the connection is gone."""
    try:
        line.send(rank=place.rank, host=place.host, **hello, ways=search.outcome_messages())
    except GoneError as error:
        raise NotMetError(f"the meeting ended when we came ({error})", search.outcomes) from error
    return Member(line, search.outcomes)


class _Search:
    """Tries all ports of the coordinator in parallel, repeatedly, until one leads to our coordinator."""

    def __init__(self, place: Place, end: float) -> None:
        """Prepare the search; `end` is the deadline (monotonic seconds)."""
        self.place = place
        self.outcomes: dict[int, Reached] = {}
        self._end = end
        self._lines: list[Line] = []
        self._found = threading.Event()
        self._tried = {port: threading.Event() for port in place.ports}
        self._lock = threading.Lock()
        self._strangers: dict[int, str] = {}
        """By port, why whoever answered there is not our coordinator."""

    def find_coordinator(self) -> Line | None:
        """The first authenticated connection to the coordinator, None if there was none before the deadline. The job's
        own port gets one more attempt, so that its outcome is known.
        """
        for port in self.place.ports:
            threading.Thread(target=self._try, args=(port,), name=f"port {port}", daemon=True).start()
        self._found.wait(max(0.0, self._end - time.monotonic()))
        self._found.set()
        if self._lines and self.place.port in self._tried:
            self._tried[self.place.port].wait(CONNECT_SECONDS + 0.5)
        with self._lock:
            return self._lines[0] if self._lines else None

    def _try(self, port: int) -> None:
        """Connect to one port again and again, keeping the outcome, until it or another leads to our coordinator, or
        time is up.
        """
        met = False
        while not met and time.monotonic() < self._end:
            searched_on = not self._found.is_set()
            link, self.outcomes[port] = open_connection(self.place.master, port, CONNECT_SECONDS, segment=SMALL_SEGMENT)
            met = link is not None and self._is_admitted(port, Line(link))
            if met or not searched_on:
                break
            self._found.wait(_RETRY_SECONDS)
        self._tried[port].set()

    def _is_admitted(self, port: int, line: Line) -> bool:
        """True if our coordinator answers and we authenticate; the first such connection is kept, others are closed."""
        why = ""
        try:
            authenticate_to_coordinator(line, self.place, CONNECT_SECONDS)
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

    def outcome_messages(self) -> list[Message]:
        """Outcome of connecting to each port, for the coordinator: ``port``, ``outcome``, ``words``, ``stranger``
        (another program answered).
        """
        return [
            {"port": port, "outcome": outcome.outcome, "words": outcome.words, "stranger": port in self._strangers}
            for port, outcome in sorted(self.outcomes.items())
        ]

    def why(self) -> str:
        """Why no port worked, as one sentence."""
        message = dict.fromkeys(
            f"{outcome.words}, but {self._strangers[port]}" if port in self._strangers else outcome.words
            for port, outcome in sorted(self.outcomes.items())
        )
        return f"no way to {self.place.master}: " + "; ".join(message)
