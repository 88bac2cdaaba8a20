"""What was measured of each GPU: rates (``GPU 3: 214.7 TFLOP/s``, bandwidthTest), and results against a reference."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from gpudoctor.core.catalog import column
from gpudoctor.core.fact import Fact, Known, Row, Rows, known_facts
from gpudoctor.core.frozen import frozen
from gpudoctor.core.measurement import median
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

FACTS = (
    column("rate.gpu", "int", "number of the GPU that was measured"),
    column("rate.value", "float", "what was measured on it"),
    column("rate.unit", "text", "its unit: TFLOP/s, GB/s"),
    column("rate.others", "float", "the median of the same measurement on the other GPUs, or what it should be"),
    column("deviation.gpu", "int", "number of the GPU whose result was compared with a reference"),
    column("deviation.value", "float", "how far off it is; 1e300 for NaN and infinity"),
    column("deviation.others", "float", "the median of the same number on the other GPUs"),
)

_UNIT = Pattern(r"(?i)\b([TG]FLOP(?:/s|S)|[GM]i?B/s|(?:it|img|images|samples|tok|tokens)/s)")
_RATE = Pattern(
    r"(?i)\W*(?:GPUs?|devices?|cuda:|ranks?)\s?(\d{1,3}(?:\s?,\s?\d{1,3}){0,15})"
    r"(?:(?:\s+[a-z][\w -]{0,24})?\s*[:=|]\s*|\s+)"
    r"(\d{1,7}(?:\.\d+)?)(?![\d.%])\s*(\S*)"
)
_LISTED = Pattern(
    r"(?i)(?:each|per|by) (?:GPU|device|card|rank)\b|\b(?:all|the) \d+ (?:GPUs|devices|ranks)\b|\bGPUs? 0\s?-\s?\d+\b"
)
_PAIRS = Pattern(r"(?<![\d.])(\d{1,3})\s?[:=]\s?(\d{1,7}(?:\.\d+)?)(?![\d.%])")
_NAMED = Pattern(
    r"(?i)\b(?:gpu|rank|device|cuda:|card)s? ?#?(\d{1,2}(?:\s?(?:-|–|to|,|and|&)\s?\d{1,2}(?![\d.]))*)\s?[:=]?\s"
    r"(?:(?:about|around|roughly|approx\.?|only|just|at|gets?|reach(?:es)?|does|do|is|are|gives?|each|~)\s?){0,3}"
    r"(\d{1,7}(?:\.\d+)?)(?![\d.%])"
)
_RANGE = Pattern(r"(\d{1,2})\s?(?:-|–|to)\s?(\d{1,2})|(\d{1,2})")
_BURNT = Pattern(r"(?i)(\d{2,6}(?:\.\d+)?) [GT]flop/s(?= ?\)?(?: - |$))")
"""How gpu-burn writes the rates of all GPUs: ``13412 Gflop/s - 13390 Gflop/s``."""
_TIMES = Pattern(
    r"(?i)\b(?:times?|latency|took|takes|seconds|duration|per (?:step|iter\w*|batch|epoch))\b|\b(?:m?s|sec)/(?:it"
    r"|step|batch)"
)
_PER_GPU = Pattern(
    r"(?i)\b(?:gpu|rank|device|cuda:|card)s? ?#?(\d{1,2}(?:\s?(?:-|–|to|,|and|&)\s?\d{1,2}(?![\d.]))*)\s?(?:[:=]"
    r"|takes?|took|needs)\s?"
    r"(?:(?:about|around|only|just|~)\s?)?(\d{1,6}(?:\.\d+)?) ?(ms|s|sec|seconds|min)\b"
)
_SAME_KIND = Pattern(
    r"(?i)(\d{1,6}(?:\.\d+)?) ?([TG]FLOP(?:/s|S)|[GM]i?B/s|(?:it|img|images|samples|tok"
    r"|tokens)/s)\b[^\n]{0,160}?\b(?:another|an identical|identical"
    r"|an? (?:sister|sibling|healthy|good|second)|the (?:same|other|sister|neighbou?r\w*)"
    r"|others?)\b[^\n\d]{0,80}?(?:[a-z]\d+\w*\b[^\n\d]{0,80}?)?"
    r"(?:gives?|gets?|reach(?:es)?|does|has|makes?|shows?|at|:|=)\W{0,3}(?:about |around "
    r"|~)?(\d{1,6}(?:\.\d+)?)(?![\d.%])"
)
"""``2300 GFLOP/s, another T4 of the same type gives 5100``"""
_ITEMS = Pattern(r"[\[(]?\s*(\d{1,7}(?:\.\d+)?(?:\s*[,/|;]\s*\d{1,7}(?:\.\d+)?){1,15})\s*[\])]?\s*\S{0,16}\s*$")
_BETWEEN = Pattern(r"\s*[,/|;]\s*")
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
_COMPUTE = Pattern(r"(?i)(\d{1,5}(?:\.\d+)?) ?([TG]FLOP(?:/s|S))")
_MOVED = Pattern(r"(?i)(\d{1,5}(?:\.\d+)?) ?([GM]i?B/s)")
_TIME = Pattern(r"(?i)(?:about |around |~)?([1-9]\d{0,5}(?:\.\d+)?|0\.\d*[1-9]\d*) ?(ms|s|sec|seconds)?\b[^\d]{0,20}")
_DEVICE = Pattern(r"\s*Device (\d{1,3}): \S")
_TRANSFER = Pattern(r"\s+(\d{3,12})\s+(\d{1,7}\.\d+)\s*$")


@frozen
class _Rate:
    """A rate measured on one GPU; rates with the same `kind` are comparable."""

    gpu: int
    value: float
    unit: str
    kind: str
    source: str


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``rate`` (a GPU's speed beside others' or an expected) and ``deviation`` (results beside a reference)."""
    yield from _deviation_rows(paste)
    yield from _rate_rows(paste)


