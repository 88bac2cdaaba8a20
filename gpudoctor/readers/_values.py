"""Values as tools and people write them, brought to the form that the facts declare; and words that say yes or no."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from gpudoctor.core.fact import Absent, Fact, Unread, Value
from gpudoctor.core.versions import CUDNN_WIDE, numbered
from gpudoctor.readers._pattern import Pattern, phrases, words

_RELEASE = Pattern(r"(?i)(?<![\d.])v?(\d+\.\d+)")
_DOTTED = Pattern(r"(?i)(?<![\w.])v?(\d+(?:\.\d+)+(?:\.?(?:dev|post|rc|a|b)\d+)?(?:\+[\w.]+)?)")
_ADDRESS = Pattern(r"(?i)(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?")
_SIZE = Pattern(r"(?i)([\d.]+(?:,\d+)*)\s*([kmgt]?)(i?b|bytes)?\b")
_UNIT = Pattern(r"(?i)\d\s*[kmgt](?:i?b)?\b")
_WHOLE = Pattern(r"-?\d+")

_GONE = frozenset(
    phrases(
        """absent | none | not set | unset | not installed | missing | not present | null | nil | not defined | empty
        | undefined | not found | no | does not exist | not there | not available | package not installed | <not set>
        | (not set) | (none) | (unset) | (empty) | <empty> | nothing | prints nothing | no output | (no output) | blank
        | empty string | command not found | no such file or directory | not on path"""
    )
)
_UNSEEN = frozenset(
    phrases(
        """could not collect | n/a | na | unknown | ? | ?? | - | -- | tbd | error | err! | [n/a] | [not supported]
        | not supported | unavailable | failed to collect | [unknown error] | no cuda | idk"""
    )
)
_UNSURE = frozenset(phrases("not known | not sure | no idea | not collected"))
"""What begins as a no, and is none."""
_YES = words("yes true on enabled present loaded installed running active 1 supported ok built exists works")
_NO = words("no false off disabled absent unloaded missing none inactive 0 unsupported stopped broken failed")
_MIB = {"": 1 / (1 << 20), "k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024}


def major_minor(text: str) -> str | None:
    """The first two numbers of a version: 12.4 of ``V12.4.131``, 10.1 of ``10.1.243``; None without one."""
    match = _RELEASE.search(text)
    return match.group(1) if match else None


def first_version(text: str) -> str | None:
    """The first version in the text, local part included (2.5.1+cu124); None without one."""
    match = _DOTTED.search(text)
    return match.group(1).rstrip(".") if match else None


def driver_version(text: str) -> str | None:
    """NVIDIA driver version; 537.13 for Windows' form 31.0.15.3713; None for none, CUDA's, Intel's and AMD's."""
    version = first_version(text)
    if version is None:
        return None
    parts = version.split(".")
    if len(parts) == 4 and len(parts[0]) == len(parts[2]) == 2 and len(parts[3]) == 4:
        digits = (parts[2] + parts[3])[-5:]
        return f"{digits[:3]}.{digits[3:]}"
    return version if len(parts[0]) == 3 else None


def first_integer(text: str) -> int | None:
    """The first whole number in the text: 45 of ``45 C``; None without one or beyond 17 digits."""
    match = _WHOLE.search(text)
    return int(match.group()) if match and len(match.group()) < 18 else None


def yes_or_no(text: str) -> bool | None:
    """By its first word, True for yes, enabled, loaded and the like, False for no, not, off, missing; None for anything
    else.
    """
    answer = text.strip(" .()[]'\"").lower()
    answer = re.sub(r"^(?:still|is|are|was|already|also|indeed|correctly|properly|currently|now|it is) ", "", answer)
    if answer.startswith(("not ", "no ")):
        return None if answer in _UNSURE else False
    first = re.split(r"[ ,;(]", answer, maxsplit=1)[0]
    return True if first in _YES else False if first in _NO else None


def size_mib(text: str) -> int | None:
    """A size in MiB, rounded down: ``24564MiB``, ``1.5G``, ``1,5 GB``, ``24,564 MiB``; a bare number is bytes.

    None without a number.
    """
    match = _SIZE.search(text)
    number = re.sub(r",(?=\d{3}(?!\d))", "", match.group(1)).replace(",", ".") if match else ""
    if not match or number.count(".") > 1 or not number.strip(".") or len(number) > 18:
        return None
    return int(float(number) * _MIB[match.group(2).lower()])


def normalized_pci_address(text: str) -> str | None:
    """The PCI address in the text as 0000:3b:00.0, lower case; None without one."""
    match = _ADDRESS.search(text)
    if not match:
        return None
    domain, bus, device, function = match.groups()
    return f"{(domain or '0000')[-4:]}:{bus}:{device}.{function or '0'}".lower()


def missing_fact(text: str, source: str) -> Fact | None:
    """`Absent` for words such as ``not set``, `Unread` for ``N/A`` or nothing; None where there is a value."""
    answer = text.strip(" .'\"").lower()
    if answer in _GONE:
        return Absent(f"{text.strip()} ({source})")
    if answer in _UNSEEN or answer in _UNSURE or not answer:
        return Unread(f"the report says {text.strip() or 'nothing'} ({source})")
    return None


def libcuda_kind(path: str) -> str:
    """The kind of libcuda at `path`, by its folder: stub, compat, wsl or driver."""
    kinds = (("/stubs/", "stub"), ("compat", "compat"), ("/wsl/", "wsl"))
    return next((kind for part, kind in kinds if part in path), "driver")


ARCHITECTURES = {"amd64": "x86_64", "x86-64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
"""Other names of processors' architectures, by uname's."""


# ---- The form of a label's value ----
# By the name that the form has in the tables of `notes._label_facts`.

_ARCHS = Pattern(r"(?:sm|compute)_\d{2,3}[af]?")
_CODES = Pattern(r"code=((?:sm|compute)_\d{2,3}[af]?)")
_NUMBER = Pattern(r"(?<![\w.])(\d+(?:\.\d+)*)")
_PROSE = Pattern(r"(?i)^\D*\b(?:unsupported|requires?|errors?|needs?|than|fail\w*|cannot|not|missing|expected|no)\b")
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


def _bare_number(text: str) -> str | None:
    """The first dotted number that stands alone, as text; None without one."""
    match = _NUMBER.search(text)
    return match.group(1) if match else None


def _parse_version(text: str) -> str | None:
    """A version, or a bare number; None for a sentence such as ``requires 12.1``."""
    return None if _PROSE.search(text) else first_version(text) or _bare_number(text)


def _parse_release(text: str) -> str | None:
    """The first two numbers of a version, or a bare number; None for a sentence such as ``requires 12.1``.

    CUDA's number for a release, 12060, is 12.6.
    """
    if _PROSE.search(text):
        return None
    number = _bare_number(text) or ""
    if len(number) in (4, 5) and number.isdecimal() and number.endswith("0"):
        return f"{int(number) // 1000}.{int(number) // 10 % 100}"
    return major_minor(text) or number or None


def _parse_archs(text: str) -> Value:
    """GPU architectures such as sm_90 or compute_80, from nvcc's ``code=`` flags where there are some; None without."""
    if flags := _CODES.compiled.findall(text):
        return tuple(dict.fromkeys(flags))
    return tuple(_ARCHS.compiled.findall(text)) or None


