"""The JSON Schemas (draft 2020-12) of our documents, printed by ``gpudoctor schema``."""

from __future__ import annotations

import json
from typing import Any, get_args

from gpudoctor.model.difference import SCHEMA as DIFF
from gpudoctor.model.kept import SCHEMA as HISTORY
from gpudoctor.model.measurement import SCHEMA as KERNELS
from gpudoctor.model.measurement import Level, Meanwhile, Rung, Status
from gpudoctor.model.plan import SCHEMA as PLANS
from gpudoctor.model.plan import Requires
from gpudoctor.model.rule import CONFIDENCES, SEVERITIES
from gpudoctor.model.run import SCHEMA as RUNS
from gpudoctor.model.run import Outcome, State
from gpudoctor.model.snapshot import SCHEMA
from gpudoctor.views._fleet_schema import FLEET
from gpudoctor.views._schema_parts import COUNT, FLAG, NUMBER, TEXT, TEXTS, of
from gpudoctor.views._stack_schema import STACK

# The JSON Schema of an expectation profile, for editors of TOML: ``#:schema profile.json`` as its first line. Names
# of facts and kernels are checked where the profile is read, which knows them all.

_PLAIN: dict[str, Any] = {
    "description": "what it must be: 8, true, a text, one of several, or a range: >= 570, < 590",
    "type": ["string", "number", "boolean", "array"],
    "items": {"type": ["string", "number"]},
}
_TOLD: dict[str, Any] = {
    "severity": {"enum": list(SEVERITIES), "description": "of the finding where it is not so; error by default"},
    "why": {**TEXT, "description": "what follows from it"},
    "do": {"oneOf": [TEXT, TEXTS], "description": "what to do: a sentence, or a command as a list of words"},
    "needs": {"type": "array", "items": {"enum": ["root", "reboot", "network", "downtime"]}},
}
_ENTRY: dict[str, Any] = {
    "is": _PLAIN,
    "not": {**_PLAIN, "description": "what it must not be"},
    "matches": {**TEXT, "description": "a regular expression that must be found in it"},
    "has": {**TEXTS, "description": "of a list: these are in it"},
    "lacks": {**TEXTS, "description": "of a list: none of these is in it"},
    "present": {"type": "boolean", "description": "false: it must not be there"},
    "where": {**TEXT, "description": "a condition: only rows for which it holds count"},
    "at_least": {"type": "integer", "minimum": 0, "description": "how many rows are enough; by default all"},
    **_TOLD,
}
_TABLE = {
    "description": "facts by name: gpu.count = 8; gpudoctor explain FACT tells what one means",
    "type": "object",
    "propertyNames": {"not": {"enum": list(_ENTRY)}},
    "additionalProperties": {"anyOf": [_PLAIN, {"$ref": "#/$defs/entry"}, {"$ref": "#/$defs/facts"}]},
}
_LINE = {
    "type": "object",
    "properties": {
        "when": {"oneOf": [TEXT, {**TEXTS, "minItems": 1}], "description": "conditions, all of which must hold"},
        "each": {**TEXT, "description": "the group of which every row is judged: gpu, nvlink, rdma"},
        "says": {**TEXT, "description": "the sentence where it does not hold, with facts in braces"},
        "fact": {**TEXT, "description": "in place of when: a fact, which must be as the other keys say"},
        **_ENTRY,
    },
    "additionalProperties": False,
    "anyOf": [{"required": ["when"]}, {"required": ["fact"]}],
}
PROFILE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "profile": {"type": "string", "pattern": r"^[a-z0-9][a-z0-9._-]{0,59}$", "description": "its name"},
        "about": TEXT,
        "sources": TEXTS,
        "checked": {**TEXT, "description": "the day on which the sources were read"},
        "extends": {"oneOf": [TEXT, TEXTS], "description": "profiles of which it has all lines, too"},
        "without": {**TEXTS, "description": "lines of these that it has not"},
        "expect": {"$ref": "#/$defs/facts"},
        "measure": {
            **_TABLE,
            "description": "what kernels must reach, measured at level deep; gpudoctor bench --list names them",
        },
        "line": {
            "type": "object",
            "propertyNames": {"pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"},
            "additionalProperties": _LINE,
        },
    },
    "required": ["profile"],
    "additionalProperties": False,
    "$defs": {
        "facts": _TABLE,
        "entry": {"type": "object", "properties": _ENTRY, "additionalProperties": False, "minProperties": 1},
    },
}


