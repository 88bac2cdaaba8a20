"""One file per pasted format: text in, facts out. What no reader can place is left, and counted.

`tools` holds the formats of programs, `people` the labels and figures that people note; `lines` reads all of the text.

A reader is a module with ``FACTS``, ``read(paste)`` (a generator of ``(name, fact)`` and ``(group, rows)``) and, where
its format is more or less exact than most, ``EXACT``: of two answers the one from the higher reader is taken.
"""

from __future__ import annotations

import codecs
import os
import stat
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from pathlib import PurePath
from types import ModuleType
from typing import BinaryIO

from gpudoctor.model.budget import PER_MB, READING, Budget, TooCostlyError, within_part
from gpudoctor.model.errors import DocumentError
from gpudoctor.model.fact import Fact, Known, Rows, Unread
from gpudoctor.model.parsing import parsed
from gpudoctor.model.snapshot import Snapshot, Target, from_json
from gpudoctor.readers._merge import better, joined, take
from gpudoctor.readers._paste import Paste, clean, worth_reading
from gpudoctor.readers._select import MOST_OF_A_LINE
from gpudoctor.readers.files import manifest

__all__ = ["EXACT", "LIMIT", "decode", "read_file", "read_text", "together"]

LIMIT = 32 << 20
"""Bytes of the largest file that is read whole; of a larger one only the lines worth reading are kept."""
LARGEST = 256 << 20
"""Bytes of the largest log, unpacked; more is to be cut first."""
_SECONDS_EACH = READING / 2
"""Processor time that each reader may take for one text, of what all of them may."""
_PROSE = 64 << 10
"""Characters of the longest text that is searched for what people write: as many as an issue on GitHub may have. What
is longer was written by programs."""
EXACT = 5
"""How exact a reader is that does not say: 9 prints the driver's own value, 1 is what a person wrote."""


def read_file(name: str) -> str:
    """The text of a file, or of standard input for ``-``; raises `DocumentError` saying what to do.

    Of a log longer than `LIMIT` it is the lines worth reading, each where it stood: the others are empty.
    """
    try:
        found = pieces(name)
        head = b""
        for piece in found:
            head = head + piece if head else piece
            if len(head) > LIMIT:
                return _long_log(chain((head,), found), name)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise DocumentError(
            f"{clean(name)}: {why}; give a text file that you can read, or - for standard input"
        ) from error
    except zlib.error as error:
        raise _broken_gzip(clean(name), error) from error
    return decode(head, name)


def decode(raw: bytes, name: str) -> str:
    """The text in `raw`: UTF-8, UTF-16 or Windows-1252, unzipped; raises `DocumentError` for what is no text."""
    name = clean(name)
    if raw.startswith(b"\x1f\x8b") and len(raw) <= LIMIT:
        try:
            raw = zlib.decompressobj(wbits=31).decompress(raw, LIMIT + 1)
        except zlib.error as error:
            raise _broken_gzip(name, error) from error
    if len(raw) > LIMIT:
        raise _too_large(name, LIMIT)
    text = _text(raw, name)
    if not text.strip("\0 \t\r\n\v\f\ufeff"):
        raise DocumentError(f"{name}: empty; paste the report into it first")
    return text


def _broken_gzip(name: str, error: zlib.error) -> DocumentError:
    return DocumentError(f"{name}: broken gzip file ({error}); copy it again, or unpack it with gzip -d")


def _too_large(name: str, limit: int) -> DocumentError:
    return DocumentError(
        f"{name}: larger than {limit >> 20} MB; cut it first: grep -E 'NVRM|Xid|NCCL|CUDA|Error' {name} | tail -n 5000"
    )


def _long_log(found: Iterator[bytes], name: str) -> str:
    """The lines worth reading of a log, which is read a piece at a time; no document of ours is as large."""
    name = clean(name)
    kept: list[str] = []
    open_line = ""
    size = room = 0
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in found:
        if not size and '"schema"' in _text(piece[:65536], name):
            raise _too_large(name, LIMIT)
        size += len(piece)
        if size > LARGEST:
            raise _too_large(name, LARGEST)
        text = open_line + decoder.decode(piece)
        end = text.rfind("\n") + 1
        if end:
            kept.append(worth_reading(text[:end]))
            room += len(kept[-1])
        open_line = text[end : end + MOST_OF_A_LINE]
        if room > LIMIT:
            raise _too_large(name, LIMIT)
    return "".join(kept) + open_line


