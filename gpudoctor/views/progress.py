"""On a terminal: which probes still run, and for how long. One line on stderr, rewritten in place."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from gpudoctor.model.measurement import Measurements

_PERIOD = 0.2


@contextmanager
def progress_on(stream: TextIO) -> Iterator[Callable[[tuple[str, str]], None]]:
    """A callable for `gpudoctor.collect`; silent where the stream is no terminal that can rewrite a line."""
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _: None
        return
    running: dict[str, float] = {}
    over = threading.Event()
    painter = threading.Thread(target=_paint, args=(stream, running, over), daemon=True)

    def note(event: tuple[str, str]) -> None:
        probe, state = event
        if state == "started":
            running[probe] = time.monotonic()
        else:
            running.pop(probe, None)

    painter.start()
    try:
        yield note
    finally:
        over.set()
        painter.join(1)


@contextmanager
def measuring_on(stream: TextIO) -> Iterator[Callable[[Measurements], None]]:
    """A callable for the kernels' progress: which run now, and how many are over."""
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _: None
        return

    def tell(found: Measurements) -> None:
        over = sum(run.status not in {"waiting", "running"} for run in found.runs)
        now = dict.fromkeys(run.kernel for run in found.runs if run.status == "running")
        stream.write(f"\r\x1b[2Kmeasured {over} of {len(found.runs)}; now {', '.join(now)}"[:100])
        stream.flush()

    try:
        yield tell
    finally:
        stream.write("\r\x1b[2K")
        stream.flush()


def _paint(stream: TextIO, running: dict[str, float], over: threading.Event) -> None:
    """Show the slowest probes; clear the line at the end, so that the report starts clean."""
    shown = False
    while not over.wait(_PERIOD):
        now = time.monotonic()
        names = sorted(dict(running).items(), key=lambda item: item[1])
        text = ", ".join(f"{name} {now - since:.1f} s" for name, since in names)
        stream.write(f"\r\x1b[2Kasking {text}"[:100] if text else "\r\x1b[2Kjudging")
        stream.flush()
        shown = True
    if shown:
        stream.write("\r\x1b[2K")
        stream.flush()
