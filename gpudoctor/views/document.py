"""The JSON documents of the contract, each on one line: a diagnosis, or the facts alone."""

from __future__ import annotations

import json

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.snapshot import Snapshot


def render(diagnosis: Diagnosis) -> str:
    """One document, one line."""
    return json.dumps(diagnosis.to_json(), ensure_ascii=True, separators=(",", ":"))


def facts(snapshot: Snapshot, tool_version: str) -> str:
    """The facts as they were read, which `gpudoctor read` and `gpudoctor diff` take."""
    raw = snapshot.to_json()
    document = {"schema": raw.pop("schema"), "tool": {"version": tool_version}, **raw}
    return json.dumps(document, ensure_ascii=True, separators=(",", ":"))
