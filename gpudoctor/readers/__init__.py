"""One file per pasted format: text in, facts out. What no reader can place is left, and counted.

`tools` holds the formats of programs, `notes` the labels and figures that people note; `lines` reads all of the text.

A reader is a module with ``FACTS``, ``read(paste)`` (a generator of ``(name, fact)`` and ``(group, rows)``) and, where
its format is more or less exact than most, ``EXACT``: of two answers the one from the higher reader is taken.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import PurePath
from types import ModuleType
from typing import BinaryIO

from gpudoctor.core import system
from gpudoctor.core.document import parse_json
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Fact, Known, Rows, Unread, known, text_of
from gpudoctor.core.frozen import replace
from gpudoctor.core.language import say
from gpudoctor.core.pattern import READING_SECONDS, SECONDS_PER_MB, Budget, TooCostlyError, within_part
from gpudoctor.core.shipped import modules_of
from gpudoctor.core.snapshot import Snapshot, Target, from_json
from gpudoctor.readers import notes, tools
from gpudoctor.readers._merge import better_fact, merge_entry, merged_rows
from gpudoctor.readers._paste import Paste, clean, worth_reading
from gpudoctor.readers._pattern import LONGEST_LINE
from gpudoctor.readers.files import manifest

__all__ = ["EXACT", "decode", "merge_snapshots", "read_file", "read_report", "read_text"]

WHOLE_FILE_BYTES = 32 << 20
"""Bytes of the largest file that is read whole; of a larger one only the lines worth reading are kept."""
LARGEST_LOG_BYTES = 256 << 20
"""Bytes of the largest log, unpacked; more is to be cut first."""
_SECONDS_EACH = READING_SECONDS / 2
"""Processor time that each reader may take for one text, of what all of them may."""
_LONGEST_PROSE = 64 << 10
"""Characters of the longest text that is searched for what people write: as many as an issue on GitHub may have. What
is longer was written by programs."""
_HOLE = re.compile(rb"\0{16,}")
"""What a log has in place of what was cut from its start while a program went on writing to it."""
EXACT = 5
"""How exact a reader is that does not say: 9 prints the driver's own value, 1 is what a person wrote."""


def read_file(name: str) -> str:
    """The text of a file, or of standard input for ``-``; raises `DocumentError` saying what to do.

    Of a log longer than `WHOLE_FILE_BYTES` only the lines worth reading are kept, at their numbers; others are empty.
    """
    try:
        chunks = read_in_pieces(name)
        head = b""
        for piece in chunks:
            head = head + piece if head else piece
            if len(head) > WHOLE_FILE_BYTES:
                return _lines_worth_reading(chain((head,), chunks), name)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise DocumentError(
            say("{name}: {why}; give a text file that you can read, or - for standard input", name=clean(name), why=why)
        ) from error
    except zlib.error as error:
        raise DocumentError(
            say(
                "{name}: broken gzip file ({error}); copy it again, or unpack it with gzip -d",
                name=clean(name),
                error=error,
            )
        ) from error
    return decode(head, name)


def decode(raw: bytes, name: str) -> str:
    """The text in `raw` bytes: UTF-8, UTF-16 or Windows-1252; raises `DocumentError` for binary or empty.

    `name` is the file's name for the error; more than `WHOLE_FILE_BYTES` bytes raise as well.
    """
    name = clean(name)
    if len(raw) > WHOLE_FILE_BYTES:
        raise _too_large(name, WHOLE_FILE_BYTES)
    text = _decoded(raw, name)
    if not text.strip("\0 \t\r\n\v\f\ufeff"):
        raise DocumentError(say("{name}: empty; paste the report into it first", name=name))
    return text


def _too_large(name: str, limit: int) -> DocumentError:
    """The error for a file larger than `limit` bytes, with a command that cuts it."""
    sentence = "{name}: larger than {size} MB; cut it first: grep -E 'NVRM|Xid|NCCL|CUDA|Error' {name} | tail -n 5000"
    return DocumentError(say(sentence, name=name, size=limit >> 20))