def _text(raw: bytes, name: str) -> str:
    head = raw[:65536]
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    if head[1::2].count(0) > len(head) // 3 and not head[::2].count(0):
        return raw.decode("utf-16-le", "replace")
    if not raw.strip(b"\0 \t\r\n\v\f"):
        return ""
    if b"\0" in head or sum(byte < 9 or 13 < byte < 27 for byte in head) > len(head) // 20:
        raise DocumentError(f"{name}: binary, not text; give the report or log itself")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("utf-8", "replace")
        return text if text.count("\ufffd") < 100 else raw.decode("cp1252", "replace")


def read_text(text: str, name: str = "report") -> Snapshot:
    """A saved snapshot or diagnosis as it was, a manifest, or a pasted report as far as its formats are known."""
    if text.lstrip("\ufeff \t\r\n").startswith("{") and '"schema"' in text:
        return saved(text, clean(name))
    return manifest(text, clean(name)) or _pasted(text, clean(name))


def _pasted(text: str, name: str) -> Snapshot:
    facts: dict[str, Fact] = {}
    groups: dict[str, Rows] = {}
    trouble: list[str] = []
    every = Budget(READING + PER_MB * len(text) / 1e6)
    every.start()
    paste = Paste(text)
    every.stop()
    for module in every_reader():
        reader = module.__name__.removeprefix("gpudoctor.readers.")
        if reader.startswith("people.") and reader != "people.labels" and len(paste.text) > _PROSE:
            continue
        try:
            entries = _entries(module, paste, None if reader == "lines" else every)
            for key, entry in entries:
                take(facts, groups, key, entry)
        except TooCostlyError as error:
            trouble.append(f"{reader.rpartition('.')[2]}: {error}")
        except Exception as error:
            trouble.append(f"{reader.rpartition('.')[2]}: {type(error).__name__}: {clean(str(error))}"[:200])
    if trouble:
        facts["report.trouble"] = Known(tuple(trouble), "the readers")
    facts["report.lines"] = Known(paste.total, "the paste")
    facts["report.placed"] = Known(len(paste.used), "the paste")
    return Snapshot(Target("report", name), facts, groups)


def _entries(reader: ModuleType, paste: Paste, budget: Budget | None) -> list[tuple[str, Fact | Rows]]:
    """What the reader finds: all or nothing, for half a list of GPUs would be a wrong one."""
    if budget is None:
        return list(reader.read(paste))
    return within_part(budget, _SECONDS_EACH, lambda: list(reader.read(paste)))


@lru_cache(maxsize=1)
def every_reader() -> tuple[ModuleType, ...]:
    """The readers, the most exact first."""
    from gpudoctor import readers
    from gpudoctor.discovery import modules_of
    from gpudoctor.readers import people, tools

    found = [module for package in (readers, people, tools) for module in modules_of(package)]
    return tuple(sorted(found, key=lambda module: (-getattr(module, "EXACT", EXACT), module.__name__.split(".")[-1])))


# ---- Documents that we wrote ourselves ----
# Strict JSON in, a snapshot out, and one line of error for anything else.


