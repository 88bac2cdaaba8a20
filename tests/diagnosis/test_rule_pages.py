"""Every page's cases hold, every finding follows from its evidence alone, every number has a source and a date."""

import ast
import re
from collections.abc import Iterator

import pytest

from gpudoctor.app.arguments import COMMANDS
from gpudoctor.app.commands.rules import failure
from gpudoctor.core.frozen import replace
from gpudoctor.core.rule import Rule
from gpudoctor.diagnosis import page_cache, rulebook
from gpudoctor.diagnosis.expression import parse
from gpudoctor.diagnosis.rulebook.compiled import setups
from gpudoctor.probes._nvml.columns import COLUMNS

BOOK = rulebook.load()
CASES = rulebook.cases()


@pytest.mark.parametrize("rule", [*BOOK.rules, *BOOK.cluster], ids=lambda rule: f"{rule.scope}: {rule.id}")
def test_a_page_keeps_its_word(rule: Rule) -> None:
    cases = [case for case in CASES if (case.rule, case.scope) == (rule.id, rule.scope)]
    assert cases
    assert {case.name: why for case in cases if (why := failure(case, rule)) is not None} == {}


def test_cures_name_only_commands_that_we_have_and_say_what_they_interrupt() -> None:
    ours = [
        step.argv[1]
        for rule in BOOK.rules
        for fix in rule.fixes
        for step in fix.steps
        if step.argv[:1] == ("gpudoctor",)
    ]
    assert set(ours) <= set(COMMANDS)
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
    path = page_cache.home() / rule.origin
    texts = list(_texts(page_cache.toml(path)))
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


NEEDS_NONE = {0: "some or none", 1: "one or more than one"}
"""Numbers that are no thresholds, and why."""

_ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def conditions(rule: Rule) -> Iterator[str]:
    yield from rule.when
    yield from rule.unless
    for sign in rule.signs:
        yield from sign.when
    for fix in rule.fixes:
        yield from fix.when


def thresholds(rule: Rule) -> set[float]:
    """The numbers that some fact is ordered against, factors among them; those compared for equality are names."""
    found: set[float] = set()
    for condition in conditions(rule):
        for node in ast.walk(parse(condition)):
            if isinstance(node, ast.Compare) and any(isinstance(op, _ORDERED) for op in node.ops):
                for side in (node.left, *node.comparators):
                    found |= set(_numbers(side))
    return found - set(NEEDS_NONE)


def _numbers(node: ast.AST) -> Iterator[float]:
    """Numbers of a side of a comparison, not those inside of what it calls or loops over."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        yield node.value
    elif isinstance(node, (ast.BinOp, ast.UnaryOp)):
        for child in ast.iter_child_nodes(node):
            yield from _numbers(child)


def spellings(number: float) -> tuple[str, ...]:
    """As a source may write it: 512, 0.7, 70 %, 30 percent."""
    percent = (f"{number * 100:g} %",) if 0 < number < 1 else ()
    return (f"{number:g}", *percent)


def named_in(number: float, source: str) -> bool:
    return any(re.search(rf"(?<![\d.]){re.escape(words)}(?![\d.]*\d)", source) for words in spellings(number))


RULES = [rule for rule in BOOK.rules if thresholds(rule)]


@pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])
def test_every_threshold_has_a_source_with_a_date(rule: Rule) -> None:
    for number in thresholds(rule):
        told = [source for source in rule.sources if named_in(number, source)]
        assert told, f"{rule.id} judges by {number}, and no source of it says so: {rule.sources}"
        assert any(re.search(r"20\d\d-\d\d", source) for source in told), f"{rule.id}: no date beside {number}: {told}"


def test_remapped_rows_are_read_from_their_own_place_in_nvml_s_answer() -> None:
    """AzNHC reads them beyond the end of their list."""
    read = {column.name: column.read for column in COLUMNS}
    answer = [3, 512, 0, 1]
    names = ("remapped_corrected", "remapped_uncorrected", "remap_pending", "remap_failed")
    assert [read[name](answer) for name in names] == [3, 512, False, True]
