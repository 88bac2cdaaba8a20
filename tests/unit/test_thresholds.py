"""Every number that a page judges by has a source and a date; known mistakes of other health checks are not ours."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from gpudoctor import rulebook
from gpudoctor.expression import parse
from gpudoctor.judge import judge_rule
from gpudoctor.judge.signs import Text
from gpudoctor.model.diagnosis import Finding, Unjudged
from gpudoctor.model.rule import Case, Rule
from gpudoctor.probes._nvml.columns import COLUMNS
from gpudoctor.ruletest import snapshot_of

BOOK = rulebook.load()

NEEDS_NONE = {
    0: "some or none",
    1: "one or more than one",
}
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


def said(rule_id: str, **facts: object) -> str:
    """What the page makes of these facts, the machine's other facts being unknown: found, quiet or unjudged."""
    rule = BOOK.find(rule_id)
    assert rule is not None
    dotted = {name.replace("__", "."): value for name, value in facts.items()}
    snapshot = snapshot_of(Case(rule=rule_id, name="a peer's mistake", facts=dotted))
    outcomes = judge_rule(rule, snapshot, Text(snapshot))
    if any(isinstance(one, Finding) for one in outcomes):
        return "found"
    return "unjudged" if any(isinstance(one, Unjudged) for one in outcomes) else "quiet"


def gpu(**columns: object) -> dict[str, object]:
    """A healthy data-centre GPU as far as the pages below look at it, and what is different."""
    return {
        "index": 0,
        "name": "NVIDIA H100 80GB HBM3",
        "address": "0000:18:00.0",
        "error": {"absent": "it answers"},
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "remap_pending": False,
        "remap_failed": False,
        "remapped_uncorrected": 0,
        "sram_threshold_exceeded": False,
        "retired_pending": {"absent": "it remaps rows"},
        "retired_single_bit": {"absent": "it remaps rows"},
        "retired_double_bit": {"absent": "it remaps rows"},
        "recovery_action": "none",
        "throttle_reasons": ["gpu_idle"],
        "temperature_c": 34,
        "utilization": 0,
        "clock_mhz": 345,
        "clock_max_mhz": 1980,
        "power_limit_w": 700,
        "power_limit_default_w": 700,
        "link_width": 16,
        "link_width_max": 16,
        "link_generation": 5,
        "link_generation_max": 5,
        "virtual": False,
        **columns,
    }


def links(of: int, up: set[int], count: int = 18, remote: str = "switch") -> list[dict[str, object]]:
    """The rows of a GPU's links."""
    return [{"gpu": of, "link": at, "active": at in up, "remote": remote} for at in range(count)]


def fabric(*own: dict[str, object], nvlink: list[dict[str, object]]) -> str:
    """What gpu.nvlink-down says of these links."""
    return said("gpu.nvlink-down", gpu=list(own), nvlink=nvlink, xid=[], sxid=[])


class TestMemoryErrors:
    """AzNHC reads remapped rows beyond the end of their list, and gives uncorrectable errors the corrected ones' limit;
    gpud counts ECC errors and never calls a GPU unhealthy for them.
    """

    def test_the_512th_remapped_row_is_the_limit(self) -> None:
        assert said("gpu.ecc", gpu=[gpu(remapped_uncorrected=511)], xid=[]) == "quiet"
        assert said("gpu.ecc", gpu=[gpu(remapped_uncorrected=512)], xid=[]) == "found"

    def test_rows_are_read_from_their_own_place_in_nvml_s_answer(self) -> None:
        read = {column.name: column.read for column in COLUMNS}
        answer = [3, 512, 0, 1]
        names = ("remapped_corrected", "remapped_uncorrected", "remap_pending", "remap_failed")
        assert [read[name](answer) for name in names] == [3, 512, False, True]

    def test_one_uncorrectable_error_is_too_many_and_millions_of_corrected_ones_are_not(self) -> None:
        assert said("gpu.ecc", gpu=[gpu(ecc_uncorrected=1)], xid=[]) == "found"
        assert said("gpu.ecc", gpu=[gpu(ecc_corrected=30_000_000)], xid=[]) == "quiet"

    @pytest.mark.parametrize(("pages", "says"), [(12, "quiet"), (62, "quiet"), (63, "found")])
    def test_retired_pages_count_up_to_nvidia_s_limit(self, pages: int, says: str) -> None:
        """GCM fails a V100 at 11."""
        own = gpu(
            name="Tesla V100-SXM2-32GB", retired_single_bit=pages - 2, retired_double_bit=2, retired_pending=False
        )
        assert said("gpu.ecc", gpu=[own], xid=[]) == says


class TestLinks:
    """AzNHC and others fail any inactive link; gpud only a machine on which none is up."""

    def test_h100_pcie_has_six_of_eighteen_dark_by_design(self) -> None:
        own = [gpu(index=at, name="NVIDIA H100 PCIe") for at in range(2)]
        up = set(range(18)) - {0, 1, 6, 7, 12, 13}
        assert fabric(*own, nvlink=[*links(0, up, remote="gpu"), *links(1, up, remote="gpu")]) == "quiet"

    def test_a_gpu_that_was_not_read_is_no_dark_one(self) -> None:
        own = [gpu(index=0), gpu(index=1, error="GPU is lost")]
        assert fabric(*own, nvlink=links(0, set(range(18)))) == "unjudged"


class TestAtRest:
    """What idle machines show, and flat limits call a fault."""

    def test_eighty_degrees_within_the_gpu_s_own_limits(self) -> None:
        """sichek allows 75 degrees for every product."""
        busy = gpu(temperature_c=80, utilization=100, clock_mhz=1755, throttle_reasons=["sw_power_cap"])
        assert said("gpu.throttled", gpu=[busy]) == "quiet"


class TestXids:
    """NVSentinel acted on 168,924 Xid 45 of three nodes: they follow the end of a program, however many they are."""

    @pytest.mark.parametrize("code", [13, 31, 43, 45])
    def test_a_flood_of_what_a_program_leaves_behind(self, code: int) -> None:
        flood = [{"code": code, "address": "0000:18:00.0", "count": 168_924, "fatal": {"absent": "not said"}}]
        pages = ("gpu.xid", "gpu.ecc", "gpu.nvlink-down", "gpu.reset-required")
        rows = {"gpu": [gpu(links_lost=[])], "xid": flood, "sxid": []}
        assert {page: said(page, **rows) for page in pages} == dict.fromkeys(pages, "quiet")


class TestRecovery:
    """NVRx lets a GPU pass whose driver cannot tell; DCGM 3 called one healthy that needed a reset (DCGM#263)."""

    def test_what_the_driver_cannot_tell_is_not_judged(self) -> None:
        own = gpu(recovery_action={"unread": "the driver's NVML is too old to tell"})
        assert said("gpu.reset-required", gpu=[own]) == "unjudged"

    @pytest.mark.parametrize("action", ["reset", "reboot", "drain p2p", "drain and reset"])
    def test_every_action_asked_for_counts(self, action: str) -> None:
        assert said("gpu.reset-required", gpu=[gpu(recovery_action=action)], xid=[]) == "found"
