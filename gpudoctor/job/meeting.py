"""The hub's side: who came, what each said last, and tasks for them. One thread hears all, until it is told to stop."""

from __future__ import annotations

import itertools
import selectors
import socket
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpudoctor.job.door import Door
from gpudoctor.job.place import Place
from gpudoctor.job.wire import GoneError, Line, Said

BEAT = 1.0
"""Seconds between two signs of life of a rank."""
SILENT = 5.0
"""Seconds without one after which a rank hangs: five beats."""
_STRANGER = 3.0
"""Seconds until somebody who connects must have said who it is."""


def greeting(job: str) -> Said:
    """The hub's first words: whoever connects knows by them that it has come to the right place."""
    return {"gpudoctor": "meeting", "job": zlib.crc32(job.encode())}


@dataclass
class Guest:
    """One rank that came. `hello` is what it said of itself."""

    line: Line
    rank: int
    hello: Said
    heard: float
    step: str = "here"
    ended: str = ""
    """Why it is no longer heard, after it has been."""
    answers: dict[int, Said] = field(default_factory=dict)
    told: dict[str, object] = field(default_factory=dict)
    """What it told without being asked: its document."""

    @property
    def host(self) -> str:
        """The machine that it runs on."""
        return str(self.hello.get("host", ""))

    @property
    def leads(self) -> bool:
        """Whether it speaks for its machine."""
        return bool(self.hello.get("leads"))

    @property
    def silent(self) -> float:
        """Seconds since it was last heard."""
        return time.monotonic() - self.heard


Asked = tuple[int, list[Guest]]
"""The number of a task, and who was given it."""


class Meeting:
    """Everybody who came, by rank. All methods are for one thread."""

    def __init__(self, place: Place, door: Door) -> None:
        self.place = place
        self.guests: dict[int, Guest] = {}
        self._door = door
        self._strangers: dict[Line, float] = {}
        self._ids = itertools.count(1)
        self._heard = selectors.DefaultSelector()
        self._greeting = greeting(place.job)
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

    def ask(self, tasks: Mapping[int, Said], seconds: float) -> dict[int, Said]:
        """Give each of these ranks its task, and hear until all have answered; the answers there are, by rank.

        A rank that ends or hangs is not waited for.
        """
        return self.answers(self.give(tasks), seconds)

    def give(self, tasks: Mapping[int, Said]) -> Asked:
        """Give each of these ranks its task; `answers` takes what is given here."""
        number = next(self._ids)
        return number, [guest for rank, task in tasks.items() if self._gave(guest := self.guests[rank], number, task)]

    def answers(self, asked: Asked, seconds: float) -> dict[int, Said]:
        """As `ask`, for tasks that were given before."""
        number, guests = asked
        self.until(lambda: all(number in one.answers or one.ended or one.silent > SILENT for one in guests), seconds)
        return {one.rank: one.answers[number] for one in guests if number in one.answers}

    def _gave(self, guest: Guest, number: int, task: Said) -> bool:
        try:
            guest.line.say(id=number, **task)
        except GoneError as error:
            self._end(guest, str(error))
        return not guest.ended

    def close(self, last: Callable[[Guest], Said]) -> None:
        """Tell everybody what has come of it, and leave."""
        for guest in self.here:
            self._gave(guest, 0, last(guest))
        self._door.close()  # before anybody goes on: the port is the job's
        self.until(lambda: not self.here, 1.0)
        for line in [*(guest.line for guest in self.guests.values()), *self._strangers]:
            line.close()
        self._heard.close()

    def _hear(self, seconds: float) -> None:
        for key, _ in self._heard.select(seconds):
            if key.data is None:
                self._welcome(key.fileobj)  # type: ignore[arg-type]
            elif isinstance(key.data, Guest):
                self._take(key.data)
            else:
                self._meet(key.data)
        for line in [line for line, since in self._strangers.items() if time.monotonic() - since > _STRANGER]:
            self._drop(line)

    def _welcome(self, door: socket.socket) -> None:
        try:
            connection, _ = door.accept()
        except OSError:
            return
        line = Line(connection)
        try:
            line.say(**self._greeting)
        except GoneError:
            line.close()
            return
        self._strangers[line] = time.monotonic()
        self._heard.register(connection, selectors.EVENT_READ, line)

    def _meet(self, line: Line) -> None:
        """The first words of somebody who came."""
        try:
            said = line.heard()
        except GoneError:
            self._drop(line)
            return
        if not said:
            return
        hello, *more = said
        rank = hello.get("rank")
        if hello.get("job") != self._greeting["job"] or not isinstance(rank, int) or rank in self._taken():
            self._drop(line)
            return
        del self._strangers[line]
        guest = self.guests[rank] = Guest(line, rank, hello, time.monotonic())
        self._heard.modify(line.socket, selectors.EVENT_READ, guest)
        for one in more:
            _note(guest, one)

    def _taken(self) -> set[int]:
        """Ranks that are here; one whose connection broke may come again."""
        return {guest.rank for guest in self.here}

    def _drop(self, line: Line) -> None:
        self._strangers.pop(line, None)
        self._heard.unregister(line.socket)
        line.close()

    def _take(self, guest: Guest) -> None:
        try:
            for said in guest.line.heard():
                _note(guest, said)
        except GoneError as error:
            self._end(guest, str(error))

    def _end(self, guest: Guest, why: str) -> None:
        if not guest.ended:
            guest.ended = why
            self._heard.unregister(guest.line.socket)
            guest.line.close()


def _note(guest: Guest, said: Said) -> None:
    guest.heard = time.monotonic()
    guest.step = str(said.get("step", guest.step))
    if isinstance(number := said.get("answer"), int):
        guest.answers[number] = said
    if isinstance(told := said.get("tell"), dict):
        guest.told.update(told)
