"""The JSON Schema of an expectation profile, for editors of TOML: ``#:schema profile.json`` as its first line.

Names of facts and kernels are checked where the profile is read, which knows them all.
"""

from __future__ import annotations

from typing import Any

from gpudoctor.model.rule import SEVERITIES
from gpudoctor.views._schema_parts import TEXT, TEXTS

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
