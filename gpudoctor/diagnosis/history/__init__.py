"""Checks of this machine that are kept, each a file that is whole or not there, never too many of them.

A kept run is a file of some 10 KB (gzip: a line about the run, a line with its snapshot), readable by its owner alone,
under ``gpudoctor/history/HOST`` in the user's state folder. ``GPUDOCTOR_STATE`` names another folder,
``GPUDOCTOR_HISTORY=off`` keeps and reads none. Whatever goes wrong here is no matter of the check.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gpudoctor.core import files, system
from gpudoctor.core import snapshot as snapshots
from gpudoctor.core.diagnosis import Diagnosis, Kept
from gpudoctor.core.document import parse_json
from gpudoctor.core.errors import DocumentError, UsageError
from gpudoctor.core.fact import Json
from gpudoctor.core.frozen import frozen
from gpudoctor.core.language import say
from gpudoctor.core.pattern import pattern
from gpudoctor.core.snapshot import Snapshot

# ---- One kept run ----
# Its file is named ``20261103-062514-093.quick.sound.1c291ca3.gz``: when it was, in UTC, to the millisecond; the level
# (``run``: not a check, but a command that ran under ``gpudoctor run``),
# the verdict, and which interpreter was meant, as a checksum of its path.

SCHEMA = "gpudoctor-run-kept/1"
BESIDE = "run"
"""The level of what is no check: the diagnosis of a command that ran under ``gpudoctor run``."""
GOOD = ("sound", "impaired")
"""Verdicts of a run on which the machine worked: warnings cost speed, errors stop work."""

_NAME = pattern(
    r"(?P<id>(?P<time>\d{8}-\d{6})-(?P<ms>\d{3}))\.(?P<level>quick|standard|deep|run)"
    r"\.(?P<verdict>sound|impaired|broken|unknown)\.(?P<mark>[0-9a-f]{8})\.gz"
)
_FORM = "%Y%m%d-%H%M%S"
_PARTS = pattern(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)")
_MOST_HEAD_BYTES = 1 << 18
"""Bytes that the line about a run has at most."""
_MOST_SNAPSHOT_BYTES = 64 << 20
"""Bytes of a snapshot that are read at most."""


Worked = Mapping[str, tuple[str, str]]
"""By rule, the run in which it last passed: of the same interpreter, and of any. So no run is searched for twice."""


@frozen(slots=False)
class Run:
    """A kept run; most of it is read from the file's name, the rest when asked. `stamp` is in seconds since 1970."""

    id: str
    stamp: float
    level: str
    verdict: str
    mark: str
    place: Path

    @property
    def good(self) -> bool:
        """Whether the verdict is ``sound`` or ``impaired``, with which the machine worked."""
        return self.verdict in GOOD

    @property
    def time(self) -> str:
        """The time of the run as ISO 8601 in UTC: ``2026-11-03T06:25:14Z``."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.stamp))

    @cached_property
    def head(self) -> dict[str, Any]:
        """The file's first line, cached: ``findings``, ``passed``, ``worked``, ``python``, ``command`` and ``tool``.

        Raises `DocumentError` where it cannot be read or is no line of `SCHEMA`.
        """
        try:
            head = json.loads(self._read_member(whole=False))
        except (ValueError, RecursionError) as error:
            raise DocumentError(say("{place}: damaged", place=self.place)) from error
        if not isinstance(head, dict) or head.get("schema") != SCHEMA:
            raise DocumentError(say("{place}: not a run of {schema}", place=self.place, schema=SCHEMA))
        return head

    @property
    def findings(self) -> list[dict[str, str]]:
        """``id``, ``severity`` and ``title`` of each finding of the run, empty if unknown; raises `DocumentError`."""
        found = self.head.get("findings")
        rows = found if isinstance(found, list) else []
        keys = ("id", "severity", "title")
        return [{key: str(row.get(key, "")) for key in keys} for row in rows if isinstance(row, dict)]

    def summary(self) -> Kept:
        """The run as an entry of ``gpudoctor history``'s list, marked ``damaged`` where it cannot be read."""
        try:
            python = self.head.get("python")
            found = self.findings
        except DocumentError:
            return Kept(self.id, self.time, self.level, self.verdict, None, (), "damaged")
        python = python if isinstance(python, str) else None
        command = self.head.get("command")
        return Kept(
            *(self.id, self.time, self.level, self.verdict, python, found),
            command=command if isinstance(command, str) else None,
        )

    def passed(self, rule: str) -> bool:
        """Whether the rule of that id passed in this run; raises `DocumentError` where the run cannot be read."""
        passed = self.head.get("passed")
        return isinstance(passed, list) and rule in passed

    def worked(self, rule: str, inside: bool) -> str | None:
        """Id of the run in which the rule last passed before this one: empty for never, None where not recorded.

        `inside`: counting only runs of the same interpreter. Raises `DocumentError`.
        """
        known = self.head.get("worked")
        pair = known.get(rule) if isinstance(known, dict) else None
        return str(pair[not inside]) if isinstance(pair, list) and len(pair) == 2 else None

    def snapshot(self) -> Snapshot:
        """The run's snapshot, read from its file on each call; raises `DocumentError`."""
        try:
            return snapshots.from_json(parse_json(self._read_member(whole=True).decode("utf-8", "replace")))
        except DocumentError as error:
            raise DocumentError(f"{self.place}: {error}") from error

    def _read_member(self, whole: bool) -> bytes:
        """The bytes of the file's first line, or (`whole`) its second with the snapshot; raises `DocumentError`."""
        try:
            with self.place.open("rb") as file:
                first = zlib.decompressobj(wbits=31)
                head = first.decompress(
                    file.read(_MOST_SNAPSHOT_BYTES if whole else _MOST_HEAD_BYTES), _MOST_HEAD_BYTES
                )
                return (
                    zlib.decompressobj(wbits=31).decompress(first.unused_data, _MOST_SNAPSHOT_BYTES) if whole else head
                )
        except (OSError, zlib.error) as error:
            raise DocumentError(f"{self.place}: {getattr(error, 'strerror', None) or 'damaged'}") from error


