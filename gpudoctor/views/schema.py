"""The JSON Schemas (draft 2020-12) of our documents and of an expectation profile, printed by ``gpudoctor schema``."""

from __future__ import annotations

import json
from typing import Any, get_args

from gpudoctor.core.diagnosis import HISTORY_SCHEMA as HISTORY
from gpudoctor.core.diagnosis import REPLAY_SCHEMA as REPLAY
from gpudoctor.core.difference import SCHEMA as DIFF
from gpudoctor.core.fleet import SCHEMA as FLEETS
from gpudoctor.core.fleet import Kind, Verdict
from gpudoctor.core.fleet import Outcome as FleetOutcome
from gpudoctor.core.measurement import SCHEMA as KERNELS
from gpudoctor.core.measurement import Level, Meanwhile, Rung, Status
from gpudoctor.core.plan import SCHEMA as PLANS
from gpudoctor.core.plan import Requires
from gpudoctor.core.rule import CONFIDENCES, SEVERITIES
from gpudoctor.core.run import SCHEMA as RUNS
from gpudoctor.core.run import Outcome, State
from gpudoctor.core.snapshot import SCHEMA
from gpudoctor.core.stack import EMITS, TOOLS, Standing
from gpudoctor.core.stack import SCHEMA as STACKS

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}
NUMBER = {"type": "number"}
BOOLEAN = {"type": "boolean"}
_INTEGER = {"type": "integer"}
COUNT = {**_INTEGER, "minimum": 0}


