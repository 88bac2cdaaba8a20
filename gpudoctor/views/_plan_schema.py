"""The JSON Schemas of a plan and of its run, and of the steps that plans and fixes have."""

from __future__ import annotations

from typing import get_args

from gpudoctor.model.plan import SCHEMA as PLANS
from gpudoctor.model.plan import Requires
from gpudoctor.model.run import SCHEMA as RUNS
from gpudoctor.model.run import Outcome, State
from gpudoctor.views._schema_parts import COUNT, FLAG, NUMBER, TEXT, TEXTS, of

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
