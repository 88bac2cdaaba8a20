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
    if name.startswith("expect."):
        return _line_page(name)
    raise DoctorError(_no_such(name, [rule.id for rule in every]))


def facts_listed(word: str) -> str:
    """The facts of that topic, else those that have the word in their names, else in what they mean; all for none.

    Raises `DoctorError` where there is none.
    """
    from gpudoctor.catalog import catalog
    from gpudoctor.views import explain

    specs, asked = list(catalog().specs.values()), word.lower()
    topic = [spec for spec in specs if not asked or spec.name.startswith(f"{asked.rstrip('.')}.")]
    named = [spec for spec in specs if asked in spec.name.lower()]
    found = topic or named or [spec for spec in specs if asked in spec.about.lower()]
    if not found:
        raise DoctorError(f"no fact has {word!r} in its name or its meaning; `gpudoctor explain facts` lists them all")
    return explain.fact_list(sorted(found, key=lambda spec: spec.name))


def _line_page(name: str) -> str:
    """What a finding of that id is: a line of somebody's profile that is unmet."""
    from gpudoctor.catalog import catalog
    from gpudoctor.expect.entries import line_name
    from gpudoctor.views import explain

    facts = [spec for spec in catalog().specs.values() if f"expect.{line_name(spec.name)}" == name]
    return explain.line_page(name, facts)


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


_MOST_NAMED = 12


def _no_such(name: str, rules: Sequence[str]) -> str:
    """Who looks for a word is told in which names it is; of a misspelt name, those that are near it."""
    from gpudoctor.catalog import catalog
    from gpudoctor.knowledge import entries

    names = [*rules, *catalog().specs]
    within = [one for one in names if name.lower() in one.lower()] if len(name) > 1 else []
    if within:
        more = f" and {len(within) - _MOST_NAMED} more" if len(within) > _MOST_NAMED else ""
        meant = f"; it is part of {', '.join(within[:_MOST_NAMED])}{more}"
    else:
        near = entries.nearest(name, [*names, *entries.NAMES])
        meant = f"; near it: {', '.join(near)}" if near else ""
    return f"no rule, fact or table {name!r}{meant}; `gpudoctor rules list` and `gpudoctor explain facts` show them"
