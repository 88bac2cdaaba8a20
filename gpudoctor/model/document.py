"""Reading a JSON document, every value checked: what is not as it should be is a `DocumentError` that names it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TypeVar, cast, get_args

from gpudoctor.model.errors import DocumentError
from gpudoctor.model.fact import Json
from gpudoctor.model.frozen import frozen

T = TypeVar("T")


@frozen
class Entry:
    """One object of a document, and where in it: ``runs.3``."""

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
        """One of the words of a `Literal`."""
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
        """An object as it is; empty where it is left out."""
        value = self.raw.get(name, {})
        return cast("Mapping[str, Json]", value) if isinstance(value, Mapping) else self._refuse(name, "an object")

    def _refuse(self, name: str, wanted: str) -> T:  # type: ignore[type-var]
        raise DocumentError(f"{self.where}{name} is not {wanted}: {str(self.raw.get(name))[:60]!r}")


def entry(raw: object, where: str = "") -> Entry:
    """`raw` as an object; raises `DocumentError`."""
    if not isinstance(raw, Mapping):
        raise DocumentError(f"{where.rstrip('.') or 'the document'} is no object: {str(raw)[:60]!r}")
    return Entry(raw, where)


def opened(raw: object, schema: str) -> Entry:
    """A whole document of that schema; raises `DocumentError`."""
    document = entry(raw)
    found = str(document.raw.get("schema", ""))
    if found != schema:
        raise DocumentError(f"schema {found[:40]!r} is not {schema}; read it with the gpudoctor that wrote it")
    return document


def is_number(value: object) -> bool:
    """Whether it is a finite number, and no truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def brief(raw: Mapping[str, object]) -> dict[str, object]:
    """The object without what is left out when a document is written: null and empty values."""
    return {name: value for name, value in raw.items() if value is not None and value not in ("", [], {})}
