"""Facts as rows: each has its place, and none is made before it is looked at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpudoctor.model.fact import Row
from gpudoctor.views.tui.words.facts import Facts
from tests.tui.facts_of_a_machine import (
    known,
    snapshot,
)


def test_driver_and_gpus_come_first_and_text_last() -> None:
    listed = [item.name for item in Facts(snapshot())]
    assert listed[:3] == ["driver.module_log", "driver.version", "xid"]
    assert listed.index("gpu.0.name") < listed.index("torch.archs") < listed.index("text.0.line")
    assert listed[-1] == "text.2.line"


def test_a_hundred_thousand_lines_cost_no_row_before_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: tuple[Row, ...] = tuple({"line": known(f"line {number}", "the log")} for number in range(100_000))
    many = replace(snapshot(), groups={"text": lines})
    made = 0
    make = Facts._at

    def counted(self: Facts, place: int) -> Any:
        nonlocal made
        made += 1
        return make(self, place)

    monkeypatch.setattr(Facts, "_at", counted)
    facts = Facts(many)
    assert facts[len(facts) - 1].name == "text.99999.line"
    assert facts.search("line 4242 log", range(len(facts)))[0] == facts.find("text.line", 4242)
    assert made == 1
