"""The hub's side: who came, what each said last, and tasks for them. One thread hears all, until it is told to stop.

Whoever connects is greeted with a nonce, and must prove within seconds, with a nonce of its own, that it knows the
job's key; from there on each line is authenticated, both ways. Who has not proven it can neither become a guest nor be
waited for: such connections are limited in number, time and bytes, and the oldest is dropped for the next.
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
from collections.abc import Callable, Mapping

from gpudoctor.job.door import Door
from gpudoctor.job.guest import Guest
from gpudoctor.job.place import Place
from gpudoctor.job.verdict import UNKNOWN
from gpudoctor.job.wire import GoneError, Line, Message
from gpudoctor.links.sealing import is_tag, nonce, tag
from gpudoctor.version import __version__

BEAT = 1.0
"""Seconds between two signs of life of a rank."""
SILENT = 5.0
"""Seconds without one after which a rank hangs: five beats."""
_STRANGER = 3.0
"""Seconds until somebody who connects must have proven that it is of this job."""
_PROVEN = 10.0
"""Seconds from then until it must have said which rank it is."""
_STRANGERS = 128
"""Connections of strangers at a time, beside one for each rank."""
_AT_ONCE = 64
"""Connections that are taken in one turn, so that those who are here are heard in between."""
_TURNED_AWAY = 4
"""Times that somebody who calls itself by one rank, and cannot prove it, is told why."""
_GOING = 1.0
"""Seconds that those who were told the verdict have to hang up, which they do at once."""


def greeting(job: str) -> Message:
    """The hub's first words: whoever connects knows by them that it may have come to the right place."""
    return {"gpudoctor": "meeting", "job": zlib.crc32(job.encode())}


def is_ours(message: Message | None, job: str) -> bool:
    """Whether it is a hub of this job that says so; one of another version may say more."""
    return message is not None and greeting(job).items() <= message.items()


def connections(world: int) -> int:
    """How many the hub has open at most: a guest and one more for each rank, and strangers."""
    return 2 * world + _STRANGERS


class NotOursError(Exception):
    """Who answers is no hub of this job; the words say what it is."""


def admitted(line: Line, place: Place, seconds: float) -> str:
    """The key of the meeting, once both sides have proven to each other that they are of this job.

    Raises `NotOursError` where it is another program or another job's hub, and `GoneError`.
    """
    message = line.wait(seconds)
    if message is None or not is_ours(message, place.job):
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


Asked = tuple[int, list[Guest]]
"""The number of a task, and who was given it."""


