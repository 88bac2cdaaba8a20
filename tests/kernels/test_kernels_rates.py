"""What copies need beside torch: their turn, and the processors near the GPU."""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.synchronize import Event

import pytest

from gpudoctor.diagnosis.knowledge._tables import table
from gpudoctor.kernels import specs
from gpudoctor.kernels.child.eager import copies
from gpudoctor.kernels.child.eager._check import Judged
from gpudoctor.kernels.child.eager.copies import merge_verdicts
from gpudoctor.kernels.child.eager.peers import PeerCopy, outcome


@pytest.mark.parametrize(
    ("text", "processors"), [("0-3,8\n", {0, 1, 2, 3, 8}), ("7", {7}), ("\n", set()), ("0-1,4-5", {0, 1, 4, 5})]
)
def test_lists_of_processors_as_linux_writes_them(text: str, processors: set[int]) -> None:
    assert copies.parse_cpu_list(text) == processors


def _take_a_turn(inside: Event, leave: Event) -> None:
    with copies.exclusive_turn() as turn:
        assert turn
        inside.set()
        leave.wait(30)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks: nothing is promised there")
def test_only_one_child_copies_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    spawn = multiprocessing.get_context("spawn")
    inside, leave = spawn.Event(), spawn.Event()
    other = spawn.Process(target=_take_a_turn, args=(inside, leave))
    other.start()
    try:
        assert inside.wait(30)
        monkeypatch.setattr(copies, "_LOCK_LIMIT", 0.1)
        with copies.exclusive_turn() as turn:
            assert turn is False
    finally:
        leave.set()
        other.join(30)
    assert other.exitcode == 0
    with copies.exclusive_turn() as turn:
        assert turn is True


def test_the_slowest_way_is_told_and_the_way_on_which_words_change() -> None:
    ways = {"0-1": PeerCopy(48.2, True, Judged(0, 100)), "1-0": PeerCopy(21.4, True, Judged(2, 100, (7,)))}
    told = outcome(ways)
    assert told.value == 21.4
    assert told.right is False
    assert told.differ == 2
    assert told.words == "2 of 200 values are wrong, the first at [7]; wrong on the way 1 to 0"
    assert told.details == {"rates": {"0-1": 48.2, "1-0": 21.4}, "direct": ["0-1", "1-0"], "wrong": ["1-0"]}


def test_two_parts_are_judged_as_one() -> None:
    assert merge_verdicts(Judged(0, 10), Judged(1, 10, (3,))) == Judged(1, 20, (3,))


def test_every_kernel_that_the_table_names_is_one() -> None:
    known = {one.spec.id for one in specs.all_kernels()}
    named = {kernel for row in table("rates")["reached"] for kernel in row["kernels"].split()}
    assert named - known == set()
