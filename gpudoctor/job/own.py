"""This machine's own check, in a process of its own: it may hang or crash, and it must not hold up what is measured."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from gpudoctor import shipped
from gpudoctor.job.wire import Message
from gpudoctor.target import rights
from gpudoctor.target.child import MARK, run_child

_MOST = 64 << 20
"""Bytes of a document."""


class CheckFailedError(Exception):
    """The check gave no document; the words say why."""


def document(
    level: str, python: str | None, rules: Sequence[Path], seconds: float, expect: str | None = None
) -> Message:
    """What ``gpudoctor check --json`` says here. Raises `CheckFailedError` where it says nothing in that time."""
    words = ["check", "--json", "--level", level]
    words += ["--python", python] if python else []
    words += [word for folder in rules for word in ("--rules", str(folder))]
    words += ["--expect", expect] if expect else []
    argv = [*shipped.program(), *words, *rights.words()]
    try:
        answer = run_child(argv, seconds, {**os.environ, MARK: secrets.token_hex(8)}, limit=_MOST)
    except OSError as error:
        raise CheckFailedError(f"it cannot be started: {error}") from error
    try:
        document = json.loads(answer.out)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        last = answer.err.strip().splitlines()[-1:] or [answer.how]
        raise CheckFailedError(f"{answer.how}: {last[0]}" if last[0] != answer.how else answer.how)
    return document
