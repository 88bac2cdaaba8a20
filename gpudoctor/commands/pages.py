"""What gpudoctor knows, shown: ``explain``, ``rules list``, ``rules test``, ``rules new``, ``schema``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudoctor.commands.exits import BROKEN, SOUND
from gpudoctor.model.errors import UsageError

if TYPE_CHECKING:
    import argparse

FACTS = "facts"
"""What lists facts, as if they were a table."""


def explain(options: argparse.Namespace) -> int:
    from gpudoctor.knowledge import entries

    key = " ".join(options.key)
    if options.id == FACTS:
        from gpudoctor.explaining import facts_listed

        print(facts_listed(key))
    elif options.id in entries.NAMES:
        print(_explained_table(options.id, key))
    elif key:
        raise UsageError(f"only tables have keys: {', '.join([FACTS, *entries.NAMES])}; {options.id!r} is none")
    else:
        from gpudoctor.explaining import explained

        print(explained(options.id, options.rules))
    return SOUND


def _explained_table(name: str, key: str) -> str:
    from gpudoctor.knowledge import entries
    from gpudoctor.views import tables

    table = entries.overview(name)
    return tables.entries_page(table, entries.entries(name, key)) if key else tables.table_page(table)


def rules_list(options: argparse.Namespace) -> int:
    from gpudoctor import rulebook
    from gpudoctor.views import explain

    book = rulebook.load(options.rules)
    print(explain.rule_list([*book.rules, *book.cluster]))
    return SOUND


def rules_test(options: argparse.Namespace) -> int:
    from gpudoctor import ruletest

    failures = ruletest.run(options.places)
    print(failures.report)
    return BROKEN if failures.count else SOUND


def rules_new(options: argparse.Namespace) -> int:
    from gpudoctor import output, rulebook
    from gpudoctor.rulebook import skeleton

    path = skeleton.place(options.id, options.layer, options.folder, rulebook.load().rules)
    output.put_new(skeleton.page(options.id), path)
    print(skeleton.next_steps(path, options.folder))
    return SOUND


def schema(options: argparse.Namespace) -> int:
    from gpudoctor.views import schema

    print(schema.text(options.kind))
    return SOUND
