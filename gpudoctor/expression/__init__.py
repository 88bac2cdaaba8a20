"""Conditions of rule pages: Python expressions over facts, judged in three values.

A name such as ``driver.version`` is a fact, ``gpu`` without a column all rows of a group, and inside a rule with
``each = "gpu"`` the one row being judged. An unread fact makes the expression *unjudged*, unless another part settles
it (``false and unread`` is false, ``true or unread`` is true). An absent fact is no value at all: every comparison
with it is false, ``absent(name)`` is true. Every fact touched is remembered: that is the evidence.
"""

from __future__ import annotations

from gpudoctor.expression.facts import Facts, GroupRow, Mentioned, Touched
from gpudoctor.expression.functions import BUILTINS
from gpudoctor.expression.language import Evaluator, evaluate, parse, selected
from gpudoctor.expression.sentences import NOT_KNOWN, fill

__all__ = [
    "BUILTINS",
    "NOT_KNOWN",
    "Evaluator",
    "Facts",
    "GroupRow",
    "Mentioned",
    "Touched",
    "evaluate",
    "fill",
    "parse",
    "selected",
]
