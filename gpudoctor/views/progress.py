"""On a terminal: what still runs, and for how long. One line on stderr, rewritten in place."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from gpudoctor.core.language import say
from gpudoctor.core.snapshot import Event, Progress
from gpudoctor.views._terminal import ERASE, put_status

if TYPE_CHECKING:
    from gpudoctor.core.measurement import Measurements

_PERIOD_SECONDS = 0.2


@contextmanager
def progress_on(stream: TextIO) -> Iterator[Progress]:
    """Context that gives a callback for probe events; on a terminal a line shows which sources are asked since when.

    The line is erased at the end; elsewhere nothing is shown.
    """
    running: dict[str, float] = {}
    details: dict[str, str] = {}

    def note(event: Event) -> None:
        """Record that a source started, reports a detail, or ended."""
        if event.state == "started":
            running[event.source] = time.monotonic()
        elif event.state == "working":
            details[event.source] = event.detail
        else:
            running.pop(event.source, None)
            details.pop(event.source, None)

    def line() -> str:
        """The text to show: details that sources report, else running sources with their seconds, else ``judging``."""
        if working_on := "; ".join(filter(None, tuple(details.values()))):
            return working_on
        now = time.monotonic()
        names = sorted(dict(running).items(), key=lambda item: item[1])
        text = ", ".join(f"{name} {now - started:.1f} s" for name, started in names)
        return say("asking {names}", names=text) if text else say("judging")

    with _rewriting_line(stream, line):
        yield note


@contextmanager
def measuring_on(stream: TextIO) -> Iterator[Callable[[Measurements], None]]:
    """Context that gives a callback for the measurements so far; on a terminal a line shows how far they are."""
    latest: list[Measurements] = []
    since: dict[str, float] = {}

    def line() -> str:
        """The text to show: ``measured 3 of 12; matmul.bf16 on 8 GPUs 4 s``; at first ``looking for GPUs``."""
        if not latest:
            return say("looking for GPUs")
        measurements, now = latest[0], time.monotonic()
        done = sum(run.status not in {"waiting", "running"} for run in measurements.runs)
        running = [run.kernel for run in measurements.runs if run.status == "running"]
        for name in set(since) - set(running):
            del since[name]
        names = [
            f"{name}{say(' on {count} GPUs', count=running.count(name)) if running.count(name) > 1 else ''}"
            f" {now - since.setdefault(name, now):.0f} s"
            for name in dict.fromkeys(running)
        ]
        now_running = ", ".join(names) or say("starting" if done < len(measurements.runs) else "judging")
        return say("measured {done} of {count}; {names}", done=done, count=len(measurements.runs), names=now_running)

    with _rewriting_line(stream, line):
        yield lambda measurements: latest.__setitem__(slice(None), [measurements])


@contextmanager
def counting_on(stream: TextIO, count: Callable[[], int], expected: int) -> Iterator[None]:
    """Context in which a line shows how many hosts answered (`count`), out of `expected` if not 0, and the seconds.

    Nothing is shown unless the stream is a terminal.
    """
    started = time.monotonic()

    def line() -> str:
        """The text to show, how many hosts have answered after how many seconds: ``3 of 8 hosts answered; 12 s``."""
        sentence = (
            "{count} of {total} hosts answered; {seconds} s" if expected else "{count} hosts answered; {seconds} s"
        )
        return say(sentence, count=count(), total=expected, seconds=f"{time.monotonic() - started:.0f}")

    with _rewriting_line(stream, line):
        yield


@contextmanager
def saying_on(stream: TextIO) -> Iterator[Callable[[str], None]]:
    """Context that gives a callback which sets the text shown on the stream's last line; only on a terminal."""
    message = [""]
    with _rewriting_line(stream, lambda: message[0]):
        yield lambda text: message.__setitem__(0, text)


@contextmanager
def _rewriting_line(stream: TextIO, line: Callable[[], str]) -> Iterator[None]:
    """Context in which what `line` returns is shown a few times a second, rewritten in place, and erased at the end.

    Nothing is shown unless the stream is a terminal.
    """
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    over = threading.Event()
    painter = threading.Thread(target=_paint_until, args=(stream, line, over), daemon=True)
    painter.start()
    try:
        yield
    finally:
        over.set()
        painter.join(1)


def _paint_until(stream: TextIO, line: Callable[[], str], over: threading.Event) -> None:
    """Rewrite the line every `_PERIOD_SECONDS` until `over` is set, then erase it; ends silently on a closed stream."""
    has_painted = False
    with suppress(OSError, ValueError):  # a terminal that has gone needs no line
        while not over.wait(_PERIOD_SECONDS):
            put_status(stream, line())
            has_painted = True
        if has_painted:
            stream.write(ERASE)
            stream.flush()
