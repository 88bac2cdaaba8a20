"""For whom ranks wait, by their rows alone, and how the report says it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gpudoctor.cluster.running.judging import compared, diagnose, ranges
from gpudoctor.core.fact import Absent, Fact, Known, Row, Unread, Value, texts_of, value_of
from gpudoctor.views import job as view


def row(rank: int, state: str, still: bool = True, **more: Value) -> Row:
    """A rank's row."""
    facts: dict[str, Fact] = {
        "rank": Known(rank, "test"),
        "world": Known(4, "test"),
        "host": Known("n1", "test"),
        "pid": Known(100 + rank, "test"),
        "state": Known(state, "test"),
        "still": Known(still, "test"),
        "unseen": Absent("it is known"),
        "collective": Known("all_reduce", "test") if state == "waits" else Absent("in none"),
        "place": Known("train (train.py:41)" if state == "waits" else "load (data.py:9)", "test"),
    }
    return {**facts, **{name: Known(value, "test") for name, value in more.items()}}


def waiting(*ranks: int) -> list[Row]:
    """Ranks that wait in a collective, all the time."""
    return [row(rank, "waits") for rank in ranks]


def awaited(rows: Sequence[Row]) -> list[object]:
    """The ranks that the others wait for."""
    _, groups = compared(rows, 8.0)
    return [value_of(one["rank"]) for one in groups["rank"] if value_of(one["awaited"])]


@pytest.mark.parametrize(
    "state", ["loads", "sleeps", "locked", "reads", "listens", "idles", "stopped", "frozen", "gone"]
)
def test_who_stands_still_elsewhere_is_awaited(state: str) -> None:
    assert awaited([*waiting(0, 1, 3), row(2, state)]) == [2]


@pytest.mark.parametrize("state", ["loads", "sleeps", "gone"])
def test_where_one_goes_on_nobody_is_awaited(state: str) -> None:
    """The others may wait for that one."""
    for going in (row(3, "computes", False), row(3, "moves", False), row(3, "waits", False)):
        assert awaited([*waiting(0, 1), row(2, state), going]) == []


@pytest.mark.parametrize("state", ["stopped", "frozen"])
def test_who_cannot_come_is_awaited_whatever_the_others_do(state: str) -> None:
    assert awaited([row(0, "moves", False), row(1, "computes", False), row(2, state)]) == [2]


@pytest.mark.parametrize("state", ["locked", "sleeps", "listens", "idles"])
def test_a_rank_whose_stack_is_hidden_is_not_named_for_what_collectives_do_too(state: str) -> None:
    assert awaited([*waiting(0, 1, 3), row(2, state, unseen="py-spy was stopped after 5 s", place="")]) == []


@pytest.mark.parametrize("state", ["stopped", "frozen", "gone", "reads"])
def test_what_the_kernel_tells_by_itself_is_named_without_a_stack(state: str) -> None:
    assert awaited([*waiting(0, 1, 3), row(2, state, unseen="py-spy was stopped after 5 s", place="")]) == [2]


def test_where_nobody_waits_nobody_is_awaited() -> None:
    assert awaited([row(0, "sleeps"), row(1, "sleeps")]) == []
    assert awaited([row(0, "moves", False), row(1, "gone")]) == []
    assert awaited(waiting(0, 1, 2, 3)) == []
    assert awaited([]) == []


def test_of_ranks_in_two_collectives_the_fewer_are_named() -> None:
    other = row(2, "waits", collective="broadcast")
    facts, _ = compared([*waiting(0, 1, 3), other], 8.0)
    assert value_of(facts["job.differing"]) is True
    assert awaited([*waiting(0, 1, 3), other]) == [2]
    assert awaited([*waiting(0, 1), other, row(3, "waits", collective="broadcast")]) == []


def test_ranks_that_are_not_seen_are_told_by_reason() -> None:
    hidden: dict[str, Any] = {"unseen": "py-spy is not installed", "place": ""}
    facts, _ = compared([row(0, "idles", **hidden), row(1, "idles", **hidden), row(2, "gone", **hidden)], 8.0)
    assert texts_of(facts["job.unseen"]) == ("ranks 0-1: py-spy is not installed",)


def test_numbers_are_folded() -> None:
    assert ranges([0]) == "0"
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert ranges(range(0, 40, 2)) == "0, 2, 4, 6, 8, 10, 12, 14 and 12 more"


def report(rows: Sequence[Row], silent: dict[str, str] | None = None) -> str:
    """The report's text, on one line."""
    diagnosis = diagnose("job of process 100", rows, 8.0, {"job.ras": Unread("not asked")}, (), silent=silent or {})
    return " ".join(view.render(diagnosis).split())


def test_the_report_says_whom_they_wait_for() -> None:
    text = report([*waiting(0, 1, 3), row(2, "sleeps", gpu=2)])
    assert "4 ranks on n1, looked at for 8.0 s Ranks 0-1, 3 wait in all_reduce, for rank 2" in text
    assert "Rank 2 (pid 102 on n1, GPU 2): sleeps at load (data.py:9)" in text
    assert "Ranks 0-1, 3: wait in all_reduce at train (train.py:41)" in text


def test_the_report_says_that_none_is_found() -> None:
    assert "The job goes on: no rank is found" in report([row(0, "moves", False), row(1, "computes", False)])
    assert "Ranks 0-1 wait in all_reduce; rank 2 goes on" in report([*waiting(0, 1), row(2, "computes", False)])
    assert "All 4 ranks wait in all_reduce at the same line" in report(waiting(0, 1, 2, 3))


def test_a_host_that_gives_no_answer_is_named() -> None:
    text = report(waiting(0, 1), {"n7": "ssh: no route to host"})
    assert "Not seen: host n7: ssh: no route to host" in text
    assert "0 found" in text
