"""``torchrun`` on two hosts with two ranks each: go, no-go, and the rendezvous that the training finds afterwards."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpudoctor
from tests import needs
from tests.cluster.hosts import Hosts
from tests.sim.root import HOST, Ran

RECIPE = Path(gpudoctor.__file__).parent / "recipes" / "torchrun.sh"
_TRAINING = """
import datetime, os, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
value = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(value)
print("rank", dist.get_rank(), "sum", value.item(), flush=True)
dist.destroy_process_group()
"""
"""A training of one step. 1 + 2 + 3 + 4 ranks make 10."""


@pytest.fixture(scope="module")
def _two() -> Iterator[Hosts]:
    with Hosts(["node1", "node2"]) as hosts:
        yield hosts


@pytest.fixture
def hosts(_two: Hosts) -> Iterator[Hosts]:
    """Two sound hosts."""
    for name in _two.names:
        _two.becomes(name, "hgx-h100")
    yield _two


def _torchrun(hosts: Hosts, *words: str) -> list[Ran]:
    """An agent of torchrun on each host, by the shipped script, whose ranks become gpudoctor."""
    tools = Path(needs.torch_python()).parent
    environ = {
        "PATH": f"/usr/local/sbin:{tools}:/usr/bin:/bin",
        "RENDEZVOUS": "node1:29400",
        "NODES": "2",
        "GPUS": "2",
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    agents = [hosts.start(name, ["sh", str(RECIPE), *words], environ) for name in hosts.names]
    ended = []
    for agent in agents:
        with agent:
            out, err = agent.communicate(timeout=120)
        ended.append(Ran(agent.returncode, out, err, 0))
    return ended


def _training() -> list[str]:
    """The training, by the interpreter with torch, which only the real machine below the simulated one has."""
    python = os.path.realpath(Path(needs.torch_python()).parent)
    return [f"{HOST}{needs.program('chroot')}", HOST, f"{python}/python", "-c", _TRAINING]


def test_on_go_each_rank_trains_once_and_the_rendezvous_is_free(hosts: Hosts) -> None:
    ended = _torchrun(hosts, *_training())
    assert [ran.code for ran in ended] == [0, 0], ended
    said = sorted(line for ran in ended for line in ran.out.splitlines())
    assert said == [f"rank {rank} sum 10.0" for rank in range(4)]


def test_on_no_go_nobody_trains_and_the_host_is_named(hosts: Hosts) -> None:
    hosts.becomes("node2", "lost-gpu-h100")
    ended = _torchrun(hosts, *_training())
    assert [ran.code for ran in ended] == [1, 1], ended
    assert [ran.out for ran in ended] == ["", ""]
    assert "(Xid 79) on node2" in ended[0].err
    assert "gpu.fell-off-bus" in ended[0].err


def test_the_document_is_one_for_all_ranks(hosts: Hosts) -> None:
    script = hosts.folder / "json.sh"
    script.write_text(RECIPE.read_text().replace("--level quick -- ", "--json #"))
    tools = Path(needs.torch_python()).parent
    environ = {
        "PATH": f"/usr/local/sbin:{tools}:/usr/bin:/bin",
        "RENDEZVOUS": "node1:29400",
        "NODES": "2",
        "GPUS": "2",
    }
    agents = [hosts.start(name, ["sh", str(script)], environ) for name in hosts.names]
    said = ""
    for agent in agents:
        with agent:
            out, err = agent.communicate(timeout=120)
        assert agent.returncode == 0, err
        said += out
    document = json.loads(said)
    assert document["fleet"]["verdict"] == "go"
    assert len(document["facts"]["rank"]) == 4
