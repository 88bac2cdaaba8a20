"""How a child process answers: its lines, its noise, our patience.

A child prints each answer as one line: `MARK` and a JSON object. Whatever else lands on its standard output (a
``.pth`` file that prints, a library that greets) is no answer and does no harm.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from gpudoctor.core.fact import Known, Row
from gpudoctor.core.secrets import without_secrets

MARK = "@gpudoctor "
TEXT_LINES = 200
_LINE = 1000


def answers(out: str) -> Iterator[dict[str, Any]]:
    """The JSON objects behind `MARK` in a child's output, in order; lines that are no such object are skipped."""
    for line in out.split("\n"):
        if not line.startswith(MARK):
            continue
        try:
            entry = json.loads(line[len(MARK) :])
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield entry


def printable(text: object, limit: int = 300) -> str:
    """The text with secrets removed and unprintable characters escaped, cut to `limit` characters."""
    cut = without_secrets(str(text)[: limit + 4096])[:limit]
    return (
        cut
        if cut.isprintable()
        else "".join(character if character.isprintable() else ascii(character)[1:-1] for character in cut)
    )


def text_rows(text: str, source: str) -> tuple[Row, ...]:
    """Non-blank lines of machine-printed text as rows of the group ``text``; of more than 200 the first and last."""
    lines = [printable(line.replace("\t", "    "), _LINE) for line in text.splitlines() if line.strip()]
    if len(lines) > TEXT_LINES:
        lines = lines[: TEXT_LINES // 2] + lines[-TEXT_LINES // 2 :]
    return tuple({"line": Known(line, source)} for line in lines)


def patience(variable: str, default: float) -> float:
    """Seconds to wait: the environment variable's number where it is above 0 and below 3600, else `default`."""
    try:
        seconds = float(os.environ.get(variable, ""))
    except ValueError:
        return default
    return seconds if 0 < seconds < 3600 else default
