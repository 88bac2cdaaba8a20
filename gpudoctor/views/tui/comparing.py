"""Another machine beside this one: asked for by its file, compared in the background, shown until it is put away."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.difference import Difference
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui import background
from gpudoctor.views.tui.screens.open_file import OpenFile
from gpudoctor.views.tui.words.compared import Compared

if TYPE_CHECKING:
    from gpudoctor.views.tui.app import DoctorApp


class Comparing:
    """`changed` is called whenever there is another listing, or none."""

    def __init__(self, app: DoctorApp, changed: Callable[[], None]) -> None:
        self._app = app
        self._changed = changed
        self._other: tuple[str, Diagnosis] | None = None
        self.listing: Compared | None = None
        """What differs; None where nothing is compared, or not yet."""
        self.moving = False
        """Whether what always differs is listed, too."""

    @property
    def name(self) -> str:
        """The last part of the other file's name; empty where there is none."""
        whole = self._other[0].replace("\\", "/").rstrip("/") if self._other else ""
        return one_line(whole.rpartition("/")[2])

    def ask(self) -> None:
        """For a file, and compare with it."""
        work = self._app.work
        if not work.open or not work.compare:
            self._app.say("nothing to compare with can be opened here")
        elif self._app.diagnosis is None or not self._app.reading.over:
            self._app.say("not while this machine is being read")
        else:
            self._app.push_screen(OpenFile("Compare with", work.open), self._opened)

    def _opened(self, answer: tuple[str, Diagnosis] | None) -> None:
        if answer:
            self._other = answer
            self.again()

    def again(self) -> None:
        """Compare anew: this machine was read again."""
        compare, here = self._app.work.compare, self._app.diagnosis
        if self._other and compare and here:
            other = self._other[1]
            background.start(self._app, "compare", lambda: compare(here, other), self._differs)

    def _differs(self, difference: Difference | BaseException) -> None:
        if self._other is None:
            return
        if isinstance(difference, BaseException):
            self._app.say(f"cannot compare: {one_line(str(difference))}")
            self.end()
        else:
            self.listing = Compared(difference, self.moving)
            self._changed()

    def turn_moving(self) -> None:
        """With or without what differs between any two machines or moments."""
        if self.listing is None:
            self._app.say("D goes with a comparison: d opens a file to compare with")
            return
        self.moving = not self.moving
        self.listing = Compared(self.listing.difference, self.moving)
        self._changed()

    def end(self) -> None:
        """This machine alone again."""
        self._other = self.listing = None
        self._changed()
