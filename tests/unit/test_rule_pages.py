"""Every page's cases hold, and every finding follows from its evidence alone."""

from __future__ import annotations

import re

import pytest

from gpudoctor import rulebook
from gpudoctor.arguments import COMMANDS
from gpudoctor.model.rule import Case
from gpudoctor.rulebook.setups import setups
from gpudoctor.ruletest import failure

BOOK = rulebook.load()
CASES = rulebook.cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}: {case.name}")
def test_a_page_keeps_its_word(case: Case) -> None:
    rule = next(page for page in BOOK.pages(case.rule) if page.scope == case.scope)
    assert rule is not None
    assert failure(case, rule) is None


def test_a_fix_names_no_command_that_we_do_not_have() -> None:
    ours = [
        step.argv[1]
        for rule in BOOK.rules
        for fix in rule.fixes
        for step in fix.steps
        if step.argv[:1] == ("gpudoctor",)
    ]
    assert set(ours) <= set(COMMANDS)


def test_a_reset_interrupts_jobs_and_both_it_and_a_reboot_need_root() -> None:
    pages = [*(rule.fixes for rule in BOOK.rules), *(setup.fixes for setup in setups().values())]
    steps = [step for fixes in pages for fix in fixes for step in fix.steps]
    resets = [step for step in steps if "--gpu-reset" in step.argv]
    reboots = [step for step in steps if "reboot" in step.argv]
    assert resets
    assert [step.argv for step in resets if not {"root", "downtime"} <= {*step.needs}] == []
    assert [step.argv for step in reboots if not {"root", "reboot"} <= {*step.needs}] == []


def test_what_precedes_a_lines_words_stays_on_the_line() -> None:
    """``^\\W*`` reads on over lines without a word, from each of them anew; the next line has a ``^`` of its own."""
    signs = [(rule.id, sign.match) for rule in BOOK.rules for sign in rule.signs]
    assert [name for name, match in signs if re.search(r"\^\\W[*+]", match)] == []
