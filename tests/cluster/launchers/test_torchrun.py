"""``torchrun`` on two hosts with two ranks each: go, no-go, and the rendezvous that the training finds afterwards."""

import json
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpudoctor
from tests import needs
from tests.cluster.launchers.hosts import Hosts
from tests.processes import Ran
from tests.sim.root import HOST

pytestmark = pytest.mark.full

RECIPE = Path(gpudoctor.__file__).parent / "app/recipes" / "torchrun.sh"
_TRAINING = """
import datetime, os, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
value = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(value)
print("rank", dist.get_rank(), "sum", value.item(), flush=True)
dist.destroy_process_group()
"""
"""A training of one step. 1 + 2 + 3 + 4 ranks make 10."""

_INSIDE = """
import datetime, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
import gpudoctor
print(gpudoctor.preflight(network=True).verdict)
"""


@pytest.fixture(scope="module")
def _two() -> Iterator[Hosts]:
    with Hosts(["node1", "node2"]) as hosts:
        yield hosts


@pytest.fixture
def hosts(_two: Hosts) -> Hosts:
    """Two sound hosts."""
    for name in _two.names:
        _two.becomes(name, "hgx-h100")
    return _two


def _torchrun(hosts: Hosts, script: Path, *words: str) -> list[Ran]:
    """An agent of torchrun on each host, started by the script."""
    tools = Path(needs.torch_python()).parent
    environ = {
        "PATH": f"/usr/local/sbin:{tools}:/usr/bin:/bin",
        "RENDEZVOUS": "node1:29400",
        "NODES": "2",
        "GPUS": "2",
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    agents = [hosts.start(name, ["sh", str(script), *words], environ) for name in hosts.names]
    ended = []
    for agent in agents:
        with agent:
            out, err = agent.communicate(timeout=300)
        ended.append(Ran(agent.returncode, out, err))
    return ended


def _training() -> list[str]:
    """The training, by the interpreter with torch, which only the real machine below the simulated one has."""
    python = os.path.realpath(Path(needs.torch_python()).parent)
    return [f"{HOST}{needs.program('chroot')}", HOST, f"{python}/python", "-c", _TRAINING]


def test_on_go_each_rank_trains_once_and_the_rendezvous_is_free(hosts: Hosts) -> None:
    ended = _torchrun(hosts, RECIPE, *_training())
    assert [ran.code for ran in ended] == [0, 0], ended
    said = sorted(line for ran in ended for line in ran.out.splitlines())
    assert said == [f"rank {rank} sum 10.0" for rank in range(4)]


def test_on_no_go_nobody_trains_and_the_host_is_named(hosts: Hosts) -> None:
    hosts.becomes("node2", "lost-gpu-h100")
    ended = _torchrun(hosts, RECIPE, *_training())
    assert [ran.code for ran in ended] == [1, 1], ended
    assert [ran.out for ran in ended] == ["", ""]
    report = "".join(ran.err for ran in ended)  # which host has rank 0 is for the rendezvous to say
    assert "(Xid 79) on node2" in report
    assert report.count("[gpu.fell-off-bus]") == 1


_SLOW = """
import runpy, sys, torch
layer = torch.nn.TransformerEncoderLayer
once = layer.forward
layer.forward = lambda *given, **more: (once(*given, **more) + once(*given, **more)) / 2
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""An interpreter's program whose transformers take twice as long."""


@pytest.mark.parametrize("slow", [None, 3])
def test_a_rank_that_trains_at_half_of_its_speed_is_named_and_no_other(hosts: Hosts, slow: int | None) -> None:
    (hosts.folder / "slow.py").write_text(_SLOW)
    real = os.path.realpath(Path(needs.torch_python()).parent) + "/python"
    python = hosts.folder / "python"
    twice = f'case "$RANK$1" in {slow}*__main__.py) set -- {hosts.folder}/slow.py "$@";; esac'
    python.write_text(f'#!/bin/sh\n{twice}\nexec {HOST}{needs.program("chroot")} {HOST} {real} "$@"\n')
    python.chmod(0o755)
    script = hosts.folder / "canary.sh"
    words = f"--network --canary --json --python {HOST}{python}"
    script.write_text(RECIPE.read_text().replace('--level quick -- "$@"', words))
    ended = _torchrun(hosts, script)
    assert [ran.code for ran in ended] == [0, 0], ended
    document = json.loads("".join(ran.out for ran in ended))
    assert document["fleet"]["verdict"] == "go"
    rows = {row["rank"]["value"]: row for row in document["facts"]["canary"]}
    assert sorted(rows) == [0, 1, 2, 3]
    named = [finding for finding in document["findings"] if finding["id"] == "fleet.slow-rank"]
    hosts_of = {rank: row["host"]["value"] for rank, row in rows.items()}
    assert [finding["subject"]["hosts"] for finding in named] == ([] if slow is None else [[hosts_of[slow]]])
    assert all(f"Rank {slow} on {hosts_of[slow or 0]} (cpu) takes " in finding["title"] for finding in named)
    assert any(note["text"].startswith("Training canary: 4 ranks train") for note in document["notes"])


def test_within_a_training_whose_process_group_is_made_the_port_is_its_own(hosts: Hosts) -> None:
    """As in the workers of Ray Train: RANK and MASTER_PORT are set, and rank 0 itself listens there."""
    found = os.pathsep.join([str(needs.REPOSITORY), sysconfig.get_path("purelib")])
    environ = {"MASTER_ADDR": "node1", "MASTER_PORT": "29501", "WORLD_SIZE": "2", "PYTHONPATH": found}
    python = [needs.torch_python(), "-c", _INSIDE]
    ranks = [hosts.start(name, python, {**environ, "RANK": str(rank)}) for rank, name in enumerate(hosts.names)]
    for rank in ranks:
        with rank:
            out, err = rank.communicate(timeout=300)
        assert (rank.returncode, out) == (0, "go\n"), err
