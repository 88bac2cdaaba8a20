"""What `gpudoctor explain` and the interface show of a rule or a fact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpudoctor.model.errors import DoctorError


def explained(name: str, folders: Sequence[Path]) -> str:
    """The page of the rule or the fact of that name; raises `DoctorError`, naming what is near, where there is none."""
    from gpudoctor import rulebook
    from gpudoctor.catalog import catalog
    from gpudoctor.rulebook.reading import facts_read
    from gpudoctor.views import explain

    book = rulebook.load(folders)
    if rule := book.find(name):
        return explain.rule_page(rule, rulebook.cases_of(rule, folders))
    if spec := catalog().find(name):
        return explain.fact_page(spec, [rule.id for rule in book.rules if spec.name in facts_read(rule)])
    raise DoctorError(_no_such(name, [rule.id for rule in book.rules]))


def _no_such(name: str, rules: Sequence[str]) -> str:
    from gpudoctor.knowledge import entries

    near = entries.nearest(name, [*rules, *entries.NAMES])
    meant = f"; near it: {', '.join(near)}" if near else ""
    return f"no rule, fact or table {name!r}{meant}; `gpudoctor rules list` shows the rules"
