"""Figures of a GPU as people note them: power, clocks and link, and errors of its memory.

``sm clock: 345 MHz of 1410``, ``pcie: gen3 x4 of x16``; ``DBE count: 3``, ``rows remapped: 1, pending``, ``row
remapping: failed``.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Label, Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import yes_or_no

EXACT = 3
FACTS = ()

_WATTS = Pattern(r"(?i)(?<![\d.])(\d{1,4}(?:\.\d+)?) ?(?:W|watts?)\b")
_HERTZ = Pattern(r"(?i)(?<![\d.])(\d{1,4}(?:\.\d+)?) ?([MG])Hz\b")
_OTHER = Pattern(
    r"(?i)(?:\b(?:of|instead of|max\w*|vs|rated|default|stock|normal\w*)\b|/)[ :=(]*(?:about )?(\d{1,4}(?:\.\d+)?)\b"
)
_POWER = Pattern(r"\b(?:power|wattage|tgp|tdp)\b")
_LIMIT = Pattern(r"\b(?:limit|limited|cap|capped|tgp|tdp|budget|max|maximum)\b")
_DRAWN = Pattern(r"\b(?:draw|drawn|usage|used)\b")
_DELIVERED = Pattern(r"\b(?:default|stock|factory|delivered|rated|nominal|spec\w*)\b")
_CLOCK = Pattern(r"\b(?:clocks?|frequency)\b")
_HIGHEST = Pattern(r"\b(?:max|maximum|boost|rated|spec\w*|highest)\b")
_NOT_THE_GPU = Pattern(
    r"\b(?:cpu|memory|mem|supply|psu|state|mode|wall|socket|brake|base|video|node|system|total|locked?|application)\b"
)
_LINK = Pattern(r"\b(?:pcie?|pci express|link)\b")
_LANES = Pattern(r"(?i)\bx ?(1|2|4|8|16)\b")
_GENERATION = Pattern(r"(?i)\bgen(?:eration)? ?([1-6])\b")
_AGAINST = Pattern(r"(?i)\b(?:of|instead of|max\w*|capable(?: of)?|expected|should be|slot is|vs)\b|/")
_REASONS = {
    "sw power cap": "sw_power_cap",
    "hw slowdown": "hw_slowdown",
    "hw thermal slowdown": "hw_thermal_slowdown",
    "sw thermal slowdown": "sw_thermal_slowdown",
    "hw power brake slowdown": "hw_power_brake_slowdown",
    "hw power brake": "hw_power_brake_slowdown",
}


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """One row of ``gpu`` for memory errors, one for power, clocks, link and throttle reasons; only where noted."""
    for row in (_memory_errors(paste), _power_and_clocks(paste)):
        if row:
            yield "gpu", (row,)


def _power_and_clocks(paste: Paste) -> dict[str, Fact]:
    """The row of ``gpu`` with power, clocks, link and throttle reasons of all labels; the first of each holds.

    Labels already placed or about other parts (CPU, memory, PSU) are skipped; those used are placed.
    """
    row: dict[str, Fact] = {}
    throttle_reasons: dict[str, str] = {}
    for label in paste.labels:
        if label.index in paste.used or not label.value:
            continue
        if reason := _throttle_reason(label):
            if yes_or_no(label.value):
                throttle_reasons.setdefault(reason, paste.use(label.index))
        elif _NOT_THE_GPU.search(label.name):
            continue
        elif _LINK.search(label.name) and "nvlink" not in label.name:
            _add_numbers(row, _pcie_link(label), paste, label.index)
        elif _CLOCK.search(label.name):
            _add_numbers(row, _clocks_mhz(label), paste, label.index)
        elif _POWER.search(label.name):
            _add_numbers(row, _power_watts(label), paste, label.index)
    if throttle_reasons:
        row["throttle_reasons"] = Known(tuple(throttle_reasons), next(iter(throttle_reasons.values())))
    return row


def _throttle_reason(label: Label) -> str | None:
    """The throttle reason that the label names; None for another label."""
    name = label.name
    for before in ("clocks throttle reasons ", "clocks event reasons ", "throttle reason ", "clocks "):
        name = name.removeprefix(before)
    return _REASONS.get(name)


def _add_numbers(row: dict[str, Fact], numbers: dict[str, int], paste: Paste, index: int) -> None:
    """Set the columns in `row` that are not there yet, marking the line as placed."""
    for column, number in numbers.items():
        row.setdefault(column, Known(number, paste.use(index)))


def _clocks_mhz(label: Label) -> dict[str, int]:
    """clock_mhz, and clock_max_mhz where the note gives a higher one; only the latter of a label of the maximum.

    Empty where the value has no clock.
    """
    if not (first := _HERTZ.search(label.value)):
        return {}
    scale = 1000 if first.group(2) in "Gg" else 1
    mhz = int(float(first.group(1)) * scale)
    if _HIGHEST.search(label.name):
        return {"clock_max_mhz": mhz}
    compared = _OTHER.search(label.value[first.end() :])
    max_mhz = int(float(compared.group(1)) * (scale if float(compared.group(1)) < 10 * scale else 1)) if compared else 0
    return {"clock_mhz": mhz, **({"clock_max_mhz": max_mhz} if max_mhz > mhz else {})}


def _pcie_link(label: Label) -> dict[str, int]:
    """link_width, link_generation and the ``_max`` of each, where the note compares current and maximum; else empty."""
    comparison = _AGAINST.search(label.value)
    if not comparison:
        return {}
    current, maximum = label.value[: comparison.start()], label.value[comparison.end() :]
    row: dict[str, int] = {}
    for pattern, column in ((_LANES, "link_width"), (_GENERATION, "link_generation")):
        if (current_match := pattern.search(current)) and (maximum_match := pattern.search(maximum)):
            row |= {column: int(current_match.group(1)), f"{column}_max": int(maximum_match.group(1))}
    return row


def _power_watts(label: Label) -> dict[str, int]:
    """power_w, power_limit_w or power_limit_default_w, with the limit it is compared with where higher; else empty."""
    if not (first := _WATTS.search(label.value)):
        return {}
    watts = int(float(first.group(1)))
    compared = _OTHER.search(label.value[first.end() :])
    compared_watts = int(float(compared.group(1))) if compared else 0
    if not _LIMIT.search(label.name) or _DRAWN.search(label.name):  # also "power draw / limit: 8 W / 600 W"
        if _DELIVERED.search(label.name):
            return {"power_limit_default_w": watts}
        return {"power_w": watts, **({"power_limit_w": compared_watts} if compared_watts > watts else {})}
    if _DELIVERED.search(label.name):
        return {"power_limit_default_w": watts}
    if "max" in label.name:
        return {}
    return {"power_limit_w": watts, **({"power_limit_default_w": compared_watts} if compared_watts > watts else {})}


# ---- Memory errors ----

_ABOUT = ("ecc", "dbe", "bit", "uncorr", "remap", "retire", "page", "sram")
_UNCORRECTED = Pattern(r"\b(?:dbes?|double bits?|uncorr\w*|ecc column|ecc volatile|volatile ecc)\b")
_EVER = Pattern(
    r"\b(?:aggregate|lifetime|ever|total since|corrected by)\b|\b(?:remap\w*|retired?|retirement|rows?|sram)\b"
)
_REMAP = Pattern(r"\bremap\w*\b|\brows?\b.*\bpending\b")
_PAGES = Pattern(r"\b(?:pages?|retired?|retirements?)\b")
_NUMBER = Pattern(r"^\D{0,12}(\d{1,9})\b(?!\.\d)")
_DENIED = Pattern(r"(?i)\b(?:no|not|none|never|without|0)\b[^,;]{0,12}$")
_NO = Pattern(r"\w*\s*[:=]?\s*(?:no|none|0|false)\b")
_THRESHOLD = Pattern(
    r"(?i)\b(?:above|over|past|exceed\w*)\b[^,;]{0,16}\bthreshold\b|\bthreshold\b[^,;]{0,16}\bexceeded\b"
)


def _memory_errors(paste: Paste) -> dict[str, Fact]:
    """The row of ``gpu`` with the memory-error columns of all labels; the first of each holds, and its line is placed.

    Labels already placed and indented ones, parts of a tool's output, are skipped.
    """
    row: dict[str, Fact] = {}
    for label in paste.labels:
        if label.index in paste.used or not label.value or not any(word in label.name for word in _ABOUT):
            continue
        if paste.bare[label.index][:1].isspace():
            continue  # a part of a tool's output, whose headings say what it counts
        for column, value in _memory_columns(label):
            row.setdefault(column, Known(value, paste.use(label.index)))
    return row


def _memory_columns(label: Label) -> Iterator[tuple[str, int | bool]]:
    """Column and value of the memory errors that the label states: ECC, row remapping, page retirement."""
    name, value = label.name, label.value
    if _REMAP.search(name):
        for column, word in (("remap_pending", "pending"), ("remap_failed", "fail")):
            if (is_true := _is_stated(name, value, word)) is not None:
                yield column, is_true
    elif _PAGES.search(name) and (is_true := _is_stated(name, value, "pending")) is not None:
        yield "retired_pending", is_true
    elif "sram" in name and _THRESHOLD.search(f"{name} {value}"):
        if yes_or_no(value) is not False:
            yield "sram_threshold_exceeded", True
    elif _UNCORRECTED.search(name) and not _EVER.search(name) and (number := _NUMBER.search(value)):
        yield "ecc_uncorrected", int(number.group(1))


def _is_stated(name: str, value: str, word: str) -> bool | None:
    """Whether the label and value affirm `word`; None where they do not mention it or are unclear."""
    if word in name:
        answer = yes_or_no(value)
        number = _NUMBER.search(value)
        return answer if answer is not None else int(number.group(1)) > 0 if number else None
    low = value.lower()
    if word not in low:
        return None
    before, _, after = low.partition(word)
    return not _DENIED.search(before) and not _NO.match(after)