def _lines_worth_reading(chunks: Iterator[bytes], name: str) -> str:
    """The log's lines worth reading, the others empty; raises `DocumentError` for binary, a saved snapshot, or a log
    that is too large.
    """
    name = clean(name)
    kept_lines: list[str] = []
    open_line = ""
    size = kept_size = 0
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in chunks:
        if not size and '"schema"' in _decoded(piece[:65536], name):
            raise _too_large(name, WHOLE_FILE_BYTES)
        size += len(piece)
        if size > LARGEST_LOG_BYTES:
            raise _too_large(name, LARGEST_LOG_BYTES)
        text = open_line + decoder.decode(piece)
        end = text.rfind("\n") + 1
        if end:
            kept_lines.append(worth_reading(text[:end]))
            kept_size += len(kept_lines[-1])
        open_line = text[end : end + LONGEST_LINE]
        if kept_size > WHOLE_FILE_BYTES:
            raise _too_large(name, WHOLE_FILE_BYTES)
    return "".join(kept_lines) + open_line


def _decoded(raw: bytes, name: str) -> str:
    """The bytes as text by their apparent encoding, empty if all are blank or 0; raises `DocumentError` for binary.

    UTF-8, UTF-16 with or without mark, else Windows-1252 if very much of it is not UTF-8. Holes of a log are left out.
    """
    raw = _HOLE.sub(b"", raw)
    head = raw[:65536]
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    if head[1::2].count(0) > len(head) // 3 and not head[::2].count(0):
        return raw.decode("utf-16-le", "replace")
    if not raw.strip(b"\0 \t\r\n\v\f"):
        return ""
    if b"\0" in head or sum(byte < 9 or 13 < byte < 27 for byte in head) > len(head) // 20:
        raise DocumentError(say("{name}: binary, not text; give the report or log itself", name=name))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("utf-8", "replace")
        return text if text.count("\ufffd") < 100 else raw.decode("cp1252", "replace")


def read_text(text: str, name: str = "report") -> Snapshot:
    """The snapshot in a text: a saved snapshot or diagnosis, a manifest, or a pasted report.

    `name` is the file's name for sources and errors. Raises `DocumentError` for a broken snapshot or manifest; a report
    is read as far as its formats are known.
    """
    if text.lstrip("\ufeff \t\r\n").startswith("{") and '"schema"' in text:
        return parse_snapshot(text, clean(name))
    return manifest(text, clean(name)) or read_report(text, clean(name))


def read_report(text: str, name: str) -> Snapshot:
    """The snapshot of all facts that the readers find in a pasted report, with the numbers of its non-blank and of its
    placed lines.

    Readers that fail or take too long are listed in ``report.trouble`` and give nothing. In a text of more than 64 Ki
    characters only the labels of people's notes are searched for.
    """
    facts: dict[str, Fact] = {}
    groups: dict[str, Rows] = {}
    trouble: list[str] = []
    budget = Budget(READING_SECONDS + SECONDS_PER_MB * len(text) / 1e6)
    budget.start()
    paste = Paste(text)
    budget.stop()
    for module in readers_by_exactness():
        reader = module.__name__.removeprefix("gpudoctor.readers.")
        if reader.startswith("notes.") and reader != "notes.labels" and len(paste.text) > _LONGEST_PROSE:
            continue
        try:
            for key, entry in _run_reader(module, paste, None if reader == "lines" else budget):
                merge_entry(facts, groups, key, entry)
        except TooCostlyError as error:
            trouble.append(f"{reader.rpartition('.')[2]}: {error}")
        except Exception as error:
            trouble.append(f"{reader.rpartition('.')[2]}: {type(error).__name__}: {clean(str(error))}"[:200])
    if trouble:
        facts["report.trouble"] = Known(tuple(trouble), "the readers")
    facts["report.lines"] = Known(paste.total, "the paste")
    facts["report.placed"] = Known(len(paste.used), "the paste")
    return Snapshot(Target("report", name), facts, groups)


def _run_reader(reader: ModuleType, paste: Paste, budget: Budget | None) -> list[tuple[str, Fact | Rows]]:
    """All that the reader finds in the paste; raises `TooCostlyError` beyond its share of the budget (None: no limit).

    All or nothing: half a list of GPUs would be wrong.
    """
    if budget is None:
        return list(reader.read(paste))
    return within_part(budget, _SECONDS_EACH, lambda: list(reader.read(paste)))


