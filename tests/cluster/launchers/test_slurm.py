"""Four nodes of a real Slurm: ``srun gpudoctor preflight`` and who is named; ``job --slurm`` of a step that hangs."""

import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.shipped import own_command
from tests import needs
from tests.cluster.launchers.hosts import HEAD
from tests.cluster.launchers.slurm import NODES, Slurm
from tests.processes import free_port

pytestmark = pytest.mark.full

_SICK = "ecc-uncorrected-h100"
_SAY = ["sh", "-c", 'echo "ran $SLURM_PROCID $COLOUR"']
"""A command to be run on go: once for each rank, in the environment of srun."""

_WAITS = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("up", flush=True)
signal.sigwait([signal.SIGTERM])
print("ended", os.environ["SLURM_PROCID"])
"""


def _suspects(document: Any) -> list[str]:
    return sorted(name for one in document["fleet"]["suspects"] for name in one["names"])


def _drain(slurm: Slurm, document: Any) -> None:
    """Do what the document says to take nodes out of service."""
    for one in document["fleet"]["drain"]:
        done = slurm.run(HEAD, one["argv"])
        assert (done.code, done.err) == (0, "")


def _running(slurm: Slurm) -> list[str]:
    """What of gpudoctor or of a job's command still runs on any node."""
    return [line for words in ("-m gpudoctor", "gpudoctor/", "slurmstepd: [") for line in slurm.processes(words)]


def test_four_sound_nodes_are_a_go_that_one_rank_reports(slurm: Slurm) -> None:
    ran = slurm.srun("gpudoctor", "preflight", "--json")
    assert (ran.code, ran.err) == (0, ""), ran.err
    document = ran.document  # one, of all ranks together
    assert (document["verdict"], document["fleet"]["verdict"]) == ("sound", "go")
    assert document["target"]["kind"] == "fleet"
    assert [host["name"] for host in document["fleet"]["hosts"]] == list(NODES)
    assert _suspects(document) == document["fleet"]["drain"] == []


def test_no_go_names_the_planted_node_and_its_drain_is_taken_by_slurm(slurm: Slurm) -> None:
    slurm.becomes("node3", _SICK)
    ran = slurm.srun("gpudoctor", "preflight", "--json")
    assert ran.code == 1
    assert (ran.document["verdict"], ran.document["fleet"]["verdict"]) == ("broken", "no-go")
    assert ran.document["findings"][0]["id"] == "gpu.ecc"
    assert _suspects(ran.document) == ["node3"]
    _drain(slurm, ran.document)
    others = {node: "idle" for node in NODES if node != "node3"}
    slurm.wait_for(lambda: slurm.states() == {**others, "node3": "drained"}, "the drain, of this node alone")
    assert "gpu.ecc" in slurm.reason("node3")


def test_every_rank_ends_alike_and_one_talks(slurm: Slurm) -> None:
    slurm.becomes("node2", _SICK)
    codes = 'gpudoctor preflight > /dev/null 2>&1; echo "$SLURM_PROCID:$?"'
    ran = slurm.srun("-N4", "-n6", "sh", "-c", codes)
    assert sorted(ran.out.split()) == [f"{rank}:1" for rank in range(6)]
    said = slurm.srun("--label", "gpudoctor", "preflight")
    assert len({line.partition(":")[0] for line in said.out.splitlines()}) == 1
    assert "$ scontrol update NodeName=node2 State=DRAIN Reason=gpudoctor:gpu.ecc" in said.out


def test_on_go_each_rank_becomes_the_command(slurm: Slurm) -> None:
    ran = slurm.srun("-n8", "gpudoctor", "preflight", "--", *_SAY, environ={"COLOUR": "blue"})
    assert ran.code == 0, ran.err
    assert sorted(ran.out.splitlines()) == [f"ran {rank} blue" for rank in range(8)]