def _rate_rows(paste: Paste) -> Iterator[tuple[str, Rows]]:
    """Rows of ``rate`` for GPUs measured alike, each with the median of the others or the expected value.

    A GPU measured twice keeps the first.
    """
    measured: list[_Rate] = []
    if "/s" in paste.lower or "flops" in paste.lower:
        measured += _rates_by_line(paste)
        measured += _rates_in_one_line(paste)
        measured += _bandwidth_test(paste)
    if "gpu" in paste.lower or "rank" in paste.lower or "cuda:" in paste.lower or "card" in paste.lower:
        measured += _rates_from_times(paste)
    kinds: dict[str, dict[int, _Rate]] = {}
    for rate in measured:
        kinds.setdefault(rate.kind, {}).setdefault(rate.gpu, rate)
    rows: list[Row] = []
    for rates in kinds.values():
        for gpu, rate in rates.items():
            if others := [other.value for number, other in rates.items() if number != gpu]:
                columns = known_facts(rate.source, gpu=rate.gpu, value=rate.value, unit=rate.unit)
                rows.append(beside_others(columns, round(median(others), 3)))
    rows = rows or list(_rows_against_expected(paste))
    if rows:
        yield "rate", tuple(rows)


def beside_others(row: Row, others: float) -> Row:
    """The row with the column ``others``: the median of the other GPUs' values."""
    return {**row, "others": Known(others, "the other GPUs of the report")}


def _rates_by_line(paste: Paste) -> Iterator[_Rate]:
    """Rates of lines that name one GPU and a number, in the line's unit or the heading's above."""
    unit = kind = ""
    for index, line in enumerate(paste.bare):
        unit_match = _UNIT.search(line)
        rate = _RATE.match(line)
        if not rate:
            unit, kind = (unit_match.group(1), f"line {index}") if unit_match else ("", "")
        elif unit_match or (unit and not rate.group(3)):
            line_unit = unit_match.group(1) if unit_match else unit
            source = paste.use(index)
            for number in rate.group(1).split(","):
                yield _Rate(int(number), float(rate.group(2)), line_unit, kind or line_unit.lower(), source)