def run_at(place: Path) -> Run | None:
    """The run in that file, by the file's name alone; None where that is not the name of a run."""
    match = _NAME.fullmatch(place.name)
    try:
        moment = _PARTS.sub(r"\1-\2-\3T\4:\5:\6+00:00", match["time"]) if match else ""
        stamp = datetime.fromisoformat(moment).timestamp() + int(match["ms"]) / 1000 if match else 0.0
    except ValueError:
        return None
    return Run(match["id"], stamp, match["level"], match["verdict"], match["mark"], place) if match else None


def file_name(diagnosis: Diagnosis, now: float) -> str:
    """The name of the file that keeps that diagnosis: ``20261103-062514-093.quick.sound.1c291ca3.gz``.

    Its time is `now` (Unix seconds) in UTC, its level ``run`` for a command under ``gpudoctor run``.
    """
    target = diagnosis.snapshot.target
    moment = f"{time.strftime(_FORM, time.gmtime(now))}-{int(now * 1000) % 1000:03}"
    level = BESIDE if diagnosis.snapshot.known("run.command") else target.level
    return f"{moment}.{level}.{diagnosis.verdict}.{interpreter_mark(target.python)}.gz"


def interpreter_mark(python: str | None) -> str:
    """Checksum (CRC-32, hexadecimal) of the interpreter's path, to recognise it."""
    return f"{zlib.crc32((python or '').encode('utf-8', 'surrogateescape')):08x}"


def pack_run(diagnosis: Diagnosis, version: str, worked: Worked) -> bytes:
    """The bytes of a run's file: two gzip members, the summary line and the snapshot, compressed at level 1.

    Timings and findings beyond the first 64 are left out.
    """
    raw = diagnosis.snapshot.to_json()
    del raw["timings_ms"]
    findings: list[Json] = [
        {"id": finding.id, "severity": finding.severity, "title": finding.title}
        for finding in diagnosis.findings[:_MOST_FINDINGS]
    ]
    head = {
        "schema": SCHEMA,
        "tool": {"version": version},
        "python": diagnosis.snapshot.target.python,
        "command": diagnosis.snapshot.text("run.command") or None,
        "findings": findings,
        "passed": list(diagnosis.passed),
        "worked": {rule: list(pair) for rule, pair in worked.items()},
    }
    return b"".join(_gzip(json.dumps(part, separators=(",", ":")) + "\n") for part in (head, raw))


def _gzip(line: str) -> bytes:
    """The line as one gzip member."""
    packer = zlib.compressobj(1, wbits=31)
    return packer.compress(line.encode()) + packer.flush()


_MOST_FINDINGS = 64


# ---- Where the runs of this machine lie ----
# Home folders may be shared: each host has a folder of its own in it.

SWITCH = "GPUDOCTOR_HISTORY"
MOST_RUNS = 100
MOST_BESIDE = 40
"""Commands that ran under ``gpudoctor run``: they must not push the checks out."""
MOST_BYTES = 4 << 20
"""Of one machine: some 100 runs of a node with a full Python environment (10 to 40 KB each)."""
MOST_MACHINES = 256
_LARGEST_RUN_BYTES = 1 << 20
_MOST_AHEAD_SECONDS = 60.0
"""Seconds by which a run may be dated after now: beyond that the clock was wrong when it was kept."""
_STALE_SECONDS = 3600.0


