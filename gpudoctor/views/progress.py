"""On a terminal: what still runs, and for how long. One line on stderr, rewritten in place."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from gpudoctor.model.snapshot import Event, Progress
from gpudoctor.views._terminal import drawable

if TYPE_CHECKING:
    from gpudoctor.model.measurement import Measurements

_PERIOD = 0.2
_WIDEST = 100


@contextmanager
def progress_on(stream: TextIO) -> Iterator[Progress]:
    """A callable for `gpudoctor.collect`; silent where the stream is no terminal that can rewrite a line."""
    running: dict[str, float] = {}
    details: dict[str, str] = {}

    def note(event: Event) -> None:
        if event.state == "started":
            running[event.source] = time.monotonic()
        elif event.state == "working":
            details[event.source] = event.detail
        else:
            running.pop(event.source, None)
            details.pop(event.source, None)

    def line() -> str:
        if waiting := "; ".join(filter(None, tuple(details.values()))):
            return waiting
        now = time.monotonic()
        names = sorted(dict(running).items(), key=lambda item: item[1])
        text = ", ".join(f"{name} {now - since:.1f} s" for name, since in names)
        return f"asking {text}" if text else "judging"

    with _rewritten(stream, line):
        yield note


@contextmanager
def measuring_on(stream: TextIO) -> Iterator[Callable[[Measurements], None]]:
    """A callable for the kernels' progress: how many are over, which run now, on how many GPUs, and for how long."""
    latest: list[Measurements] = []
    since: dict[str, float] = {}

    def line() -> str:
        if not latest:
            return "looking for GPUs"
        found, now = latest[0], time.monotonic()
        over = sum(run.status not in {"waiting", "running"} for run in found.runs)
        running = [run.kernel for run in found.runs if run.status == "running"]
        for name in set(since) - set(running):
            del since[name]
        names = [
            f"{name}{f' on {running.count(name)} GPUs' if running.count(name) > 1 else ''}"
            f" {now - since.setdefault(name, now):.0f} s"
            for name in dict.fromkeys(running)
        ]
        meanwhile = ", ".join(names) or ("starting" if over < len(found.runs) else "judging")
        return f"measured {over} of {len(found.runs)}; {meanwhile}"

    with _rewritten(stream, line):
        yield lambda found: latest.__setitem__(slice(None), [found])


@contextmanager
def counting_on(stream: TextIO, heard: Callable[[], int], of: int) -> Iterator[None]:
    """While hosts are asked: how many have answered, of how many where that is known, and for how long."""
    started = time.monotonic()

    def line() -> str:
        whole = f" of {of}" if of else ""
        return f"heard {heard()}{whole} hosts; {time.monotonic() - started:.0f} s"

    with _rewritten(stream, line):
        yield


@contextmanager
def saying_on(stream: TextIO) -> Iterator[Callable[[str], None]]:
    """A callable that is told what is done now; silent where the stream is no terminal."""
    said = [""]
    with _rewritten(stream, lambda: said[0]):
        yield lambda words: said.__setitem__(0, words)


@contextmanager
def _rewritten(stream: TextIO, line: Callable[[], str]) -> Iterator[None]:
    """Show the line a few times a second; clear it at the end, so that the report starts clean."""
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    over = threading.Event()
    painter = threading.Thread(target=_paint, args=(stream, line, over), daemon=True)
    painter.start()
    try:
        yield
    finally:
        over.set()
        painter.join(1)


def _paint(stream: TextIO, line: Callable[[], str], over: threading.Event) -> None:
    shown = False
    with suppress(OSError, ValueError):  # a terminal that has gone needs no line
        while not over.wait(_PERIOD):
            stream.write(f"\r\x1b[2K{drawable(line())[:_WIDEST]}")
            stream.flush()
            shown = True
        if shown:
            stream.write("\r\x1b[2K")
            stream.flush()
