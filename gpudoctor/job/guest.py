"""One rank that came to the meeting: what it said of itself, what it does, and what it answered."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from gpudoctor.job.wire import Line, Message

TERMINATED = "told to end"
"""What a rank tells last if a signal ends it."""
_TELLS = frozenset({"document", "failed", "nccl", "store", TERMINATED})
_LONGEST_STEP = 500


@dataclass
class Guest:
    """One rank that came. `hello` is what it said of itself."""

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
        """The machine that it runs on."""
        return str(self.hello.get("host", ""))

    @property
    def leads(self) -> bool:
        """Whether it speaks for its machine."""
        return bool(self.hello.get("leads"))

    @property
    def silent(self) -> float:
        """Seconds since it was last heard."""
        return time.monotonic() - self.last_received

    def note(self, message: Message) -> None:
        """Keep what it has said: its step, answers to what it was asked, and what is known to be told unasked."""
        self.step = str(message.get("step", self.step))[:_LONGEST_STEP]
        if isinstance(number := message.get("answer"), int) and number in self.asked:
            self.answers[number] = message
            if why := message.get("because"):
                self.refused = str(why)
        if isinstance(reports := message.get("tell"), dict):
            self.reports.update((name, what) for name, what in reports.items() if name in _TELLS)
