"""What a meeting found becomes declared facts, and no page about many machines is theory: each of them fires."""

import json
from collections.abc import Mapping
from typing import Any

from gpudoctor.cluster.preflight.diagnosis import diagnose_job, facts, groups
from gpudoctor.cluster.preflight.launcher import Place
from gpudoctor.cluster.preflight.pairs import Direction, Pair, Suspect
from gpudoctor.cluster.preflight.results import Gain, LinkSeen, MeetingResults, Port, RailResults, RankSeen
from gpudoctor.core import fleet
from gpudoctor.core.fact import Fact, Known, Row, Unread, Value, number_of
from gpudoctor.diagnosis import rulebook
from gpudoctor.kernels.across_hosts import Across
from gpudoctor.kernels.canary import Trained, canary_rows
from gpudoctor.kernels.facts import FACTS
from tests.cluster.fleet_documents import BOOK, document, folded, hosts

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


UNSEEN = dict.fromkeys(("live.cuda_available", "live.outcome", "driver.version"), Unread("ended after 30 s"))


def test_every_page_about_many_machines_fires() -> None:
    fired = {one.id for one_job in jobs() for one in diagnose_job(one_job, BOOK).findings}
    fired |= {one.id for texts in fleets() for one in folded(texts).findings}
    assert {rule.id for rule in BOOK.cluster} - fired == set()


def fleets() -> list[list[str]]:
    """Documents of hosts, as the program writes them."""
    odd: dict[str, dict[str, Fact]] = {
        "n3": {"driver.version": Known("560.35.03", "nvml")},
        "n4": {"host.kernel": Known("6.1.0-9", "uname")},
    }
    halves = {f"n{number}": odd["n3"] for number in range(1, 5)}
    return [hosts(4), hosts(6, **odd), [*hosts(3, n2=UNSEEN), "Killed"], hosts(8, **halves), slow()]


def slow() -> list[str]:
    """Five hosts of which one computes at two thirds of the others' rate."""

    def rate(value: float) -> Row:
        told: dict[str, Value] = {"kernel": "matmul", "gpu": 0, "value": value, "unit": "TFLOP/s", "rung": "eager"}
        return {name: Known(one, "a kernel") for name, one in told.items()}

    rates = {"n1": 720.0, "n2": 719.0, "n3": 722.0, "n4": 478.0, "n5": 721.0}
    return [document(host, measured=(rate(value),)) for host, value in rates.items()]


def jobs() -> list[MeetingResults]:
    """What meetings found."""
    return [
        found(),
        found(ranks=[RankSeen(0, "here", "n0", world=2), RankSeen(1, "missing", because="never came")]),
        found(ranks=[RankSeen(rank, "here", f"n{rank}", world=2 + rank, nccl=f"2.2{rank}.1") for rank in (0, 1)]),
        found(taken="python (pid 7)"),
        found(skew_ms=61000.0, skew_host="n1"),
        *(found(links=[failed(outcome)], backend="gloo") for outcome in ("refused", "loopback")),
        found(links=[failed("loopback")], backend="nccl"),
        *(found(suspects=(suspect(measure),)) for measure in ("bandwidth", "loss", "mtu")),
        found(suspects=(suspect("reach", rail="mlx5_3"),)),
        found(rails=RailResults({"mlx5_3": {"n1": Port("mlx5_3")}}, gains={("mlx5_3", "n1"): Gain(12.0, 480, 0)})),
        found(rails=slow_ports()),
        found(nccl_remarks=("NVLink: inconsistent link speeds on rank(s) {5} across 16 ranks",)),
        found(
            rails=RailResults(unmeasured={("mlx5_3", "n1"): "{rail} on {host}: none that is up (1 of 2 machines have)"})
        ),
        found(collective=(collective(right=False), collective(state="failed"), collective(busbw=100.0, usual=400.0))),
        found(collective=(collective(slowest=5, ratio=3.1),)),
        found(canary=canary_rows([trained(rank, own) for rank, own in enumerate((0.011, 0.011, 0.022, 0.011))])),
    ]


def slow_ports() -> RailResults:
    """Ports of 400 Gb/s that all give a quarter of it by RDMA, and from the memory of GPUs half of that."""
    ports = {host: Port("mlx5_3", gbps=400.0, pcie_gbps=504.1, number=1, gpu="0000:1b:00.0") for host in ("n0", "n1")}
    way = Direction("connected", 88.0)
    return RailResults(
        {"mlx5_3": ports},
        [Pair(1, "n0", "n1", way, way, rail="mlx5_3")],
        usual={"mlx5_3": 88.0},
        rdma=frozenset({"mlx5_3"}),
        gpu_memory={("mlx5_3", "n0", "n1"): 44.0, ("mlx5_3", "n1", "n0"): 44.0},
    )


def trained(rank: int, own: float) -> Across:
    """A rank that trained the canary, in so many seconds a step by itself."""
    steps = Trained("nccl", own, 0.024, 0.002, 0.006, 32, "bfloat16", 6.3, "NVIDIA H100 80GB HBM3")
    return Across(rank, f"n{rank}", 0, device="cuda:0", trained=(steps,))


def failed(outcome: str) -> LinkSeen:
    return LinkSeen("n0", "n1", "peer", outcome, "why", "gloo", "127.0.1.1", 4000, "lo")


def suspect(measure: Any, rail: str = "") -> Suspect:
    return Suspect("host", ("n1",), "from", measure, 0.1, 10.0, 0.01, 2, "n1 sends badly", rail)


def collective(**more: Any) -> Row:
    row: dict[str, Any] = {"leg": "node", "backend": "nccl", "operation": "all_reduce", "state": "measured"}
    row |= {"bytes": 1 << 27, "groups": 4, "ranks": 32, "slowest": 0, "ratio": 1.1, "busbw": 400.0, "usual": 400.0}
    row |= {"host": "n1", "hosts": ("n1",), "right": True, "words": "in words", **more}
    return {name: Known(value, "torch.distributed") for name, value in row.items()}
