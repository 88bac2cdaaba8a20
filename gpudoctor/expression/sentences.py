"""Sentences with expressions between braces, filled with what these are worth."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpudoctor.expression.functions import show
from gpudoctor.expression.language import Evaluator, evaluate
from gpudoctor.model.pattern import pattern
from gpudoctor.model.values import CannotJudge, Nothing

NOT_KNOWN = "(not known)"
_LONGEST = 1000
"""Characters of a value in a sentence."""
_BREAKS = pattern(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
_HOLE = pattern(r"\{([^{}]+)\}")


def fill(template: str, evaluator: Evaluator, extra: Mapping[str, str] | None = None) -> str:
    """The template with each ``{expression}`` replaced by its value; an unread one reads ``(not known)``.

    ``{expression | words}`` reads those words where the value is unread or absent, ``{expression | ''}`` nothing then.
    """

    def value(match: re.Match[str]) -> str:
        inner, mark, otherwise = (part.strip() for part in match.group(1).partition("|"))
        otherwise = "" if otherwise == "''" else otherwise
        if extra and inner in extra:
            return _one_line(extra[inner])
        try:
            found = evaluate(inner, evaluator)
        except CannotJudge:
            return otherwise if mark else NOT_KNOWN
        return otherwise if mark and isinstance(found, Nothing) else _one_line(show(found))

    return _HOLE.sub(value, template)


def _one_line(text: str) -> str:
    """What a machine or a report said, so that it cannot pass for a sentence of ours: no line of its own, and cut."""
    text = _BREAKS.sub(" ", text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
