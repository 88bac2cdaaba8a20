"""``gpudoctor fleet --slurm`` and ``--partition`` in a real Slurm: each node's answer, or why there is none."""

import sys
from collections.abc import Iterator

import pytest

from tests.cluster.launchers.hosts import HEAD
from tests.cluster.launchers.slurm import Slurm

pytestmark = pytest.mark.full

FLEET = [sys.executable, "-m", "gpudoctor", "fleet", "--level", "quick", "--timeout", "60", "--budget", "120", "--json"]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """Node 2 hangs, node 3 is sick, node 4 has no gpudoctor."""
    with Slurm() as cluster:
        cluster.program("node2", "gpudoctor", "exec sleep 98765")
        cluster.becomes("node3", "lost-gpu-h100")
        cluster.program("node4", "gpudoctor", None)
        yield cluster


def test_in_a_job_its_nodes_are_asked_in_one_step(slurm: Slurm) -> None:
    ran = slurm.run(HEAD, ["salloc", "--quiet", "-N4", *FLEET, "--slurm"], timeout=300)
    fleet = ran.document["fleet"]
    assert ran.code == 1
    assert [host["name"] for host in fleet["hosts"]] == ["node1", "node2", "node3", "node4"]
    silent = {host["name"]: host["because"] for host in fleet["hosts"] if "because" in host}
    assert silent["node2"] == "no answer within 60 s"
    assert silent["node4"].startswith("gpudoctor cannot be run there: ")
    assert set(silent) == {"node2", "node4"}
    assert [drain["hosts"] for drain in fleet["drain"]] == [["node3"]]
    assert slurm.run(HEAD, fleet["drain"][0]["argv"]).code == 0
    assert slurm.reason("node3") == "gpudoctor:gpu.fell-off-bus"
    assert "98765" not in slurm.run(HEAD, ["ps", "-eo", "args="]).out


def test_nodes_of_a_partition_that_cannot_be_had_are_named(slurm: Slurm) -> None:
    slurm.run(HEAD, ["scontrol", "update", "nodename=node3", "state=drain", "reason=before"])
    ran = slurm.run(HEAD, [*FLEET, "--partition", "all"], timeout=300)
    silent = {host["name"]: host.get("because", "") for host in ran.document["fleet"]["hosts"]}
    assert ran.code == 3
    assert silent["node1"] == ""
    assert silent["node3"].startswith("Slurm calls it drain")
    assert silent["node2"] == "no answer within 60 s"


@pytest.mark.parametrize(
    ("words", "said"), [(["--slurm"], "not inside a Slurm job"), (["--partition", "x"], "no nodes")]
)
def test_where_there_are_no_nodes_that_is_misuse(slurm: Slurm, words: list[str], said: str) -> None:
    ran = slurm.run(HEAD, [*FLEET, *words])
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_a_job_that_slurm_does_not_have_is_told_from_a_slurm_that_does_not_answer(slurm: Slurm) -> None:
    argv = [sys.executable, "-m", "gpudoctor", "job", "--slurm", "999999"]
    unknown = slurm.run(HEAD, argv)
    assert (unknown.code, unknown.out) == (2, "")
    assert "Slurm has no such job that runs" in unknown.err
    silent = slurm.run(HEAD, ["env", "SLURM_CONF=/none", *argv])
    assert (silent.code, silent.out) == (2, "")
    assert "squeue does not answer here (" in silent.err
