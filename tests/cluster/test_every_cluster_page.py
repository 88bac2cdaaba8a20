"""No page about many machines is theory: each fires, on documents of hosts or on what a job's meeting found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpudoctor.cluster.preflight.diagnosis import diagnose_job
from gpudoctor.cluster.preflight.launcher import Place
from gpudoctor.cluster.preflight.pairs import Suspect
from gpudoctor.cluster.preflight.results import Gain, LinkSeen, MeetingResults, Port, RailResults, RankSeen
from gpudoctor.core.fact import Fact, Known, Row, Unread, Value
from gpudoctor.diagnosis import rulebook
from gpudoctor.kernels.across import Across
from gpudoctor.kernels.canary import Trained, canary_rows
from tests.cluster.fleet_documents import document, hosts
from tests.conftest import Program

PLACE = Place("torchrun", 0, 2, host="n0", master="n0", port=29500, job="j")
UNSEEN = dict.fromkeys(("live.cuda_available", "live.outcome", "driver.version"), Unread("ended after 30 s"))


def test_every_page_about_many_machines_fires(gpudoctor: Program, tmp_path: Path) -> None:
    fired = {one.id for found in jobs() for one in diagnose_job(found, rulebook.load()).findings}
    for number, texts in enumerate(fleets()):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, text in enumerate(texts):
            (folder / f"{name}.json").write_text(text)
        said = gpudoctor("fleet", "--json", *map(str, sorted(folder.iterdir()))).document
        fired |= {one["id"] for one in said["findings"]}
    assert {rule.id for rule in rulebook.load().cluster} - fired == set()


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
        job(),
        job(ranks=[RankSeen(0, "here", "n0", world=2), RankSeen(1, "missing", because="never came")]),
        job(ranks=[RankSeen(rank, "here", f"n{rank}", world=2 + rank, nccl=f"2.2{rank}.1") for rank in (0, 1)]),
        job(taken="python (pid 7)"),
        job(skew_ms=61000.0, skew_host="n1"),
        *(job(links=[failed(outcome)], backend="gloo") for outcome in ("refused", "loopback")),
        job(links=[failed("loopback")], backend="nccl"),
        *(job(suspects=(suspect(measure),)) for measure in ("bandwidth", "loss", "mtu")),
        job(suspects=(suspect("reach", rail="mlx5_3"),)),
        job(rails=RailResults({"mlx5_3": {"n1": Port("mlx5_3")}}, gains={("mlx5_3", "n1"): Gain(12.0, 480, 0)})),
        job(rails=RailResults(unmeasured={("mlx5_3", "n1"): "n1 has no mlx5_3 that is up (1 of 2 machines have)"})),
        job(collective=(collective(right=False), collective(state="failed"), collective(busbw=100.0, usual=400.0))),
        job(collective=(collective(slowest=5, ratio=3.1),)),
        job(canary=canary_rows([trained(rank, own) for rank, own in enumerate((0.011, 0.011, 0.022, 0.011))])),
    ]


def job(**more: Any) -> MeetingResults:
    found = MeetingResults(PLACE, checked=False, asked=False)
    found.ranks = [RankSeen(rank, "here", f"n{rank}", world=2, nccl="2.27.5") for rank in (0, 1)]
    for name, value in more.items():
        setattr(found, name, value)
    return found


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
