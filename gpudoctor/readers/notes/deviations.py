"""Results of each GPU held against a reference: ``max abs difference to the CPU``, a number per device."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from statistics import median

from gpudoctor.core.catalog import column
from gpudoctor.core.fact import Fact, Known, Row, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

FACTS = (
    column("deviation.gpu", "int", "number of the GPU whose result was compared with a reference"),
    column("deviation.value", "float", "how far off it is; 1e300 for NaN and infinity"),
    column("deviation.others", "float", "the median of the same number on the other GPUs"),
)

_FAR = 1e300
_WORDS = ("diff", "error", "deviation", "mismatch", "norm")
_COMPARED = Pattern(r"\b(?:diff(?:erence)?|error|deviation|mismatch|l2|norm)\b", 2)
_LONGEST = 600
"""Characters from the end of a line in which the device and its number stand."""
_DEVICE = Pattern(
    r".*?\b(?:GPU|device|cuda:)\s?(\d{1,2})\b[^\w\n]{1,4}(\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]\d+|0|nan|[+-]?inf)\s*$", 2
)
_TOLD = Pattern(
    r".*?\b(?:GPU|device|cuda:)\s?(\d{1,2})\b[^\n]*(?:[:=]|error|diff\w*|deviation)\s*(\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+|0|nan|[+-]?inf)\s*$",
    2,
)
"""As `_DEVICE`, for a line that itself says that it compares."""
_COUNTED = Pattern(r"\b(?:ecc|xid|counts?|correct\w*|uncorrect\w*|crc|replays?|nvlink|codes?|rate)\b", 2)


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """A row of ``deviation`` for each GPU compared with a reference, with the others' median; none for a single GPU."""
    if not any(word in paste.lower for word in _WORDS):
        return
    first_by_gpu: dict[int, tuple[float, str]] = {}
    for device, value, source in _deviations(paste):
        first_by_gpu.setdefault(device, (value, source))
    rows: list[Row] = []
    for device, (value, source) in first_by_gpu.items():
        if others := [other for number, (other, _) in first_by_gpu.items() if number != device]:
            rows.append(
                {
                    "gpu": Known(device, source),
                    "value": Known(value, source),
                    "others": Known(median(others), "the other GPUs of the report"),
                }
            )
    yield "deviation", tuple(rows)


def _deviations(paste: Paste) -> Iterator[tuple[int, float, str]]:
    """GPU number, deviation and source of each line that compares, or stands below a heading that does."""
    heading = False
    for index, line in enumerate(paste.bare):
        is_comparison = bool(_COMPARED.search(line)) and not _COUNTED.search(line)
        end = line[-_LONGEST:]
        match = _DEVICE.match(end) or (_TOLD.match(end) if is_comparison else None)
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
