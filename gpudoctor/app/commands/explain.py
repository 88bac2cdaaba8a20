"""``explain``: the page of a rule, what a fact means, what a table knows; the interface shows the same pages."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpudoctor import probes
from gpudoctor.app.output import SOUND
from gpudoctor.core.errors import DoctorError, UsageError
from gpudoctor.core.language import say
from gpudoctor.core.shipped import modules_of
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.diagnosis.expect.reading import line_name
from gpudoctor.diagnosis.knowledge import explain_tables
from gpudoctor.diagnosis.rulebook.check import is_id
from gpudoctor.diagnosis.rulebook.expressions import facts_read
from gpudoctor.views import explain as pages
from gpudoctor.views.tui.work import FactInfo

FACTS = "facts"
"""What lists facts, as if they were a table."""


def explain(options: argparse.Namespace) -> int:
    """``gpudoctor explain``: print the page of a rule, a fact or a table, or a list of facts; exit code 0.

    Raises `DoctorError` for a name that there is not, `UsageError` for a key of what is no table.
    """
    key = " ".join(options.key)
    if options.id == FACTS:
        specs, wanted = list(catalog().specs.values()), key.lower()
        topic = [spec for spec in specs if not wanted or spec.name.startswith(f"{wanted.rstrip('.')}.")]
        named = [spec for spec in specs if wanted in spec.name.lower()]
        matching = topic or named or [spec for spec in specs if wanted in spec.about.lower()]
        if not matching:
            raise DoctorError(
                say(
                    "no fact has {key} in its name or its meaning; `gpudoctor explain facts` lists them all",
                    key=repr(key),
                )
            )
        print(pages.fact_list(sorted(matching, key=lambda spec: spec.name)))
    elif options.id in explain_tables.NAMES:
        table = explain_tables.overview(options.id)
        print(pages.entries_page(table, explain_tables.entries(options.id, key)) if key else pages.table_page(table))
    elif key:
        raise UsageError(
            say(
                "only tables have keys: {names}; {id} is none",
                names=", ".join([FACTS, *explain_tables.NAMES]),
                id=repr(options.id),
            )
        )
    else:
        print(explained(options.id, options.rules))
    return SOUND


def explained(name: str, folders: Sequence[Path]) -> str:
    """The page of the rule or fact of that name, or of a profile's line (``expect.NAME``); raises `DoctorError`, with
    similar names, where there is none.
    """
    book = rulebook.load(folders)
    if rules := book.pages(name):
        return "\n\n".join(pages.rule_page(rule, rulebook.cases_of(rule, folders)) for rule in rules)
    every = (*book.rules, *book.cluster)
    if spec := catalog().find(name):
        return pages.fact_page(spec, [rule.id for rule in every if spec.name in facts_read(rule)])
    if name.startswith("expect."):
        facts = [spec for spec in catalog().specs.values() if f"expect.{line_name(spec.name)}" == name]
        return pages.line_page(name, facts)
    raise DoctorError(_unknown_name_message(name, [rule.id for rule in every], folders))


def fact_infos(folders: Sequence[Path]) -> Mapping[str, FactInfo]:
    """Meaning, unit, probe and reading rules of every fact that is declared or that a rule reads, by name.

    The rules are the shipped ones and the site's in `folders`, on one machine and on clusters.
    """
    readers: dict[str, list[str]] = {}
    book = rulebook.load(folders)
    for rule in (*book.rules, *book.cluster):
        for name in facts_read(rule):
            readers.setdefault(name, []).append(rule.id)
    probe_of = {spec.name: module.__name__.rpartition(".")[2] for module in modules_of(probes) for spec in module.FACTS}
    infos: dict[str, FactInfo] = {}
    for name in (*catalog().specs, *readers):
        if spec := catalog().find(name):
            infos[name] = FactInfo(spec.about, spec.unit, probe_of.get(spec.name, ""), tuple(readers.get(name, ())))
    return infos


_MOST_NAMED = 12


def _unknown_name_message(name: str, rules: Sequence[str], folders: Sequence[Path]) -> str:
    """The error for an unknown name: names that contain it, else similar ones; of an id of a site's page, how to name
    its folder.
    """
    names = [*rules, *catalog().specs]
    within = [each for each in names if name.lower() in each.lower()] if len(name) > 1 else []
    if within:
        more = say(" and {count} more", count=len(within) - _MOST_NAMED) if len(within) > _MOST_NAMED else ""
        meant = say("; it is part of {names}{more}", names=", ".join(within[:_MOST_NAMED]), more=more)
    else:
        near = explain_tables.nearest(name, [*names, *explain_tables.NAMES])
        meant = say("; near it: {names}", names=", ".join(near)) if near else ""
    topics = {each.partition(".")[0] for each in names}
    if is_id(name) and not folders and name.partition(".")[0] not in topics:
        meant += say(
            "; the page of a site's own rule needs its folder: `gpudoctor explain {name} --rules FOLDER`", name=name
        )
    return say(
        "no rule, fact or table {name}{meant}; `gpudoctor rules list` and `gpudoctor explain facts` show them",
        name=repr(name),
        meant=meant,
    )
