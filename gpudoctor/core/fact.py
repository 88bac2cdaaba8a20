"""A fact: known with its source, known to be absent, or unread, and why, as one word.

"There is no GPU here" is knowledge (`Absent`); "the probe died" is not (`Unread`). Rules treat the two differently:
a condition about an absent thing is false, a condition about an unread thing cannot be judged.

The sentence beside a `Reason` is for people: code never takes one apart, so that rewording it changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from math import isfinite
from typing import TypeAlias, cast

from gpudoctor.core.errors import DocumentError
from gpudoctor.core.frozen import field, frozen


class Reason(str, Enum):
    """One word of a fixed set. Documents hold its value; a word that this version does not know is `UNSPECIFIED`."""

    UNSPECIFIED = "unspecified"
    NOT_ASKED = "not_asked"
    """Nobody looked: what it rests on gave no answer, or no probe is for it."""
    NOT_STATED = "not_stated"
    """The report, file or program that was read does not say."""
    NEEDS_STANDARD = "needs_standard"
    """Asked from level standard on."""
    NEEDS_DEEP = "needs_deep"
    """Asked at level deep alone."""
    PENDING = "pending"
    """Still being asked when the snapshot was made."""
    TIMED_OUT = "timed_out"
    """Stopped at its deadline, or it could not be stopped at all."""
    CRASHED = "crashed"
    """What was to answer died: an exception, a signal."""
    FAILED = "failed"
    """It answered with an error."""
    NVML_FAILED = "nvml_failed"
    """NVML or nvidia-smi answered with an error."""
    TORCH_FAILED = "torch_failed"
    """torch could not be imported."""
    DENIED = "denied"
    """Permissions keep this user from reading it."""
    CONTAINED = "contained"
    """The host's, which cannot be seen from inside a container."""
    IN_USE = "in_use"
    """The device is left alone, because others use it."""
    MISSING = "missing"
    """There is no such file, folder or program."""
    MALFORMED = "malformed"
    """What was read is not of the shape that it must have."""
    NOT_IN_TABLES = "not_in_tables"
    NO_LOG = "no_log"
    """No text was read in which a message could stand."""
    NO_MESSAGE = "no_message"
    """None of the rule's messages is in the text that was read."""
    GIVEN_UP = "given_up"
    """Too costly to be worked out to the end."""
    CONTRADICTORY = "contradictory"

    @classmethod
    def read(cls, raw: object) -> Reason:
        """The reason of a document; `UNSPECIFIED` where it names none, or one of a later version."""
        return _BY_VALUE.get(raw, cls.UNSPECIFIED) if isinstance(raw, str) else cls.UNSPECIFIED

    @classmethod
    def needs(cls, level: str) -> Reason:
        """The reason of a fact that is read only from that level on: `NEEDS_DEEP` for deep, else `NEEDS_STANDARD`."""
        return cls.NEEDS_DEEP if level == "deep" else cls.NEEDS_STANDARD


GRANTED = "taken for granted, for --for names no other"
"""The source of what a machine that is only described was taken to be."""
_BY_VALUE = {str(reason.value): reason for reason in Reason}


Value: TypeAlias = bool | int | float | str | tuple["Value", ...] | Mapping[str, "Value"] | None
Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None


@frozen
class Known:
    """A value and where it was read."""

    value: Value
    source: str


@frozen
class Absent:
    """Known not to be there; `why` tells people how that is known, `reason` tells code."""

    why: str
    reason: Reason = field(default=Reason.UNSPECIFIED, compare=False)
    """Left out of comparisons: documents saved before there were reasons say the same fact without one."""


@frozen
class Unread:
    """Not known; `why` tells people what kept us from knowing, `reason` tells code.

    Not `asked` where nobody looked: then it may be inferred.
    """

    why: str
    asked: bool = True
    reason: Reason = field(default=Reason.UNSPECIFIED, compare=False)
    """As that of `Absent`."""


Fact: TypeAlias = Known | Absent | Unread
Row: TypeAlias = Mapping[str, Fact]
"""One GPU, one PCI device, one line of text: the facts of one thing among several, by column."""

Rows: TypeAlias = tuple[Row, ...] | Absent | Unread