def _rates_in_one_line(paste: Paste) -> Iterator[_Rate]:
    """Rates of all GPUs in one line: ``TFLOP/s per rank: 0: 702, 1: 431``, ``per GPU: 702, 431 TFLOP/s``.

    Bare values are numbered from 0. Lines with one value only give nothing.
    """
    for index, line in enumerate(paste.bare):
        if not (unit := _UNIT.search(line)):
            continue
        pairs = [
            (number, float(value))
            for gpu_list, value in _NAMED.compiled.findall(line)
            for number in _gpu_numbers(gpu_list)
        ]
        if len(pairs) < 2 and not _LISTED.search(line):
            continue
        values = line.partition(":")[2]
        if len(pairs) < 2:
            pairs = [(int(number), float(value)) for number, value in _PAIRS.compiled.findall(values)]
        if len(pairs) < 2 and (items := _ITEMS.match(values)):
            pairs = [(number, float(value)) for number, value in enumerate(_BETWEEN.compiled.split(items.group(1)))]
        if len(pairs) < 2 and len(burn_rates := _BURNT.compiled.findall(line)) > 1:
            pairs = [(number, float(value)) for number, value in enumerate(burn_rates)]
        if len(pairs) > 1:
            source = paste.use(index)
            for number, value in pairs:
                yield _Rate(number, value, unit.group(1), f"line {index}", source)


def _rates_from_times(paste: Paste) -> Iterator[_Rate]:
    """Times per GPU (``step time on gpu 0,1,2: 0.41 s``) as rates, 1000 divided by the time: lower is worse."""
    for index, line in enumerate(paste.bare):
        for gpu_list, value, unit in _PER_GPU.compiled.findall(line) if _TIMES.search(line) else ():
            if float(value) > 0:
                for number in _gpu_numbers(gpu_list):
                    yield _Rate(
                        number, round(1000 / float(value), 3), f"per 1000 {unit}", f"time {unit}", paste.use(index)
                    )


def _gpu_numbers(text: str) -> Iterator[int]:
    """The GPU numbers of a list: 0, 1, 2 of ``0-2``; 0, 1, 3 of ``0, 1 and 3``."""
    for first, last, single in _RANGE.compiled.findall(text):
        yield from range(int(first), int(last) + 1) if last else (int(single),)


def _rows_against_expected(paste: Paste) -> Iterator[Row]:
    """Rows of ``rate`` for a measured rate beside an expected one, and for measured times beside expected ones.

    Of a data sheet's peak 80 % of bandwidth and 60 % of FLOPS are expected. Also the first line that compares two GPUs.
    """
    rates: dict[bool, list[tuple[float, str, int]]] = {True: [], False: []}
    memory = any("memory bandwidth" in label.name for label in paste.labels)
    for label in paste.labels:
        if rate := (_MOVED if memory else _COMPUTE).search(label.value):
            from_data_sheet = bool(_SHEET.search(label.name))
            expected = from_data_sheet or bool(_EXPECTED.search(label.name))
            if expected or _MEASURED.search(label.name):
                number = float(rate.group(1)) * (_REACHED[memory] if from_data_sheet else 1)
                rates[expected].append((round(number, 1), rate.group(2), label.index))
    if (
        len(rates[False]) == 1
        and rates[True]
        and len({unit[0].lower() for _, unit, _ in rates[True] + rates[False]}) == 1
    ):
        yield _comparison_row(paste, rates[False][0], min(rates[True]))
    for index, line in paste.having("/s", "flops"):
        if pair := _SAME_KIND.search(line[:1500]):
            source = paste.use(index)
            yield known_facts(source, value=float(pair.group(1)), unit=pair.group(2), others=float(pair.group(3)))
            break
    yield from _rows_from_expected_times(paste)


def _rows_from_expected_times(paste: Paste) -> Iterator[Row]:
    """Rows of ``rate`` for ``step time: 94 ms`` beside ``expected step time: 60 ms``, as rates: lower is worse."""
    times: dict[str, dict[bool, tuple[float, str, int]]] = {}
    for label in paste.labels:
        if time := _TIME.fullmatch(label.value):
            name, expected = _EXPECTED.compiled.subn("", label.name)
            unit = time.group(2) or ("ms" if " ms" in f" {name}" else "s" if "second" in name else "")
            if unit:
                by_kind = times.setdefault(" ".join(name.split()), {})
                by_kind.setdefault(
                    bool(expected), (round(1000 / float(time.group(1)), 3), f"per 1000 {unit}", label.index)
                )
    for pair in times.values():
        if len(pair) == 2 and pair[True][1] == pair[False][1]:
            yield _comparison_row(paste, pair[False], pair[True])


