"""The coordinator's side: which ranks have joined, what each sent last, and tasks for them; all in one thread.

Whoever connects is greeted with a nonce, and must prove within seconds, with a nonce of its own, that it knows the
job's key; from there on each line is authenticated, both ways. Without that proof nobody joins or is waited for: such
connections are limited in number, time and bytes, and the oldest is dropped for the next.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import selectors
import socket
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.cluster.links.protocol import is_tag, nonce, tag
from gpudoctor.cluster.preflight.launcher import Place
from gpudoctor.cluster.preflight.results import EXIT_UNKNOWN
from gpudoctor.cluster.preflight.wire import GoneError, Line, ListeningSockets, Message
from gpudoctor.core.about import __version__

TERMINATED = "told to end"
"""What a rank tells last if a signal ends it."""
_TELLS = frozenset({"document", "failed", "nccl", "store", TERMINATED})
_LONGEST_STEP = 500


@dataclass
class JoinedRank:
    """A rank that joined the meeting, with all it has sent. `hello` is its introduction."""

    line: Line
    rank: int
    hello: Message
    last_received: float
    step: str = "here"
    ended: str = ""
    """Why it is no longer heard, after it has been."""
    refused: str = ""
    """Why it could not do what it was asked."""
    answers: dict[int, Message] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)
    """The numbers of the tasks that it was given."""
    reports: dict[str, object] = field(default_factory=dict)
    """What it told without being asked: its document."""

    @property
    def host(self) -> str:
        """Name of the rank's machine; ``""`` if it told none."""
        return str(self.hello.get("host", ""))

    @property
    def leads(self) -> bool:
        """True if the rank speaks for its machine (local rank 0)."""
        return bool(self.hello.get("leads"))

    @property
    def listeners(self) -> Sequence[Mapping[str, Any]]:
        """Descriptions of the measurement servers of the rank's machine, as it announced them when it joined."""
        announced = self.hello.get("listeners")
        return announced if isinstance(announced, list) else ()

    @property
    def silent_seconds(self) -> float:
        """Seconds since the rank's last message."""
        return time.monotonic() - self.last_received

    def note(self, message: Message) -> None:
        """Store what a rank's message holds: its step, the answer to a task it was given, known unsolicited reports."""
        self.step = str(message.get("step", self.step))[:_LONGEST_STEP]
        if isinstance(number := message.get("answer"), int) and number in self.asked:
            self.answers[number] = message
            if why := message.get("because"):
                self.refused = str(why)
        if isinstance(reports := message.get("tell"), dict):
            self.reports.update((name, what) for name, what in reports.items() if name in _TELLS)


# ---- The meeting ----

BEAT_SECONDS = 1.0
"""Seconds between two signs of life of a rank."""
SILENT_SECONDS = 5.0
"""Seconds without one after which a rank hangs: five beats."""
_PROOF_SECONDS = 3.0
"""Seconds until somebody who connects must have proven that it is of this job."""
_INTRODUCTION_SECONDS = 10.0
"""Seconds from then until it must have said which rank it is."""
_MOST_UNPROVEN = 128
"""Connections of strangers at a time, beside one for each rank."""
_MOST_ACCEPTED = 64
"""Connections that are taken in one turn, so that those who are here are heard in between."""
_MOST_EXPLANATIONS = 4
"""Times that somebody who calls itself by one rank, and cannot prove it, is told why."""
_HANG_UP_SECONDS = 1.0
"""Seconds that those who were told the verdict have to hang up, which they do at once."""


def greeting(job: str) -> Message:
    """First message of the coordinator to every connection: gpudoctor's mark and a CRC of the job's name."""
    return {"gpudoctor": "meeting", "job": zlib.crc32(job.encode())}


def max_connections(world: int) -> int:
    """Maximum number of connections that the coordinator holds open for a job of `world` ranks."""
    return 2 * world + _MOST_UNPROVEN


class NotOursError(Exception):
    """The program that answers is not a coordinator of this job; the message says what it is."""


