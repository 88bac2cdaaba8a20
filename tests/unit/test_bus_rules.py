"""What the rules about RDMA and about a driver that hangs say of machines as the probes read them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor import rulebook
from gpudoctor.collect import collect
from gpudoctor.judge import judge_rule
from gpudoctor.judge.signs import Text
from gpudoctor.model.diagnosis import Finding
from gpudoctor.model.fact import Fact, Known, Unread
from gpudoctor.probes import environment, fitness, limits, network, rdma
from gpudoctor.target import Target
from tests.unit.buses import card, process, rdma_port
from tests.unit.trees import Tree

BOOK = rulebook.load()


def found(rule: str, target: Target) -> list[str]:
    """Titles of the rule's findings, or ["unjudged"]."""
    snapshot = collect(target, (environment, fitness, limits, network, rdma))
    page = BOOK.find(rule)
    assert page
    outcomes = [outcome for outcome in judge_rule(page, snapshot, Text(snapshot)) if outcome]
    return [outcome.title if isinstance(outcome, Finding) else "unjudged" for outcome in outcomes]


def fabric(root: Path, *states: str, memlock: str = "unlimited") -> Tree:
    """A node with a ConnectX-7 for each state, run by a user who may not lock memory beyond the limit."""
    tree = Tree(root).linux()
    for number, state in enumerate(states):
        path = f"pci0000:{0x15 + number:02x}/0000:{0x15 + number:02x}:01.0/0000:{0x50 + number:02x}:00.0"
        card(tree, path, f"mlx5_{number}")
        rdma_port(tree, f"mlx5_{number}", state)
        tree.file(f"/sys/devices/{path}/infiniband/mlx5_{number}/board_id", "MT_0000000838\n")
    tree.file("/proc/self/limits", f"Max locked memory         {memlock}              {memlock}              bytes\n")
    return tree.file("/proc/self/status", "CapEff:\t0000000000000000\nCpus_allowed_list:\t0-15\n")


INIT = "The InfiniBand link of mlx5_1 is up, and no subnet manager has set its port up"
FELL = "The InfiniBand link of mlx5_1 was up and is down, while others of its kind are up"


@pytest.mark.parametrize(
    ("states", "titles"),
    [([], []), (["4: ACTIVE"] * 8, []), (["4: ACTIVE", "1: DOWN"], [FELL]), (["4: ACTIVE", "2: INIT"], [INIT])],
)
def test_a_port_that_fell_or_was_not_set_up_is_named(tmp_path: Path, states: list[str], titles: list[str]) -> None:
    assert found("nccl.infiniband", fabric(tmp_path, *states).target(SLURM_NNODES="16")) == titles


def test_a_port_that_was_never_cabled_is_left_alone(tmp_path: Path) -> None:
    tree = fabric(tmp_path, "4: ACTIVE", "1: DOWN")
    place = (tree.root / "sys/class/infiniband/mlx5_1").readlink()
    tree.file(f"{place}/ports/1/counters/link_downed", "0\n")
    assert found("nccl.infiniband", tree.target()) == []


def test_the_default_limit_of_locked_memory_matters_to_a_job_of_several_nodes_only(tmp_path: Path) -> None:
    tree = fabric(tmp_path, "4: ACTIVE", memlock="8388608")
    assert found("nccl.infiniband", tree.target()) == []
    assert found("nccl.infiniband", tree.target(SLURM_NNODES="1")) == []
    assert found("nccl.infiniband", tree.target(SLURM_NNODES="2")) == [
        "This session may lock 8192 KiB of memory, too little for RDMA"
    ]
    raised = fabric(tmp_path / "raised", "4: ACTIVE", memlock="17179869184")
    assert found("nccl.infiniband", raised.target(SLURM_NNODES="2")) == []


def test_a_driver_that_hangs_is_told_with_the_process_that_hangs_in_it(tmp_path: Path) -> None:
    tree = process(Tree(tmp_path).linux(), 4242, "nvidia-smi", "D", "rm_acquire_api_lock", "/dev/nvidiactl")
    seen = collect(tree.target(), (fitness,))
    why = "nvmlInit did not return within 30 s"
    asked: dict[str, Fact] = {"nvml.state": Unread(why), "nvml.unanswered": Known(why, "NVML")}
    snapshot = replace(seen, facts={**seen.facts, **asked})
    page = BOOK.find("nvml.failed")
    assert page
    (finding,) = judge_rule(page, snapshot, Text(snapshot))
    assert isinstance(finding, Finding)
    said = {item.fact: item.state for item in finding.evidence}
    assert isinstance(said["stuck.wchan"], Known)
    assert (said["stuck.pid"], said["stuck.wchan"].value) == (Known(4242, "/proc/4242/stat"), "rm_acquire_api_lock")
    assert finding.fixes[0].title == "Take the machine out of service: nvidia-smi (pid 4242) cannot be killed"
    assert finding.fixes[0].steps[1].argv == ("cat", "/proc/4242/stack")
