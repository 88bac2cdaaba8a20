"""``gpudoctor job --slurm`` beside a real step of Slurm on two nodes that hangs: the rank and its node are named."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import pytest

from gpudoctor.core.shipped import own_command
from tests import needs
from tests.cluster.launchers.hosts import HEAD
from tests.cluster.launchers.slurm import Slurm
from tests.processes import free_port

pytestmark = pytest.mark.full

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