@lru_cache(maxsize=1)
def readers_by_exactness() -> tuple[ModuleType, ...]:
    """All reader modules, the most exact first, then by name."""
    modules = [module for package in (sys.modules[__name__], notes, tools) for module in modules_of(package)]
    return tuple(sorted(modules, key=lambda module: (-getattr(module, "EXACT", EXACT), module.__name__.split(".")[-1])))


# ---- Documents that we wrote ourselves ----
# Strict JSON in, a snapshot out, and one line of error for anything else.


def parse_snapshot(text: str, name: str) -> Snapshot:
    """The snapshot in a snapshot's or diagnosis' JSON `text`; raises `DocumentError` that names the file as `name`."""
    try:
        return from_json(parse_json(text))
    except DocumentError as error:
        raise DocumentError(f"{name}: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DocumentError(
            say("{name}: not a whole snapshot ({error}); save it again with gpudoctor snapshot", name=name, error=error)
        ) from error


# ---- The bytes of a file, a pipe or standard input, piece by piece, unpacked where they are gzipped ----

PIECE_BYTES = 8 << 20
"""Bytes of one piece at most."""
_GZIP = b"\x1f\x8b"
_PIPE_SECONDS = 5.0
"""Seconds to wait until somebody opens the other end of a named pipe."""
_TICK_SECONDS = 0.05


def read_in_pieces(name: str) -> Iterator[bytes]:
    """The bytes of the file, or of standard input for ``-``, in pieces of at most 8 MiB, gunzipped.

    A named pipe without a writer is given up after 5 s and empty. Raises `OSError` and `zlib.error`.
    """
    raw_pieces = _raw_pieces(name)
    first = next(raw_pieces, b"")
    if not first.startswith(_GZIP):
        yield first
        yield from raw_pieces
        return
    unpacking = zlib.decompressobj(wbits=31)
    for piece in chain((first,), raw_pieces):
        compressed = piece
        while compressed:
            yield unpacking.decompress(compressed, PIECE_BYTES)
            compressed = unpacking.unconsumed_tail
            if unpacking.eof and unpacking.unused_data.startswith(_GZIP):  # logs that were joined
                compressed = unpacking.unused_data
                unpacking = zlib.decompressobj(wbits=31)


def _raw_pieces(name: str) -> Iterator[bytes]:
    """The bytes of the file, pipe or standard input in pieces, not unpacked; raises `OSError`.

    Nothing of a named pipe without a writer.
    """
    if name == "-":
        yield from _chunks(sys.stdin.buffer)
        return
    with open(name, "rb", opener=_open_nonblocking) as file:
        descriptor = file.fileno()
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            first = _first_bytes(descriptor)
            if not first:
                return
            yield first
        system.set_blocking(descriptor)
        yield from _chunks(file)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    """The rest of an open binary file in pieces of at most 8 MiB."""
    while piece := file.read(PIECE_BYTES):
        yield piece


def _open_nonblocking(name: str, flags: int) -> int:
    """An opener for `open` that does not wait for a named pipe's writer; returns the file descriptor."""
    return os.open(name, flags | system.NON_BLOCKING)


def _first_bytes(descriptor: int) -> bytes:
    """The first bytes written into a named pipe; empty where no writer came within 5 s or it wrote nothing.

    Once a writer is there, its first bytes are waited for without limit.
    """
    end = time.monotonic() + _PIPE_SECONDS
    while time.monotonic() < end:
        try:
            if data := os.read(descriptor, 65536):
                return data
        except BlockingIOError:  # a writer is there and thinks
            system.set_blocking(descriptor)
            return os.read(descriptor, 65536)
        time.sleep(_TICK_SECONDS)
    return b""


# ---- Several pastes of one machine as one ----
# What the second tells is added to the first, and wins where they clash.

_ADDED = ("report.lines", "report.placed")
_MOST_CLASHES = 5


def merge_snapshots(snapshots: Sequence[Snapshot]) -> Snapshot:
    """One snapshot of one machine from several, given oldest first; every source names the file it came from.

    Of two different answers the later one is taken, unless it is unread or the earlier one says the same more
    completely; ``report.clashes`` lists those that differ.
    """
    named = [_with_file_name(snapshot) for snapshot in snapshots]
    facts: dict[str, Fact] = {}
    for snapshot in reversed(named):  # the first answer is kept: that of the latest file
        for name, fact in snapshot.facts.items():
            facts[name] = better_fact(facts.get(name), fact)
    facts.update(_summed_counts(named))
    if clashes := tuple(_describe_clashes(named, facts)):
        facts["report.clashes"] = Known(clashes, "the files")
    return Snapshot(_merged_target(snapshots), facts, _merged_groups(named))


