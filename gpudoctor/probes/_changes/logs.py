"""Logs that grow and are rotated: their ends, the newest first, and the clock that they were written by."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

from gpudoctor.model.pattern import pattern
from gpudoctor.probes._changes.entry import told
from gpudoctor.target import Target

if TYPE_CHECKING:
    from datetime import tzinfo

_MOST = 256 << 10
"""Bytes of one log that are looked at, the newest."""
PACKAGES = pattern(r"/var/log/(?:apt/history\.log|dpkg\.log|pacman\.log|zypp/history)(?:\.\d)?")
_FRAME = pattern(r"^(?:Start-Date: |Commandline: |End-Date: |\s*$)|\] \[PACMAN\] Running |\|command\|")
_WORD = pattern(r"[\w.+-]+")
_SUFFIXES = ("", ".1", ".1.gz", ".2.gz")

Zoned = Callable[[str], "tuple[str, float] | None"]
"""Of ``2025-11-03 06:25:14`` the time with the machine's offset, and in seconds since 1970."""


def texts(target: Target, path: str, most: int = _MOST) -> Iterator[tuple[str, str]]:
    """The log and those it was rotated into, with their paths, as far as they are there; `most` bytes in all.

    Raises `OSError` where the log itself is refused.
    """
    left = most
    for suffix in _SUFFIXES:
        place = path + suffix
        try:
            text = _unpacked(target, place, left) if suffix.endswith(".gz") else _end(target, place, left)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            if not suffix:
                raise
            continue
        if text:
            yield place, text.decode("utf-8", "replace")
        left -= len(text)
        if left <= 0:
            return


def _end(target: Target, path: str, most: int) -> bytes:
    with target.path(path).open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - most))
        return bytes(file.read(most))


def _unpacked(target: Target, path: str, most: int) -> bytes:
    """The end of the log in a gzip file; what is damaged is given up, what came before it stands."""
    packed = target.read_bytes(path, _MOST)
    stream = zlib.decompressobj(wbits=31)
    try:
        return stream.decompress(packed, 8 * _MOST)[-most:]
    except zlib.error:
        return b""


def screened(text: str) -> str:
    """Of such a log the lines about packages that are told of and what goes before them; nobody's name."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if _FRAME.search(line) or any(map(told, _WORD.findall(line))))


def clock(target: Target) -> Zoned:
    """The machine's own clock, by /etc/localtime; UTC where it has none."""
    from datetime import datetime

    own = cache(partial(_zone, target))  # most logs name their zone

    def zoned(time: str) -> tuple[str, float] | None:
        try:
            moment = datetime.fromisoformat(time.strip().replace("  ", " "))
            moment = moment if moment.tzinfo else moment.replace(tzinfo=own())
            return moment.isoformat(timespec="seconds"), moment.timestamp()
        except (ValueError, OverflowError):
            return None

    return zoned


def _zone(target: Target) -> tzinfo:
    import io
    import zoneinfo
    from datetime import timezone

    try:
        return zoneinfo.ZoneInfo.from_file(io.BytesIO(target.read_bytes("/etc/localtime", 1 << 16)))
    except (OSError, ValueError, EOFError):
        return timezone.utc
