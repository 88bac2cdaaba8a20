"""Variables that steer GPU software become facts, being unset is an answer, secrets never leave."""

from __future__ import annotations

from pathlib import Path

from gpudoctor.core.fact import Absent, Known
from gpudoctor.core.secrets import HIDDEN
from gpudoctor.probes import environment
from tests.probes.trees import Tree, said, values


def test_set_unset_and_empty_are_three_answers(tmp_path: Path) -> None:
    facts = said(environment, Tree(tmp_path).target(CUDA_VISIBLE_DEVICES="", NCCL_DEBUG="INFO"))
    assert facts["env.CUDA_VISIBLE_DEVICES"] == Known("", "environment")
    assert facts["env.NCCL_DEBUG"] == Known("INFO", "environment")
    assert facts["env.NCCL_SOCKET_IFNAME"] == Absent("not set")


def test_what_is_not_ours_is_not_read(tmp_path: Path) -> None:
    private = {"HOME": "/home/me", "AWS_SECRET_ACCESS_KEY": "x", "SSH_AUTH_SOCK": "y", "PS1": "$", "PATH": "/bin"}
    facts = said(environment, Tree(tmp_path).target(**private))
    assert not {f"env.{name}" for name in private} & set(facts)


def test_secrets_are_hidden_and_not_left_out_and_huge_values_are_cut(tmp_path: Path) -> None:
    plain, secret = "/scratch/sk-learn/cache", "https://user:pa55@host/plugin"
    target = Tree(tmp_path).target(NCCL_NET_PLUGIN=secret, TRITON_CACHE_DIR=plain, XLA_FLAGS="--a " * 50_000)
    facts = values(environment, target)
    assert HIDDEN in facts["env.NCCL_NET_PLUGIN"]
    assert "pa55" not in facts["env.NCCL_NET_PLUGIN"]
    assert facts["env.TRITON_CACHE_DIR"] == plain
    assert len(facts["env.XLA_FLAGS"]) < 5000
    assert facts["env.XLA_FLAGS"].endswith("(200000 characters)")


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