# The JSON Schemas of a plan and of its run, and of the steps that plans and fixes have.

STEP = of(
    {
        "argv": TEXTS,
        "text": TEXT,
        "needs": {"type": "array", "items": {"enum": ["root", "reboot", "network", "downtime"]}},
        "touches": {"enum": ["environment", "system", "hardware", "nothing"]},
    }
)
_CHANGE = of({"name": TEXT, "before": TEXT, "after": TEXT})
PLAN = of(
    {
        "schema": {"const": PLANS},
        "title": TEXT,
        "machine": TEXT,
        "environment": TEXT,
        "before": TEXTS,
        "downloads_mib": {"type": ["number", "null"]},
        "undo": TEXTS,
        "ways": {
            "type": "array",
            "items": of({"cause": TEXT, "number": COUNT, "title": TEXT, "undo": TEXT}),
        },
        "steps": {
            "type": "array",
            "items": of(
                {
                    **dict.fromkeys(("id", "title", "makes_true", "cause", "verify", "hindrance"), TEXT),
                    **STEP["properties"],
                    "way": COUNT,
                    "changes": {"type": "array", "items": _CHANGE},
                    "chosen": FLAG,
                    "makes": {"type": "object"},
                    "requires": {
                        "type": "array",
                        "items": of({"kind": {"enum": list(get_args(Requires))}, "subject": TEXT, "mib": NUMBER}),
                    },
                }
            ),
        },
    },
    foreseen=of(dict.fromkeys(("cleared", "stays", "new", "unjudged"), TEXTS)),
)
_RAN = of(
    {
        "state": {"enum": list(get_args(State))},
        "seconds": NUMBER,
        "status": {"type": ["integer", "null"]},
        "output": TEXTS,
        "dropped": COUNT,
    }
)
RUN = of(
    {
        "schema": {"const": RUNS},
        **dict.fromkeys(("id", "began", "undoes", "why"), TEXT),
        "over": FLAG,
        "outcome": {"enum": list(get_args(Outcome))},
        "worse": TEXTS,
        "changed": TEXTS,
        "judged": {"type": "object", "additionalProperties": FLAG},
        "steps": {"type": "array", "items": _RAN},
        "plan": PLAN,
    }
)


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
        _object({"unread": _TEXT, "asked": {"type": "boolean"}}, optional=("asked",)),
    ]
}
_FIX = _object({"title": _TEXT, "steps": {"type": "array", "items": STEP}, "verify": _TEXT, "undo": _TEXT})
_EVIDENCE = _object(
    {"fact": _TEXT, "value": {}, "source": _TEXT, "absent": _TEXT, "index": {"type": "integer", "minimum": 0}},
    optional=("absent", "index"),
)
_SINCE = _object(
    {
        "what": _TEXT,
        "before": _TEXT_OR_NULL,
        "after": _TEXT_OR_NULL,
        "at": _TEXT_OR_NULL,
        "by": _TEXT_OR_NULL,
        "source": _TEXT,
        "worked": _TEXT_OR_NULL,
    }
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
        "subjects": {"type": "array", "items": {"type": "object"}, "minItems": 2},
        "evidence": {"type": "array", "items": _EVIDENCE, "minItems": 1},
        "explains": _TEXTS,
        "fixes": {"type": "array", "items": _FIX},
        "references": _TEXTS,
        "confirm": _TEXT,
        "by_rule": _TEXTS,
        "since": {"type": "array", "items": _SINCE},
    },
    optional=("since", "subjects"),
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
        "fleet": FLEET,
    },
    optional=("fleet",),
)


_SNAPSHOT = _object({key: _DOCUMENT["properties"][key] for key in ("schema", "tool", "target", "facts", "timings_ms")})
_NUMBER = {"type": "number"}
_WHOLE = {"type": "integer"}
_FLAG = {"type": "boolean"}


