"""Where the runs of this machine lie: each file is whole or not there, and there are never too many.

Home folders may be shared: each host has a folder of its own in it.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from gpudoctor import state, trusted
from gpudoctor.history.run import Run, Worked, mark, name_of, packed, run_at
from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.errors import UsageError
from gpudoctor.model.frozen import frozen

SWITCH = "GPUDOCTOR_HISTORY"
MOST_RUNS = 100
MOST_BYTES = 4 << 20
"""Of one machine: some 100 runs of a node with a full Python environment (10 to 40 KB each)."""
MOST_MACHINES = 256
_LARGEST = 1 << 20
_AHEAD = 60.0
"""Seconds by which a run may be dated after now: beyond that the clock was wrong when it was kept."""
_STALE = 3600.0


@frozen
class Shelf:
    """The kept runs of one machine, in `folder`."""

    folder: Path

    def runs(self) -> list[Run]:
        """The newest first; those dated after now, when the clock was wrong, last. Empty where none can be read.

        What another user has left in the folder is none.
        """
        try:
            places = list(self.folder.iterdir())
        except OSError:
            return []
        found = [run for place in places if (run := run_at(place)) and not trusted.foreign(place)]
        latest = time.time() + _AHEAD
        return sorted(found, key=lambda run: (run.stamp <= latest, run.stamp), reverse=True)

    def keep(self, diagnosis: Diagnosis, version: str, worked: Worked = MappingProxyType({})) -> None:
        """Keep that run, and let go of the oldest ones. Raises `OSError`."""
        data = packed(diagnosis, version, worked)
        if len(data) > _LARGEST:
            return
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
            _forget_machines(self.folder.parent)
        fresh = self.folder / f".{os.urandom(6).hex()}"
        try:
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "wb") as file:  # not forced to disk: what a crash leaves is damaged, and said to be
                file.write(data)
            fresh.replace(self.folder / name_of(diagnosis, time.time()))
        except BaseException:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise
        self._thin()

    def last_good(self, python: str | None) -> Run | None:
        """The newest run on which the machine worked: one of that interpreter, else any."""
        good = [run for run in self.runs() if run.good]
        own = [run for run in good if run.mark == mark(python)]
        return next(iter(own or good), None)

    def named(self, name: str) -> Run:
        """The run of that id, or the only one that begins so; raises `UsageError`."""
        runs = self.runs()
        fits = [run for run in runs if run.id.startswith(name)]
        if len(fits) != 1:
            known = f"; the last one is {runs[0].id}" if runs else f"; none is kept in {self.folder}"
            raise UsageError(f"{name!r} is {'no kept run' if not fits else 'more than one kept run'}{known}")
        return fits[0]

    def _thin(self) -> None:
        """Runs beyond the bounds go, the oldest first; never the last good one, nor that of any level."""
        runs = self.runs()
        sizes = {run.place: _size(run.place) for run in runs}
        count, room = len(runs), sum(sizes.values())
        if count > MOST_RUNS or room > MOST_BYTES:
            needed = _needed(runs)
            for run in reversed(runs):
                if count <= MOST_RUNS and room <= MOST_BYTES:
                    break
                if run not in needed:
                    run.place.unlink(missing_ok=True)
                    count, room = count - 1, room - sizes[run.place]
        for place in self.folder.glob(".*"):  # of one that was ended while it wrote
            with contextlib.suppress(OSError):  # another program has just put it in place
                if time.time() - place.stat().st_mtime > _STALE:
                    place.unlink(missing_ok=True)


def _needed(runs: Sequence[Run]) -> list[Run]:
    levels = ("quick", "standard", "deep")
    return [run for level in levels if (run := next((one for one in runs if one.good and one.level == level), None))]


def _size(place: Path) -> int:
    try:
        return place.stat().st_size
    except OSError:
        return 0


def _forget_machines(folder: Path) -> None:
    """Of more machines than are kept, those go whose folders have been left alone the longest."""
    import shutil  # loads three compressors

    places = sorted((place for place in folder.iterdir() if place.is_dir()), key=lambda place: place.stat().st_mtime)
    for place in places[: max(0, len(places) - MOST_MACHINES)]:
        shutil.rmtree(place, ignore_errors=True)


def of_this_machine(environ: Mapping[str, str] = os.environ) -> Shelf | None:
    """Where runs are kept; None where ``GPUDOCTOR_HISTORY`` is ``off``, or others could plant some, and says so."""
    if environ.get(SWITCH, "").lower() in ("off", "0", "no", "false"):
        return None
    host = re.sub(r"[^\w-]", "_", os.uname().nodename)[:64] or "_"
    folder = (state.given(environ) or state.usual()) / state.HISTORY / host
    if found := trusted.doubt(folder):
        trusted.say(f"no history is read or kept: {found}, and could plant runs there: {found.cure}")
        return None
    return Shelf(folder)
