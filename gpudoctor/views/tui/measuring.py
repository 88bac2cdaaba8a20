"""Kernels run beside the interface: started, heard, stopped, and what they measured judged."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.measurement import Measurements
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui import background

if TYPE_CHECKING:
    from gpudoctor.views.tui.app import DoctorApp

Answer = Measurements | BaseException


class Measuring:
    """`partly` is told of what there is so far; `ended` of all of it, and whether it was stopped."""

    def __init__(
        self, app: DoctorApp, partly: Callable[[Measurements], None], ended: Callable[[Answer, bool], None]
    ) -> None:
        self._app = app
        self._partly = partly
        self._ended = ended
        self._stop: threading.Event | None = None
        self._since = 0.0

    @property
    def runs(self) -> bool:
        """Whether something is measured now."""
        return self._stop is not None

    @property
    def seconds(self) -> float:
        """Since it was started."""
        return time.monotonic() - self._since

    def start(self, wanted: Sequence[str], at: str) -> None:
        """Measure the kernels of those ids, all where there are none; `at` is when what is shown was measured."""
        measure = self._app.work.kernels
        if measure is None:
            when = f"; what is shown was measured at {one_line(at)}" if at else ""
            self._app.say(f"nothing can be measured from here{when}")
            return
        if self._stop is not None:
            self._app.say("it is being measured already; x stops it")
            return
        stop = self._stop = threading.Event()
        self._since = time.monotonic()

        def tell(partly: Measurements) -> None:
            background.tell(self._app, lambda: self._heard(stop, partly))

        def work() -> Measurements:
            return measure(wanted, tell, stop)

        background.start(self._app, "kernels", work, lambda answer: self._over(stop, answer))

    def stop(self) -> None:
        """No further kernel is started; what was measured stays."""
        if self._stop is None:
            self._app.say("nothing is measured now")
        else:
            self._stop.set()
            self._app.say("stopping; what was measured stays")

    def _heard(self, mine: threading.Event, partly: Measurements) -> None:
        if mine is self._stop:
            self._partly(partly)

    def _over(self, mine: threading.Event, answer: Answer) -> None:
        self._stop = None
        self._ended(answer, mine.is_set())

    def judge(self, found: Measurements) -> None:
        """What was measured becomes part of the diagnosis that all screens show."""
        judged, diagnosis = self._app.work.judged, self._app.diagnosis
        if judged and diagnosis:
            background.start(self._app, "judged", lambda: judged(diagnosis, found), self._judged)

    def _judged(self, answer: Diagnosis | BaseException) -> None:
        if isinstance(answer, Diagnosis) and self._app.reading.over:
            self._app.diagnosis = answer
        elif isinstance(answer, BaseException):
            self._app.say(f"what was measured cannot be judged: {background.words(answer)}")