def _brief(required: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An object that leaves out what is not known."""
    return _object({**required, **more}, optional=tuple(more))


_LADDER = {"type": "array", "items": _brief({"rung": {"enum": list(get_args(Rung))}}, held=_FLAG, message=_TEXT)}
_EXPECTED = _brief(
    {"value": _NUMBER, "how": {"enum": ["table", "siblings"]}},
    limit=_NUMBER,
    fraction=_NUMBER,
    words=_TEXT,
    source=_TEXT,
)
_MEANWHILE = _brief(
    {},
    **{name: _NUMBER for name in Meanwhile.__dataclass_fields__ if name != "reasons"},
    reasons=_TEXTS,
)
_RUN = _brief(
    {"kernel": _TEXT, "gpu": {"type": "integer", "minimum": -1}, "status": {"enum": list(get_args(Status))}},
    **dict.fromkeys(("value", "spread"), _NUMBER),
    **dict.fromkeys(("differ", "compared"), _WHOLE),
    **dict.fromkeys(("words", "because", "advice"), _TEXT),
    right=_FLAG,
    details={"type": "object"},
    ladder=_LADDER,
    expected=_EXPECTED,
    meanwhile=_MEANWHILE,
)
_KERNEL = _brief(
    {"id": _TEXT, "title": _TEXT, "level": {"enum": list(get_args(Level))}, "rung": {"enum": list(get_args(Rung))}},
    unit=_TEXT,
    size=_TEXT,
)
_KERNELS = _brief(
    {
        "schema": {"const": KERNELS},
        "target": _TEXT,
        "at": _TEXT,
        "kernels": {"type": "array", "items": _KERNEL},
        "devices": {"type": "array", "items": _brief({"index": _WHOLE}, name=_TEXT, held=_TEXT, uuid=_TEXT)},
        "runs": {"type": "array", "items": _RUN},
        "verdict": _DOCUMENT["properties"]["verdict"],
        "findings": _DOCUMENT["properties"]["findings"],
    },
    because=_TEXT,
)
_FACT_OR_NULL = {"oneOf": [*_FACT["oneOf"], {"type": "null"}]}
_CHANGES = {
    "type": "array",
    "items": _object({"fact": _TEXT, "row": _TEXT_OR_NULL, "a": _FACT_OR_NULL, "b": _FACT_OR_NULL}),
}
_SIDE = _object({key: _DOCUMENT["properties"][key] for key in ("target", "verdict")})
_ONE_SIDED = _object({"side": {"enum": ["a", "b"]}, "finding": _FINDING, "other": _TEXT, "facts": _CHANGES})
_DIFFERENCE = _object(
    {
        "schema": {"const": DIFF},
        "tool": _object({"version": _TEXT}),
        "a": _SIDE,
        "b": _SIDE,
        "equal": _FLAG,
        "findings": {"type": "array", "items": _ONE_SIDED},
        "both": _TEXTS,
        "facts": {"type": "object", "additionalProperties": _CHANGES},
        "unread": _CHANGES,
        "moving": _CHANGES,
        "packages": {"type": "array", "items": _SINCE},
    }
)
_KEPT = _object(
    {
        "id": _TEXT,
        "time": _TEXT,
        "level": _DOCUMENT["properties"]["target"]["properties"]["level"],
        "verdict": _DOCUMENT["properties"]["verdict"],
        "python": _TEXT_OR_NULL,
        "findings": {"type": "array", "items": _object({"id": _TEXT, "severity": _TEXT, "title": _TEXT})},
        "trouble": _TEXT_OR_NULL,
    }
)
_HISTORY = _object({"schema": {"const": HISTORY}, "folder": _TEXT, "runs": {"type": "array", "items": _KEPT}})
_KINDS = {
    "diagnosis": _DOCUMENT,
    "snapshot": _SNAPSHOT,
    "kernels": _KERNELS,
    "plan": PLAN,
    "run": RUN,
    "stack": STACK,
    "fleet": FLEET,
    "diff": _DIFFERENCE,
    "history": _HISTORY,
}
_READ = {"profile": PROFILE}
"""What people write and we read: to what is promised of these, keys may be added, too."""


def text(kind: str = "diagnosis") -> str:
    """The schema of a diagnosis, of another of our documents, or of a profile, indented."""
    title = "gpudoctor document" if kind == "diagnosis" else f"gpudoctor {kind}"
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps({**head, **{**_KINDS, **_READ}[kind]}, indent=2)
