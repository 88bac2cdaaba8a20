"""What `gpudoctor explain` and the interface show of a rule or a fact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.model.errors import DoctorError

if TYPE_CHECKING:
    from gpudoctor.views.tui.work import Told


def explained(name: str, folders: Sequence[Path]) -> str:
    """The page of the rule or the fact of that name; raises `DoctorError`, naming what is near, where there is none."""
    from gpudoctor import rulebook
    from gpudoctor.catalog import catalog
    from gpudoctor.rulebook.reading import facts_read
    from gpudoctor.views import explain

    book = rulebook.load(folders)
    if rules := book.pages(name):
        return "\n\n".join(explain.rule_page(rule, rulebook.cases_of(rule, folders)) for rule in rules)
    every = (*book.rules, *book.cluster)
    if spec := catalog().find(name):
        return explain.fact_page(spec, [rule.id for rule in every if spec.name in facts_read(rule)])
    raise DoctorError(_no_such(name, [rule.id for rule in every]))


def facts_told(folders: Sequence[Path]) -> Mapping[str, Told]:
    """Every fact that is declared or that a rule reads: its meaning, which probe tells it and which rules read it."""
    from gpudoctor import probes, rulebook
    from gpudoctor.catalog import catalog
    from gpudoctor.discovery import modules_of
    from gpudoctor.rulebook.reading import facts_read
    from gpudoctor.views.tui.work import Told

    readers: dict[str, list[str]] = {}
    for rule in rulebook.load(folders).rules:
        for name in facts_read(rule):
            readers.setdefault(name, []).append(rule.id)
    tells = {spec.name: module.__name__.rpartition(".")[2] for module in modules_of(probes) for spec in module.FACTS}
    told: dict[str, Told] = {}
    for name in (*catalog().specs, *readers):
        if spec := catalog().find(name):
            told[name] = Told(spec.about, spec.unit, tells.get(spec.name, ""), tuple(readers.get(name, ())))
    return told


def _no_such(name: str, rules: Sequence[str]) -> str:
    from gpudoctor.knowledge import entries

    near = entries.nearest(name, [*rules, *entries.NAMES])
    meant = f"; near it: {', '.join(near)}" if near else ""
    return f"no rule, fact or table {name!r}{meant}; `gpudoctor rules list` shows the rules"
