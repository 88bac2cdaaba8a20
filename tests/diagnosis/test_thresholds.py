"""Every number that a page judges by has a source and a date, and is read from its own place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from gpudoctor.core.rule import Rule
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.expression import parse
from gpudoctor.probes._nvml.columns import COLUMNS

BOOK = rulebook.load()

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


def test_there_are_thresholds_to_look_at() -> None:
    assert {"gpu.ecc", "gpu.throttled", "gpu.memory-held", "gpu.pcie-errors"} <= {rule.id for rule in RULES}
    assert {512, 63} <= thresholds(next(rule for rule in RULES if rule.id == "gpu.ecc"))


def test_remapped_rows_are_read_from_their_own_place_in_nvml_s_answer() -> None:
    """AzNHC reads them beyond the end of their list."""
    read = {column.name: column.read for column in COLUMNS}
    answer = [3, 512, 0, 1]
    names = ("remapped_corrected", "remapped_uncorrected", "remap_pending", "remap_failed")
    assert [read[name](answer) for name in names] == [3, 512, False, True]
