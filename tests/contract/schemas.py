"""Whether a document that fits the new JSON Schema gives whoever reads it by the old one all that it was promised.

For documents that we write: keys may be added, never removed, renamed, made optional or given another type. A number
may become whole, and what could be null need no longer be; no vocabulary gains or loses a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

_SAID = {"type", "enum", "const", "pattern", "properties", "required", "items", "additionalProperties", "oneOf"}
_SAID |= {"minItems", "minimum", "maxItems", "maximum"}
_ABOUT = {"$schema", "title", "description"}
_JSON = {"null", "boolean", "integer", "number", "string", "array", "object"}


def breakages(old: Schema, new: Schema, at: str = "document") -> Iterator[str]:
    """What is broken, each in a sentence that names the place: ``document.findings[].severity: ...``."""
    if unknown := sorted((old.keys() | new.keys()) - _SAID - _ABOUT):
        yield f"{at}: {', '.join(unknown)} is not compared; teach tests.contract.schemas"
    yield from _types(old, new, at)
    yield from _words(old, new, at)
    yield from _bounds(old, new, at)
    yield from _keys(old, new, at)
    yield from _variants(old, new, at)
    for keyword, place in (("items", f"{at}[]"), ("additionalProperties", f"{at}.*")):
        if keyword in old and keyword not in new:
            yield f"{place}: anything is allowed now"
        elif keyword in old:
            yield from breakages(old[keyword], new[keyword], place)


def _types(old: Schema, new: Schema, at: str) -> Iterator[str]:
    before, after = _type(old), _type(new)
    if wider := sorted(after - before):
        yield f"{at}: was {_listed(before)}, may be {', '.join(wider)} now"
    elif before != after and not (before - after) <= {"null", "number"}:
        yield f"{at}: was {_listed(before)}, is {_listed(after)} now"


def _type(schema: Schema) -> set[str]:
    """The types that a value may have; a number may be whole."""
    if "type" in schema:
        said = schema["type"]
        types = set(said if isinstance(said, list) else [said])
    elif "enum" in schema or "const" in schema:
        names = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
        types = {names[type(value)] for value in schema.get("enum", [schema.get("const")])}
    elif "oneOf" in schema:
        types = set().union(*(_type(variant) for variant in schema["oneOf"]))
    else:
        return set(_JSON)
    return types | ({"integer"} if "number" in types else set())


def _listed(types: set[str]) -> str:
    return "anything" if types == _JSON else ", ".join(sorted(types - ({"integer"} if "number" in types else set())))


def _words(old: Schema, new: Schema, at: str) -> Iterator[str]:
    """Vocabularies, constants and patterns."""
    if "enum" in old:
        allowed = new.get("enum", [new["const"]] if "const" in new else None)
        if allowed is None:
            yield f"{at}: any word is allowed now"
        else:
            yield from (f"{at}: {word!r} is gone" for word in old["enum"] if word not in allowed)
            yield from (f"{at}: {word!r} is new in a closed vocabulary" for word in allowed if word not in old["enum"])
    for keyword in ("const", "pattern"):
        if keyword in old and old[keyword] != new.get(keyword):
            yield f"{at}: {keyword} {old[keyword]!r} is {new.get(keyword)!r} now"


def _bounds(old: Schema, new: Schema, at: str) -> Iterator[str]:
    for keyword, sign in (("minimum", 1), ("minItems", 1), ("maximum", -1), ("maxItems", -1)):
        if keyword in old and (keyword not in new or sign * new[keyword] < sign * old[keyword]):
            yield f"{at}: {keyword} was {old[keyword]}, is {new.get(keyword, 'not there')} now"


def _keys(old: Schema, new: Schema, at: str) -> Iterator[str]:
    before, after = old.get("properties", {}), new.get("properties", {})
    for key, schema in before.items():
        if key not in after:
            yield f"{at}.{key}: is gone"
        else:
            yield from breakages(schema, after[key], f"{at}.{key}")
    for key in old.get("required", ()):
        if key in after and key not in new.get("required", ()):
            yield f"{at}.{key}: was always there, may be left out now"


def _variants(old: Schema, new: Schema, at: str) -> Iterator[str]:
    """Each shape of before is still there, and none is new."""
    if "oneOf" not in old:
        return
    before, after = old["oneOf"], new.get("oneOf", [new])
    for shape in before:
        if not any(not list(breakages(shape, other)) for other in after):
            yield f"{at}: the shape {_shape(shape)} is gone, or another"
    for shape in after:
        if not any(not list(breakages(other, shape)) for other in before):
            yield f"{at}: the shape {_shape(shape)} is new"


def _shape(schema: Schema) -> str:
    """Its keys, or its type."""
    return "{" + ", ".join(schema["properties"]) + "}" if "properties" in schema else _listed(_type(schema))
