"""What was changed to find a fault, and what came of it, as people write it."""

from __future__ import annotations

import pytest

from tests.unit.reading import told, values

TROUBLE = "\n\nsymptom: a timeout\n"


def tried(text: str) -> dict[str, object]:
    """The outcomes that the text tells, without the group's name."""
    return {name[6:]: value for name, value in values(text).items() if name.startswith("tried.")}


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("nodes: 2", {"nccl.nodes": 2}),
        ("torchrun --nnodes=4 --nproc_per_node 8 train.py", {"nccl.nodes": 4}),
        ("one container on each of two machines", {"nccl.nodes": 2}),
        ("multi-node job", {"nccl.nodes": 2}),
        ("instance: p5.48xlarge x2", {"nccl.nodes": 2}),
        ("nodes: 1", {"nccl.nodes": 1}),
        ("single node: works, 2 nodes: hangs", {"nccl.nodes": 2}),
        (
            "all_reduce 1G: busbw 12 GB/s\nother node: 230 GB/s\n\t Link 0: 25 GB/s",
            {"nccl.rate_low": 12.0, "nccl.rate_high": 230.0},
        ),
        ("libnccl2 2.9.8-1+cuda11.0", {"nccl.cuda": "11.0"}),
        ("two cards: stays at epoch 0 forever", {"tried.several_gpus": "hangs"}),
        ("tensor_parallel_size=2: output is gibberish", {"tried.several_gpus": "wrong"}),
        ("nn.DataParallel with 2x GTX 1060: freezes", {"tried.several_gpus": "hangs"}),
        ("4 GPUs: runs", {"tried.several_gpus": "works"}),
        ("2 GPUs: hangs\n2 GPUs with NCCL_P2P_DISABLE=1: works", {"tried.several_gpus": "hangs"}),
        ("NCCL_P2P_LEVEL=PIX: hangs\nNCCL_P2P_LEVEL=LOC: works", {"tried.p2p_off": "works"}),
        # A standing setting is no news where nothing failed.
        ("NCCL_P2P_DISABLE=1 in .bashrc, training works", {"tried.p2p_off": None}),
        ("env: NCCL_P2P_DISABLE=1, training works, wandb error", {"tried.p2p_off": None}),
        ("docker run --net=host: works", {"tried.host_network": None}),
    ],
)
def test_what_a_text_tells(text: str, facts: dict[str, object]) -> None:
    """None: the text says nothing of it."""
    assert told(text, *facts) == facts


@pytest.mark.parametrize(
    "line",
    [
        "NCCL_P2P_DISABLE=1: works",
        "with NCCL_P2P_DISABLE=1: finishes",
        "export NCCL_P2P_DISABLE=1 -> trains",
        "fixed by: NCCL_P2P_DISABLE=1",
        "workaround: export NCCL_P2P_DISABLE=1",
        "the job completes once NCCL_P2P_DISABLE=1 is exported",
        "with NCCL_P2P_DISABLE=1 the hang is gone",
        "NCCL_P2P_DISABLE=1 and it no longer hangs",
        "hangs without NCCL_P2P_DISABLE=1",
        "hangs unless P2P is disabled",
        "works with p2p disabled: True",
        "hang with NCCL_P2P_DISABLE=1: no",
        "nccl p2p disable 1: ok",
        "without NCCL_P2P_DISABLE: stuck. with it: works",
        "NCCL_P2P_DISABLE=1 gives right losses, otherwise nan",
        "works with NCCL_P2P_DISABLE=1, hangs otherwise",
    ],
)
def test_works_in_any_order_and_with_any_negation(line: str) -> None:
    assert tried(line + TROUBLE)["p2p_off"] == "works"


@pytest.mark.parametrize(
    "line",
    [
        "NCCL_P2P_DISABLE=1 does not help, it still hangs",
        "tested NCCL_P2P_DISABLE=1, NCCL_IB_DISABLE=1, no effect",
        "vLLM hangs with NCCL_P2P_DISABLE=1 too",
        "after NCCL_P2P_DISABLE=1: same hang",
        "nothing works: NCCL_P2P_DISABLE=1, NCCL_SHM_DISABLE=1",
        "works with p2p disabled: no",
    ],
)
def test_fails(line: str) -> None:
    assert tried(line)["p2p_off"] == "fails"


@pytest.mark.parametrize(
    "line",
    [
        "NCCL_P2P_DISABLE=1",
        "NCCL_P2P_DISABLE: 1",
        "NCCL_P2P_DISABLE=1 python train.py",
        "NCCL_P2P_DISABLE=0: hangs",
        "NCCL INFO P2P is disabled between connected GPUs 0 and 1. You can repress this message",
        "NCCL_P2P_DISABLE=1 set, single GPU works, 2 GPUs hang",
    ],
)
def test_a_setting_without_an_outcome_of_its_own_tells_nothing(line: str) -> None:
    assert "p2p_off" not in tried(line)


@pytest.mark.parametrize(
    ("line", "change"),
    [
        ("amd_iommu=off: hang gone", "iommu_off"),
        ("AMD I/O Virtualization in BIOS: enabled; after disabling: all examples run", "iommu_off"),
        ("training works after disabling ACS", "iommu_off"),
        ("NCCL_IB_DISABLE=1: runs, slow", "ib_off"),
        ("NCCL_IB_GID_INDEX=3: ok", "gid_index"),
        ("NCCL_CUMEM_HOST_ENABLE=0: collectives pass", "cumem_off"),
        ("--disable-custom-all-reduce: normal text", "custom_all_reduce_off"),
        ("--ipc=host: error gone", "shm_larger"),
        ("GLOO_SOCKET_IFNAME=eth0 fixes it", "interface"),
        ("docker run --net=host: works", "host_network"),
        ("ufw disabled: works", "firewall_off"),
        ("ulimit -l unlimited in slurmd: works", "memlock"),
        ("after net.ipv6.conf.all.disable_ipv6=1: training runs", "ipv6_off"),
        ("same script on one card: normal", "one_gpu"),
        ("one node: all good", "one_node"),
    ],
)
def test_each_change(line: str, change: str) -> None:
    assert tried(line + TROUBLE)[change] == "works"
