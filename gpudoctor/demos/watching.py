"""Plays what a recorded machine's GPUs did: what lies before it is opened at once, then on in the record's own time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from gpudoctor.model import sample
from gpudoctor.model.errors import DocumentError
from gpudoctor.model.sample import GPU, Sample

SCHEMA = "gpudoctor-recorded-live/1"


@dataclass(frozen=True, slots=True)
class Watched:
    """GPUs, and of each field that changes its values: a row for each moment, a value for each GPU.

    Moments are `every` so many seconds; after the last one those from number `again` on come anew.
    """

    gpus: tuple[GPU, ...]
    series: Mapping[str, Sequence[Sequence[float | None]]]
    every: float
    again: int

    def __len__(self) -> int:
        return min(map(len, self.series.values()))

    def at(self, number: int) -> Sample:
        """The moment of that number, from 0 on without end."""
        count = len(self)
        place = number if number < count else self.again + (number - count) % (count - self.again)
        gpus = (gpu if gpu.error else self._gpu(gpu, row, place) for row, gpu in enumerate(self.gpus))
        return Sample(number * self.every, tuple(gpus))

    def _gpu(self, gpu: GPU, row: int, place: int) -> GPU:
        numbers: dict[str, Any] = {name: rows[place][row] for name, rows in self.series.items()}
        return replace(gpu, **numbers)

    def play(self, hear: Callable[[Sample], None]) -> Callable[[], None]:
        """Tells all that is recorded, then goes on from a thread until what it returns is called."""
        ended = threading.Event()

        def run() -> None:
            number = 0
            while not ended.is_set():
                hear(self.at(number))
                number += 1
                if number >= len(self):
                    ended.wait(self.every)

        threading.Thread(target=run, name="recorded GPUs", daemon=True).start()
        return ended.set


def from_json(raw: object) -> Watched:
    """What was recorded, from its document; raises `DocumentError`."""
    try:
        document = cast("Mapping[str, Any]", raw)
        if document["schema"] != SCHEMA:
            raise DocumentError(f"schema {str(document['schema'])[:40]!r} is not {SCHEMA}")
        gpus = sample.from_json(document["first"]).gpus
        series = {str(name): rows for name, rows in document["series"].items() if name in sample.NUMBERS}
        watched = Watched(gpus, series, float(document["every"]), int(document["again"]))
        if not series or not 0 <= watched.again < len(watched) or watched.every <= 0:
            raise ValueError("nothing to play again")
        if any(len(row) != len(gpus) for rows in series.values() for row in rows):
            raise ValueError(f"a moment that is not of {len(gpus)} GPUs")
        return watched
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DocumentError(f"not a whole record of GPUs at work: {type(error).__name__} {error}") from error
