"""Reading a JSON document strictly, every value checked: a `DocumentError` names what is not as it should be."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from math import isfinite, isinf
from typing import Any, TypeVar, cast, get_args

from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Json
from gpudoctor.core.frozen import frozen

# ---- JSON as the standard has it ----
# No NaN, no key twice, no number beyond reason, no nesting without end.

_MOST_DIGITS = 30
"""Digits of the longest whole number: a 64-bit counter has 20."""

_MOST_VALUES = 1_000_000
"""Values of the largest document, which then takes some 250 MB of memory; that of 500 machines has 800,000."""


def parse_toml(text: str) -> dict[str, Any]:
    """The TOML in `text`, of a file of ours or a user's; raises `ValueError` with the line for what is none."""
    # imported here: its patterns take longer to compile than a small page to read
    reader = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    return cast("dict[str, Any]", reader.loads(text))


def parse_json(text: str) -> object:
    """The JSON in `text`; raises `DocumentError` for invalid or too large JSON, duplicate keys, NaN and infinities."""
    if len(text) > _MOST_VALUES and text.count(",") > _MOST_VALUES:
        raise DocumentError(f"more than {_MOST_VALUES:,} values, which no document of gpudoctor has")
    try:
        return json.loads(
            text.lstrip("\ufeff"),
            parse_constant=_refuse_constant,
            parse_float=_parse_float,
            parse_int=_parse_int,
            object_pairs_hook=_parse_object,
        )
    except RecursionError as error:
        raise DocumentError("broken JSON: nested without end; save it again") from error
    except ValueError as error:
        hint = "; one document a file" if str(error).startswith("Extra data") else "; save it again"
        raise DocumentError(f"broken JSON: {error}{hint}") from error


def _refuse_constant(word: str) -> float:
    """Raises `ValueError`: NaN and Infinity are no JSON."""
    raise ValueError(f"{word} is no number of JSON")


def _parse_float(word: str) -> float:
    """The number; raises `ValueError` where it overflows."""
    number = float(word)
    if isinf(number):
        raise ValueError(f"{word[:40]} is out of range")
    return number


def _parse_int(word: str) -> int:
    """The number; raises `ValueError` where it has too many digits."""
    if len(word) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(word)} digits")
    return int(word)


def _parse_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object; raises `ValueError` for a duplicate key."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice[:60]!r} is there twice")
    return found


# ---- Values of a document ----

T = TypeVar("T")


@frozen
class Entry:
    """One object of a document and its position (``runs.3.``); its methods raise `DocumentError` for wrong types."""

    raw: Mapping[str, object]
    where: str

    def text(self, name: str, default: str | None = None) -> str:
        """A string; `default` where it is left out."""
        value = self.raw.get(name, default)
        return value if isinstance(value, str) else self._refuse(name, "a text")

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number; `default` where it is left out."""
        found = self.maybe(name)
        if found is None:
            found = default
        return self._refuse(name, "a number") if found is None else found

    def maybe(self, name: str) -> float | None:
        """A finite number, or None where it is left out or null."""
        value = self.raw.get(name)
        if value is None:
            return None
        return cast(float, value) if is_number(value) else self._refuse(name, "a number")

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number; `default` where it is left out."""
        value = self.raw.get(name, default)
        fits = isinstance(value, int) and not isinstance(value, bool)
        return cast(int, value) if fits else self._refuse(name, "a whole number")

    def maybe_whole(self, name: str) -> int | None:
        """A whole number, or None where it is left out or null."""
        return None if self.raw.get(name) is None else self.whole(name)

    def flag(self, name: str, default: bool | None = None) -> bool | None:
        """True or false; `default` where it is left out or null."""
        value = self.raw.get(name)
        if value is None:
            return default
        return value if isinstance(value, bool) else self._refuse(name, "true or false")

    def choice(self, name: str, kind: object, default: str | None = None) -> str:
        """A string that is one of a `Literal`'s; `default` where it is left out."""
        value = self.text(name, default)
        return value if value in get_args(kind) else self._refuse(name, f"one of {', '.join(get_args(kind))}")

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings; none where it is left out."""
        value = self.raw.get(name, ())
        if isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(item, str) for item in value):
            return tuple(value)
        return self._refuse(name, "a list of texts")

    def entries(self, name: str) -> list[Entry]:
        """A list of objects; none where it is left out."""
        value = self.raw.get(name, ())
        if not isinstance(value, Sequence) or isinstance(value, str):
            return self._refuse(name, "a list")
        return [entry(item, f"{self.where}{name}.{number}.") for number, item in enumerate(value)]

    def entry(self, name: str) -> Entry | None:
        """An object, or None where it is left out or null."""
        value = self.raw.get(name)
        return None if value is None else entry(value, f"{self.where}{name}.")

    def mapping(self, name: str) -> Mapping[str, Json]:
        """An object unchecked; empty where it is left out."""
        value = self.raw.get(name, {})
        return cast("Mapping[str, Json]", value) if isinstance(value, Mapping) else self._refuse(name, "an object")

    def _refuse(self, name: str, wanted: str) -> T:  # type: ignore[type-var]
        """Raises `DocumentError` that the value is not what is `wanted`."""
        raise DocumentError(f"{self.where}{name} is not {wanted}: {str(self.raw.get(name))[:60]!r}")


def entry(raw: object, where: str = "") -> Entry:
    """`raw` as an object; raises `DocumentError`."""
    if not isinstance(raw, Mapping):
        raise DocumentError(f"{where.rstrip('.') or 'the document'} is no object: {str(raw)[:60]!r}")
    return Entry(raw, where)


def open_document(raw: object, schema: str) -> Entry:
    """The document, which must be of that schema; raises `DocumentError`."""
    document = entry(raw)
    found = str(document.raw.get("schema", ""))
    if found != schema:
        raise DocumentError(f"schema {found[:40]!r} is not {schema}; read it with the gpudoctor that wrote it")
    return document


def is_number(value: object) -> bool:
    """Whether it is a finite number and no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def without_empty(raw: Mapping[str, object]) -> dict[str, object]:
    """The object without null and empty values (text, list, object); 0 and false stay."""
    return {name: value for name, value in raw.items() if value is not None and value not in ("", [], {})}
