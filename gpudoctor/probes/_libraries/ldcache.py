"""Where glibc's loader finds a library by name alone: ``/etc/ld.so.cache``, read directly, then its built-in folders.

The file, as glibc 2.32 and newer write it: ``glibc-ld.so.cache1.1``, number of entries u32, length of the text u32,
28 bytes more, then per entry flags i32, name offset u32, path offset u32, OS version u32, hardware capabilities u64. An
older ldconfig puts ``ld.so-1.7.0`` with 12-byte entries before it; offsets count from the newer header.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from gpudoctor.model.frozen import frozen
from gpudoctor.target import Target

_PATH = "/etc/ld.so.cache"
_OLD, _NEW = b"ld.so-1.7.0\0", b"glibc-ld.so.cache1.1"
_LIMIT = 1 << 24
_ENTRY = struct.Struct("<iIIIQ")
_64_BIT = frozenset({0x0300, 0x0500, 0x0A00, 0x1000})
"""The flags' high byte of 64-bit x86, POWER, Arm and RISC-V."""

DEFAULT = ("/lib/{triplet}", "/usr/lib/{triplet}", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
_TRIPLETS = ("x86_64-linux-gnu", "aarch64-linux-gnu")


@frozen
class Cache:
    """Library name to path, the first entry of each name; `trouble` where the file could not be read."""

    paths: Mapping[str, str]
    trouble: str = ""


def read_cache(target: Target) -> Cache:
    """The cache; empty with the reason where there is none or it is not understood."""
    try:
        raw = target.read_bytes(_PATH, _LIMIT)
    except FileNotFoundError:
        return Cache({})
    except OSError as error:
        return Cache({}, f"{_PATH} could not be read: {error.strerror or error}")
    try:
        return Cache(parse_cache(raw))
    except (ValueError, struct.error) as error:
        return Cache({}, f"{_PATH}: {error}")


def parse_cache(raw: bytes) -> dict[str, str]:
    """Names to paths; raises `ValueError` or `struct.error` for what is no such file."""
    start = 0
    if raw.startswith(_OLD):
        (number,) = struct.unpack_from("<I", raw, len(_OLD))
        start = (len(_OLD) + 4 + 12 * number + 7) // 8 * 8
    if raw[start : start + len(_NEW)] != _NEW:
        raise ValueError("not a cache that glibc 2.x writes")
    number, length = struct.unpack_from("<II", raw, start + 20)
    at = start + 48
    if at + number * _ENTRY.size + length > len(raw):
        raise ValueError("it is cut short")
    found: dict[str, str] = {}
    for flags, name, path, _, hardware in _ENTRY.iter_unpack(raw[at : at + number * _ENTRY.size]):
        if flags & 0xFF == 3 and flags & 0xFF00 in _64_BIT and not hardware:
            found.setdefault(_text(raw, start + name), _text(raw, start + path))
    return found


def default_folders(target: Target) -> tuple[str, ...]:
    """The loader's built-in folders that are there."""
    names = [folder.format(triplet=triplet) for folder in DEFAULT[:2] for triplet in _TRIPLETS] + list(DEFAULT[2:])
    return tuple(name for name in names if target.exists(name))


def _text(raw: bytes, at: int) -> str:
    end = raw.find(b"\0", at)
    if not 0 <= at < len(raw) or end < 0:
        raise ValueError("an entry points outside it")
    return raw[at:end].decode("utf-8", "replace")
