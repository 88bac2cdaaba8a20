"""How a label's value is brought to its fact's form, by the name of the form in the tables of `_words`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpudoctor.model.fact import Value
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import address, dotted, driver_version, mib, release, truth, whole

_ARCHS = Pattern(r"(?:sm|compute)_\d{2,3}[af]?")
_CODES = Pattern(r"code=((?:sm|compute)_\d{2,3}[af]?)")
_NUMBER = Pattern(r"(?<![\w.])(\d+(?:\.\d+)*)")
_PROSE = Pattern(r"^\D*\b(?:unsupported|requires?|errors?|needs?|than|fail\w*|cannot|not|missing|expected|no)\b", 2)
"""Words before a number that make it something else than the version of the thing."""
_MODES = {
    "exclusive process": "Exclusive_Process",
    "exclusive thread": "Exclusive_Thread",
    "e process": "Exclusive_Process",
    "prohibited": "Prohibited",
    "default": "Default",
    "exclusive": "Exclusive_Process",
}
_REASONS = (
    ("hw thermal", "hw_thermal_slowdown"),
    ("sw thermal", "sw_thermal_slowdown"),
    ("power brake", "hw_power_brake_slowdown"),
    ("sw power cap", "sw_power_cap"),
    ("power cap", "sw_power_cap"),
    ("hw slowdown", "hw_slowdown"),
    ("sync boost", "sync_boost"),
    ("applications clocks", "applications_clocks_setting"),
    ("thermal", "hw_thermal_slowdown"),
    ("idle", "gpu_idle"),
)


def _number(text: str) -> str | None:
    match = _NUMBER.search(text)
    return match.group(1) if match else None


def _version(text: str) -> str | None:
    return None if _PROSE.search(text) else dotted(text) or _number(text)


def _release(text: str) -> str | None:
    return None if _PROSE.search(text) else release(text) or _number(text)


def _archs(text: str) -> Value:
    if flags := _CODES.compiled.findall(text):
        return tuple(dict.fromkeys(flags))
    return tuple(_ARCHS.compiled.findall(text)) or None


def _mode(text: str) -> str | None:
    words = " ".join(text.lower().replace("_", " ").replace(".", " ").split())
    return next((mode for start, mode in _MODES.items() if words.startswith(start)), None)


def _throttling(text: str) -> Value:
    words = text.lower().replace("_", " ")
    found = [name for word, name in _REASONS if word in words and not words.strip().startswith("not")]
    return tuple(dict.fromkeys(found)) or None


def _memlock(text: str) -> int | None:
    if "unlimited" in text.lower():
        return -1
    number = whole(text)
    if number is None:
        return None
    size = mib(text) if any(unit in text.lower() for unit in ("mb", "mib", "gb", "gib")) else None
    return size * 1024 if size is not None else number


def _gone(text: str) -> bool | None:
    """The other way round: whether a thing is missing."""
    answer = truth(text)
    return None if answer is None else not answer


def _count(text: str) -> int | None:
    number = whole(text)
    return number if number is None or number >= 0 else None


def _paths(text: str) -> Value:
    return tuple(word.strip(",;") for word in text.split() if word.startswith("/")) or None


def _shared(text: str) -> int | None:
    return (
        mib(text if any(unit in text.lower() for unit in "kmgt") else f"{text} MiB")
        if whole(text) is not None
        else None
    )


def _driver(text: str) -> str | None:
    branch = _number(text)
    return None if _PROSE.search(text) else driver_version(text) or (branch if branch and len(branch) == 3 else None)


def cudnn(number: int) -> str:
    """cuDNN's version from its number: 8902 is 8.9.2, 90100 is 9.1.0."""
    if number >= 90000:
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    return f"{number // 1000}.{number // 100 % 10}.{number % 100}"


def _cudnn(text: str) -> str | None:
    said = text.strip(" ()'\"").split(" ")[0]
    return cudnn(int(said)) if said.isdecimal() and 4 <= len(said) <= 6 else _version(text)


FORMS: Mapping[str, Callable[[str], Value]] = {
    "version": _version,
    "cudnn": _cudnn,
    "driver": _driver,
    "release": _release,
    "number": _number,
    "text": lambda text: text or None,
    "lower": lambda text: text.lower() or None,
    "bool": truth,
    "gone": _gone,
    "int": _count,
    "mib": _shared,
    "memlock": _memlock,
    "archs": _archs,
    "mode": _mode,
    "throttling": _throttling,
    "address": address,
    "paths": _paths,
    "path": lambda text: text.strip("[]'\" ") or None,
    "first": lambda text: text.split()[0] if text.split() else None,
}


_PLACE = Pattern(
    r" (?:(?:in|inside|within|of|for|on|at) (?:the |a |my |this )?(?:\w+ ){0,2}?\w+|value|is|env|variable)$"
)


def env_name(label: str) -> str:
    """The environment variable that the label spells: ``nvidia driver capabilities`` is NVIDIA_DRIVER_CAPABILITIES.

    Where it is set may stand behind it: ``CUDA_VISIBLE_DEVICES in the job``.
    """
    label = _PLACE.compiled.sub("", label)
    return (
        label.removeprefix("env ")
        .removeprefix("export ")
        .removeprefix("os environ ")
        .removeprefix("echo ")
        .replace(" ", "_")
        .upper()
    )
