"""One kept run: what its file's name says, and what stands in it.

``20261103-062514-093.quick.sound.1c291ca3.gz``: when it was, in UTC, to the millisecond; the level, the verdict, and
which interpreter was meant, as a checksum of its path.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from gpudoctor.model import snapshot as snapshots
from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.errors import DocumentError
from gpudoctor.model.fact import Json
from gpudoctor.model.frozen import frozen
from gpudoctor.model.kept import Kept
from gpudoctor.model.parsing import parsed
from gpudoctor.model.pattern import pattern
from gpudoctor.model.snapshot import Snapshot

SCHEMA = "gpudoctor-run-kept/1"
GOOD = ("sound", "impaired")
"""Verdicts of a run on which the machine worked: warnings cost speed, errors stop work."""

_NAME = pattern(
    r"(?P<id>(?P<time>\d{8}-\d{6})-(?P<ms>\d{3}))\.(?P<level>quick|standard|deep)"
    r"\.(?P<verdict>sound|impaired|broken|unknown)\.(?P<mark>[0-9a-f]{8})\.gz"
)
_FORM = "%Y%m%d-%H%M%S"
_PARTS = pattern(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)")
_HEAD = 1 << 18
"""Bytes that the line about a run has at most."""
_MOST = 64 << 20
"""Bytes of a snapshot that are read at most."""


Worked = Mapping[str, tuple[str, str]]
"""By rule, the run in which it last passed: of the same interpreter, and of any. So no run is searched for twice."""


@frozen(slots=False)
class Run:
    """A run as it lies there. `stamp` is in seconds since 1970."""

    id: str
    stamp: float
    level: str
    verdict: str
    mark: str
    place: Path

    @property
    def good(self) -> bool:
        """Whether the machine worked."""
        return self.verdict in GOOD

    @property
    def time(self) -> str:
        """``2026-11-03T06:25:14Z``."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.stamp))

    @cached_property
    def head(self) -> dict[str, Any]:
        """What was found, by id and title, and what passed; raises `DocumentError`."""
        try:
            head = json.loads(self._member(whole=False))
        except (ValueError, RecursionError) as error:
            raise DocumentError(f"{self.place}: damaged") from error
        if not isinstance(head, dict) or head.get("schema") != SCHEMA:
            raise DocumentError(f"{self.place}: not a run of {SCHEMA}")
        return head

    @property
    def findings(self) -> list[dict[str, str]]:
        """``id``, ``severity`` and ``title`` of each; raises `DocumentError`."""
        found = self.head.get("findings")
        rows = found if isinstance(found, list) else []
        keys = ("id", "severity", "title")
        return [{key: str(row.get(key, "")) for key in keys} for row in rows if isinstance(row, dict)]

    def told(self) -> Kept:
        """In a few words; what cannot be read is said to be so."""
        try:
            python = self.head.get("python")
            found = self.findings
        except DocumentError:
            return Kept(self.id, self.time, self.level, self.verdict, None, (), "damaged")
        return Kept(self.id, self.time, self.level, self.verdict, python if isinstance(python, str) else None, found)

    def passed(self, rule: str) -> bool:
        """Whether that rule was judged then, and found nothing; raises `DocumentError`."""
        passed = self.head.get("passed")
        return isinstance(passed, list) and rule in passed

    def worked(self, rule: str, inside: bool) -> str | None:
        """When that rule last passed before this run, as a run's id; empty where it never did, None: not known here.

        `inside`: by a run of the same interpreter. Raises `DocumentError`.
        """
        known = self.head.get("worked")
        pair = known.get(rule) if isinstance(known, dict) else None
        return str(pair[not inside]) if isinstance(pair, list) and len(pair) == 2 else None

    def snapshot(self) -> Snapshot:
        """The facts; raises `DocumentError`."""
        try:
            return snapshots.from_json(parsed(self._member(whole=True).decode("utf-8", "replace")))
        except DocumentError as error:
            raise DocumentError(f"{self.place}: {error}") from error

    def _member(self, whole: bool) -> bytes:
        """The line about the run, or the one with its snapshot."""
        try:
            with self.place.open("rb") as file:
                first = zlib.decompressobj(wbits=31)
                head = first.decompress(file.read(_MOST if whole else _HEAD), _HEAD)
                return zlib.decompressobj(wbits=31).decompress(first.unused_data, _MOST) if whole else head
        except (OSError, zlib.error) as error:
            raise DocumentError(f"{self.place}: {getattr(error, 'strerror', None) or 'damaged'}") from error


def run_at(place: Path) -> Run | None:
    """The run in that file by the file's name; None where it is none of ours."""
    from datetime import datetime

    match = _NAME.fullmatch(place.name)
    try:
        moment = _PARTS.sub(r"\1-\2-\3T\4:\5:\6+00:00", match["time"]) if match else ""
        stamp = datetime.fromisoformat(moment).timestamp() + int(match["ms"]) / 1000 if match else 0.0
    except ValueError:
        return None
    return Run(match["id"], stamp, match["level"], match["verdict"], match["mark"], place) if match else None


def name_of(diagnosis: Diagnosis, now: float) -> str:
    """How the file is called."""
    target = diagnosis.snapshot.target
    moment = f"{time.strftime(_FORM, time.gmtime(now))}-{int(now * 1000) % 1000:03}"
    return f"{moment}.{target.level}.{diagnosis.verdict}.{mark(target.python)}.gz"


def mark(python: str | None) -> str:
    """The checksum by which an interpreter is known again."""
    return f"{zlib.crc32((python or '').encode('utf-8', 'surrogateescape')):08x}"


def packed(diagnosis: Diagnosis, version: str, worked: Worked) -> bytes:
    """What the file holds: two members of gzip, so that the line about the run is read without its snapshot.

    At gzip's level 1: half a millisecond, and within a tenth of the smallest.
    """
    raw = diagnosis.snapshot.to_json()
    del raw["timings_ms"]
    findings: list[Json] = [
        {"id": one.id, "severity": one.severity, "title": one.title} for one in diagnosis.findings[:_MOST_FINDINGS]
    ]
    head = {
        "schema": SCHEMA,
        "tool": {"version": version},
        "python": diagnosis.snapshot.target.python,
        "findings": findings,
        "passed": list(diagnosis.passed),
        "worked": {rule: list(pair) for rule, pair in worked.items()},
    }
    return b"".join(_gzip(json.dumps(part, separators=(",", ":")) + "\n") for part in (head, raw))


def _gzip(line: str) -> bytes:
    packer = zlib.compressobj(1, wbits=31)
    return packer.compress(line.encode()) + packer.flush()


_MOST_FINDINGS = 64
