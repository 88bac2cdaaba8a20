"""Says on a stream what a run does while it does it: every step, what it prints, and on a terminal for how long by now.

Lines come out once they are whole; what a command still rewrites stands, with the time, on a line of its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from gpudoctor.model.plan import Plan, PlanStep
from gpudoctor.model.run import Run
from gpudoctor.views import run as words
from gpudoctor.views._terminal import style_of

_PERIOD = 0.25
_WIDEST = 100
_ERASE = "\r\x1b[2K"


class Teller:
    """Is called with the run as often as there is something new."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._style = stream, style_of(stream)
        self._rewrites = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._lock = threading.Lock()
        self._step, self._since, self._said = "", time.monotonic(), 0
        self._introduced = ""
        self._meanwhile: str | None = "reading this machine"
        """What stands on the line that is rewritten, without the time; None where nothing is waited for."""
        self._over: set[str] = set()
        self._hushed = threading.Event()

    def __call__(self, run: Run) -> None:
        """Say what is new."""
        with self._lock:
            step = run.current
            if not step or step.id in self._over:
                return
            if self._step != step.id:
                self._begin(run, step)
            self._follow(run, step)

    def introduce(self, plan: Plan) -> Callable[[PlanStep], list[str]]:
        """What is said of a step before somebody is asked; it is then not said again when the step begins."""

        def lines(step: PlanStep) -> list[str]:
            with self._lock:
                self._introduced, self._meanwhile = step.id, None
                self._erase()
            return words.begins(plan, step, self._style)

        return lines

    def _begin(self, run: Run, step: PlanStep) -> None:
        self._step, self._since, self._said = step.id, time.monotonic(), 0
        if self._introduced != step.id:
            self._say("", *words.begins(run.plan, step, self._style))

    def _follow(self, run: Run, step: PlanStep) -> None:
        ran = run.step(step.id)
        lines, dropped = ran.output.lines, ran.output.dropped
        whole = len(lines) if ran.state != "running" or ran.output.tail == "new" else len(lines) - 1
        new = lines[max(self._said - dropped, 0) : whole]
        self._said = max(self._said, dropped + whole)
        self._say(*map(words.printed, new))
        if ran.state == "running":
            self._meanwhile = words.printed(lines[-1]).strip() if whole < len(lines) else ""
        else:
            self._meanwhile = None
            self._over.add(step.id)
            self._say(*words.ends(run, step, self._style))

    def _say(self, *lines: str) -> None:
        if lines:
            self._erase()
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()

    def _erase(self) -> None:
        """Take the line that is rewritten away."""
        if self._rewrites:
            self._stream.write(_ERASE)

    def paint(self) -> None:
        """Show, until it is to end, what the step does and for how long by now; nothing where no line is rewritten."""
        if not self._rewrites:
            return
        with suppress(OSError, ValueError):  # a terminal that has gone needs no line
            while not self._hushed.wait(_PERIOD):
                with self._lock:
                    if self._meanwhile is not None and not self._hushed.is_set():
                        took = words.seconds(time.monotonic() - self._since)
                        self._stream.write(f"{_ERASE}  {took}  {self._meanwhile}"[:_WIDEST])
                        self._stream.flush()

    def end(self) -> None:
        """No more is shown."""
        with self._lock:
            self._hushed.set()
            self._erase()
            self._stream.flush()


@contextmanager
def telling_on(stream: TextIO) -> Iterator[Teller]:
    """Who tells of a run on that stream."""
    teller = Teller(stream)
    threading.Thread(target=teller.paint, name="run", daemon=True).start()
    try:
        yield teller
    finally:
        teller.end()
