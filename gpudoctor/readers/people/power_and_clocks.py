"""Power, clocks and link as people note them: ``sm clock: 345 MHz of 1410``, ``pcie: gen3 x4 of x16``."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._labels import Label
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import truth

EXACT = 3
FACTS = ()

_WATTS = Pattern(r"(?<![\d.])(\d{1,4}(?:\.\d+)?) ?(?:W|watts?)\b", 2)
_HERTZ = Pattern(r"(?<![\d.])(\d{1,4}(?:\.\d+)?) ?([MG])Hz\b", 2)
_OTHER = Pattern(
    r"(?:\b(?:of|instead of|max\w*|vs|rated|default|stock|normal\w*)\b|/)[ :=(]*(?:about )?(\d{1,4}(?:\.\d+)?)\b",
    2,
)
_POWER = Pattern(r"\b(?:power|wattage|tgp|tdp)\b")
_LIMIT = Pattern(r"\b(?:limit|limited|cap|capped|tgp|tdp|budget|max|maximum)\b")
_DELIVERED = Pattern(r"\b(?:default|stock|factory|delivered|rated|nominal|spec\w*)\b")
_CLOCK = Pattern(r"\b(?:clocks?|frequency)\b")
_HIGHEST = Pattern(r"\b(?:max|maximum|boost|rated|spec\w*|highest)\b")
_NOT_THE_GPU = Pattern(
    r"\b(?:cpu|memory|mem|supply|psu|state|mode|wall|socket|brake|base|video|node|system|total|locked?|application)\b"
)
_LINK = Pattern(r"\b(?:pcie?|pci express|link)\b")
_LANES = Pattern(r"\bx ?(1|2|4|8|16)\b", 2)
_GENERATION = Pattern(r"\bgen(?:eration)? ?([1-6])\b", 2)
_AGAINST = Pattern(r"\b(?:of|instead of|max\w*|capable(?: of)?|expected|should be|slot is|vs)\b|/", 2)
_REASONS = {
    "sw power cap": "sw_power_cap",
    "hw slowdown": "hw_slowdown",
    "hw thermal slowdown": "hw_thermal_slowdown",
    "sw thermal slowdown": "sw_thermal_slowdown",
    "hw power brake slowdown": "hw_power_brake_slowdown",
    "hw power brake": "hw_power_brake_slowdown",
}


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """One row of ``gpu`` with what the notes say of power, clocks and what holds them."""
    row: dict[str, Fact] = {}
    held: dict[str, str] = {}
    for label in paste.labels:
        if label.index in paste.used or not label.value:
            continue
        if reason := _reason(label):
            if truth(label.value):
                held.setdefault(reason, paste.use(label.index))
        elif _NOT_THE_GPU.search(label.name):
            continue
        elif _LINK.search(label.name) and "nvlink" not in label.name:
            _add(row, _link(label), paste, label.index)
        elif _CLOCK.search(label.name):
            _add(row, _clocks(label), paste, label.index)
        elif _POWER.search(label.name):
            _add(row, _power(label), paste, label.index)
    if held:
        row["throttle_reasons"] = Known(tuple(held), next(iter(held.values())))
    if row:
        yield "gpu", (row,)


def _reason(label: Label) -> str | None:
    name = label.name
    for before in ("clocks throttle reasons ", "clocks event reasons ", "throttle reason ", "clocks "):
        name = name.removeprefix(before)
    return _REASONS.get(name)


def _add(row: dict[str, Fact], numbers: dict[str, int], paste: Paste, index: int) -> None:
    for column, number in numbers.items():
        row.setdefault(column, Known(number, paste.use(index)))


def _clocks(label: Label) -> dict[str, int]:
    """The clock and, where the note holds it against another, the highest one; in MHz."""
    if not (first := _HERTZ.search(label.value)):
        return {}
    scale = 1000 if first.group(2) in "Gg" else 1
    clock = int(float(first.group(1)) * scale)
    if _HIGHEST.search(label.name):
        return {"clock_max_mhz": clock}
    other = _OTHER.search(label.value[first.end() :])
    highest = int(float(other.group(1)) * (scale if float(other.group(1)) < 10 * scale else 1)) if other else 0
    return {"clock_mhz": clock, **({"clock_max_mhz": highest} if highest > clock else {})}


def _link(label: Label) -> dict[str, int]:
    """Lanes and generation, where the note holds them against what they should be."""
    against = _AGAINST.search(label.value)
    if not against:
        return {}
    now, most = label.value[: against.start()], label.value[against.end() :]
    row: dict[str, int] = {}
    for pattern, column in ((_LANES, "link_width"), (_GENERATION, "link_generation")):
        if (one := pattern.search(now)) and (other := pattern.search(most)):
            row |= {column: int(one.group(1)), f"{column}_max": int(other.group(1))}
    return row


def _power(label: Label) -> dict[str, int]:
    """The power drawn or allowed and, where the note holds it against another, that one; in watts."""
    if not (first := _WATTS.search(label.value)):
        return {}
    watts = int(float(first.group(1)))
    other = _OTHER.search(label.value[first.end() :])
    more = int(float(other.group(1))) if other else 0
    if not _LIMIT.search(label.name):
        if _DELIVERED.search(label.name):
            return {"power_limit_default_w": watts}
        return {"power_w": watts, **({"power_limit_w": more} if more > watts else {})}
    if _DELIVERED.search(label.name):
        return {"power_limit_default_w": watts}
    if "max" in label.name:
        return {}
    return {"power_limit_w": watts, **({"power_limit_default_w": more} if more > watts else {})}
