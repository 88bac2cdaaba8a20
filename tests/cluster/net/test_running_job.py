"""A job on two hosts that hangs, asked over a real ssh: the rank is named with its host, and who gives no answer."""

import json
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.shipped import own_command
from tests import needs
from tests.cluster.hang.jobs import titles
from tests.cluster.launchers.hosts import write_ssh_config
from tests.cluster.net.hosts import PORT, Hosts
from tests.processes import until

pytestmark = pytest.mark.full

RANKS = needs.REPOSITORY / "tests/cluster/hang/ranks.py"
LIMIT = 600.0
_HOST = """\
{sshd} -f {folder}/sshd_config -D &
for local in 0 1; do
  export RANK=$((FIRST + local)) LOCAL_RANK=$local
  {python} {ranks} sleep {folder} >{folder}/log-$RANK 2>&1 &
  (
    export MASTER_PORT={second} ASTRAY=2,3 TORCH_FR_DUMP_TEMP_FILE={folder}/shapes/dump_
    exec {python} {ranks} shapes {folder}/shapes >{folder}/shapes/log-$RANK 2>&1
  ) &
done
wait
"""
"""What runs on a host, in a PID namespace of its own: sshd, and two ranks of each of two jobs.

Of the second job the ranks of one host reduce other shapes than those of the other; torch's flight recorder dumps that.
"""


class Job:
    """Four ranks on two hosts, and an ssh that reaches these."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self.hosts = hosts
        self.folder = folder
        write_ssh_config(folder)
        Path("/run/sshd").mkdir(exist_ok=True)
        (folder / "shapes").mkdir()
        programs = {"sshd": needs.program("sshd"), "python": needs.torch_python(), "ranks": RANKS}
        script = _HOST.format(folder=folder, second=PORT + 1, **programs)
        own = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": hosts[0].address, "MASTER_PORT": str(PORT)}
        own |= {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
        own |= {"TORCH_FR_BUFFER_SIZE": "100", "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/dump_"}
        apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]
        for host in hosts:
            host.start(apart, {**own, "FIRST": str(2 * host.number)})

    def ready(self) -> None:
        """Wait until all ranks are about to hang."""
        ready = [self.folder / f"ready-{rank}" for rank in range(4)]
        logs = self.folder.glob("log-*")
        assert until(lambda: all(file.exists() for file in ready)), [
            file.read_text("utf-8", "replace") for file in logs
        ]

    def asked(self, nodes: str, port: int = PORT) -> Any:
        """The document of ``gpudoctor job`` on these hosts of the job at that port, asked from the first one."""
        there = ["--program", shlex.join(own_command()), "--ssh-options", f"-F {self.folder}/ssh_config"]
        words = ["job", "--match", f"MASTER_PORT={port}", "--hosts", nodes, *there, "--json"]
        done = self.hosts[0].run([*own_command(), *words], timeout=LIMIT)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def job(two: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Job:
    for tool in ("py-spy", "unshare"):
        needs.program(tool)
    job = Job(two, tmp_path_factory.mktemp("job"))
    job.ready()
    return job


def test_the_rank_is_named_with_its_host(job: Job) -> None:
    """The third rank is the first of the second host."""
    deadline = time.monotonic() + LIMIT
    while not (document := job.asked("node[0-1]"))["findings"]:
        assert time.monotonic() < deadline, document
    (finding,) = document["findings"]
    assert finding["id"] == "workload.rank-late"
    assert (finding["subject"]["rank"], finding["subject"]["host"]) == (2, "node1")
    assert " on node1)" in finding["title"]
    assert "where the others wait (ranks 0-1, 3): it sleeps at sleep (ranks.py:" in finding["title"]
    assert document["facts"]["job.hosts"]["value"] == ["node0", "node1"]


def test_ranks_of_a_host_that_is_silent_are_not_called_gone(job: Job) -> None:
    document = job.asked("node[0-1],node7")
    assert [row["rank"]["value"] for row in document["facts"]["rank"]] == [0, 1, 2, 3]
    (unseen,) = document["facts"]["job.unseen"]["value"]
    assert unseen.startswith("host node7: ")
    half = job.asked("node0,node7")
    assert {row["state"]["value"] for row in half["facts"]["rank"]} == {"waits"}
    assert (half["verdict"], half["findings"]) == ("unknown", [])


def test_dumps_of_two_hosts_are_compared(job: Job) -> None:
    """The ranks of each host agree with each other: only beside the other host's dumps they differ."""
    deadline = time.monotonic() + LIMIT
    while "workload.desync" not in (found := titles(job.asked("node[0-1]", PORT + 1))):
        assert time.monotonic() < deadline, found
    assert "all_reduce of [[4]] (ranks 0, 1)" in found["workload.desync"]
    assert "all_reduce of [[2]] (ranks 2, 3)" in found["workload.desync"]
    assert "workload.desync" not in titles(job.asked("node1,node7", PORT + 1))
