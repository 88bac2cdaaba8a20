"""Every page's cases hold, and every finding follows from its evidence alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from gpudoctor.app.arguments import COMMANDS
from gpudoctor.app.commands.rules import failure
from gpudoctor.core.frozen import replace
from gpudoctor.core.rule import Rule
from gpudoctor.diagnosis import pages, rulebook
from gpudoctor.diagnosis.rulebook.compiled import setups

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


_LONGEST = {"when": 200, "unless": 200, "subjects": 200, "let": 200, "match": 300}
"""Characters of a condition and of a pattern that a person reads at once."""


def _texts(part: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a page but for its cases, and the key under which it stands."""
    if isinstance(part, dict):
        for name, value in part.items():
            yield from () if name == "case" else _texts(value, key if key == "let" else name)
    elif isinstance(part, list):
        for value in part:
            yield from _texts(value, key)
    elif isinstance(part, str):
        yield key, part


@pytest.mark.parametrize("rule", [*BOOK.rules, *BOOK.cluster], ids=lambda rule: f"{rule.scope}: {rule.id}")
def test_a_page_is_read_at_once(rule: Rule) -> None:
    """No long condition or pattern, no choice within a sentence, and no more than 150 lines before its cases."""
    path = pages.home() / rule.origin
    texts = list(_texts(pages.toml(path)))
    assert [text for key, text in texts if len(text.strip()) > _LONGEST.get(key, 10_000)] == []
    assert [text for key, text in texts if re.search(r"\{[^{}]* if [^{}]* else [^{}]*\}", text)] == []
    before = re.split(r"^\[\[case\]\]", path.read_text("utf-8"), maxsplit=1, flags=re.MULTILINE)[0]
    assert before.count("\n") <= 150


@pytest.mark.full
@pytest.mark.parametrize("rule", [*BOOK.rules, *BOOK.cluster], ids=lambda rule: f"{rule.scope}: {rule.id}")
def test_each_proof_and_each_sign_is_what_some_case_rests_on(rule: Rule) -> None:
    cases = [case for case in CASES if (case.rule, case.scope) == (rule.id, rule.scope) and case.finds is not None]
    proofs, signs = rule.proofs, tuple(rule.signs)
    without = [(one.when, replace(rule, proofs=tuple(two for two in proofs if two is not one))) for one in proofs]
    unsigned = [(one.match, replace(rule, signs=tuple(two for two in signs if two is not one))) for one in signs]
    assert [name for name, less in (*without, *unsigned) if not any(failure(case, less) for case in cases)] == []
