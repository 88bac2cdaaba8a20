"""What the JSON Schemas of several documents are put together from."""

from __future__ import annotations

from typing import Any

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}
NUMBER = {"type": "number"}
FLAG = {"type": "boolean"}
COUNT = {"type": "integer", "minimum": 0}


def of(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """An object with these keys; others may be there, and later versions add some."""
    return {"type": "object", "properties": {**required, **optional}, "required": list(required)}


def several(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """A list of such objects."""
    return {"type": "array", "items": of(required, **optional)}


def by_name(what: dict[str, Any]) -> dict[str, Any]:
    """An object whose keys are names."""
    return {"type": "object", "additionalProperties": what}


def or_null(what: dict[str, Any]) -> dict[str, Any]:
    """That, or null."""
    return {"oneOf": [what, {"type": "null"}]}
