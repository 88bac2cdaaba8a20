"""Variables that steer GPU software become facts, being unset is an answer, secrets never leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.model.fact import Absent, Known
from gpudoctor.model.secrets import HIDDEN
from gpudoctor.probes import environment
from tests.unit.trees import Tree, said, values


def test_set_unset_and_empty_are_three_answers(tmp_path: Path) -> None:
    facts = said(environment, Tree(tmp_path).target(CUDA_VISIBLE_DEVICES="", NCCL_DEBUG="INFO"))
    assert facts["env.CUDA_VISIBLE_DEVICES"] == Known("", "environment")
    assert facts["env.NCCL_DEBUG"] == Known("INFO", "environment")
    assert facts["env.NCCL_SOCKET_IFNAME"] == Absent("not set")


def test_what_is_not_ours_is_not_read(tmp_path: Path) -> None:
    private = {"HOME": "/home/me", "AWS_SECRET_ACCESS_KEY": "x", "SSH_AUTH_SOCK": "y", "PS1": "$", "PATH": "/bin"}
    facts = said(environment, Tree(tmp_path).target(**private))
    assert not {f"env.{name}" for name in private} & set(facts)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_API_KEY", "anything"),
        ("TORCH_HUB_TOKEN", "anything"),
        ("NCCL_NET_PLUGIN", "https://user:pa55@host/plugin"),
        ("XLA_FLAGS", "--key hf_abcdefghijklmnopqrstuv"),
        ("CC", "gcc -DPASSWORD=hunter2"),
    ],
)
def test_secrets_are_hidden(tmp_path: Path, name: str, value: str) -> None:
    shown = str(values(environment, Tree(tmp_path).target(**{name: value}))[f"env.{name}"])
    assert HIDDEN in shown
    assert not [word for word in ("anything", "pa55", "abcdefghij", "ABCDEFGH", "hunter2") if word in shown]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MASTER_ADDR", "10.0.0.1"),
        ("NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        ("TRITON_CACHE_DIR", "/scratch/sk-learn/cache"),
    ],
)
def test_plain_values_are_shown(tmp_path: Path, name: str, value: str) -> None:
    assert values(environment, Tree(tmp_path).target(**{name: value}))[f"env.{name}"] == value


def test_a_huge_value_is_cut(tmp_path: Path) -> None:
    value = values(environment, Tree(tmp_path).target(XLA_FLAGS="--a " * 50_000))["env.XLA_FLAGS"]
    assert len(value) < 5000
    assert value.endswith("(200000 characters)")


def test_search_paths(tmp_path: Path) -> None:
    tree = Tree(tmp_path).file("/usr/local/cuda/bin/nvcc").file("/usr/bin/gcc").folder("/home/me/bin")
    facts = values(
        environment,
        tree.target(LD_LIBRARY_PATH="/a:/b::/a", PATH="/home/me/bin:/usr/local/cuda/bin:bin:/usr/bin:/usr/bin"),
    )
    assert facts["env.library_path"] == ("/a", "/b", ".", "/a")
    assert facts["env.path"] == ("/usr/local/cuda/bin", "/usr/bin")
    assert values(environment, tree.target())["env.library_path"] is Absent


def test_variables_of_nccl_by_name(tmp_path: Path) -> None:
    target = Tree(tmp_path).target(NCCL_P2P_DISABLE="1", TORCH_NCCL_BLOCKING_WAIT="0", GLOO_SOCKET_IFNAME="eth0", A="1")
    assert values(environment, target)["env.nccl_set"] == (
        "GLOO_SOCKET_IFNAME",
        "NCCL_P2P_DISABLE",
        "TORCH_NCCL_BLOCKING_WAIT",
    )