def test_the_signal_of_the_scheduler_reaches_the_command(slurm: Slurm) -> None:
    said = slurm.folder / "said"
    waits = [sys.executable, "-c", _WAITS]
    words = ["srun", "-N4", f"--output={said}", "--error=/dev/null", "gpudoctor", "preflight", "--", *waits]
    with slurm.start(HEAD, words) as step:
        slurm.wait_for(lambda: said.exists() and said.read_text().count("up") == 4, "the command")
        slurm.run(HEAD, ["scancel", "--signal=TERM", "--user=root"])
        step.communicate(timeout=300)
    assert sorted(said.read_text().splitlines()) == [*(f"ended {rank}" for rank in range(4)), *["up"] * 4]


def test_two_jobs_on_the_same_nodes_do_not_meet(slurm: Slurm) -> None:
    words = ["srun", "-N4", "--cpus-per-task=2", "gpudoctor", "preflight", "--json"]
    both = [slurm.start(HEAD, words) for _ in range(2)]
    said = [step.communicate(timeout=300) for step in both]
    for step, (out, err) in zip(both, said, strict=True):
        assert step.returncode == 0, err
        assert json.loads(out)["fleet"]["verdict"] == "go"


def test_scancel_in_the_middle_leaves_no_process(slurm: Slurm) -> None:
    step = slurm.start(HEAD, ["srun", "-N4", "gpudoctor", "preflight", "--level", "standard", "--", *_SAY])
    slurm.wait_for(lambda: len(slurm.processes("-m gpudoctor preflight")) >= 4, "the ranks")
    slurm.run(HEAD, ["scancel", "--user=root"])
    with step:
        out, _ = step.communicate(timeout=300)
    assert step.returncode != 0
    assert out == ""
    slurm.wait_for(lambda: not _running(slurm), "the processes' end")


def test_a_batch_script_alone_is_not_a_job_of_many(slurm: Slurm) -> None:
    """Its environment says rank 0 of four tasks, and none of them but itself exists."""
    script = "#!/bin/sh\\ngpudoctor preflight --json\\n"
    submit = f"printf '{script}' | sbatch --nodes=4 --ntasks=4 --wait --output={slurm.folder}/batch.json"
    done = slurm.run(HEAD, ["sh", "-c", submit])
    assert done.code == 0, done.err
    document = json.loads((slurm.folder / "batch.json").read_text())
    assert document["verdict"] == "sound"
    assert document["target"]["kind"] != "fleet" or len(document["fleet"]["hosts"]) == 1


RANKS = needs.REPOSITORY / "tests/cluster/hang/ranks.py"
LIMIT = 600.0


def test_the_rank_and_its_node_are_named(slurm: Slurm, tmp_path: Path) -> None:
    needs.program("py-spy")
    meeting = f"RANK=$SLURM_PROCID WORLD_SIZE=4 MASTER_ADDR=node1 MASTER_PORT={free_port()} OMP_NUM_THREADS=1"
    rank = f"{meeting} GLOO_SOCKET_IFNAME=eth0 exec {needs.torch_python()} {RANKS} sleep {tmp_path}"
    step = ["srun", "-w", "node1,node2", "-N2", "-n4", "--ntasks-per-node=2", "--export=ALL", "sh", "-c", rank]
    with slurm.start(HEAD, step) as running:
        try:
            deadline = time.monotonic() + LIMIT
            while not all((tmp_path / f"ready-{number}").exists() for number in range(4)):
                assert running.poll() is None, running.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.2)
            job = slurm.run(HEAD, ["squeue", "--noheader", "--format", "%A"]).out.split()[0]
            argv = [*own_command(), "job", "--slurm", job, "--program", shlex.join(own_command()), "--json"]
            while not (document := slurm.run(HEAD, argv, timeout=LIMIT).document)["findings"]:
                assert time.monotonic() < deadline, document
        finally:
            slurm.mend()
            running.communicate()
    (finding,) = document["findings"]
    assert finding["id"] == "workload.rank-late"
    assert (finding["subject"]["rank"], finding["subject"]["host"]) == (2, "node2")
    assert "where the others wait (ranks 0-1, 3): it sleeps at sleep (ranks.py:" in finding["title"]
