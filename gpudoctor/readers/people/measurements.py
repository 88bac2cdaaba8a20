"""Rates measured per GPU: ``GPU 3: 214.7 TFLOP/s`` under or with a unit, and bandwidthTest of the CUDA samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from gpudoctor.model.catalog import column
from gpudoctor.model.fact import Fact, Known, Row, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

FACTS = (
    column("rate.gpu", "int", "number of the GPU that was measured"),
    column("rate.value", "float", "what was measured on it"),
    column("rate.unit", "text", "its unit: TFLOP/s, GB/s"),
    column("rate.others", "float", "the median of the same measurement on the other GPUs, or what it should be"),
)

_UNIT = Pattern(r"\b([TG]FLOP(?:/s|S)|[GM]i?B/s|(?:it|img|images|samples|tok|tokens)/s)", 2)
_RATE = Pattern(
    r"\W*(?:GPUs?|devices?|cuda:|ranks?)\s?(\d{1,3}(?:\s?,\s?\d{1,3}){0,15})"
    r"(?:(?:\s+[a-z][\w -]{0,24})?\s*[:=|]\s*|\s+)"
    r"(\d{1,7}(?:\.\d+)?)(?![\d.%])\s*(\S*)",
    2,
)
_LISTED = Pattern(
    r"(?:each|per|by) (?:GPU|device|card|rank)\b|\b(?:all|the) \d+ (?:GPUs|devices|ranks)\b|\bGPUs? 0\s?-\s?\d+\b", 2
)
_PAIRS = Pattern(r"(?<![\d.])(\d{1,3})\s?[:=]\s?(\d{1,7}(?:\.\d+)?)(?![\d.%])")
_NAMED = Pattern(
    r"\b(?:gpu|rank|device|cuda:|card)s? ?#?(\d{1,2}(?:\s?(?:-|–|to|,|and|&)\s?\d{1,2}(?![\d.]))*)\s?[:=]?\s"
    r"(?:(?:about|around|roughly|approx\.?|only|just|at|gets?|reach(?:es)?|does|do|is|are|gives?|each|~)\s?){0,3}"
    r"(\d{1,7}(?:\.\d+)?)(?![\d.%])",
    2,
)
_RANGE = Pattern(r"(\d{1,2})\s?(?:-|–|to)\s?(\d{1,2})|(\d{1,2})")
_BURNT = Pattern(r"(\d{2,6}(?:\.\d+)?) [GT]flop/s(?= ?\)?(?: - |$))", 2)
"""How gpu-burn writes the rates of all GPUs: ``13412 Gflop/s - 13390 Gflop/s``."""
_TIMES = Pattern(
    r"\b(?:times?|latency|took|takes|seconds|duration|per (?:step|iter\w*|batch|epoch))\b|\b(?:m?s|sec)/(?:it"
    r"|step|batch)",
    2,
)
_PER_GPU = Pattern(
    r"\b(?:gpu|rank|device|cuda:|card)s? ?#?(\d{1,2}(?:\s?(?:-|–|to|,|and|&)\s?\d{1,2}(?![\d.]))*)\s?(?:[:=]"
    r"|takes?|took|needs)\s?"
    r"(?:(?:about|around|only|just|~)\s?)?(\d{1,6}(?:\.\d+)?) ?(ms|s|sec|seconds|min)\b",
    2,
)
_SAME_KIND = Pattern(
    r"(\d{1,6}(?:\.\d+)?) ?([TG]FLOP(?:/s|S)|[GM]i?B/s|(?:it|img|images|samples|tok"
    r"|tokens)/s)\b[^\n]{0,160}?\b(?:another|an identical|identical"
    r"|an? (?:sister|sibling|healthy|good|second)|the (?:same|other|sister|neighbou?r\w*)"
    r"|others?)\b[^\n\d]{0,80}?(?:[a-z]\d+\w*\b[^\n\d]{0,80}?)?"
    r"(?:gives?|gets?|reach(?:es)?|does|has|makes?|shows?|at|:|=)\W{0,3}(?:about |around "
    r"|~)?(\d{1,6}(?:\.\d+)?)(?![\d.%])",
    2,
)
"""``2300 GFLOP/s, another T4 of the same type gives 5100``"""
_ITEMS = Pattern(r"[\[(]?\s*(\d{1,7}(?:\.\d+)?(?:\s*[,/|;]\s*\d{1,7}(?:\.\d+)?){1,15})\s*[\])]?\s*\S{0,16}\s*$")
_MEASURED = Pattern(
    r"\b(?:measured|reached|reaches|achieved|got|observed|actual|my|this (?:card|gpu|one|node)|result)\b"
)
_EXPECTED = Pattern(
    r"\b(?:expected|should (?:be|reach|get)|normal(?:ly)?|usual(?:ly)?|reference|healthy|good (?:card|gpu|node)"
    r"|sibling\w*|peers?|others?|another|other (?:cards?|gpus?|nodes?|machines?))\b"
)
_SHEET = Pattern(r"\b(?:spec\w*|data ?sheet|theoretical|peak|nominal)\b")
_REACHED = {True: 0.8, False: 0.6}
"""The part of a data sheet's figure that a sound GPU reaches: of its memory bandwidth, of its arithmetic."""
_COMPUTE = Pattern(r"(\d{1,5}(?:\.\d+)?) ?([TG]FLOP(?:/s|S))", 2)
_MOVED = Pattern(r"(\d{1,5}(?:\.\d+)?) ?([GM]i?B/s)", 2)
_TIME = Pattern(r"(?:about |around |~)?([1-9]\d{0,5}(?:\.\d+)?|0\.\d*[1-9]\d*) ?(ms|s|sec|seconds)?\b[^\d]{0,20}", 2)
_DEVICE = Pattern(r"\s*Device (\d{1,3}): \S")
_TRANSFER = Pattern(r"\s+(\d{3,12})\s+(\d{1,7}\.\d+)\s*$")


