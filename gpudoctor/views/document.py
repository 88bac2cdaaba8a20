"""The JSON documents of the contract, each on one line: a diagnosis, the facts alone, or any other."""

from __future__ import annotations

import json
from typing import Any

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.snapshot import Snapshot


def render(diagnosis: Diagnosis) -> str:
    """One document, one line."""
    return line(diagnosis.to_json())


def facts(snapshot: Snapshot, tool_version: str) -> str:
    """The facts as they were read, which `gpudoctor read` and `gpudoctor diff` take."""
    raw = snapshot.to_json()
    document = {"schema": raw.pop("schema"), "tool": {"version": tool_version}, **raw}
    return line(document)


def line(raw: Any) -> str:
    """JSON on one line that every parser takes: half a surrogate pair, as in a file's broken name, is replaced."""
    text = json.dumps(raw, ensure_ascii=True, separators=(",", ":"))
    if "\\ud" in text:
        text = json.dumps(_paired(raw), ensure_ascii=True, separators=(",", ":"))
    return text


def _paired(raw: Any) -> Any:
    if isinstance(raw, str):
        return raw.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(raw, dict):
        return {_paired(key): _paired(value) for key, value in raw.items()}
    return [_paired(item) for item in raw] if isinstance(raw, (list, tuple)) else raw
