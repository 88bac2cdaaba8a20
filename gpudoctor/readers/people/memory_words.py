"""How full the GPU's memory is, in passing: ``nvidia-smi just before: 23877MiB / 24268MiB``, ``23.4 of 24 GB used``."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import mib

EXACT = 1
_LONGEST = 300
_PAIR = Pattern(
    r"(?<![\w.])(?P<used>\d{1,6}(?:\.\d+)?) ?(?P<unit>[MG]i?B?)? ?(?:/|of|out of) ?(?:the |a total of )?"
    r"(?P<total>\d{1,6}(?:\.\d+)?) ?(?P<of>[MG]i?B|G)\b",
    2,
)
_OF_A_GPU = Pattern(
    r"\b(?:nvidia-smi|gpus?|cards?|vram|used|in use|full|occupied|taken|held|allocated|jobs?|process\w*)\b", 2
)
_OTHER = Pattern(
    r"tried to allocate|total capacity|\b(?:disk|host|system|cpu|swap|shm|tmpfs|download\w*|peak|limit|[MG]B/s)\b"
    r"|\b(?:works?|worked|needs?|requires?|idle|after|now)\b",
    2,
)


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """The one pair of used and total that the text names; where it names several, nobody knows which is meant."""
    found: dict[tuple[int, int], int] = {}
    for index, line in paste.having("mib", "gib", "mb", "gb", " g"):
        if len(line) > _LONGEST or line[:1] in "|+" or _OTHER.search(line) or not _OF_A_GPU.search(line):
            continue
        for pair in _PAIR.finditer(line):
            used = mib(f"{pair['used']} {pair['unit'] or pair['of']}")
            total = mib(f"{pair['total']} {pair['of']}")
            if used is not None and total is not None and used <= total and total >= 1000:
                found.setdefault((used, total), index)
    if len(found) == 1:
        (used, total), index = found.popitem()
        source = f"line {paste.numbers[index]}"
        yield "gpu", ({"memory_used_mib": Known(used, source), "memory_mib": Known(total, source)},)
