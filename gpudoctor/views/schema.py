"""The JSON Schemas (draft 2020-12) of our documents, printed by ``gpudoctor schema``."""

from __future__ import annotations

import json
from typing import Any

from gpudoctor.model.rule import CONFIDENCES, SEVERITIES
from gpudoctor.model.snapshot import SCHEMA

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_TEXT_OR_NULL = {"type": ["string", "null"]}


def _object(properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """An object whose keys are all required but the optional ones; later versions may add keys, never change these."""
    return {
        "type": "object",
        "properties": properties,
        "required": [key for key in properties if key not in optional],
    }


_FACT = {
    "oneOf": [
        _object({"value": {}, "source": _TEXT}),
        _object({"absent": _TEXT}),
        _object({"unread": _TEXT}),
    ]
}
_STEP = _object(
    {
        "argv": _TEXTS,
        "text": _TEXT,
        "needs": {"type": "array", "items": {"enum": ["root", "reboot", "network", "downtime"]}},
        "touches": {"enum": ["environment", "system", "hardware", "nothing"]},
    }
)
_FIX = _object({"title": _TEXT, "steps": {"type": "array", "items": _STEP}, "verify": _TEXT, "undo": _TEXT})
_EVIDENCE = _object(
    {"fact": _TEXT, "value": {}, "source": _TEXT, "absent": _TEXT, "index": {"type": "integer", "minimum": 0}},
    optional=("absent", "index"),
)
_FINDING = _object(
    {
        "id": {"type": "string", "pattern": r"^[a-z]+\.[a-z0-9-]+$"},
        "layer": _TEXT,
        "severity": {"enum": list(SEVERITIES)},
        "role": {"enum": ["cause", "symptom"]},
        "confidence": {"enum": list(CONFIDENCES)},
        "title": _TEXT,
        "why": _TEXT,
        "subject": {"type": ["object", "null"]},
        "evidence": {"type": "array", "items": _EVIDENCE, "minItems": 1},
        "explains": _TEXTS,
        "fixes": {"type": "array", "items": _FIX},
        "references": _TEXTS,
        "confirm": _TEXT,
        "by_rule": _TEXTS,
    }
)
_COUNT = {"type": "integer", "minimum": 0}
_DOCUMENT = _object(
    {
        "schema": {"const": SCHEMA},
        "tool": _object({"version": _TEXT}),
        "target": _object(
            {
                "kind": {"enum": ["local", "report", "snapshot", "node", "fleet"]},
                "name": _TEXT,
                "python": _TEXT_OR_NULL,
                "level": {"enum": ["quick", "standard", "deep"]},
            }
        ),
        "verdict": {"enum": ["sound", "impaired", "broken", "unknown"]},
        "findings": {"type": "array", "items": _FINDING},
        "counts": _object({"found": _COUNT, "unjudged": _COUNT, "passed": _COUNT}),
        "unjudged": {"type": "array", "items": _object({"id": _TEXT, "because": _TEXT})},
        "passed": _TEXTS,
        "notes": {"type": "array", "items": _object({"facts": _TEXTS, "text": _TEXT, "rules": _TEXTS})},
        "facts": {
            "type": "object",
            "additionalProperties": {
                "oneOf": [_FACT, {"type": "array", "items": {"type": "object", "additionalProperties": _FACT}}]
            },
        },
        "timings_ms": {"type": "object", "additionalProperties": {"type": "number"}},
    }
)


_SNAPSHOT = _object({key: _DOCUMENT["properties"][key] for key in ("schema", "tool", "target", "facts", "timings_ms")})
_KINDS = {"diagnosis": _DOCUMENT, "snapshot": _SNAPSHOT}


def text(kind: str = "diagnosis") -> str:
    """The schema of a diagnosis or of a snapshot, indented."""
    title = "gpudoctor document" if kind == "diagnosis" else f"gpudoctor {kind}"
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps({**head, **_KINDS[kind]}, indent=2)