def authenticate_to_coordinator(line: Line, place: Place, seconds: float) -> str:
    """Authenticate to the coordinator and it to us; return the id of its meeting. Each reply is awaited for `seconds`.
    Raises `NotOursError` for another program or another job's coordinator, `GoneError` if the connection ends.
    """
    message = line.wait(seconds)
    if message is None or not greeting(place.job).items() <= message.items():
        raise NotOursError("another program, or another job, answers there")
    listener, caller = message.get("nonce"), nonce()
    if not isinstance(listener, str):
        raise NotOursError("the gpudoctor of rank 0 is older and cannot authenticate itself")
    line.send(rank=place.rank, nonce=caller, proof=tag(place.key, "rank", str(place.rank), listener, caller))
    line.authenticate(place.key, listener, caller, listens=False)
    welcome = line.wait(seconds)
    if welcome is None:
        raise NotOursError("rank 0 does not answer")
    return str(welcome.get("meeting"))


Asked = tuple[int, list[JoinedRank]]
"""The number of a task, and who was given it."""


class Meeting:
    """The coordinator's meeting: all ranks that joined, by rank. Methods must be called from one thread."""

    def __init__(self, place: Place, listening: ListeningSockets) -> None:
        """Begin to accept at the listening sockets; nothing is received until a method waits for messages."""
        self.place = place
        self.joined_ranks: dict[int, JoinedRank] = {}
        self.twice: dict[int, list[str]] = {}
        """By rank, the machines of all who came as a rank that was here already."""
        self.key = secrets.token_hex(8)
        """Tells this meeting from another that calls itself by the same job."""
        self._listening = listening
        self.unproven: dict[int, str] = {}
        """By rank, what is wrong with somebody who called itself so and could not prove that it is of this job."""
        self._turned_away: Counter[int] = Counter()
        self._nonces: dict[Line, str] = {}
        """Of those who have not proven it yet, the nonces that they were given; in the order in which they came."""
        self._until: dict[Line, float] = {}
        """Of connections that have not joined yet, until when (monotonic) they are waited for."""
        self._ids = itertools.count(1)
        self._selector = selectors.DefaultSelector()
        self.stop = threading.Event()
        """Set from elsewhere: nobody is waited for any longer."""
        for sock in listening.sockets:
            sock.setblocking(False)
            self._selector.register(sock, selectors.EVENT_READ, None)

    @property
    def here(self) -> list[JoinedRank]:
        """Ranks that have joined and are still connected, sorted by rank."""
        return [joined for _, joined in sorted(self.joined_ranks.items()) if not joined.ended]

    @property
    def complete(self) -> bool:
        """True if every rank of the job has joined at some time, even if it has left since."""
        return all(rank in self.joined_ranks for rank in range(self.place.world))

    @property
    def leaders(self) -> list[JoinedRank]:
        """The leading rank of each machine, if it is still connected, by rank."""
        return list({joined.host: joined for joined in reversed(self.here) if joined.leads}.values())[::-1]

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Receive messages until `condition()` is true: True. After `seconds`, or once `stop` is set: False."""
        end = time.monotonic() + seconds
        while not condition():
            left = end - time.monotonic()
            if left <= 0 or self.stop.is_set():
                return False
            self._receive(min(left, 0.2))
        return True

    def ask(self, tasks: Mapping[int, Message], seconds: float) -> dict[int, Message]:
        """Give each rank its task and wait at most `seconds`: answers by rank, missing where none came; one that has
        ended or sent nothing for 5 s is not waited for.
        """
        return self.collect_answers(self.give(tasks), seconds)

    def give(self, tasks: Mapping[int, Message]) -> Asked:
        """Send each rank its task; (number of the tasks, ranks reached), to be passed to `collect_answers`. KeyError
        for a rank that never joined.
        """
        number = next(self._ids)
        return number, [
            joined for rank, task in tasks.items() if self._give_task(joined := self.joined_ranks[rank], number, task)
        ]

    def collect_answers(self, given: Asked, seconds: float) -> dict[int, Message]:
        """Answers by rank to the tasks that `give` sent, missing where none came within `seconds`; one that has ended
        or sent nothing for 5 s is not waited for.
        """
        number, joined_ranks = given
        self.wait_until(
            lambda: all(
                number in joined.answers or joined.ended or joined.silent_seconds > SILENT_SECONDS
                for joined in joined_ranks
            ),
            seconds,
        )
        return {joined.rank: joined.answers[number] for joined in joined_ranks if number in joined.answers}

    def _give_task(self, joined: JoinedRank, number: int, task: Message) -> bool:
        """Send a task to a rank; False if it has ended, and it is marked as ended if its connection is gone."""
        joined.asked.add(number)
        try:
            joined.line.send(id=number, **task)
        except GoneError as error:
            self._end_joined(joined, str(error))
        return not joined.ended

    def close(self, last: Callable[[JoinedRank], Message]) -> None:
        """Send each rank what `last` returns for it, wait up to 1 s until they hang up, and close all connections and
        listening ports. Connections still open by then are reset: a side that closes first would keep the job's port
        for a minute.
        """
        for joined in self.here:
            self._give_task(joined, 0, last(joined))
        for sock in self._listening.sockets:  # before anybody goes on: the port is the job's
            self._selector.unregister(sock)
        self._listening.close()
        end = time.monotonic() + _HANG_UP_SECONDS
        while any(map(self._will_receive, self.here)) and time.monotonic() < end:
            self._receive(0.1)
        for joined in self.joined_ranks.values():
            joined.line.close() if joined.ended else joined.line.drop()
        for line in self._until:
            line.drop()
        self._selector.close()

    def _will_receive(self, joined: JoinedRank) -> bool:
        """True if the rank will read its last message: all but the coordinator's own one after it was told to stop."""
        return joined.rank != self.place.rank or not self.stop.is_set()

    def _receive(self, seconds: float) -> None:
        """Wait up to `seconds` for connections or messages and handle them; drop connections that did not join in
        time.
        """
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                self._accept(key.fileobj)  # type: ignore[arg-type]
            elif isinstance(key.data, JoinedRank):
                self._receive_from_joined(key.data)
            elif key.data in self._until:  # it was not dropped for another one in this very turn
                self._receive_from_unproven(key.data)
        now = time.monotonic()
        for line in [line for line, until in self._until.items() if now > until]:
            self._drop(line)

    def _accept(self, listener: socket.socket) -> None:
        """Accept and greet up to 64 pending connections; beyond a limit one unproven one is dropped for each."""
        for _ in range(_MOST_ACCEPTED):
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError:  # out of file descriptors
                self._drop_a_stranger()
                return
            if len(self._nonces) >= _MOST_UNPROVEN + self.place.world:
                self._drop_a_stranger()
            self._greet(Line(connection))

    def _drop_a_stranger(self) -> None:
        """Drop the oldest unproven connection of the address that has most of them; does nothing if there is none."""
        if self._nonces:
            peers = {line: line.peer for line in self._nonces}
            (busiest, _), *_ = Counter(peers.values()).most_common(1)
            self._drop(next(line for line, peer in peers.items() if peer == busiest))

    def _greet(self, line: Line) -> None:
        """Send the greeting with a nonce to a new connection, which has 3 s to prove itself; drop it if it is gone."""
        challenge = nonce()
        try:
            line.send(**greeting(self.place.job), nonce=challenge)
        except GoneError:
            line.drop()
            return
        self._nonces[line] = challenge
        self._until[line] = time.monotonic() + _PROOF_SECONDS
        self._selector.register(line.socket, selectors.EVENT_READ, line)

    def _receive_from_unproven(self, line: Line) -> None:
        """Handle messages of a connection that has not joined yet: first its proof, then its introduction."""
        try:
            messages = line.receive()
        except GoneError:
            self._drop(line)
            return
        if messages and line in self._nonces:
            self._check_proof(line, messages)
        elif messages:
            self._register(line, *messages)

    def _check_proof(self, line: Line, messages: list[Message]) -> None:
        """Check a connection's first message for proof of the job's key: authenticate it, or turn it away."""
        proof, *more = messages
        challenge, rank, caller = self._nonces[line], proof.get("rank"), proof.get("nonce")
        fits = is_tag(proof.get("proof"), self.place.key, "rank", str(rank), challenge, str(caller))
        if more or not fits or not isinstance(caller, str):
            self._turn_away(line, proof)
            return
        line.authenticate(self.place.key, challenge, caller, listens=True)
        del self._nonces[line]
        self._until[line] = time.monotonic() + _INTRODUCTION_SECONDS
        try:
            line.send(meeting=self.key)
        except GoneError:
            self._drop(line)

    def _turn_away(self, line: Line, message: Message) -> None:
        """Close a connection without a valid proof; a rank with another key or an older gpudoctor is told why, a few
        times.
        """
        rank = message.get("rank")
        named = "proof" in message or message.get("job") == greeting(self.place.job)["job"]
        if not named or type(rank) is not int or not 0 <= rank < self.place.world or rank in self.joined_ranks:
            self._drop(line)
            return
        if self._turned_away[rank] >= _MOST_EXPLANATIONS:
            self._drop(line)
            return
        self._turned_away[rank] += 1
        why = (
            f"GPUDOCTOR_JOB_KEY of rank {rank} is not that of rank {self.place.rank}"
            if "proof" in message
            else f"the gpudoctor of rank {rank} is older than {__version__} and cannot authenticate itself"
        )
        self.unproven[rank] = why
        with contextlib.suppress(GoneError):
            line.send(verdict="unknown", code=EXIT_UNKNOWN, words=why)
        self._forget(line)
        line.close()

    def _register(self, line: Line, hello: Message, *more: Message) -> None:
        """Let an authenticated connection join as the rank it names; refused if that rank is connected already or is
        the coordinator's and comes from elsewhere, dropped if it names none.
        """
        rank = hello.get("rank")
        if type(rank) is not int or rank < 0:
            self._drop(line)
            return
        first = self.joined_ranks.get(rank)
        here = first is not None and not first.ended  # one whose connection broke may come again
        if here or (rank == self.place.rank and not line.local):  # the coordinator's own seat is its own
            self._refuse(line, rank, str(hello.get("host", "")))
            return
        if other := hello.get("elsewhere"):
            self.twice[rank] = [str(hello.get("host", "")), str(other)]
        del self._until[line]
        joined = JoinedRank(line, rank, {**hello, "host": self._host_name(hello, line)}, time.monotonic())
        self.joined_ranks[rank] = joined
        self._selector.modify(line.socket, selectors.EVENT_READ, joined)
        for message in more:
            joined.note(message)

    def _host_name(self, hello: Message, line: Line) -> str:
        """Machine name that a joining rank states; its address is added if another machine has that name already."""
        host = str(hello.get("host", ""))
        here = [joined.hello.get("machine") for joined in self.joined_ranks.values() if joined.host == host]
        same = line.local if host == self.place.host else not here or hello.get("machine") in here
        return host if same else f"{host} ({line.peer})"

    def _refuse(self, line: Line, rank: int, host: str) -> None:
        """Send a connection the verdict that its rank is here already, record its host in `twice`, and close it."""
        first = self.joined_ranks[rank].host if rank in self.joined_ranks else self.place.host
        self.twice.setdefault(rank, [first]).append(host)
        with contextlib.suppress(GoneError):
            line.send(verdict="no-go", code=1, words=f"rank {rank} is here already, from {first}")
        self._forget(line)
        line.close()

    def _drop(self, line: Line) -> None:
        """Forget a connection that has not joined, and reset it."""
        self._forget(line)
        line.drop()

    def _forget(self, line: Line) -> None:
        """Wait no longer for a connection that has not joined; it is not closed."""
        self._until.pop(line, None)
        self._nonces.pop(line, None)
        self._selector.unregister(line.socket)

    def _receive_from_joined(self, joined: JoinedRank) -> None:
        """Receive and store the messages of a joined rank; mark it as ended if its connection is gone."""
        try:
            messages = joined.line.receive()
        except GoneError as error:
            self._end_joined(joined, str(error))
            return
        joined.last_received = time.monotonic()  # be it half a document
        for message in messages:
            joined.note(message)

    def _end_joined(self, joined: JoinedRank, why: str) -> None:
        """Mark a rank as ended for the reason `why` and close its connection; does nothing if it has ended."""
        if not joined.ended:
            joined.ended = why
            self._selector.unregister(joined.line.socket)
            joined.line.close()
