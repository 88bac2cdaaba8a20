"""``rules list``, ``rules test``, ``rules new``: the rulebook and a site's own pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudoctor.app import output, ruletest
from gpudoctor.app.commands.exits import BROKEN, SOUND
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.rulebook import skeleton
from gpudoctor.views import explain

if TYPE_CHECKING:
    import argparse


def rules_list(options: argparse.Namespace) -> int:
    """``gpudoctor rules list``: print every rule; exit code 0."""
    book = rulebook.load(options.rules)
    print(explain.rule_list([*book.rules, *book.cluster]))
    return SOUND


def rules_test(options: argparse.Namespace) -> int:
    """``gpudoctor rules test``: run the cases of rule pages; 1 if any fails."""
    failures = ruletest.run(options.places)
    print(failures.report)
    return BROKEN if failures.count else SOUND


def rules_new(options: argparse.Namespace) -> int:
    """``gpudoctor rules new``: write a new rule page to fill in, and print what to do next; exit code 0."""
    path = skeleton.place(options.id, options.layer, options.folder, rulebook.load().rules)
    output.put_new(skeleton.page(options.id), path)
    print(skeleton.next_steps(path, options.folder))
    return SOUND