def _parse_compute_mode(text: str) -> str | None:
    """The compute mode in NVML's spelling, such as Exclusive_Process; None for another word."""
    normalized = " ".join(text.lower().replace("_", " ").replace(".", " ").split())
    return next((mode for start, mode in _MODES.items() if normalized.startswith(start)), None)


def _parse_throttle_reasons(text: str) -> Value:
    """Names of the clock-throttle reasons in the text; None for none."""
    text_words = text.lower().replace("_", " ")
    reasons = [name for word, name in _REASONS if word in text_words and not text_words.strip().startswith("not")]
    return tuple(dict.fromkeys(reasons)) or None


def _parse_memlock_kib(text: str) -> int | None:
    """Locked-memory limit in KiB, a bare number being KiB already; -1 for unlimited; None without a number."""
    if "unlimited" in text.lower():
        return -1
    number = first_integer(text)
    if number is None:
        return None
    size = size_mib(text) if any(unit in text.lower() for unit in ("mb", "mib", "gb", "gib")) else None
    return size * 1024 if size is not None else number


def _parse_missing(text: str) -> bool | None:
    """Whether the thing is missing: the opposite of `yes_or_no`; None where the text does not say."""
    answer = yes_or_no(text)
    return None if answer is None else not answer


_SHARE = Pattern(r"\s*0\.\d*[1-9]")


def _parse_count(text: str) -> int | None:
    """The first whole number, if it is not negative; else None, and for a share such as 0.7."""
    number = None if _SHARE.match(text) else first_integer(text)
    return number if number is None or number >= 0 else None


def _parse_shared_memory_mib(text: str) -> int | None:
    """A size in MiB; a bare number is MiB; None without a number."""
    return size_mib(text) if _UNIT.search(text) else first_integer(text)


def _parse_driver(text: str) -> str | None:
    """A driver version, or a branch of three digits such as 550; None for a sentence such as ``requires 550``."""
    branch = _bare_number(text)
    return None if _PROSE.search(text) else driver_version(text) or (branch if branch and len(branch) == 3 else None)


