"""Every page's cases hold, and every finding follows from its evidence alone."""

from __future__ import annotations

import re

import pytest

from gpudoctor.app.arguments import COMMANDS
from gpudoctor.app.ruletest import failure
from gpudoctor.core.rule import Rule
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.rulebook.setups import setups

BOOK = rulebook.load()
CASES = rulebook.cases()


@pytest.mark.parametrize("rule", [*BOOK.rules, *BOOK.cluster], ids=lambda rule: f"{rule.scope}: {rule.id}")
def test_a_page_keeps_its_word(rule: Rule) -> None:
    cases = [case for case in CASES if (case.rule, case.scope) == (rule.id, rule.scope)]
    assert cases
    assert {case.name: why for case in cases if (why := failure(case, rule)) is not None} == {}


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