@dataclass(frozen=True, slots=True)
class _Rate:
    """One measurement; those of one `kind` are compared."""

    gpu: int
    value: float
    unit: str
    kind: str
    source: str


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """A row for each GPU that was measured alike with others; a GPU measured twice keeps the first."""
    found: list[_Rate] = []
    if "/s" in paste.lower or "flops" in paste.lower:
        found += _labelled(paste)
        found += _listed(paste)
        found += _bandwidth_test(paste)
    if "gpu" in paste.lower or "rank" in paste.lower or "cuda:" in paste.lower or "card" in paste.lower:
        found += _timed(paste)
    kinds: dict[str, dict[int, _Rate]] = {}
    for rate in found:
        kinds.setdefault(rate.kind, {}).setdefault(rate.gpu, rate)
    rows: list[Row] = []
    for rates in kinds.values():
        for gpu, rate in rates.items():
            if others := [other.value for number, other in rates.items() if number != gpu]:
                rows.append(_row(rate, round(median(others), 3)))
    rows = rows or list(_against_expected(paste))
    if rows:
        yield "rate", tuple(rows)


def _row(rate: _Rate, others: float) -> Row:
    return {
        "gpu": Known(rate.gpu, rate.source),
        "value": Known(rate.value, rate.source),
        "unit": Known(rate.unit, rate.source),
        "others": Known(others, "the other GPUs of the report"),
    }


def _labelled(paste: Paste) -> Iterator[_Rate]:
    """Lines that name a GPU and a number, in the unit of the line or of the heading above them."""
    unit = kind = ""
    for index, line in enumerate(paste.bare):
        named = _UNIT.search(line)
        rate = _RATE.match(line)
        if not rate:
            unit, kind = (named.group(1), f"line {index}") if named else ("", "")
        elif named or (unit and not rate.group(3)):
            own = named.group(1) if named else unit
            source = paste.use(index)
            for number in rate.group(1).split(","):
                yield _Rate(int(number), float(rate.group(2)), own, kind or own.lower(), source)


def _listed(paste: Paste) -> Iterator[_Rate]:
    """``TFLOP/s per rank: 0: 702, 1: 431`` and ``per GPU: 702, 431 TFLOP/s``: all of them in one line."""
    for index, line in enumerate(paste.bare):
        if not (unit := _UNIT.search(line)):
            continue
        pairs = [
            (number, float(value)) for several, value in _NAMED.compiled.findall(line) for number in _numbers(several)
        ]
        if len(pairs) < 2 and not _LISTED.search(line):
            continue
        values = line.partition(":")[2]
        if len(pairs) < 2:
            pairs = [(int(number), float(value)) for number, value in _PAIRS.compiled.findall(values)]
        if len(pairs) < 2 and (items := _ITEMS.match(values)):
            pairs = [(number, float(value)) for number, value in enumerate(_split(items.group(1)))]
        if len(pairs) < 2 and len(burnt := _BURNT.compiled.findall(line)) > 1:
            pairs = [(number, float(value)) for number, value in enumerate(burnt)]
        if len(pairs) > 1:
            source = paste.use(index)
            for number, value in pairs:
                yield _Rate(number, value, unit.group(1), f"line {index}", source)