def _parse_cudnn(text: str) -> str | None:
    """cuDNN's version, from a version or from its number of 4 to 6 digits; None for neither."""
    number = text.strip(" ()'\"").split(" ")[0]
    return numbered(int(number), CUDNN_WIDE) if number.isdecimal() and 4 <= len(number) <= 6 else _parse_version(text)


FORMS: Mapping[str, Callable[[str], Value]] = {
    "version": _parse_version,
    "cudnn": _parse_cudnn,
    "driver": _parse_driver,
    "release": _parse_release,
    "number": _bare_number,
    "text": lambda text: text or None,
    "lower": lambda text: text.lower() or None,
    "bool": yes_or_no,
    "gone": _parse_missing,
    "int": _parse_count,
    "mib": _parse_shared_memory_mib,
    "memlock": _parse_memlock_kib,
    "archs": _parse_archs,
    "mode": _parse_compute_mode,
    "throttling": _parse_throttle_reasons,
    "address": normalized_pci_address,
    "paths": lambda text: tuple(word.strip(",;") for word in text.split() if word.startswith("/")) or None,
    "path": lambda text: text.strip("[]'\" ") or None,
    "first": lambda text: text.split()[0] if text.split() else None,
    "arch": lambda text: ARCHITECTURES.get(text.lower(), text) if (text := text.partition(" ")[0]) else None,
}


_PLACE = Pattern(
    r" (?:(?:in|inside|within|of|for|on|at) (?:the |a |my |this )?(?:\w+ ){0,2}?\w+|value|is|env|variable)$"
)
_SHOWN_BY = Pattern(r"^(?:env )?(?:export )?(?:os environ )?(?:echo )?")


def env_name(label: str) -> str:
    """The environment variable that a label spells: NVIDIA_DRIVER_CAPABILITIES of ``nvidia driver capabilities``.

    Words that say where it is set are dropped: ``CUDA_VISIBLE_DEVICES in the job``.
    """
    label = _PLACE.compiled.sub("", label)
    return _SHOWN_BY.compiled.sub("", label).replace(" ", "_").upper()


# ---- Whether people's words say that a thing is there and works: ``fine``, ``not there``, ``lists both GPUs`` ----

_UNWELL = Pattern(
    r"(?i)\b(?:not|cannot|can.?t|won.?t|isn.?t|doesn.?t|does ?n.t|didn.?t|wasn.?t|fails?|failed|failing|failure"
    r"|errors?|refus\w+|reject\w+"
    r"|no longer|unable|never|broken|inactive|dead|down|stopped|absent|missing|gone|empty|nothing|none|disabled"
    r"|off|false"
    r"|masked|unloaded|skipped|hangs?|crash\w*|mismatch\w*|denied|unavailable|zero|lacking|removed|uninstalled"
    r"|without)\b|^\W*no\b"
)
_WELL = Pattern(
    r"(?i)\b(?:works?|worked|working|ok|okay|fine|good|healthy|normal|loads?|loaded|running|active|present|there"
    r"|yes|true|on|enabled"
    r"|installed|built|lists?|listed|shows?|shown|sees?|succeeds?|success\w*|passes|passed|detected"
    r"|recogni[sz]ed|visible"
    r"|available|correct\w*|fixed|all (?:\w+ )?gpus?)\b"
)
_NO_FAULT = Pattern(r"(?i)\b(?:no|without(?: any)?|zero|not any) (?:errors?|problems?|issues?|faults?|failures?)\b")


_PAST = Pattern(
    r"(?i)^\W*(?:earlier|previous\w*|formerly|yesterday|last (?:week|night|month|time)|in the past|at first|once"
    r"|(?:it )?used to)"
    r"\b[^:\n]{0,30}:"
)


_RESOLVED = Pattern(
    r"(?i)(?:mismatch|error|nvml|driver|xid)\b[^\n]{0,12}\b(?:is |are |was |has |have )?(?:now |since )?"
    r"(?:gone|resolved|fixed|solved|disappear\w*|went away|cured|no longer (?:there|shown|seen|appears))\b"
)


def is_about_the_past(line: str) -> bool:
    """Whether the line says that it describes an earlier state, or a problem that is gone."""
    return bool(_PAST.match(line) or _RESOLVED.search(line))


def works(text: str) -> bool | None:
    """True where the words say that a thing works, False that it does not, None for neither.

    ``no errors`` and the like decide first, for True; then a denial wins over words that affirm.
    """
    if _NO_FAULT.search(text):
        return True
    if _UNWELL.search(text):
        return False
    return True if _WELL.search(text) else None
