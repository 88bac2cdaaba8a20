"""The JSON Schema of a torch stack."""

from __future__ import annotations

from typing import get_args

from gpudoctor.model.stack import EMITS, TOOLS, Standing
from gpudoctor.model.stack_json import SCHEMA
from gpudoctor.views._schema_parts import TEXT, TEXTS, of, several

_WISHES = of(
    {
        "gpus": several({"name": TEXT, "compute_capability": TEXT, "count": {"type": "integer", "minimum": 0}}),
        **dict.fromkeys(("driver", "python", "os", "arch", "libc", "distribution", "torch"), TEXT),
        "tool": {"enum": list(TOOLS)},
        "emit": {"enum": list(EMITS)},
        **dict.fromkeys(("extras", "wants", "said"), TEXTS),
    }
)
_PAIRS = {"type": "array", "items": {**TEXTS, "minItems": 2, "maxItems": 2}}
_REMEDY = {**dict.fromkeys(("field", "value", "text", "least"), TEXT), "also": {"type": "array"}}
STACK = of(
    {
        "schema": {"const": SCHEMA},
        "wishes": _WISHES,
        **dict.fromkeys(("torch", "heading"), TEXT),
        **dict.fromkeys(("packages", "libraries"), _PAIRS),
        "needs": several({**dict.fromkeys(("what", "needed", "have"), TEXT), "met": {"type": "boolean"}}),
        "commands": {"type": "object", "additionalProperties": {"type": "array", "items": TEXTS}},
        "files": {"type": "object", "additionalProperties": TEXT},
        "reasons": several({"candidate": TEXT, "standing": {"enum": list(get_args(Standing))}, "because": TEXT}),
        **dict.fromkeys(("remarks", "sources"), TEXTS),
        "smallest": several(_REMEDY),
        "downloads_mib": {"type": ["number", "null"]},
        "offers": {"type": "object", "additionalProperties": TEXTS},
        "makes": {"type": "object"},
    }
)
"""What `gpudoctor.model.stack_json` writes."""
