"""The JSON documents of the contract, each on one line: a diagnosis, the facts alone, or any other."""

from __future__ import annotations

import json
from typing import Any

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.snapshot import Snapshot


def render(diagnosis: Diagnosis) -> str:
    """The diagnosis as a JSON document on one line."""
    return line(diagnosis.to_json())


def facts(snapshot: Snapshot, tool_version: str) -> str:
    """The snapshot alone as a JSON document on one line, which `gpudoctor read` and `gpudoctor diff` accept."""
    raw = snapshot.to_json()
    return line({"schema": raw.pop("schema"), "tool": {"version": tool_version}, **raw})


def line(raw: Any) -> str:
    """The value as ASCII JSON on one line; lone surrogates, as from an undecodable file name, become U+FFFD."""
    text = json.dumps(raw, ensure_ascii=True, separators=(",", ":"))
    if "\\ud" in text:
        text = json.dumps(_without_surrogates(raw), ensure_ascii=True, separators=(",", ":"))
    return text


def _without_surrogates(raw: Any) -> Any:
    """A copy of a JSON value with lone surrogates in all its texts replaced by U+FFFD."""
    if isinstance(raw, str):
        return raw.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(raw, dict):
        return {_without_surrogates(key): _without_surrogates(value) for key, value in raw.items()}
    return [_without_surrogates(item) for item in raw] if isinstance(raw, (list, tuple)) else raw