def _merged_groups(snapshots: Sequence[Snapshot]) -> dict[str, Rows]:
    """The rows of every group from all snapshots: of ``text`` all, in file order; of other groups equal rows once.

    Rows about one GPU become one, with the newest values.
    """
    groups: dict[str, Rows] = {}
    for group in dict.fromkeys(group for snapshot in snapshots for group in snapshot.groups):
        for snapshot in reversed(snapshots) if group == "gpu" else snapshots:
            rows, others = groups.get(group), snapshot.rows(group)
            if group == "text" and isinstance(rows, tuple) and isinstance(others, tuple):
                groups[group] = (*rows, *others)
            else:
                groups[group] = merged_rows(rows, others, group)
    return groups


def _merged_target(snapshots: Sequence[Snapshot]) -> Target:
    """The merged snapshot's target: all names joined by `` + ``; everything else is that of the first target that is no
    report, or of the first where all are reports.
    """
    name = " + ".join(snapshot.target.name for snapshot in snapshots)
    main = next((snapshot.target for snapshot in snapshots if snapshot.target.kind != "report"), snapshots[0].target)
    return replace(main, name=name)


def _with_file_name(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the file's name before each source: ``a.txt, line 12``."""
    name = snapshot.target.name
    facts = {key: _with_source(fact, name) for key, fact in snapshot.facts.items()}
    groups: dict[str, Rows] = {}
    for group, rows in snapshot.groups.items():
        if isinstance(rows, tuple):
            groups[group] = tuple({key: _with_source(fact, name) for key, fact in row.items()} for row in rows)
        else:
            groups[group] = rows
    return replace(snapshot, facts=facts, groups=groups)


def _with_source(fact: Fact, name: str) -> Fact:
    """The fact with `name` before its source; as it is where it is not known or the source begins with it."""
    if not isinstance(fact, Known) or fact.source.startswith((name, PurePath(name).name)):
        return fact
    return replace(fact, source=f"{name}, {fact.source}")


def _summed_counts(snapshots: Sequence[Snapshot]) -> Mapping[str, Fact]:
    """``report.lines`` and ``report.placed`` summed over all snapshots."""
    sums: dict[str, Fact] = {}
    for name in _ADDED:
        counts = [fact.value for snapshot in snapshots if (fact := snapshot.known(name))]
        if counts:
            sums[name] = Known(sum(count for count in counts if isinstance(count, int)), "the files")
    return sums


def _describe_clashes(snapshots: Sequence[Snapshot], taken: Mapping[str, Fact]) -> Iterator[str]:
    """A sentence per fact, but for report.* and manifest.*, to which snapshots give answers that cannot both hold; at
    most five, then how many more. `taken` has the answers that are kept.
    """
    all_names = (name for snapshot in snapshots for name in snapshot.facts)
    names = dict.fromkeys(name for name in all_names if not name.startswith(("report.", "manifest.")))
    clashes = 0
    for name in names:
        answers = [fact for snapshot in snapshots if not isinstance(fact := snapshot.get(name), Unread)]
        contradicting = {_value_text(fact) for fact in answers if not _compatible(fact, taken[name])}
        if contradicting - {_value_text(taken[name])}:
            clashes += 1
            if clashes <= _MOST_CLASHES:
                texts = [_value_text(fact) for fact in answers]
                yield f"{name}: {' and then '.join(texts)}; {texts[-1]} is taken"
    if clashes > _MOST_CLASHES:
        yield f"and {clashes - _MOST_CLASHES} more"


def _compatible(fact: Fact, accepted: Fact) -> bool:
    """Whether the two facts can both hold: equal, or one more exact than the other."""
    return (
        better_fact(accepted, fact) is fact
        or better_fact(fact, accepted) is accepted
        or _value_text(fact) == _value_text(accepted)
    )


def _value_text(fact: Fact) -> str:
    """The fact's value as text; ``none`` where it is not known."""
    return text_of(fact) if known(fact) else "none"
