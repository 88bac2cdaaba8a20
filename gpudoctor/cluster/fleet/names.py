"""Host names as people order and write them: ``node9`` before ``node10``, ``node[01-08,11]``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

_NUMBER = re.compile(r"(\d+)")
_SHORT = 48
"""Characters of a word that stands for many, in a sentence."""
_LAST = re.compile(r"(.*?)(\d+)(\D*)\Z")


def order(name: str) -> list[tuple[int, int, str]]:
    """Sort key for host names: numbers compare by value and before letters; of 1 and 01 the shorter is first."""
    return [
        (0, int(part), f"{len(part):03}") if part.isdecimal() else (1, 0, part) for part in _NUMBER.split(name) if part
    ]


def ordered(names: Iterable[str]) -> list[str]:
    """Distinct names, sorted by `order` (``node9`` before ``node10``)."""
    return sorted(set(names), key=order)


def node_set(names: Iterable[str]) -> str:
    """Names as one node set in the notation of Slurm and ClusterShell: ``login,node[01-08,11]``."""
    return ",".join(_folded_groups(ordered(names)))


def names_phrase(names: Iterable[str], most: int = 6) -> str:
    """Names for a sentence: ``n1, n7 and n9``; more than `most` as a short node set, else the first and ``N more``."""
    several = ordered(names)
    if len(several) <= most:
        *first, last = several or [""]
        return f"{', '.join(first)} and {last}" if first else last
    word = ",".join(_folded_groups(several))
    if len(word) <= _SHORT:
        return word
    return f"{', '.join(several[:most])} and {len(several) - most} more"


def _folded_groups(names: Sequence[str]) -> Iterator[str]:
    """Node-set words: names that differ only in their last number are merged; order of first appearance."""
    alike: dict[tuple[str, str, int], list[str]] = {}
    for name in names:
        match = _LAST.match(name)
        digits = match[2] if match else ""
        padded = len(digits) if digits.startswith("0") and len(digits) > 1 else 0
        key = (match[1], match[3], padded) if match else (name, "", -1)
        if match and not padded and (match[1], match[3], len(digits)) in alike:
            key = (match[1], match[3], len(digits))  # 10 after 09
        alike.setdefault(key, []).append(digits)
    for (head, tail, width), digits in alike.items():
        numbers = ",".join(_ranges(digits))
        yield head if width < 0 else f"{head}{f'[{numbers}]' if len(digits) > 1 else numbers}{tail}"


def _ranges(digits: Sequence[str]) -> Iterator[str]:
    """Ranges of consecutive sorted numbers, ``01-03``; a single number stands alone."""
    begin = last = digits[0]
    for number in (*digits[1:], ""):
        if number and int(number) == int(last) + 1 and (len(number) == len(last) or not last.startswith("0")):
            last = number
            continue
        yield begin if begin == last else f"{begin}-{last}"
        begin = last = number