@frozen
class Shelf:
    """The kept runs of one machine: checks and ``gpudoctor run``s, a file each in `folder`."""

    folder: Path

    def runs(self) -> list[Run]:
        """The kept checks, newest first, those dated in the future last; runs of commands are left out."""
        return [run for run in self.everything() if run.level != BESIDE]

    def everything(self) -> list[Run]:
        """All that is kept, newest first, what is dated in the future last; empty where the folder cannot be read.

        Files of other users are ignored.
        """
        try:
            places = list(self.folder.iterdir())
        except OSError:
            return []
        found = [run for place in places if (run := run_at(place)) and not files.foreign(place)]
        latest = time.time() + _MOST_AHEAD_SECONDS
        return sorted(found, key=lambda run: (run.stamp <= latest, run.stamp), reverse=True)

    def keep(self, diagnosis: Diagnosis, version: str, worked: Worked = MappingProxyType({})) -> None:
        """Stores the run; deletes the oldest beyond the limits, but never the newest with a good verdict of each level.
        Raises `OSError`.

        `worked` is, by rule, the run in which it last passed. A run that is too large is not stored.
        """
        data = pack_run(diagnosis, version, worked)
        if len(data) > _LARGEST_RUN_BYTES:
            return
        if not self.folder.is_dir():
            files.make_private(self.folder)
            _drop_oldest_machines(self.folder.parent)
        fresh = self.folder / f".{os.urandom(6).hex()}"
        try:
            handle = os.open(fresh, system.READ_WRITE | os.O_CREAT | os.O_EXCL | system.NO_FOLLOW, 0o600)
            with os.fdopen(handle, "wb") as file:  # not forced to disk: what a crash leaves is damaged, and said to be
                file.write(data)
            fresh.replace(self.folder / file_name(diagnosis, time.time()))
        except BaseException:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise
        self._thin()

    def last_good(self, python: str | None) -> Run | None:
        """The newest check with a good verdict (sound, impaired), preferably of that interpreter; None without one."""
        good = [run for run in self.runs() if run.good]
        own = [run for run in good if run.mark == interpreter_mark(python)]
        return next(iter(own or good), None)

    def named(self, name: str) -> Run:
        """The run of that id or unique prefix, checks and runs of commands; raises `UsageError` for none or several."""
        runs = self.everything()
        fits = [run for run in runs if run.id.startswith(name)]
        if len(fits) != 1:
            sentence = "; the last one is {id}" if runs else "; none is kept in {folder}"
            known = say(sentence, id=runs[0].id if runs else "", folder=self.folder)
            raise UsageError(
                say(
                    "{name} is {what}{known}",
                    name=repr(name),
                    what=say("no kept run" if not fits else "more than one kept run"),
                    known=known,
                )
            )
        return fits[0]

    def _thin(self) -> None:
        """Deletes the oldest runs beyond the limits of number and bytes, but for the last good one of each level.

        Also runs of commands beyond theirs, and temporary files older than an hour. Raises `OSError`.
        """
        runs = self.everything()
        for run in [run for run in runs if run.level == BESIDE][MOST_BESIDE:]:
            run.place.unlink(missing_ok=True)
            runs.remove(run)
        sizes = {run.place: _file_size(run.place) for run in runs}
        count, room = len(runs), sum(sizes.values())
        if count > MOST_RUNS or room > MOST_BYTES:
            needed = _runs_to_keep(runs)
            for run in reversed(runs):
                if count <= MOST_RUNS and room <= MOST_BYTES:
                    break
                if run not in needed:
                    run.place.unlink(missing_ok=True)
                    count, room = count - 1, room - sizes[run.place]
        for place in self.folder.glob(".*"):  # of one that was ended while it wrote
            with contextlib.suppress(OSError):  # another program has just put it in place
                if time.time() - place.stat().st_mtime > _STALE_SECONDS:
                    place.unlink(missing_ok=True)


def _runs_to_keep(runs: Sequence[Run]) -> list[Run]:
    """Those of the runs (newest first) that are never deleted: the newest with a good verdict of each level."""
    levels = ("quick", "standard", "deep")
    return [
        run for level in levels if (run := next((kept for kept in runs if kept.good and kept.level == level), None))
    ]


def _file_size(place: Path) -> int:
    """Size of the file in bytes; 0 where it cannot be read."""
    try:
        return place.stat().st_size
    except OSError:
        return 0


def _drop_oldest_machines(folder: Path) -> None:
    """Deletes, with all that is in them, the subfolders of the machines unused longest, beyond `MOST_MACHINES`."""
    places = sorted((place for place in folder.iterdir() if place.is_dir()), key=lambda place: place.stat().st_mtime)
    too_many = places[: max(0, len(places) - MOST_MACHINES)]
    if too_many:
        import shutil  # loads every compressor: only where something is deleted
    for place in too_many:
        shutil.rmtree(place, ignore_errors=True)


def of_this_machine(environ: Mapping[str, str] = os.environ) -> Shelf | None:
    """The kept runs of this host; None where GPUDOCTOR_HISTORY is off or, with a warning, others can write there."""
    if environ.get(SWITCH, "").lower() in ("off", "0", "no", "false"):
        return None
    host = re.sub(r"[^\w-]", "_", system.node_name())[:64] or "_"
    folder = (files.configured_folder(environ) or files.default_folder()) / files.HISTORY / host
    if found := files.doubt(folder):
        files.warn_once(f"no history is read or kept: {found}, and could plant runs there: {found.cure}")
        return None
    return Shelf(folder)
