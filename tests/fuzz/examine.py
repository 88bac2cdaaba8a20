"""One case through the whole path: read, complete, judge, show. Whatever it is, these things hold."""

import gc
import json
import re
import signal
import time
import traceback
from ast import literal_eval
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, NamedTuple

import jsonschema_rs

from gpudoctor.app import pipeline, reading
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Known, Unread
from gpudoctor.core.pattern import JUDGING_SECONDS, READING_SECONDS, SECONDS_PER_MB, slowness
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.readers import decode
from gpudoctor.views import document, schema, text
from gpudoctor.views._terminal import one_line
from tests.corpus import BOOK

REST = 0.2
"""Seconds of a usual processor that may go into what is not cut short."""
HANGS = 300
"""Seconds on the clock after which a case is stopped; patterns that run wild can be stopped, too."""
VERDICTS = frozenset({"sound", "impaired", "broken", "unknown"})
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_TROUBLE = re.compile(r"\b[A-Z]\w*(?:Error|Exception|Expressive|Defined|Long): ")
"""A Python exception inside a reason: a condition or a look-up stumbled."""
_QUOTED = ": the report says "
"""What follows are the report's own words, which may name an exception."""
_IN_QUOTES = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")


class Examined(NamedTuple):
    """How long it took (processor time), whether it was a document that is none, and what is wrong with the program."""

    seconds: float
    refused: bool
    problems: tuple[str, ...]


class TooLong(BaseException):
    """Not an `Exception`: what catches those must not catch this."""


def examine(raw: bytes, kind: str) -> Examined:
    """Run one case; never raises. What lay in memory before is not gone through again at its cost."""
    gc.freeze()
    started = time.process_time()
    problems: list[str] = []
    refused = False
    try:
        with deadline():
            diagnosis = pipeline.diagnose(reading.snapshot_of(decode(raw, "case"), "case"), BOOK)
            problems += wrong_with(diagnosis, kind)
    except DocumentError as error:
        refused = True
        problems += [f"terminal: {str(error)[:200]!r}" for _ in _CONTROL.findall(one_line(str(error)))[:1]]
    except TooLong:
        problems.append(f"hangs: {_where()}")
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        problems.append(
            f"raises: {type(error).__name__} in {place.name} ({place.filename}:{place.lineno}): {error}"[:300]
        )
    seconds = time.process_time() - started
    gc.unfreeze()
    return Examined(seconds, refused, tuple(problems))


def wrong_with(diagnosis: Diagnosis, kind: str) -> Iterator[str]:
    """What no diagnosis may have, whatever it was made of."""
    shown = text.render(diagnosis)
    found = _CONTROL.search(shown)
    if found:
        yield f"terminal: {shown[max(0, found.start() - 60) : found.end() + 20]!r}"
    told = document.render(diagnosis)
    if not told.isascii() or "\n" in told:
        yield "document: not one line of ASCII"
    try:
        raw = json.loads(told, parse_constant=_refuse)
        _validator().validate(raw)
    except ValueError as error:
        yield f"document: {str(error)[:300]}"
        return
    if raw["verdict"] not in VERDICTS:
        yield f"verdict: {raw['verdict']!r}"
    if kind == "report":
        values = (value.replace("\t", " ") for value in _values(diagnosis.snapshot))
        yield from (f"fact: {value[:200]!r}" for value in values if _CONTROL.search(value))
    if kind != "snapshot":
        yield from _stumbled(diagnosis)


def _stumbled(diagnosis: Diagnosis) -> Iterator[str]:
    """Exceptions that were caught on the way, so that the rest could be judged: still faults of the program.

    A snapshot may hold what no probe of ours says (a list of anything); there a condition may stumble.
    """
    trouble = diagnosis.snapshot.facts.get("report.trouble")
    if isinstance(trouble, Known):
        yield f"reader: {trouble.value}"
    for name, state in diagnosis.snapshot.facts.items():
        if isinstance(state, Unread) and " died: " in state.why:
            yield f"probe: {state.why} ({name})"[:300]
            return
    for item in diagnosis.unjudged:
        if _TROUBLE.search(our_words(item.because, diagnosis.snapshot)):
            yield f"condition: {item.id}: {item.because}"[:300]


def our_words(because: str, snapshot: Snapshot) -> str:
    """The reason without what it quotes of a fact's value, which may be anything: only what is part of one goes."""
    kept = because.partition(_QUOTED)[0]
    for quoted in _IN_QUOTES.findall(kept) if _TROUBLE.search(kept) else ():
        with suppress(SyntaxError, ValueError):  # an apostrophe is no quotation mark
            told = literal_eval(quoted)
            if any(told in value for value in _values(snapshot)):
                kept = kept.replace(quoted, "")
    return kept


def _values(snapshot: Snapshot) -> Iterator[str]:
    rows = (row for rows in snapshot.groups.values() if isinstance(rows, tuple) for row in rows)
    for facts in (snapshot.facts, *rows):
        yield from (str(state.value) for state in facts.values() if isinstance(state, Known))


def _refuse(word: str) -> object:
    raise ValueError(f"{word} is no number of JSON")


@lru_cache(maxsize=1)
def _validator() -> Any:
    return jsonschema_rs.validator_for(json.loads(schema.text()))


_frames: list[str] = []


def _where() -> str:
    return _frames[-1] if _frames else "?"


@contextmanager
def deadline() -> Iterator[None]:
    def stop(number: int, frame: Any) -> None:
        _frames[:] = [f"{line.name} ({line.filename}:{line.lineno})" for line in traceback.extract_stack(frame)]
        raise TooLong

    before: Callable[..., Any] | int | None = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, HANGS, 1)  # again where a finalizer or a C library swallows it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def time_limit(characters: int) -> float:
    """Seconds of processor time that reading and judging a text of that length may take on this machine."""
    return (READING_SECONDS + JUDGING_SECONDS + REST + SECONDS_PER_MB * characters / 1e6) * slowness()
