"""Sentences with expressions between braces, filled with what these are worth."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpudoctor.expression.functions import show
from gpudoctor.expression.language import Evaluator, evaluate
from gpudoctor.model.pattern import pattern
from gpudoctor.model.values import CannotJudge, Nothing

NOT_KNOWN = "(not known)"
_HOLE = pattern(r"\{([^{}]+)\}")


def fill(template: str, evaluator: Evaluator, extra: Mapping[str, str] | None = None) -> str:
    """The template with each ``{expression}`` replaced by its value; an unread one reads ``(not known)``.

    ``{expression | words}`` reads those words where the value is unread or absent, ``{expression | ''}`` nothing then.
    """

    def value(match: re.Match[str]) -> str:
        inner, mark, otherwise = (part.strip() for part in match.group(1).partition("|"))
        otherwise = "" if otherwise == "''" else otherwise
        if extra and inner in extra:
            return extra[inner]
        try:
            found = evaluate(inner, evaluator)
        except CannotJudge:
            return otherwise if mark else NOT_KNOWN
        return otherwise if mark and isinstance(found, Nothing) else show(found)

    return _HOLE.sub(value, template)