def known_facts(source: str, /, **values: Value) -> dict[str, Fact]:
    """Each value as a known fact of that one source, by name: the columns of a row, or facts."""
    return {name: Known(value, source) for name, value in values.items()}


# ---- One typed look into a fact ----
# Each takes what a row's ``get`` gives: None stands for a column that nobody filled.


def known(fact: Fact | None) -> Known | None:
    """The fact with its source where it is known, else None."""
    return fact if isinstance(fact, Known) else None


def value_of(fact: Fact | None) -> Value:
    """The fact's value where it is known, else None."""
    return fact.value if isinstance(fact, Known) else None


def text_of(fact: Fact | None) -> str:
    """The fact's value as text where it is known, else empty."""
    return str(fact.value) if isinstance(fact, Known) else ""


def number_of(fact: Fact | None) -> float | None:
    """The fact's value where it is known and a finite number (True and False are none), else None."""
    value = value_of(fact)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if isinstance(value, int) or isfinite(value) else None


def texts_of(fact: Fact | None) -> tuple[str, ...]:
    """The items of a known list as texts, else an empty tuple."""
    value = value_of(fact)
    return tuple(map(str, value)) if isinstance(value, tuple) else ()


def value_to_json(value: Value) -> Json:
    """Tuples become arrays; everything else is JSON already."""
    if value is None or isinstance(value, (str, int, float)):  # nearly all; what a Mapping is takes longer to say
        return value
    if isinstance(value, tuple):
        return [value_to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {key: value_to_json(item) for key, item in value.items()}
    return value


_DEEPEST_LIST = 20
"""Lists within lists that a value may hold; no fact of ours comes near."""


def value_from_json(raw: object, depth: int = 0) -> Value:
    """The inverse of `value_to_json`: lists become tuples; raises `DocumentError` for no JSON, or more than 20 deep."""
    if raw is None or isinstance(raw, (bool, int, float, str)):
        return raw
    if depth == _DEEPEST_LIST:
        raise DocumentError(f"a fact nests more than {_DEEPEST_LIST} deep")
    if isinstance(raw, Mapping):
        return {str(key): value_from_json(item, depth + 1) for key, item in raw.items()}
    if isinstance(raw, Sequence):
        return tuple(value_from_json(item, depth + 1) for item in raw)
    raise DocumentError(f"a fact cannot hold a {type(raw).__name__}")


def fact_to_json(fact: Fact) -> dict[str, Json]:
    """``value`` with ``source``, or ``absent`` or ``unread`` with why, beside it ``reason`` unless unspecified.

    An `Unread` that nobody looked for has ``asked`` false.
    """
    if isinstance(fact, Known):
        return {"value": value_to_json(fact.value), "source": fact.source}
    document: dict[str, Json] = {"absent" if isinstance(fact, Absent) else "unread": fact.why}
    if isinstance(fact, Unread) and not fact.asked:
        document["asked"] = False
    if fact.reason is not Reason.UNSPECIFIED:
        document["reason"] = fact.reason.value
    return document


def fact_from_json(raw: object) -> Fact:
    """The inverse of `fact_to_json`; raises `DocumentError` for what is no object with value, absent or unread."""
    if isinstance(raw, Mapping):
        if "absent" in raw:
            return Absent(str(raw["absent"]), Reason.read(raw.get("reason")))
        if "unread" in raw:
            return Unread(str(raw["unread"]), raw.get("asked") is not False, Reason.read(raw.get("reason")))
        if "value" in raw:
            return Known(value_from_json(raw["value"]), str(raw.get("source", "")))
    raise DocumentError(f"not a fact: {str(raw)[:60]!r} (expected value, absent or unread)")


def listed(rows: Rows | None) -> tuple[Row, ...]:
    """The rows as a tuple; empty where they are Absent, Unread or None."""
    return rows if isinstance(rows, tuple) else ()


def rows_to_json(rows: Rows) -> Json:
    """The rows as a list of objects of facts; where they are Absent or Unread, that as `fact_to_json` has it."""
    if isinstance(rows, tuple):
        return [{column: cast(Json, fact_to_json(fact)) for column, fact in row.items()} for row in rows]
    return cast(Json, fact_to_json(rows))
