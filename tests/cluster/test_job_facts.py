"""What the meeting found becomes facts: those that are declared, all of them, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpudoctor.cluster.preflight.diagnosis import diagnose_job, facts, groups
from gpudoctor.cluster.preflight.launcher import Place
from gpudoctor.cluster.preflight.pairs import Direction, Pair, Suspect
from gpudoctor.cluster.preflight.results import LinkSeen, MeetingResults, RankSeen
from gpudoctor.core import fleet
from gpudoctor.core.fact import number_of
from gpudoctor.diagnosis import rulebook
from gpudoctor.kernels.across import Across
from gpudoctor.kernels.canary import Trained, canary_rows
from gpudoctor.kernels.facts import FACTS
from tests.cluster.fleet_documents import document

PLACE = Place("torchrun", 0, 2, host="n0", master="n0", port=29500, job="j")
GROUPS = ("rank", "link", "barrier", "flow", "suspect")


def found(**more: Any) -> MeetingResults:
    """Two sound ranks on two hosts that measured each other."""
    sound = MeetingResults(PLACE, checked=False)
    sound.ranks = [RankSeen(rank, "here", f"n{rank}", 0, "waiting", world=2, nccl="2.27.5") for rank in (0, 1)]
    sound.links = [LinkSeen("n0", "n1", "peer", "connected", "", "nccl", "10.0.0.2", 4000, "eth0", 0.1)]
    sound.pairs = [Pair(1, "n0", "n1", Direction("connected", 10.0, 1000), Direction("connected", 9.0, 1000), 0.1)]
    for name, value in more.items():
        setattr(sound, name, value)
    return sound


def declared(prefix: str) -> set[str]:
    return {one.name for one in fleet.FACTS if one.name.startswith(f"{prefix}.")}


def ids(of: MeetingResults) -> dict[str, str]:
    """The bad findings, and what each says."""
    return {one.id: one.title for one in diagnose_job(of, rulebook.load()).findings if one.severity != "info"}


def test_each_fact_of_the_job_is_declared_and_each_declared_one_is_there() -> None:
    assert set(facts(found())) == declared("job")


def test_each_column_is_declared_and_each_declared_one_is_there() -> None:
    failed = LinkSeen("n0", "n1", "peer", "refused", "no", "nccl", "10.0.0.2", 4000, "eth0")
    suspect = Suspect("host", ("n1",), "from", "bandwidth", 0.1, 10.0, 0.01, 2, "n1 sends at 0.1 Gbit/s")
    told = groups(found(links=[failed], suspects=(suspect,)))
    for group in GROUPS:
        rows = told[group]
        assert isinstance(rows, tuple)
        assert rows
        for row in rows:
            assert {f"{group}.{column}" for column in row} == declared(group)


def test_the_columns_of_the_canary_are_declared_and_ranks_of_one_gpu_are_compared() -> None:
    steps = {0: ("A100", 0.02), 1: ("A100", 0.02), 2: ("A100", 0.04), 3: ("H100", 0.01), 4: ("H100", 0.02)}
    answers = [
        Across(
            rank, "n0", rank, device=f"cuda:{rank}", trained=(Trained("nccl", own, 0.05, 0.01, 0.01, 8, "", 6.0, gpu),)
        )
        for rank, (gpu, own) in steps.items()
    ]
    rows = canary_rows(answers)
    assert isinstance(rows, tuple)
    for told in rows:
        assert {f"canary.{column}" for column in told} == {one.name for one in FACTS if one.name.startswith("canary.")}
    assert [number_of(told["ratio"]) for told in rows] == [0.67, 0.67, 2.0, None, None]
    titles = ids(found(canary=rows, documents=DOCUMENTS))
    assert list(titles) == ["fleet.slow-rank"]
    assert titles["fleet.slow-rank"].startswith("Rank 2 on n0 (cuda:2) takes 40 ms")


def test_a_fault_that_was_found_before_it_was_cut_short_is_a_no_go() -> None:
    failed = LinkSeen("n0", "n1", "peer", "refused", "n1 refuses", "nccl", "10.0.0.2", 4000, "eth0")
    assert set(ids(found(cut="told to end", links=[failed]))) == {"nccl.unreachable"}


def test_a_rank_that_ended_by_itself_takes_its_machine_out_and_one_that_was_told_does_not() -> None:
    def drained(blames: bool) -> list[str]:
        ranks = [RankSeen(0, "here", "n0", 0, world=2), RankSeen(1, "ended", "n1", 0, because="x", blames=blames)]
        fleet = diagnose_job(found(ranks=ranks, documents=DOCUMENTS), rulebook.load()).fleet
        assert fleet
        return [host for drain in fleet.drain for host in drain.hosts]

    assert drained(blames=True) == ["n1"]
    assert drained(blames=False) == []


DOCUMENTS: Mapping[str, Mapping[str, Any]] = {host: json.loads(document(host)) for host in ("n0", "n1")}
