"""Which lines of a large log are worth reading: all of a report, the telling ones of a log of many megabytes.

A log of 32 MB is searched with plain string look-ups only (no pattern sees the whole of it), and never split into
lines, so that time and memory stay bounded whatever it holds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpudoctor.readers._lists import phrases

LINES = 4000
"""Most lines that are kept."""
SIZE = 512 << 10
"""Most characters that are kept."""
MOST_OF_A_LINE = 4000
"""Most characters of one line."""

_ANCHORS = {
    "nvidia-smi ": 60,
    "nvsmi log": 500,
    "pytorch version": 60,
    "versions of relevant libraries": 80,
    "traceback (most recent": 60,
    "nvrm: api mismatch": 4,
    "package    ": 150,
    "# packages in environment": 150,
    "cuda used to build": 40,
}
"""Words that begin a block, and how many of its lines are kept together."""
_FIRST = phrases(
    """
    xid | nvrm: | undefined symbol | cannot open shared object | driver/library | no kernel image | cuda error |
    cuda initialization | failed to initialize nvml | nccl version | nccl warn | nvidia-container-cli | nouveau
    | not compatible with the current | uncorrectable | fallen off | out of memory | could not select device
    driver | fabric manager | secure boot | device-side assert | unsupported gpu | no space left |
    modulenotfounderror | importerror | oserror: | runtimeerror | assertionerror | version mismatch |
    nccl_socket_ifname | ld_library_path | cuda_visible_devices | driver version | not supported by | unhandled
    cuda | bus error | illegal memory | address already in use | connection refused | timed out | using network
    | bootstrap : using | nova | linux version | pretty_name
    | secureboot | dkms | cuda compilation tools | max locked memory | /dev/shm | kernel driver in use | vga compatible
    | 3d controller | boot_image | blacklist | gnu/linux | /lib/modules/ | fabricmanager | /dev/nvidia
    """
)
_THEN = phrases(
    "error | fail | cannot | unable | warn | fatal | nccl | cuda | nvidia | gpu | torch | exception | abort"
)
"""Words (lower case) of telling lines, the most telling first."""
_HITS = 3000
"""Most lines that one word may bring in."""
_EDGE = 150
"""Lines kept from the beginning and from the end, whatever they say."""
_VARIES = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+:\d+[.:\d]*|\d+\.\d{3,}|\b\d{4,}\b|\[\s*[\d.]+\]")
_XID = re.compile(r"xid[^,\n]{0,60}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Kept:
    """The kept lines with their numbers in the paste, how many lines are not blank, and whether all were kept."""

    lines: list[str]
    numbers: list[int]
    total: int
    whole: bool


def select(text: str, share: int = 1) -> Kept:
    """All lines of a report; of a larger text the ones that look machine-printed and erroneous.

    Of one of many pieces a `share` of what would be kept of a whole text: a fourth for 4.
    """
    if len(text) <= SIZE // share and (count := text.count("\n")) < LINES // share:
        lines = [line[:MOST_OF_A_LINE] for line in text.split("\n")]
        return Kept(lines, list(range(1, count + 2)), sum(1 for line in lines if line.strip()), whole=True)
    starts = _starts(text, _HITS // share)
    kept: list[tuple[int, str]] = []
    shapes: set[str] = set()
    room = SIZE // share
    for start, wanted in starts.items():
        end = text.find("\n", start)
        line = text[start : min(end if end >= 0 else len(text), start + MOST_OF_A_LINE)]
        shape = _shape(line)
        if not line.strip() or (shape in shapes and not wanted):
            continue
        shapes.add(shape)
        room -= len(line)
        if room < 0 or len(kept) >= LINES // share:
            break
        kept.append((start, line))
    kept.sort()
    return Kept([line for _, line in kept], _numbers(text, [start for start, _ in kept]), _filled(text), whole=False)


def _starts(text: str, hits: int) -> dict[int, bool]:
    """Where kept lines start, the most telling first; true for those that belong together as a block."""
    lower = text.lower()
    if len(lower) != len(text):
        lower = text
    found: dict[int, bool] = {}
    for word, length in _ANCHORS.items():
        for start in _lines_with(lower, word, 20):
            place = start
            for _ in range(length):
                found.setdefault(place, True)
                place = lower.find("\n", place) + 1
                if not place:
                    break
    _edges(lower, found)
    for word in _FIRST + _THEN:
        for start in _lines_with(lower, word, hits):
            found.setdefault(start, False)
    return found


def _lines_with(text: str, word: str, most: int) -> list[int]:
    """Starts of the first lines that hold `word`, and of the last ones where there are more."""
    starts: list[int] = []
    place = text.find(word)
    while place >= 0 and len(starts) < most:
        starts.append(text.rfind("\n", 0, place) + 1)
        end = text.find("\n", place)
        place = text.find(word, end) if end >= 0 else -1
    if place >= 0:
        last = text.rfind(word)
        for _ in range(most // 10):
            start = text.rfind("\n", 0, last) + 1
            if start <= starts[-1]:
                break
            starts.append(start)
            last = text.rfind(word, 0, start)
            if last < 0:
                break
    return starts


def _edges(text: str, found: dict[int, bool]) -> None:
    place = 0
    for _ in range(_EDGE):
        found.setdefault(place, False)
        place = text.find("\n", place) + 1
        if not place:
            return
    place = len(text)
    for _ in range(_EDGE):
        place = text.rfind("\n", 0, place)
        if place < 0:
            return
        found.setdefault(place + 1, False)


def _shape(line: str) -> str:
    """The line without what differs from one printing to the next; an Xid keeps its number and its GPU."""
    xid = _XID.search(line)
    return xid.group() if xid else _VARIES.sub("#", line[:400].lower())


def _numbers(text: str, starts: list[int]) -> list[int]:
    numbers: list[int] = []
    number, place = 1, 0
    for start in starts:
        number += text.count("\n", place, start)
        numbers.append(number)
        place = start
    return numbers


def _filled(text: str) -> int:
    """Lines that are not blank, counted a piece at a time."""
    filled = start = 0
    while start < len(text):
        end = text.rfind("\n", start, start + SIZE)
        if end < 0:
            end = text.find("\n", start + SIZE)
        piece = text[start : end if end >= 0 else len(text)]
        filled += sum(1 for line in piece.split("\n") if line and not line.isspace())
        start += len(piece) + 1
    return filled