class Meeting:
    """Everybody who came, by rank. All methods are for one thread."""

    def __init__(self, place: Place, door: Door) -> None:
        self.place = place
        self.guests: dict[int, Guest] = {}
        self.twice: dict[int, list[str]] = {}
        """By rank, the machines of all who came as a rank that was here already."""
        self.key = secrets.token_hex(8)
        """Tells this meeting from another that calls itself by the same job."""
        self._door = door
        self.unproven: dict[int, str] = {}
        """By rank, what is wrong with somebody who called itself so and could not prove that it is of this job."""
        self._turned_away: Counter[int] = Counter()
        self._nonces: dict[Line, str] = {}
        """Of those who have not proven it yet, the nonces that they were given; in the order in which they came."""
        self._until: dict[Line, float] = {}
        """Of all who are no guests yet, until when they are waited for."""
        self._ids = itertools.count(1)
        self._heard = selectors.DefaultSelector()
        self._greeting = greeting(place.job)
        self._proof_key = place.key
        self.stop = threading.Event()
        """Set from elsewhere: nobody is waited for any longer."""
        for one in door.sockets:
            one.setblocking(False)
            self._heard.register(one, selectors.EVENT_READ, None)

    @property
    def here(self) -> list[Guest]:
        """Who can be asked, by rank."""
        return [guest for _, guest in sorted(self.guests.items()) if not guest.ended]

    @property
    def complete(self) -> bool:
        """Whether every rank of the job came, be it only for a moment."""
        return all(rank in self.guests for rank in range(self.place.world))

    @property
    def leaders(self) -> list[Guest]:
        """One rank of each machine, who can be asked."""
        return list({guest.host: guest for guest in reversed(self.here) if guest.leads}.values())[::-1]

    def until(self, over: Callable[[], bool], seconds: float) -> bool:
        """Hear everybody until that holds, or so many seconds are over; whether it holds."""
        end = time.monotonic() + seconds
        while not over():
            left = end - time.monotonic()
            if left <= 0 or self.stop.is_set():
                return False
            self._hear(min(left, 0.2))
        return True

    def ask(self, tasks: Mapping[int, Message], seconds: float) -> dict[int, Message]:
        """Give each of these ranks its task, and hear until all have answered; the answers there are, by rank.

        A rank that ends or hangs is not waited for.
        """
        return self.answers(self.give(tasks), seconds)

    def give(self, tasks: Mapping[int, Message]) -> Asked:
        """Give each of these ranks its task; `answers` takes what is given here."""
        number = next(self._ids)
        return number, [guest for rank, task in tasks.items() if self._gave(guest := self.guests[rank], number, task)]

    def answers(self, asked: Asked, seconds: float) -> dict[int, Message]:
        """As `ask`, for tasks that were given before."""
        number, guests = asked
        self.until(lambda: all(number in one.answers or one.ended or one.silent > SILENT for one in guests), seconds)
        return {one.rank: one.answers[number] for one in guests if number in one.answers}

    def _gave(self, guest: Guest, number: int, task: Message) -> bool:
        guest.asked.add(number)
        try:
            guest.line.send(id=number, **task)
        except GoneError as error:
            self._end(guest, str(error))
        return not guest.ended

    def close(self, last: Callable[[Guest], Message]) -> None:
        """Tell everybody what has come of it, and leave."""
        for guest in self.here:
            self._gave(guest, 0, last(guest))
        self._door.close()  # before anybody goes on: the port is the job's
        end = time.monotonic() + _GOING
        while any(map(self._listens, self.here)) and time.monotonic() < end:
            self._hear(0.1)
        for guest in self.guests.values():
            guest.line.close()
        for line in self._until:
            line.drop()
        self._heard.close()

    def _listens(self, guest: Guest) -> bool:
        """Whether it will hear the last word; the hub's own rank does not, where it was itself told to end."""
        return guest.rank != self.place.rank or not self.stop.is_set()

    def _hear(self, seconds: float) -> None:
        for key, _ in self._heard.select(seconds):
            if key.data is None:
                self._welcome(key.fileobj)  # type: ignore[arg-type]
            elif isinstance(key.data, Guest):
                self._take(key.data)
            elif key.data in self._until:  # it was not dropped for another one in this very turn
                self._meet(key.data)
        now = time.monotonic()
        for line in [line for line, until in self._until.items() if now > until]:
            self._drop(line)

    def _welcome(self, door: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = door.accept()
            except BlockingIOError:
                return
            except OSError:  # out of file descriptors
                self._drop_a_stranger()
                return
            if len(self._nonces) >= _STRANGERS + self.place.world:
                self._drop_a_stranger()
            self._greet(Line(connection))

    def _drop_a_stranger(self) -> None:
        """The first that came of those from the address that most came from."""
        if self._nonces:
            peers = {line: line.peer for line in self._nonces}
            (busiest, _), *_ = Counter(peers.values()).most_common(1)
            self._drop(next(line for line, peer in peers.items() if peer == busiest))

    def _greet(self, line: Line) -> None:
        challenge = nonce()
        try:
            line.send(**self._greeting, nonce=challenge)
        except GoneError:
            line.drop()
            return
        self._nonces[line] = challenge
        self._until[line] = time.monotonic() + _STRANGER
        self._heard.register(line.socket, selectors.EVENT_READ, line)

    def _meet(self, line: Line) -> None:
        """Words of somebody who is no guest yet: first the proof, then who it is."""
        try:
            messages = line.receive()
        except GoneError:
            self._drop(line)
            return
        if messages and line in self._nonces:
            self._prove(line, messages)
        elif messages:
            self._seat(line, *messages)

    def _prove(self, line: Line, messages: list[Message]) -> None:
        proof, *more = messages
        challenge, rank, caller = self._nonces[line], proof.get("rank"), proof.get("nonce")
        fits = is_tag(proof.get("proof"), self._proof_key, "rank", str(rank), challenge, str(caller))
        if more or not fits or not isinstance(caller, str):
            self._turn_away(line, proof)
            return
        line.authenticate(self._proof_key, challenge, caller, listens=True)
        del self._nonces[line]
        self._until[line] = time.monotonic() + _PROVEN
        try:
            line.send(meeting=self.key)
        except GoneError:
            self._drop(line)

    def _turn_away(self, line: Line, message: Message) -> None:
        """It did not prove that it is of this job; ranks with another key, or an older gpudoctor, are told so."""
        rank = message.get("rank")
        named = "proof" in message or message.get("job") == self._greeting["job"]
        if not named or type(rank) is not int or not 0 <= rank < self.place.world or rank in self.guests:
            self._drop(line)
            return
        if self._turned_away[rank] >= _TURNED_AWAY:
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
            line.send(verdict="unknown", code=UNKNOWN, words=why)
        self._leave(line)
        line.close()

    def _seat(self, line: Line, hello: Message, *more: Message) -> None:
        """One of this job says which rank it is."""
        rank = hello.get("rank")
        if type(rank) is not int or rank < 0:
            self._drop(line)
            return
        seated = rank in self.guests and not self.guests[rank].ended  # one whose connection broke may come again
        if seated or (rank == self.place.rank and not line.local):  # the hub's own seat is its own
            self._refuse(line, rank, str(hello.get("host", "")))
            return
        if other := hello.get("elsewhere"):
            self.twice[rank] = [str(hello.get("host", "")), str(other)]
        del self._until[line]
        guest = Guest(line, rank, {**hello, "host": self._name(hello, line)}, time.monotonic())
        self.guests[rank] = guest
        self._heard.modify(line.socket, selectors.EVENT_READ, guest)
        for one in more:
            guest.note(one)

    def _name(self, hello: Message, line: Line) -> str:
        """Its machine's name; where another one that is called so is here already, its address tells them apart."""
        host = str(hello.get("host", ""))
        here = [guest.hello.get("machine") for guest in self.guests.values() if guest.host == host]
        same = line.local if host == self.place.host else not here or hello.get("machine") in here
        return host if same else f"{host} ({line.peer})"

    def _refuse(self, line: Line, rank: int, host: str) -> None:
        """Of two ranks with one number the first is kept; the other is told, and so is everybody at the end."""
        first = self.guests[rank].host if rank in self.guests else self.place.host
        self.twice.setdefault(rank, [first]).append(host)
        with contextlib.suppress(GoneError):
            line.send(verdict="no-go", code=1, words=f"rank {rank} is here already, from {first}")
        self._leave(line)
        line.close()

    def _drop(self, line: Line) -> None:
        self._leave(line)
        line.drop()

    def _leave(self, line: Line) -> None:
        self._until.pop(line, None)
        self._nonces.pop(line, None)
        self._heard.unregister(line.socket)

    def _take(self, guest: Guest) -> None:
        try:
            messages = guest.line.receive()
        except GoneError as error:
            self._end(guest, str(error))
            return
        guest.last_received = time.monotonic()  # be it half a document
        for message in messages:
            guest.note(message)

    def _end(self, guest: Guest, why: str) -> None:
        if not guest.ended:
            guest.ended = why
            self._heard.unregister(guest.line.socket)
            guest.line.close()