def saved(text: str, name: str) -> Snapshot:
    """The snapshot in `text`; raises `DocumentError`, which names the file as `name`."""
    try:
        return from_json(parsed(text))
    except DocumentError as error:
        raise DocumentError(f"{name}: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DocumentError(f"{name}: not a whole snapshot ({error}); save it again with gpudoctor snapshot") from error


# ---- The bytes of a file, a pipe or standard input, piece by piece, unpacked where they are gzipped ----

PIECE = 8 << 20
"""Bytes of one piece at most."""
_GZIP = b"\x1f\x8b"
_PATIENCE = 5.0
"""Seconds to wait until somebody opens the other end of a named pipe."""
_TICK = 0.05


def pieces(name: str) -> Iterator[bytes]:
    """What the file holds, or standard input for ``-``; raises `OSError` and `zlib.error`.

    A named pipe that nobody writes into is empty, not waited for forever.
    """
    packed = _packed(name)
    first = next(packed, b"")
    if not first.startswith(_GZIP):
        yield first
        yield from packed
        return
    unpacking = zlib.decompressobj(wbits=31)
    for piece in (first, *packed):
        rest = piece
        while rest:
            yield unpacking.decompress(rest, PIECE)
            rest = unpacking.unconsumed_tail


def _packed(name: str) -> Iterator[bytes]:
    if name == "-":
        yield from _read(sys.stdin.buffer)
        return
    with open(name, "rb", opener=_at_once) as file:
        descriptor = file.fileno()
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            first = _first(descriptor)
            if not first:
                return
            yield first
        os.set_blocking(descriptor, True)
        yield from _read(file)


def _read(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece


def _at_once(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK)


def _first(descriptor: int) -> bytes:
    """What the pipe holds when its first writer has come; empty where none came in time, or said nothing."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        try:
            if data := os.read(descriptor, 65536):
                return data
        except BlockingIOError:  # a writer is there and thinks
            os.set_blocking(descriptor, True)
            return os.read(descriptor, 65536)
        time.sleep(_TICK)
    return b""


# ---- Several pastes of one machine as one ----
# What the second tells is added to the first, and wins where they clash.

_ADDED = ("report.lines", "report.placed")
_MOST_CLASHES = 5


def together(snapshots: Sequence[Snapshot]) -> Snapshot:
    """One snapshot of one machine out of several, the earliest first; every source names the file it came from.

    Of two answers to one question the later one is taken, and ``report.clashes`` says so.
    """
    told = [_named(snapshot) for snapshot in snapshots]
    facts: dict[str, Fact] = {}
    for snapshot in reversed(told):  # the first answer is kept: that of the latest file
        for name, fact in snapshot.facts.items():
            facts[name] = better(facts.get(name), fact)
    facts.update(_sums(told))
    if clashes := tuple(_clashes(told, facts)):
        facts["report.clashes"] = Known(clashes, "the files")
    return Snapshot(_target(snapshots), facts, _groups(told))


def _groups(told: Sequence[Snapshot]) -> dict[str, Rows]:
    """Lines of text one file after the other, as they were printed; a GPU's newest answers before the older ones."""
    groups: dict[str, Rows] = {}
    for group in dict.fromkeys(group for snapshot in told for group in snapshot.groups):
        for snapshot in reversed(told) if group == "gpu" else told:
            rows, others = groups.get(group), snapshot.rows(group)
            if group == "text" and isinstance(rows, tuple) and isinstance(others, tuple):
                groups[group] = (*rows, *others)
            else:
                groups[group] = joined(rows, others, group)
    return groups


def _target(snapshots: Sequence[Snapshot]) -> Target:
    """A report where all are; with a saved snapshot among them that one's interpreter and level."""
    name = " + ".join(snapshot.target.name for snapshot in snapshots)
    main = next((snapshot.target for snapshot in snapshots if snapshot.target.kind != "report"), snapshots[0].target)
    return replace(main, name=name)


def _named(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the file's name before each source: ``a.txt, line 12``."""
    name = snapshot.target.name
    facts = {key: _sourced(fact, name) for key, fact in snapshot.facts.items()}
    groups: dict[str, Rows] = {}
    for group, rows in snapshot.groups.items():
        if isinstance(rows, tuple):
            groups[group] = tuple({key: _sourced(fact, name) for key, fact in row.items()} for row in rows)
        else:
            groups[group] = rows
    return replace(snapshot, facts=facts, groups=groups)


def _sourced(fact: Fact, name: str) -> Fact:
    if not isinstance(fact, Known) or fact.source.startswith((name, PurePath(name).name)):
        return fact
    return replace(fact, source=f"{name}, {fact.source}")


def _sums(snapshots: Sequence[Snapshot]) -> Mapping[str, Fact]:
    """Lines read and lines understood, of all files."""
    sums: dict[str, Fact] = {}
    for name in _ADDED:
        counts = [fact.value for snapshot in snapshots if isinstance(fact := snapshot.get(name), Known)]
        if counts:
            sums[name] = Known(sum(count for count in counts if isinstance(count, int)), "the files")
    return sums


def _clashes(snapshots: Sequence[Snapshot], taken: Mapping[str, Fact]) -> Iterator[str]:
    """Facts to which two files give answers that cannot both hold, in words; no more than a reader can take in."""
    told_of = (name for snapshot in snapshots for name in snapshot.facts)
    names = dict.fromkeys(name for name in told_of if not name.startswith(("report.", "manifest.")))
    told = 0
    for name in names:
        answers = [fact for snapshot in snapshots if not isinstance(fact := snapshot.get(name), Unread)]
        if len({_said(fact) for fact in answers if not _agrees(fact, taken[name])} | {_said(taken[name])}) > 1:
            told += 1
            if told <= _MOST_CLASHES:
                *_, last = answers
                yield f"{name}: {' and then '.join(_said(fact) for fact in answers)}; {_said(last)} is taken"
    if told > _MOST_CLASHES:
        yield f"and {told - _MOST_CLASHES} more"


def _agrees(fact: Fact, taken: Fact) -> bool:
    return better(taken, fact) is fact or better(fact, taken) is taken or _said(fact) == _said(taken)


def _said(fact: Fact) -> str:
    return str(fact.value) if isinstance(fact, Known) else "none"
