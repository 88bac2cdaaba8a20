"""What is being asked, for how long, and what became of it."""

from __future__ import annotations

import time
from collections.abc import Iterable

from gpudoctor.views.tui import marks
from gpudoctor.views.tui.reading import Reading, Source
from gpudoctor.views.tui.widgets.rows import Cell, Rows

_WORDS = {"died": "gave up: see u", "stopped": "ran out of time: see u"}


class Sources(Rows):
    """One row a source, those still asked on top."""

    can_focus = False

    def __init__(self) -> None:
        super().__init__(id="sources", classes="pane")
        self.border_title = "Sources"
        self.set_reactive(Rows.cursor, -1)  # it is looked at, and nothing in it is chosen
        self._sources: list[tuple[str, Source]] = []

    def put(self, reading: Reading) -> None:
        """Show how far each is."""
        self._sources = sorted(reading.sources.items(), key=lambda item: (not item[1].asked, item[1].since))
        self.fill(len(self._sources))

    def row(self, index: int) -> Iterable[Cell]:
        """Mark, name, seconds and what became of it."""
        name, source = self._sources[index]
        now = time.monotonic()
        if source.asked:
            mark, look = marks.SPINNER[int(now * 8) % len(marks.SPINNER)], "accent"
        elif source.state == "done":
            mark, look = marks.PASSED, "good"
        else:
            mark, look = marks.UNREAD, "warning"
        seconds = now - source.since if source.asked else source.seconds
        return [
            (f"{mark} ", look),
            (f"{name:<14}", ""),
            (f"{seconds:5.2f} s  ", "dim"),
            (source.detail if source.asked else _WORDS.get(source.state, ""), ""),
        ]
