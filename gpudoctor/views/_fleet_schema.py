"""The JSON Schema of the check of many hosts."""

from __future__ import annotations

from typing import get_args

from gpudoctor.model.fleet import SCHEMA, Kind, Outcome, Verdict
from gpudoctor.model.rule import CONFIDENCES, SEVERITIES
from gpudoctor.views._schema_parts import COUNT, NUMBER, TEXT, TEXTS, by_name, of, or_null, several

_OUTCOME = {"enum": list(get_args(Outcome))}
_RESULT = {"oneOf": [_OUTCOME, of({"outcome": _OUTCOME}, words=TEXT, finding=TEXT, ratio=NUMBER)]}
_PAIRWISE = of(
    {
        **dict.fromkeys(("title", "unit"), TEXT),
        "expected": NUMBER,
        "names": TEXTS,
        "measured": {"type": "array", "items": {"type": "array", "items": {"type": ["number", "null"]}}},
        "wrong": {"type": "array", "items": {**TEXTS, "minItems": 2, "maxItems": 2}},
        "words": {"type": "array", "items": {**TEXTS, "minItems": 3, "maxItems": 3}},
    }
)
_SUSPECT = {
    "kind": {"enum": list(get_args(Kind))},
    "names": TEXTS,
    "severity": {"enum": list(SEVERITIES)},
    "confidence": {"enum": list(CONFIDENCES)},
    "title": TEXT,
    "evidence": TEXTS,
    **dict.fromkeys(("id", "do"), TEXT),
}
FLEET = of(
    {
        "schema": {"const": SCHEMA},
        **dict.fromkeys(("name", "at"), TEXT),
        "seconds": NUMBER,
        "verdict": {"enum": list(get_args(Verdict))},
        "hosts": several({"name": TEXT}, **dict.fromkeys(("switch", "gpu", "because"), TEXT), gpus=COUNT),
        "checks": several(dict.fromkeys(("id", "title", "short"), TEXT)),
        "results": by_name(by_name(_RESULT)),
        "pairwise": or_null(_PAIRWISE),
        "suspects": several(_SUSPECT),
        "drain": several({"hosts": TEXTS, "reason": TEXT, "argv": TEXTS}),
    }
)
"""What `gpudoctor.model.fleet` writes."""
