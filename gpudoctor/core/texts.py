"""Every text within a value: listed, replaced by another, or without the secrets in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar, cast

from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.core.frozen import replace
from gpudoctor.core.secrets import HIDDEN, LONGEST_CACHED, continues_key, is_key_open, is_secret_entry, without_secrets

T = TypeVar("T")

_STRUCTURAL = frozenset({"value", "state", "a", "b", "facts", "groups", "snapshot"})
"""Parts that say nothing of what is in them: the value of a fact is about what the fact is about."""


def texts(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text in `value` with what it is about (``gpu.serial``, ``env.HOME``): nested ones and keys, no enums.

    What a key of a mapping is about is that mapping's own name and a dot, ``env.``.
    """
    if isinstance(value, str):
        if not isinstance(value, Enum):
            yield value, key
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from texts(name, f"{key}.")
            yield from texts(item, _join_key(key, str(name)))
    elif isinstance(value, (tuple, list, frozenset, set)):
        for item in value:
            yield from texts(item, key)
    elif hasattr(value, "__match_args__"):
        for name, about in _fields_with_key(value, key):
            yield from texts(getattr(value, name), about)


def map_texts(value: T, change: Callable[[str, str], str]) -> T:
    """A copy of `value` with every text, nested ones and keys too, replaced by `change(text, what it is about)`.

    What a text is about is named as in `texts`. A whole number under ``serial`` is replaced as text.
    """
    return _map_value(value, change, "")  # type: ignore[no-any-return]


def _map_value(value: Any, change: Callable[[str, str], str], key: str) -> Any:
    """A copy of any value with `change(text, key)` applied to every text in it, dictionary keys included.

    An integer whose key ends with ``serial`` becomes text; unknown objects are returned unchanged.
    """
    if isinstance(value, str):
        return value if isinstance(value, Enum) else change(value, key)
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return change(str(value), key) if key.endswith("serial") else value
    if isinstance(value, Mapping):
        return {
            _map_value(name, change, f"{key}."): _map_value(item, change, _join_key(key, str(name)))
            for name, item in value.items()
        }
    if isinstance(value, (tuple, list, frozenset, set)):
        return type(value)(_map_value(item, change, key) for item in value)
    if hasattr(value, "__match_args__") and not isinstance(value, type):
        changed = {
            name: _map_value(getattr(value, name), change, about) for name, about in _fields_with_key(value, key)
        }
        return replace(value, **changed)
    return value


def _fields_with_key(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """The field names of an object, each with what its texts are about: by `key`, or the object's own ``fact`` if it
    has one, and the field's name. ``.source`` for the source of a `Known`.
    """
    fact = getattr(value, "fact", None)
    about = fact if isinstance(fact, str) else key
    for name in value.__match_args__:
        yield name, ".source" if isinstance(value, Known) and name == "source" else _join_key(about, name)


def _join_key(key: str, name: str) -> str:
    """What a text under `name` is about: ``gpu.serial``, the last part of `key` and the name.

    `key` itself for a structural name such as ``value``; the name alone where it has a dot, or `key` is empty.
    """
    if name in _STRUCTURAL:
        return key
    return f"{key.rpartition('.')[2]}.{name}" if key and "." not in name else name


# ---- Facts, rows and parsed JSON without secrets ----


def screened(value: T, known: tuple[str, ...] = ()) -> T:
    """A copy of a fact, rows or parsed JSON with the secrets in every text hidden, and the `known` secret values.

    Texts under the name of a secret (``api_key``) are hidden whole.
    """
    return cast("T", _screen_value(value, known))


def _screen_value(value: object, known: tuple[str, ...]) -> object:
    """A copy of a fact, list, mapping or text with secrets hidden; any other value is returned unchanged."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        for secret in known:
            if secret in value:
                value = value.replace(secret, HIDDEN)
        return _screened_text(value) if len(value) < LONGEST_CACHED else without_secrets(value)
    if isinstance(value, Known):
        inner, source = _screen_value(value.value, known), _screen_value(value.source, known)
        same = inner == value.value and source == value.source
        return value if same else Known(cast("str", inner), cast("str", source))
    if isinstance(value, (Absent, Unread)):
        why = cast("str", _screen_value(value.why, known))
        return value if why == value.why else replace(value, why=why)
    if isinstance(value, (tuple, list)):
        return type(value)(_screened_items(value, known))
    if isinstance(value, Mapping):
        return {
            _screen_value(name, known): HIDDEN if is_secret_entry(name, item) else _screen_value(item, known)
            for name, item in value.items()
        }
    return value


@lru_cache(maxsize=1 << 14)
def _screened_text(text: str) -> str:
    """The text with secrets hidden; cached, for many hosts repeat the same texts."""
    return without_secrets(text)


def _screened_items(values: Sequence[object], known: tuple[str, ...]) -> Iterator[object]:
    """Yield the items with secrets hidden, also a private key whose lines are separate items."""
    inside = False
    if not any("-----BEGIN" in _line_of(value) for value in values):
        yield from (_screen_value(value, known) for value in values)
        return
    for value in values:
        line = _line_of(value)
        inside = continues_key(line, inside)
        yield _with_line(value, HIDDEN) if inside and line else _screen_value(value, known)
        inside = is_key_open(line, inside)


def _line_of(value: object) -> str:
    """The text line that an item is, or has under ``line``; empty for others."""
    line = value.get("line") if isinstance(value, Mapping) else value
    line = line.value if isinstance(line, Known) else line.get("value") if isinstance(line, Mapping) else line
    return line if isinstance(line, str) else ""


def _with_line(value: object, line: str) -> object:
    """The item with `line` in place of its text: of the whole item, or of its column ``line``."""
    if not isinstance(value, Mapping):
        return line
    held = value["line"]
    return {**value, "line": Known(line, held.source) if isinstance(held, Known) else {**held, "value": line}}
