"""The command that hosts are sent: it prints their document, and ends when nobody listens any more."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from gpudoctor.fleet.reading import Reply
from gpudoctor.language import ENGLISH

Hear = Callable[[Reply], None]
"""Told of each reply as it comes; that of a host which will not answer any more is one, too."""
NO_PROGRAM, NOT_RUNNABLE, NO_SSH = 127, 126, 255
OUT_OF_TIME = (None, 124, 137)
"""Exit statuses of what was ended because its time was up: by us, and by timeout(1)."""
_MOST_WORDS = 200

_UNTIL_HANGUP = """\
exec 3<&0
setsid {command} </dev/null &
child=$!
{{ while read -r _ <&3; do :; done; kill -- -$child; sleep 2; kill -9 -- -$child; }} >/dev/null 2>&1 &
listener=$!
wait $child
status=$?
kill $listener 2>/dev/null
exit $status
"""
"""A shell that ends the command when its standard input is closed, as sshd does when the connection is gone.

The command is the first of a process group of its own (`setsid`), so that all of it can be ended.
"""


@dataclass(frozen=True, slots=True)
class Question:
    """What every host is asked, and for how long one host and all together may take, in seconds."""

    level: str = "quick"
    program: str = "gpudoctor"
    """Its path on the hosts."""
    seconds: float = 60.0
    budget: float = 120.0
    fanout: int = 64
    """Hosts that are asked at the same time."""
    language: str = ENGLISH
    """That of the sentences in their documents."""

    @property
    def argv(self) -> tuple[str, ...]:
        """What runs on a host."""
        spoken = ("--lang", self.language) if self.language != ENGLISH else ()
        return (*shlex.split(self.program), "check", "--json", "--level", self.level, *spoken)

    def limited(self, seconds: float) -> str:
        """The same as a line of shell that ends itself after that time, whether anybody still listens or not."""
        return shlex.join(["timeout", "-k", "2", f"{max(1.0, seconds):.0f}", *self.argv])

    @property
    def bound(self) -> str:
        """The same for whatever shell a user has there, ended also when the connection goes."""
        return f"exec sh -c {shlex.quote(_UNTIL_HANGUP.format(command=self.limited(self.seconds)))}"


def because(status: int | None, complaint: str, question: Question) -> str:
    """Why a host's answer may be none, from the exit status and the last words of what was run; empty if all is well.

    Exit codes 0, 1 and 3 are those of a diagnosis.
    """
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    last = lines[-1][:_MOST_WORDS] if lines else ""
    if status in OUT_OF_TIME:
        return f"no answer within {question.seconds:g} s"
    if status == NO_SSH:
        return f"ssh: {last or 'no connection'}"
    if status in (NO_PROGRAM, NOT_RUNNABLE):
        return f"{question.argv[0]} cannot be run there: {last or 'no such program'}"
    if status in (0, 1, 3) and not last:
        return ""
    return f"it ended with {status}{f': {last}' if last else ''}"
