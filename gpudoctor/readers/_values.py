"""Values as tools and people write them, brought to the form that the facts declare."""

from __future__ import annotations

import re

from gpudoctor.model.fact import Absent, Fact, Unread
from gpudoctor.readers._lists import phrases, words
from gpudoctor.readers._pattern import Pattern

_RELEASE = Pattern(r"(?<![\d.])v?(\d+\.\d+)", re.IGNORECASE)
_DOTTED = Pattern(r"(?<![\w.])v?(\d+(?:\.\d+)+(?:\.?(?:dev|post|rc|a|b)\d+)?(?:\+[\w.]+)?)", re.IGNORECASE)
_ADDRESS = Pattern(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.IGNORECASE)
_SIZE = Pattern(r"([\d.]+)\s*([kmgt]?)(i?b|bytes)?\b", re.IGNORECASE)
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
        """could not collect | n/a | na | unknown | ? | ?? | - | -- | tbd | not known | not sure | no idea | error
        | err! | [n/a] | [not supported] | not supported | unavailable | failed to collect | [unknown error] | no cuda
        | not collected | idk"""
    )
)
_YES = words("yes true on enabled present loaded installed running active 1 supported ok built exists works")
_NO = words("no false off disabled absent unloaded missing none inactive 0 unsupported stopped broken failed")
_MIB = {"": 1 / (1 << 20), "k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024}


def release(text: str) -> str | None:
    """The first two numbers of a version: 12.4 of ``V12.4.131``, 10.1 of ``10.1.243``."""
    match = _RELEASE.search(text)
    return match.group(1) if match else None


def dotted(text: str) -> str | None:
    """The first thing in the text that has the form of a version, local part included."""
    match = _DOTTED.search(text)
    return match.group(1).rstrip(".") if match else None


def driver_version(text: str) -> str | None:
    """A driver's version; of Windows' own form 31.0.15.3713 the NVIDIA driver's: 537.13. None for a CUDA version."""
    version = dotted(text)
    if version is None:
        return None
    parts = version.split(".")
    if len(parts) == 4 and len(parts[0]) == 2 and len(parts[3]) == 4:
        digits = (parts[2] + parts[3])[-5:]
        return f"{digits[:3]}.{digits[3:]}"
    return version if len(parts[0]) == 3 else None


def whole(text: str) -> int | None:
    """The first whole number in the text: 45 of ``45 C``."""
    match = _WHOLE.search(text)
    return int(match.group()) if match and len(match.group()) < 18 else None


def truth(text: str) -> bool | None:
    """Yes or no, however it is put; None where it is neither."""
    said = text.strip(" .()[]'\"").lower()
    said = re.sub(r"^(?:still|is|are|was|already|also|indeed|correctly|properly|currently|now|it is) ", "", said)
    if said.startswith(("not ", "no ")):
        return False
    first = re.split(r"[ ,;(]", said, maxsplit=1)[0]
    return True if first in _YES else False if first in _NO else None


def mib(text: str) -> int | None:
    """A size in MiB: ``24564MiB``, ``64M``, ``1.5G``, ``80 GB``; a number alone is taken as bytes."""
    match = _SIZE.search(text)
    if not match or match.group(1).count(".") > 1 or not match.group(1).strip(".") or len(match.group(1)) > 18:
        return None
    return int(float(match.group(1)) * _MIB[match.group(2).lower()])


def address(text: str) -> str | None:
    """A PCI address with a domain of four digits, in lower case: 0000:3b:00.0."""
    match = _ADDRESS.search(text)
    if not match:
        return None
    domain, bus, device, function = match.groups()
    return f"{(domain or '0000')[-4:]}:{bus}:{device}.{function or '0'}".lower()


def missing(text: str, source: str) -> Fact | None:
    """`Absent` or `Unread` where the text says so instead of giving a value; None where it gives one."""
    said = text.strip(" .'\"").lower()
    if said in _GONE:
        return Absent(f"{text.strip()} ({source})")
    if said in _UNSEEN or not said:
        return Unread(f"the report says {text.strip() or 'nothing'} ({source})")
    return None


def libcuda_kind(path: str) -> str:
    """What copy of libcuda lies at `path`: stub, compat, wsl or driver."""
    kinds = (("/stubs/", "stub"), ("compat", "compat"), ("/wsl/", "wsl"))
    return next((kind for part, kind in kinds if part in path), "driver")