def _timed(paste: Paste) -> Iterator[_Rate]:
    """``step time on gpu 0,1,2: 0.41 s``, ``GPU 3: 1.20 s/it``: as rates, of which the lower is the worse."""
    for index, line in enumerate(paste.bare):
        for several, value, unit in _PER_GPU.compiled.findall(line) if _TIMES.search(line) else ():
            if float(value) > 0:
                for number in _numbers(several):
                    yield _Rate(
                        number, round(1000 / float(value), 3), f"per 1000 {unit}", f"time {unit}", paste.use(index)
                    )


def _numbers(text: str) -> Iterator[int]:
    """``0-2``, ``0, 1 and 3``: the numbers that are meant."""
    for first, last, single in _RANGE.compiled.findall(text):
        yield from range(int(first), int(last) + 1) if last else (int(single),)


def _split(items: str) -> list[str]:
    for mark in "/|;":
        items = items.replace(mark, ",")
    return [item.strip() for item in items.split(",")]


def _against_expected(paste: Paste) -> Iterator[Row]:
    """``measured: 118 TFLOPS`` and ``expected: 250 TFLOPS``, one of each; of a data sheet's peak a part."""
    told: dict[bool, list[tuple[float, str, int]]] = {True: [], False: []}
    memory = any("memory bandwidth" in label.name for label in paste.labels)
    for label in paste.labels:
        if rate := (_MOVED if memory else _COMPUTE).search(label.value):
            sheet = bool(_SHEET.search(label.name))
            expected = sheet or bool(_EXPECTED.search(label.name))
            if expected or _MEASURED.search(label.name):
                number = float(rate.group(1)) * (_REACHED[memory] if sheet else 1)
                told[expected].append((round(number, 1), rate.group(2), label.index))
    if len(told[False]) == 1 and told[True] and len({unit[0].lower() for _, unit, _ in told[True] + told[False]}) == 1:
        yield _held(paste, told[False][0], min(told[True]))
    for index, line in paste.having("/s", "flops"):
        if pair := _SAME_KIND.search(line[:1500]):
            source = paste.use(index)
            yield {
                "value": Known(float(pair.group(1)), source),
                "unit": Known(pair.group(2), source),
                "others": Known(float(pair.group(3)), source),
            }
            break
    yield from _times(paste)


def _times(paste: Paste) -> Iterator[Row]:
    """``step time: 94 ms`` and ``expected step time: 60 ms``: as rates, of which the lower is the worse."""
    told: dict[str, dict[bool, tuple[float, str, int]]] = {}
    for label in paste.labels:
        if time := _TIME.fullmatch(label.value):
            name, expected = _EXPECTED.compiled.subn("", label.name)
            unit = time.group(2) or ("ms" if " ms" in f" {name}" else "s" if "second" in name else "")
            if unit:
                place = told.setdefault(" ".join(name.split()), {})
                place.setdefault(
                    bool(expected), (round(1000 / float(time.group(1)), 3), f"per 1000 {unit}", label.index)
                )
    for pair in told.values():
        if len(pair) == 2 and pair[True][1] == pair[False][1]:
            yield _held(paste, pair[False], pair[True])


def _held(paste: Paste, one: tuple[float, str, int], other: tuple[float, str, int]) -> Row:
    source = paste.use(one[2])
    return {
        "value": Known(one[0], source),
        "unit": Known(one[1], source),
        "others": Known(other[0], paste.use(other[2])),
    }


def _bandwidth_test(paste: Paste) -> Iterator[_Rate]:
    """Rows of size and bandwidth below ``Device N: name``, for each direction that is headed."""
    gpu, heading = -1, ""
    for index, line in enumerate(paste.bare):
        if device := _DEVICE.match(line):
            gpu = int(device.group(1))
        elif "Bandwidth, " in line:
            heading = line.strip()
        elif gpu >= 0 and heading and (row := _TRANSFER.match(line)):
            kind = f"{heading} {row.group(1)}"
            yield _Rate(gpu, float(row.group(2)), "GB/s", kind, paste.use(index))