def object_of(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """JSON Schema of an object with these required and optional keys; others are allowed: later versions add some."""
    return {"type": "object", "properties": {**required, **optional}, "required": list(required)}


def list_of(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """JSON Schema of an array of objects with these required and optional keys; other keys are allowed."""
    return {"type": "array", "items": object_of(required, **optional)}


def by_name(item: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema of an object with any keys, whose values have the schema `item`."""
    return {"type": "object", "additionalProperties": item}


def or_null(item: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema that allows either `item` or null."""
    return {"oneOf": [item, {"type": "null"}]}


# ---- The check of many hosts ----

_OUTCOME = {"enum": list(get_args(FleetOutcome))}
_RESULT = {"oneOf": [_OUTCOME, object_of({"outcome": _OUTCOME}, words=TEXT, finding=TEXT, ratio=NUMBER)]}
_PAIRS = {"type": "array", "items": {**TEXTS, "minItems": 2, "maxItems": 2}}
_PAIRWISE = object_of(
    {
        **dict.fromkeys(("title", "unit"), TEXT),
        "expected": NUMBER,
        "names": TEXTS,
        "measured": {"type": "array", "items": {"type": "array", "items": {"type": ["number", "null"]}}},
        "wrong": _PAIRS,
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
FLEET = object_of(
    {
        "schema": {"const": FLEETS},
        **dict.fromkeys(("name", "at"), TEXT),
        "seconds": NUMBER,
        "verdict": {"enum": list(get_args(Verdict))},
        "hosts": list_of({"name": TEXT}, **dict.fromkeys(("switch", "gpu", "because"), TEXT), gpus=COUNT),
        "checks": list_of(dict.fromkeys(("id", "title", "short"), TEXT)),
        "results": by_name(by_name(_RESULT)),
        "pairwise": or_null(_PAIRWISE),
        "suspects": list_of(_SUSPECT),
        "drain": list_of({"hosts": TEXTS, "reason": TEXT, "argv": TEXTS}),
    }
)


# ---- A torch stack ----

_WISHES = object_of(
    {
        "gpus": list_of({"name": TEXT, "compute_capability": TEXT, "count": COUNT}),
        **dict.fromkeys(("driver", "python", "os", "arch", "libc", "distribution", "torch"), TEXT),
        "tool": {"enum": list(TOOLS)},
        "emit": {"enum": list(EMITS)},
        **dict.fromkeys(("extras", "wants", "said"), TEXTS),
    }
)
_ARGVS: dict[str, object] = {"type": "array", "items": TEXTS}
_REMEDY = {**dict.fromkeys(("field", "value", "text", "least"), TEXT), "also": {"type": "array"}}
STACK = object_of(
    {
        "schema": {"const": STACKS},
        "wishes": _WISHES,
        **dict.fromkeys(("torch", "heading"), TEXT),
        **dict.fromkeys(("packages", "libraries"), _PAIRS),
        "needs": list_of({**dict.fromkeys(("what", "needed", "have"), TEXT), "met": BOOLEAN}, because=TEXT),
        "commands": by_name({"type": "array", "items": TEXTS}),
        "files": by_name(TEXT),
        "reasons": list_of({"candidate": TEXT, "standing": {"enum": list(get_args(Standing))}, "because": TEXT}),
        **dict.fromkeys(("remarks", "sources"), TEXTS),
        "smallest": list_of(_REMEDY, commands=_ARGVS, installs=_ARGVS),
        "downloads_mib": {"type": ["number", "null"]},
        "offers": by_name(TEXTS),
        "makes": {"type": "object"},
    }
)


# ---- An expectation profile ----
# For editors of TOML: ``#:schema profile.json`` as its first line. Names
# of facts and kernels are checked where the profile is read, which knows them all.

_PLAIN_EXPECTATION: dict[str, Any] = {
    "description": "what it must be: 8, true, a text, one of several, or a range: >= 570, < 590",
    "type": ["string", "number", "boolean", "array"],
    "items": {"type": ["string", "number"]},
}
_NEEDS = {"type": "array", "items": {"enum": ["root", "reboot", "network", "downtime"]}}
_FINDING_KEYS: dict[str, Any] = {
    "severity": {"enum": list(SEVERITIES), "description": "of the finding where it is not so; error by default"},
    "why": {**TEXT, "description": "what follows from it"},
    "do": {"oneOf": [TEXT, TEXTS], "description": "what to do: a sentence, or a command as a list of words"},
    "needs": _NEEDS,
}
_EXPECTATION: dict[str, Any] = {
    "is": _PLAIN_EXPECTATION,
    "not": {**_PLAIN_EXPECTATION, "description": "what it must not be"},
    "matches": {**TEXT, "description": "a regular expression that must be found in it"},
    "has": {**TEXTS, "description": "of a list: these are in it"},
    "lacks": {**TEXTS, "description": "of a list: none of these is in it"},
    "present": {"type": "boolean", "description": "false: it must not be there"},
    "where": {**TEXT, "description": "a condition: only rows for which it holds count"},
    "at_least": {"type": "integer", "minimum": 0, "description": "how many rows are enough; by default all"},
    **_FINDING_KEYS,
}
_TABLE = {
    "description": "facts by name: gpu.count = 8; gpudoctor explain FACT tells what one means",
    "type": "object",
    "propertyNames": {"not": {"enum": list(_EXPECTATION)}},
    "additionalProperties": {"anyOf": [_PLAIN_EXPECTATION, {"$ref": "#/$defs/entry"}, {"$ref": "#/$defs/facts"}]},
}
_LINE = {
    "type": "object",
    "properties": {
        "when": {"oneOf": [TEXT, {**TEXTS, "minItems": 1}], "description": "conditions, all of which must hold"},
        "each": {**TEXT, "description": "the group of which every row is judged: gpu, nvlink, rdma"},
        "says": {**TEXT, "description": "the sentence where it does not hold, with facts in braces"},
        "fact": {**TEXT, "description": "in place of when: a fact, which must be as the other keys say"},
        **_EXPECTATION,
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
        "entry": {"type": "object", "properties": _EXPECTATION, "additionalProperties": False, "minProperties": 1},
    },
}


# ---- A plan, its run, and the steps that plans and fixes have ----

STEP = object_of(
    {
        "argv": TEXTS,
        "text": TEXT,
        "needs": _NEEDS,
        "touches": {"enum": ["environment", "system", "hardware", "nothing"]},
    }
)
_CHANGE = object_of({"name": TEXT, "before": TEXT, "after": TEXT})
PLAN = object_of(
    {
        "schema": {"const": PLANS},
        **dict.fromkeys(("title", "machine", "environment"), TEXT),
        "before": TEXTS,
        "downloads_mib": {"type": ["number", "null"]},
        "undo": TEXTS,
        "ways": list_of({"cause": TEXT, "number": COUNT, "title": TEXT, "undo": TEXT}),
        "steps": list_of(
            {
                **dict.fromkeys(("id", "title", "makes_true", "cause", "verify", "hindrance"), TEXT),
                **STEP["properties"],
                "way": COUNT,
                "changes": {"type": "array", "items": _CHANGE},
                "chosen": BOOLEAN,
                "makes": {"type": "object"},
                "requires": list_of({"kind": {"enum": list(get_args(Requires))}, "subject": TEXT, "mib": NUMBER}),
            }
        ),
    },
    foreseen=object_of(dict.fromkeys(("cleared", "stays", "new", "unjudged"), TEXTS)),
)
_RAN = object_of(
    {
        "state": {"enum": list(get_args(State))},
        "seconds": NUMBER,
        "status": {"type": ["integer", "null"]},
        "output": TEXTS,
        "dropped": COUNT,
    }
)
RUN = object_of(
    {
        "schema": {"const": RUNS},
        **dict.fromkeys(("id", "began", "undoes", "why"), TEXT),
        "over": BOOLEAN,
        "outcome": {"enum": list(get_args(Outcome))},
        **dict.fromkeys(("worse", "changed"), TEXTS),
        "judged": by_name(BOOLEAN),
        "steps": {"type": "array", "items": _RAN},
        "plan": PLAN,
    }
)


# ---- A diagnosis, and what is made of one ----

_TEXT_OR_NULL = {"type": ["string", "null"]}
_REASON = TEXT
"""A word of `gpudoctor.core.fact.Reason`; later versions may add words."""
_FACT = {
    "oneOf": [
        object_of({"value": {}, "source": TEXT}),
        object_of({"absent": TEXT}, reason=_REASON),
        object_of({"unread": TEXT}, asked=BOOLEAN, reason=_REASON),
    ]
}
_FIX = object_of({"title": TEXT, "steps": {"type": "array", "items": STEP}, "verify": TEXT, "undo": TEXT})
_EVIDENCE = object_of({"fact": TEXT, "value": {}, "source": TEXT}, absent=TEXT, reason=_REASON, index=COUNT)
_SINCE = object_of(
    {
        "what": TEXT,
        **dict.fromkeys(("before", "after", "at", "by"), _TEXT_OR_NULL),
        "source": TEXT,
        "worked": _TEXT_OR_NULL,
    }
)
_FINDING = object_of(
    {
        "id": {"type": "string", "pattern": r"^[a-z]+\.[a-z0-9-]+$"},
        "layer": TEXT,
        "severity": {"enum": list(SEVERITIES)},
        "role": {"enum": ["cause", "symptom"]},
        "confidence": {"enum": list(CONFIDENCES)},
        **dict.fromkeys(("title", "why"), TEXT),
        "subject": {"type": ["object", "null"]},
        "subjects": {"type": "array", "items": {"type": "object"}, "minItems": 2},
        "evidence": {"type": "array", "items": _EVIDENCE, "minItems": 1},
        "explains": TEXTS,
        "fixes": {"type": "array", "items": _FIX},
        "references": TEXTS,
        "confirm": TEXT,
        "by_rule": TEXTS,
        "since": {"type": "array", "items": _SINCE},
    }
)
_FINDING["required"] = [key for key in _FINDING["required"] if key not in ("since", "subjects")]
_DOCUMENT = object_of(
    {
        "schema": {"const": SCHEMA},
        "tool": object_of({"version": TEXT}),
        "target": object_of(
            {
                "kind": {"enum": ["local", "report", "snapshot", "node", "fleet"]},
                "name": TEXT,
                "python": _TEXT_OR_NULL,
                "level": {"enum": ["quick", "standard", "deep"]},
            }
        ),
        "verdict": {"enum": ["sound", "impaired", "broken", "unknown"]},
        "findings": {"type": "array", "items": _FINDING},
        "counts": object_of({"found": COUNT, "unjudged": COUNT, "passed": COUNT}),
        "unjudged": list_of({"id": TEXT, "because": TEXT}, reason=_REASON, fact=TEXT),
        "passed": TEXTS,
        "notes": list_of({"facts": TEXTS, "text": TEXT, "rules": TEXTS}),
        "facts": by_name({"oneOf": [_FACT, {"type": "array", "items": by_name(_FACT)}]}),
        "timings_ms": by_name(NUMBER),
    },
    fleet=FLEET,
)
_SNAPSHOT = object_of(
    {key: _DOCUMENT["properties"][key] for key in ("schema", "tool", "target", "facts", "timings_ms")}
)
_LADDER = list_of({"rung": {"enum": list(get_args(Rung))}}, held=BOOLEAN, message=TEXT)
_EXPECTED = object_of(
    {"value": NUMBER, "how": {"enum": ["table", "siblings"]}},
    **dict.fromkeys(("limit", "fraction"), NUMBER),
    **dict.fromkeys(("words", "source"), TEXT),
)
_SAMPLED = (name for name in Meanwhile.__dataclass_fields__ if name != "reasons")
_MEANWHILE = object_of({}, **dict.fromkeys(_SAMPLED, NUMBER), reasons=TEXTS)
_RUN = object_of(
    {"kernel": TEXT, "gpu": {"type": "integer", "minimum": -1}, "status": {"enum": list(get_args(Status))}},
    **dict.fromkeys(("value", "spread"), NUMBER),
    **dict.fromkeys(("differ", "compared"), _INTEGER),
    **dict.fromkeys(("words", "because", "advice"), TEXT),
    right=BOOLEAN,
    details={"type": "object"},
    ladder=_LADDER,
    expected=_EXPECTED,
    meanwhile=_MEANWHILE,
)
_KERNEL = object_of(
    {"id": TEXT, "title": TEXT, "level": {"enum": list(get_args(Level))}, "rung": {"enum": list(get_args(Rung))}},
    **dict.fromkeys(("unit", "size"), TEXT),
)
_KERNELS = object_of(
    {
        "schema": {"const": KERNELS},
        **dict.fromkeys(("target", "at"), TEXT),
        "kernels": {"type": "array", "items": _KERNEL},
        "devices": list_of({"index": _INTEGER}, name=TEXT, held=TEXT, uuid=TEXT),
        "runs": {"type": "array", "items": _RUN},
        "verdict": _DOCUMENT["properties"]["verdict"],
        "findings": _DOCUMENT["properties"]["findings"],
    },
    because=TEXT,
)
_FACT_OR_NULL = {"oneOf": [*_FACT["oneOf"], {"type": "null"}]}
_CHANGES = list_of({"fact": TEXT, "row": _TEXT_OR_NULL, "a": _FACT_OR_NULL, "b": _FACT_OR_NULL})
_SIDE = object_of({key: _DOCUMENT["properties"][key] for key in ("target", "verdict")})
_ONE_SIDED = object_of({"side": {"enum": ["a", "b"]}, "finding": _FINDING, "other": TEXT, "facts": _CHANGES})
_DIFFERENCE = object_of(
    {
        "schema": {"const": DIFF},
        "tool": object_of({"version": TEXT}),
        "a": _SIDE,
        "b": _SIDE,
        "equal": BOOLEAN,
        "findings": {"type": "array", "items": _ONE_SIDED},
        "both": TEXTS,
        "facts": by_name(_CHANGES),
        **dict.fromkeys(("unread", "moving"), _CHANGES),
        "packages": {"type": "array", "items": _SINCE},
    }
)
_KEPT = object_of(
    {
        **dict.fromkeys(("id", "time"), TEXT),
        "level": {"enum": ["quick", "standard", "deep"]},
        "verdict": _DOCUMENT["properties"]["verdict"],
        "python": _TEXT_OR_NULL,
        "findings": list_of(dict.fromkeys(("id", "severity", "title"), TEXT)),
        **dict.fromkeys(("trouble", "command"), _TEXT_OR_NULL),
    }
)
_HISTORY = object_of({"schema": {"const": HISTORY}, "folder": TEXT, "runs": {"type": "array", "items": _KEPT}})
_REPLAY = object_of(
    {
        "schema": {"const": REPLAY},
        "profile": _TEXT_OR_NULL,
        "machines": _INTEGER,
        "drained": TEXTS,
        "files": list_of(
            {
                **dict.fromkeys(("file", "machine", "at"), TEXT),
                "drained": BOOLEAN,
                "causes": list_of({"id": TEXT, "title": TEXT}),
                "trouble": _TEXT_OR_NULL,
            }
        ),
    }
)
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
    "replay": _REPLAY,
}
_READ = {"profile": PROFILE}
"""Documents that users write; later versions may add keys to them."""


def text(kind: str = "diagnosis") -> str:
    """The JSON Schema of the document or profile of that kind, as indented JSON; an unknown kind raises KeyError."""
    title = "gpudoctor document" if kind == "diagnosis" else f"gpudoctor {kind}"
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps({**head, **{**_KINDS, **_READ}[kind]}, indent=2)