def _comparison_row(paste: Paste, measured: tuple[float, str, int], expected: tuple[float, str, int]) -> Row:
    """A row of ``rate`` without a GPU: measured and expected value; each is (number, unit, line index)."""
    source = paste.use(measured[2])
    row = known_facts(source, value=measured[0], unit=measured[1])
    return {**row, "others": Known(expected[0], paste.use(expected[2]))}


def _bandwidth_test(paste: Paste) -> Iterator[_Rate]:
    """Rates in GB/s of bandwidthTest, by direction and size, below ``Device N: name``."""
    gpu, heading = -1, ""
    for index, line in enumerate(paste.bare):
        if device := _DEVICE.match(line):
            gpu = int(device.group(1))
        elif "Bandwidth, " in line:
            heading = line.strip()
        elif gpu >= 0 and heading and (transfer := _TRANSFER.match(line)):
            kind = f"{heading} {transfer.group(1)}"
            yield _Rate(gpu, float(transfer.group(2)), "GB/s", kind, paste.use(index))


_FAR = 1e300
_WORDS = ("diff", "error", "deviation", "mismatch", "norm")
_COMPARED = Pattern(r"(?i)\b(?:diff(?:erence)?|error|deviation|mismatch|l2|norm)\b")
_LONGEST = 600
"""Characters from the end of a line in which the device and its number stand."""
_COMPARED_DEVICE = Pattern(
    r"(?i).*?\b(?:GPU|device|cuda:)\s?(\d{1,2})\b[^\w\n]{1,4}(\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]\d+|0|nan|[+-]?inf)\s*$"
)
_COMPARED_NUMBER = Pattern(
    r"(?i).*?\b(?:GPU|device|cuda:)\s?(\d{1,2})\b[^\n]*(?:[:=]|error|diff\w*|deviation)\s*(\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+|0|nan|[+-]?inf)\s*$"
)
"""As `_COMPARED_DEVICE`, for a line that itself says that it compares."""
_COUNTED = Pattern(r"(?i)\b(?:ecc|xid|counts?|correct\w*|uncorrect\w*|crc|replays?|nvlink|codes?|rate)\b")


def _deviation_rows(paste: Paste) -> Iterator[tuple[str, Rows]]:
    """A row of ``deviation`` per GPU compared with a reference, with the others' median; no rows for a single GPU."""
    if not any(word in paste.lower for word in _WORDS):
        return
    first_by_gpu: dict[int, tuple[float, str]] = {}
    for device, value, source in _deviations(paste):
        first_by_gpu.setdefault(device, (value, source))
    rows: list[Row] = []
    for device, (value, source) in first_by_gpu.items():
        if others := [other for number, (other, _) in first_by_gpu.items() if number != device]:
            rows.append(beside_others(known_facts(source, gpu=device, value=value), median(others)))
    yield "deviation", tuple(rows)


def _deviations(paste: Paste) -> Iterator[tuple[int, float, str]]:
    """GPU number, deviation and source of each line that compares, or stands below a heading that does."""
    heading = False
    for index, line in enumerate(paste.bare):
        is_comparison = bool(_COMPARED.search(line)) and not _COUNTED.search(line)
        end = line[-_LONGEST:]
        match = _COMPARED_DEVICE.match(end) or (_COMPARED_NUMBER.match(end) if is_comparison else None)
        if match and (is_comparison or heading) and (value := _finite_number(match.group(2))) is not None:
            yield int(match.group(1)), value, paste.use(index)
        elif line.strip():
            heading = is_comparison


def _finite_number(text: str) -> float | None:
    """The number, 1e300 for NaN and infinity; None for no number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else _FAR
