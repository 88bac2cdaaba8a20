"""Every text within a value of the model, and the same value with other texts: no view can show what did not pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from gpudoctor.model.fact import Known

T = TypeVar("T")

_STRUCTURAL = frozenset({"value", "state", "a", "b", "facts", "groups", "snapshot"})
"""Parts that say nothing of what is in them: the value of a fact is about what the fact is about."""


def texts(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text in `value` with the name of what it is about: ``gpu.serial``, ``env.HOME``, ``hosts.name``."""
    if isinstance(value, str):
        yield value, key
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from texts(name, f"{key}.")
            yield from texts(item, _joined(key, str(name)))
    elif isinstance(value, (tuple, list, frozenset, set)):
        for item in value:
            yield from texts(item, key)
    elif is_dataclass(value):
        for name, about in _parts(value, key):
            yield from texts(getattr(value, name), about)


def mapped(value: T, change: Callable[[str, str], str], key: str = "") -> T:
    """`value` with every text as `change` gives it for the text and the name of what it is about."""
    return _mapped(value, change, key)  # type: ignore[no-any-return]


def _mapped(value: Any, change: Callable[[str, str], str], key: str) -> Any:
    if isinstance(value, str):
        return change(value, key)
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return change(str(value), key) if key.endswith("serial") else value
    if isinstance(value, Mapping):
        return {
            _mapped(name, change, f"{key}."): _mapped(item, change, _joined(key, str(name)))
            for name, item in value.items()
        }
    if isinstance(value, (tuple, list, frozenset, set)):
        return type(value)(_mapped(item, change, key) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        changed = {name: _mapped(getattr(value, name), change, about) for name, about in _parts(value, key)}
        return replace(value, **changed)
    return value


def _parts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """The fields, and what is in each: evidence and changes name the fact that they show."""
    fact = getattr(value, "fact", None)
    about = fact if isinstance(fact, str) else key
    for field in fields(value):
        if field.init:
            source = isinstance(value, Known) and field.name == "source"
            yield field.name, ".source" if source else _joined(about, field.name)


def _joined(key: str, name: str) -> str:
    """The last two parts of where a text is; those that only hold others are left out."""
    if name in _STRUCTURAL:
        return key
    return f"{key.rpartition('.')[2]}.{name}" if key and "." not in name else name
