"""A command of the command line in a process of its own, as a tool asks it: it may hang or crash, and keeps nothing."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from typing import Any

from gpudoctor import shipped
from gpudoctor.model.errors import DoctorError
from gpudoctor.target.child import MARK, run_child

_MOST = 64 << 20
"""Bytes that a command may print."""

MISUSE = 2


def said(words: Sequence[str], seconds: float, stdin: str = "") -> str:
    """What the command prints. Raises `DoctorError` with its own sentence where it refuses, or does not end in time."""
    quiet = {"GPUDOCTOR_HISTORY": "off", "GPUDOCTOR_LANG": "en", "NO_COLOR": "1", "COLUMNS": "100"}
    env = {**os.environ, **quiet, MARK: secrets.token_hex(8)}
    answer = run_child([*shipped.program(), *words], seconds, env, stdin, _MOST)
    if answer.status is None or answer.status < 0 or answer.status == MISUSE or not answer.out.strip():
        last = (answer.err.strip().splitlines() or [answer.how])[-1]
        raise DoctorError(last.removeprefix("gpudoctor: ") if answer.status == MISUSE else f"{answer.how}: {last}")
    return answer.out


def document(words: Sequence[str], seconds: float, stdin: str = "") -> dict[str, Any]:
    """The JSON object that it prints."""
    text = said(words, seconds, stdin)
    try:
        found = json.loads(text)
    except ValueError as error:
        raise DoctorError(f"gpudoctor printed no document: {text[:200]!r}") from error
    if not isinstance(found, dict):
        raise DoctorError("gpudoctor printed several documents where one was meant")
    return found
