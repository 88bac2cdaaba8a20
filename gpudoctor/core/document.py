"""Objects as JSON and back, every value that is read checked: a `DocumentError` names what is not as it should be."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from math import isfinite, isinf
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, TypeGuard, TypeVar, Union, cast, get_args, get_origin

from gpudoctor.core.errors import DocumentError

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
    """A number of JSON as float; raises `ValueError` where it overflows to infinity."""
    number = float(word)
    if isinf(number):
        raise ValueError(f"{word[:40]} is out of range")
    return number


def _parse_int(word: str) -> int:
    """A whole number of JSON; raises `ValueError` where it has more than 30 characters."""
    if len(word) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(word)} digits")
    return int(word)


def _parse_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON from its keys and values; raises `ValueError` for a duplicate key."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice[:60]!r} is there twice")
    return found


# ---- Objects of a document ----
# A frozen class says by its annotations what a document may hold: one writer and one reader serve all of them.

T = TypeVar("T")


def object_to_json(noun: Any, names: str = "", *, sparse: bool = False) -> dict[str, Any]:
    """The fields of a frozen object by name, in the order of `names` where these are given (blanks between).

    With `sparse` null and empty values are left out, also of objects within; zero and false stay.
    """
    values = {name: _to_json(getattr(noun, name), sparse) for name in names.split() or type(noun).__match_args__}
    return without_empty(values) if sparse else values


def _to_json(value: Any, sparse: bool) -> Any:
    """A field's value for JSON: frozen objects as objects, tuples as lists, sets as sorted lists; others unchanged."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if hasattr(value, "fields_"):
        return object_to_json(value, sparse=sparse)
    if isinstance(value, (tuple, list)):
        return [_to_json(item, sparse) for item in value]
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return {name: _to_json(item, sparse) for name, item in value.items()}
    return value


def object_from_json(kind: type[T], raw: object, where: str = "", **given: object) -> T:
    """The inverse of `object_to_json`, for an object at `where` (``runs.3.``) of a document; raises `DocumentError`.

    Each field is read by its annotation, but for those that are `given`; one that is left out has its default, and
    unknown keys are ignored.
    """
    document = as_object(raw, where)
    values = dict(given)
    for name, (wanted, required) in _readable_fields(cast("Any", kind)).items():
        if name not in values and (required or name in document):
            values[name] = typed_value(wanted, document.get(name), f"{where}{name}")
    return kind(**values)


@cache
def _readable_fields(kind: Any) -> Mapping[str, tuple[Any, bool]]:
    """For each field of a frozen class its type, and whether a document must have it: those without a default."""
    space = vars(sys.modules[kind.__module__])
    return {name: (eval(kind.__annotations__[name], space), field.required) for name, field in kind.fields_.items()}


_WORDS: Mapping[object, str] = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def typed_value(kind: Any, raw: Any, where: str) -> Any:
    """`raw` checked against a type annotation; raises `DocumentError`, which names the place `where` it stands.

    Lists become tuples, objects become frozen classes, whose fields are checked, too. A mapping's items, and a union of
    several types besides None, are not checked.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        others = [argument for argument in arguments if argument is not NoneType]
        is_plain = len(others) > 1 or (raw is None and len(others) < len(arguments))  # any JSON, or nothing
        return raw if is_plain else typed_value(others[0], raw, where)
    if origin is Literal:
        return raw if raw in arguments else refuse(raw, where, f"one of {', '.join(arguments)}")
    if origin is tuple:
        item = arguments[0]
        fits = isinstance(raw, (list, tuple)) and (item is not str or all(isinstance(part, str) for part in raw))
        if not fits:
            refuse(raw, where, "a list of texts" if item is str else "a list")
        return tuple(typed_value(item, part, f"{where}.{number}") for number, part in enumerate(raw))
    if origin is not None:
        return raw if isinstance(raw, Mapping) else refuse(raw, where, "an object")
    if kind not in _WORDS:
        return object_from_json(kind, raw, f"{where}.")
    is_bool = isinstance(raw, bool)
    fits = is_number(raw) if kind is float else isinstance(raw, kind) and is_bool == (kind is bool)
    return raw if fits else refuse(raw, where, _WORDS[kind])


def refuse(raw: object, where: str, wanted: str) -> NoReturn:
    """Raises `DocumentError` that the value at `where` is not what is `wanted`."""
    raise DocumentError(f"{where} is not {wanted}: {str(raw)[:60]!r}")


def as_object(raw: object, where: str = "") -> Mapping[str, Any]:
    """`raw`, which must be an object (a mapping); raises `DocumentError` with the place `where` else."""
    if not isinstance(raw, Mapping):
        raise DocumentError(f"{where.rstrip('.') or 'the document'} is no object: {str(raw)[:60]!r}")
    return raw


def objects(document: Mapping[str, Any], name: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the objects in the list under `name`, if any, each with its place (``runs.3.``); raises `DocumentError`."""
    listed = document.get(name, ())
    if not isinstance(listed, (list, tuple)):
        refuse(listed, name, "a list")
    for number, raw in enumerate(listed):
        where = f"{name}.{number}."
        yield as_object(raw, where), where


def open_document(raw: object, schema: str) -> Mapping[str, Any]:
    """`raw`, which must be an object whose ``schema`` is `schema` (``gpudoctor/1``); raises `DocumentError` for
    anything else.
    """
    document = as_object(raw)
    found = str(document.get("schema", ""))
    if found != schema:
        raise DocumentError(f"schema {found[:40]!r} is not {schema}; read it with the gpudoctor that wrote it")
    return document


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is a finite number and no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def without_empty(raw: Mapping[str, T]) -> dict[str, T]:
    """The object without null and empty values (text, list, object); 0 and false stay."""
    return {name: value for name, value in raw.items() if value is not None and value not in ("", [], {})}
