"""What readers are written in: patterns that are compiled when they are first used, lists of words as paragraphs, and
which lines of a large log are worth reading.

A report rarely needs more than a few of the hundreds of patterns that there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.core.frozen import frozen
from gpudoctor.core.pattern import check_current


class Pattern:
    """A regular expression compiled at first use; each call is charged to the text's time budget.

    All its searches raise `TooCostlyError` once the budget is used up.
    """

    __slots__ = ("_compiled", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self._compiled: re.Pattern[str] | None = None

    @property
    def compiled(self) -> re.Pattern[str]:
        """The compiled `re.Pattern`, compiled at first use; its searches are not charged to the time budget."""
        if self._compiled is None:
            self._compiled = re.compile(self.source)
        return self._compiled

    def search(self, text: str) -> re.Match[str] | None:
        """As `re.search`; raises `TooCostlyError` where the thread's time budget for the text is used up."""
        check_current(len(text))
        return self.compiled.search(text)

    def match(self, text: str) -> re.Match[str] | None:
        """As `re.match`; raises `TooCostlyError` where the thread's time budget for the text is used up."""
        check_current(len(text))
        return self.compiled.match(text)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """As `re.fullmatch`; raises `TooCostlyError` where the thread's time budget for the text is used up."""
        check_current(len(text))
        return self.compiled.fullmatch(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """As `re.finditer`; raises `TooCostlyError` where the thread's time budget for the text is used up."""
        check_current(len(text))
        return self.compiled.finditer(text)


# ---- Long lists of words, written as paragraphs ----


def words(paragraph: str) -> frozenset[str]:
    """The words of the paragraph, separated by white space."""
    return frozenset(paragraph.split())


def phrases(paragraph: str) -> tuple[str, ...]:
    """The phrases of the paragraph, separated by ``|``; line breaks within one become spaces."""
    return tuple(" ".join(phrase.split()) for phrase in paragraph.split("|") if phrase.strip())


def table(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Head and phrases of each ``head: phrase | phrase`` line; an indented line continues the one above."""
    for line in text.strip("\n").replace("\n    ", " ").splitlines():
        head, _, rest = line.partition(": ")
        yield head.strip(), phrases(rest)


def by_phrase(text: str) -> dict[str, str]:
    """The head by phrase, from ``head: phrase | phrase`` lines; an indented line continues the one above."""
    return {phrase: head for head, listed in table(text) for phrase in listed}


# ---- Which lines of a large log are worth reading ----

MOST_LINES = 4000
"""Most lines that are kept."""
MOST_CHARACTERS = 512 << 10
"""Most characters that are kept."""
LONGEST_LINE = 4000
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
_MOST_HITS = 3000
"""Most lines that one word may bring in."""
_EDGE_LINES = 150
"""Lines kept from the beginning and from the end, whatever they say."""
_VARIES = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+:\d+[.:\d]*|\d+\.\d{3,}|\b\d{4,}\b|\[\s*[\d.]+\]")
_XID = re.compile(r"xid[^,\n]{0,60}", re.IGNORECASE)


@frozen
class Selection:
    """The selected lines, their line numbers from 1, the count of non-blank lines, and whether all lines were kept."""

    lines: list[str]
    numbers: list[int]
    total: int
    whole: bool


def select(text: str, share: int = 1) -> Selection:
    """All lines of a short text; of a larger one the most telling, in their order, and one of those that differ in
    numbers alone. Each is cut to 4000 characters.

    `share` divides the limits of lines and characters, for one of several pieces: a fourth for 4.
    """
    if len(text) <= MOST_CHARACTERS // share and (count := text.count("\n")) < MOST_LINES // share:
        lines = [line[:LONGEST_LINE] for line in text.split("\n")]
        return Selection(lines, list(range(1, count + 2)), sum(1 for line in lines if line.strip()), whole=True)
    starts = _candidate_starts(text, _MOST_HITS // share)
    selected: list[tuple[int, str]] = []
    shapes: set[str] = set()
    room_left = MOST_CHARACTERS // share
    for start, in_block in starts.items():
        end = text.find("\n", start)
        line = text[start : min(end if end >= 0 else len(text), start + LONGEST_LINE)]
        shape = _repeatable_shape(line)
        if not line.strip() or (shape in shapes and not in_block):
            continue
        shapes.add(shape)
        room_left -= len(line)
        if room_left < 0 or len(selected) >= MOST_LINES // share:
            break
        selected.append((start, line))
    selected.sort()
    return Selection(
        [line for _, line in selected],
        _line_numbers(text, [start for start, _ in selected]),
        _count_filled(text),
        whole=False,
    )


def _candidate_starts(text: str, hits: int) -> dict[int, bool]:
    """Offsets of lines worth keeping, the most telling first; True for lines of a block kept as a whole.

    `hits` is the most lines that one word may bring in.
    """
    lower = text.lower()
    if len(lower) != len(text):
        lower = text
    starts: dict[int, bool] = {}
    for word, length in _ANCHORS.items():
        for start in _line_starts(lower, word, 20):
            offset = start
            for _ in range(length):
                starts.setdefault(offset, True)
                offset = lower.find("\n", offset) + 1
                if not offset:
                    break
    _add_edges(lower, starts)
    for word in _FIRST + _THEN:
        for start in _line_starts(lower, word, hits):
            starts.setdefault(start, False)
    return starts


def _line_starts(text: str, word: str, most: int) -> list[int]:
    """Offsets of the first `most` lines that hold `word`; where there are more, also of the last few."""
    starts: list[int] = []
    offset = text.find(word)
    while offset >= 0 and len(starts) < most:
        starts.append(text.rfind("\n", 0, offset) + 1)
        end = text.find("\n", offset)
        offset = text.find(word, end) if end >= 0 else -1
    if offset >= 0:
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


def _add_edges(text: str, starts: dict[int, bool]) -> None:
    """Add the offsets of the text's first and last 150 lines to `starts`."""
    offset = 0
    for _ in range(_EDGE_LINES):
        starts.setdefault(offset, False)
        offset = text.find("\n", offset) + 1
        if not offset:
            return
    offset = len(text)
    for _ in range(_EDGE_LINES):
        offset = text.rfind("\n", 0, offset)
        if offset < 0:
            return
        starts.setdefault(offset + 1, False)


def _repeatable_shape(line: str) -> str:
    """The line's first 400 characters in lower case, ``#`` for numbers that vary; of an Xid its message's beginning."""
    xid = _XID.search(line)
    return xid.group() if xid else _VARIES.sub("#", line[:400].lower())


def _line_numbers(text: str, starts: list[int]) -> list[int]:
    """The line numbers, from 1, of the ascending offsets `starts`."""
    numbers: list[int] = []
    number, offset = 1, 0
    for start in starts:
        number += text.count("\n", offset, start)
        numbers.append(number)
        offset = start
    return numbers


def _count_filled(text: str) -> int:
    """Number of lines that are not blank."""
    filled = start = 0
    while start < len(text):
        end = text.rfind("\n", start, start + MOST_CHARACTERS)
        if end < 0:
            end = text.find("\n", start + MOST_CHARACTERS)
        piece = text[start : end if end >= 0 else len(text)]
        filled += sum(1 for line in piece.split("\n") if line and not line.isspace())
        start += len(piece) + 1
    return filled
