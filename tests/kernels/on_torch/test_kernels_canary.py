"""The training canary over the ranks of a job, by Gloo and a real torch: sound ranks are alike, a slow one is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpudoctor.core.fact import Known, Row, Unread, number_of, value_of
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.judge import judge
from gpudoctor.kernels.across import Across, collective_rows
from gpudoctor.kernels.canary import canary_rows, summary
from tests import needs
from tests.kernels.on_torch.test_kernels_across import HOSTS, job, planted

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def python() -> str:
    return needs.torch_python()


def trained(python: str) -> list[Across]:
    """Four ranks on two hosts, as ``preflight --canary`` has them train."""
    return job(python, HOSTS, level="quick", canary=True, seconds=300.0)


def rows_of(answers: list[Across]) -> tuple[Row, ...]:
    rows = canary_rows(answers)
    assert isinstance(rows, tuple), rows
    return rows


def titles(rows: tuple[Row, ...]) -> list[str]:
    """What the pages say of that job."""
    snapshot = Snapshot(Target("fleet", "job"), {}, {"canary": rows})
    return [finding.title for finding in judge(snapshot, rulebook.load([])).findings]


def test_sound_ranks_train_alike_and_nobody_is_named(python: str) -> None:
    answers = trained(python)
    assert [(answer.why, answer.ended, len(answer.trained), answer.found) for answer in answers] == [
        ("", (), 1, ())
    ] * 4
    assert Across.from_json(json.loads(json.dumps(answers[2].to_json()))) == answers[2]
    rows = rows_of(answers)
    assert [value_of(row["rank"]) for row in rows] == [0, 1, 2, 3]
    assert [value_of(row["host"]) for row in rows] == list(HOSTS)
    assert all(isinstance(row["ratio"], Known) for row in rows)
    assert all((number_of(row[name]) or 0) > 0 for row in rows for name in ("own_ms", "exchange_ms", "reach"))
    assert titles(rows) == []
    assert "4 ranks train" in summary(rows)


def test_a_rank_at_half_of_its_speed_is_named_with_its_host_and_figures(python: str, tmp_path: Path) -> None:
    with planted(tmp_path, 2, "slow", "training_step gloo, training"):
        rows = rows_of(trained(python))
    (title,) = titles(rows)
    assert title.startswith("Rank 2 on beta (cpu) takes ")
    assert f"{value_of(rows[2]['own_ms']):g} ms for a training step of its own" in title
    assert "is rank 2 on beta" in summary(rows)


@pytest.mark.parametrize(("what", "words"), [("die", "was killed by SIGSEGV"), ("raise", "failed: RuntimeError: bad")])
def test_a_rank_that_fails_in_training_is_named(python: str, tmp_path: Path, what: str, words: str) -> None:
    with planted(tmp_path, 1, what, "training_step gloo, training"):
        answers = trained(python)
    (failed,) = collective_rows(answers)
    assert (value_of(failed["leg"]), value_of(failed["state"]), value_of(failed["hosts"])) == (
        "training",
        "failed",
        ("alpha",),
    )
    assert f"rank 1 {words}" in str(value_of(failed["words"]))


def test_two_ranks_are_not_compared(python: str) -> None:
    rows = rows_of(job(python, HOSTS[:2], level="quick", canary=True, seconds=300.0))
    assert [number_of(row["ratio"]) for row in rows] == [None, None]
    assert titles(rows) == []
    assert "slowest" not in summary(rows)


def test_where_nobody_trains_it_is_said_why() -> None:
    none = canary_rows([Across(0, "alpha", 0, why="torch is not installed in this interpreter", cannot=True)])
    assert none == Unread("torch is not installed in this interpreter")
