"""What was last heard of each GPU: new numbers, old ones that must not pass for new, and the silence in between."""

from __future__ import annotations

import time
from collections import deque

from gpudoctor.model.sample import Sample
from gpudoctor.views.tui.words.gpu_columns import Shown
from gpudoctor.views.tui.words.history import MOST

STALE = 3.0
"""Seconds without a sample after which the numbers are called old."""


class Watch:
    """Takes samples and keeps `shown` true to them. Moments are those of the monotonic clock."""

    def __init__(self) -> None:
        self.clock = time.monotonic
        self.shown = Shown()
        self.trouble = ""
        """Why there is nothing new."""
        self.live = False
        self.frozen: float | None = None
        """Since when nothing is drawn."""
        self._heard = 0.0
        self._answered: dict[int, float] = {}
        self._errors: dict[int, str] = {}
        self._beat: deque[float] = deque(maxlen=8)
        self._waiting: deque[Sample] = deque(maxlen=MOST)

    def take(self, sample: Sample) -> bool:
        """A new sample; whether there is something new to draw."""
        if not sample.live and self.live:
            return False  # what the report says is older
        if self.frozen is not None:
            self._waiting.append(sample)
            return False
        now = self.clock()
        self.trouble = sample.trouble
        if not sample.live:
            self.shown.gpus = {gpu.index: gpu for gpu in sample.gpus}
            self._errors = {gpu.index: gpu.error for gpu in sample.gpus if gpu.error}
        elif not sample.trouble:
            self._live(sample, now)
        self._strike(now)
        return True

    def _live(self, sample: Sample, now: float) -> None:
        if not self.live:
            self.shown.gpus, self.live = {}, True
        self._heard = now
        moment = sample.seconds if sample.seconds is not None else now
        self._beat.append(moment)
        self.shown.moment = moment
        self.shown.histories.add(moment, sample.gpus)
        gone = set(self.shown.gpus) - {gpu.index for gpu in sample.gpus}
        self._errors = dict.fromkeys(gone, "NVML no longer lists it")
        for gpu in sample.gpus:
            if gpu.error:
                self._errors[gpu.index] = gpu.error
                self.shown.gpus.setdefault(gpu.index, gpu)
            else:
                self._answered[gpu.index] = now
                self.shown.gpus[gpu.index] = gpu

    def age(self) -> bool:
        """Look at the clock; whether something must be drawn for it alone."""
        if self.frozen is not None or not self.live:
            return False
        now = self.clock()
        if now - self._heard < STALE:
            return False
        self._strike(now)
        return True

    def _strike(self, now: float) -> None:
        """Say of each GPU whose numbers are old why, and since when."""
        silent = self.live and now - self._heard >= STALE
        struck = {}
        for index in self.shown.gpus:
            since = self._answered.get(index)
            ago = f", {now - since:.0f} s ago" if since is not None else ""
            if index in self._errors:
                struck[index] = f"NVML: {self._errors[index]}{ago}"
            elif silent:
                struck[index] = f"no answer for {now - (since or now):.0f} s"
        self.shown.struck = struck

    def freeze(self) -> None:
        """Hold what is shown, or go on with all that came meanwhile."""
        if self.frozen is None:
            self.frozen = self.clock()
            return
        self.frozen = None
        while self._waiting:
            self.take(self._waiting.popleft())

    def words(self, recorded: bool = False) -> str:
        """The second line: live or `recorded` and how often, frozen, silent, or from a report."""
        now = self.clock()
        if self.frozen is not None:
            return f"frozen {now - self.frozen:.0f} s ago · space goes on"
        if self.live and (self.trouble or now - self._heard >= STALE):
            why = f": {self.trouble}" if self.trouble else ""
            return f"NVML has not answered for {now - self._heard:.0f} s{why}"
        if self.live:
            return f"{'recorded' if recorded else 'live'} · {self._rate()} · space freezes"
        if not self.shown.gpus:
            return self.trouble
        return f"from the report, not live{f': {self.trouble}' if self.trouble else ''}"

    def _rate(self) -> str:
        if len(self._beat) < 3 or self._beat[-1] <= self._beat[0]:
            return "first numbers"
        return f"{(len(self._beat) - 1) / (self._beat[-1] - self._beat[0]):.0f} a second"
