"""Many hosts in one word, as Slurm and ClusterShell write them: ``node[01-08,12]``, ``login1,gpu[3-4].site``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

_MOST = 4096
"""Hosts that one word is taken apart into; of more, its first ones."""
SET = re.compile(r"(?<![\w.-])([A-Za-z][\w.-]{0,60})\[(\d{1,6}(?:[-,]\d{1,6}){0,400})\]((?:[.-]?[\w-]{1,60}){0,4})")
_LIST = re.compile(
    r"(?:nodelist|node_list|nodename|nodes|hosts|hostlist|--?w|--hosts|--exclude)[=\s:]{1,3}['\"]?"
    r"([A-Za-z][\w.,\[\]-]{1,4000})",
    re.IGNORECASE,
)
_OURS = re.compile(r"(\D*)(\d+)(\D.*)?")


def lists(text: str) -> Iterator[str]:
    """The hosts of every list that stands where hosts must."""
    for match in _LIST.finditer(text):
        for part in re.split(r",(?![^\[]*\])", match[1].rstrip(",.")):
            found = SET.fullmatch(part)
            if found:
                yield from expanded(found)


def expanded(found: re.Match[str]) -> list[str]:
    """``node[01-03]``: node01, node02, node03."""
    head, numbers, tail = found.groups()
    names: list[str] = []
    for part in numbers.split(","):
        first, _, last = part.partition("-")
        end = min(int(last or first), int(first) + _MOST)
        names += [f"{head}{number:0{len(first)}d}{tail}" for number in range(int(first), end + 1)]
    return names[:_MOST]


def folded(words: Iterable[str]) -> str:
    """``host[1-3]`` for host1, host2 and host3."""
    alike: dict[tuple[str, str], list[int]] = {}
    for word in dict.fromkeys(words):
        match = _OURS.fullmatch(word)
        head, number, tail = match.groups(default="") if match else (word, "", "")
        alike.setdefault((head, tail), []).extend([int(number)] if number else [])
    return ",".join(_one(head, sorted(numbers), tail) for (head, tail), numbers in alike.items())


def _one(head: str, numbers: Sequence[int], tail: str) -> str:
    if len(numbers) < 2:
        return f"{head}{numbers[0] if numbers else ''}{tail}"
    begun: list[list[int]] = []
    for number in numbers:
        if begun and number == begun[-1][1] + 1:
            begun[-1][1] = number
        else:
            begun.append([number, number])
    ranges = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in begun)
    return f"{head}[{ranges}]{tail}"
