"""What NCCL tells with NCCL_DEBUG=INFO: interface, network and transports, by leg; lines as releases print them."""

from __future__ import annotations

import pytest

from gpudoctor.kernels.child.collective import _nccl
from gpudoctor.kernels.child.collective._nccl import MARKER, read_log

RDMA = f"""
gpu7:812:812 [0] NCCL INFO Bootstrap: Using eth0:10.1.2.10<0>
gpu7:812:830 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_3:1/RoCE [RO]; OOB eth0:10.1.2.10<0>
gpu7:812:830 [0] NCCL INFO Initialized NET plugin IB
gpu7:812:830 [0] NCCL INFO Assigned NET plugin IB to comm
gpu7:812:830 [0] NCCL INFO Using network IB
{MARKER}nccl node
gpu7:812:841 [0] NCCL INFO Channel 00/24 : 0 1 2 3 4 5 6 7
gpu7:812:841 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
gpu7:812:841 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read
gpu7:812:841 [0] NCCL INFO Channel 02/0 : 0[0] -> 4[4] via SHM/direct/direct
{MARKER}nccl network
gpu7:812:870 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA
gpu7:812:870 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via NET/IB/1(3)/GDRDMA/Shared
gpu7:812:870 [0] NCCL INFO Connected all rings
"""
SOCKETS = f"""
node001:175945:175945 [0] NCCL INFO Bootstrap : Using ens3:10.141.0.5<0>
node001:175945:175945 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using internal implementation
node001:175945:175945 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.
node001:175945:175945 [0] NCCL INFO NET/Socket : Using [0]ens3:10.141.0.5<0>
node001:175945:175945 [0] NCCL INFO Using network Socket
{MARKER}nccl network
node001:175945:177561 [0] NCCL INFO Channel 00 : 1[0] -> 0[0] [receive] via NET/Socket/0
"""


def test_rdma_and_nvlink_are_told_by_leg() -> None:
    assert read_log(RDMA) == {
        "nccl_at": ["eth0 10.1.2.10"],
        "network": "IB",
        "devices": ["mlx5_0 RoCE", "mlx5_3 RoCE"],
        "via": [
            {"backend": "nccl", "leg": "node", "ways": ["P2P/CUMEM/read", "SHM/direct/direct"]},
            {"backend": "nccl", "leg": "network", "ways": ["NET/IB/GDRDMA", "NET/IB/GDRDMA/Shared"]},
        ],
    }


def test_sockets_are_told_of_an_old_nccl_too() -> None:
    assert read_log(SOCKETS) == {
        "nccl_at": ["ens3 10.141.0.5"],
        "network": "Socket",
        "via": [{"backend": "nccl", "leg": "network", "ways": ["NET/Socket"]}],
    }


@pytest.mark.parametrize(
    ("line", "key", "told"),
    [
        ("Bootstrap: Using ib0:fe80::d4fb:54ff:fe7d:8829%ib0<0>", "nccl_at", ["ib0 fe80::d4fb:54ff:fe7d:8829%ib0"]),
        ("Using network AWS Libfabric", "network", "AWS Libfabric"),
        ("Assigned NET plugin AWS Libfabric to comm", "network", "AWS Libfabric"),
    ],
)
def test_names_with_colons_and_blanks_are_whole(line: str, key: str, told: object) -> None:
    assert read_log(f"h:1:1 [0] NCCL INFO {line}\n")[key] == told


@pytest.mark.parametrize(
    ("way", "told"),
    [("P2P/direct pointer", "P2P/direct pointer"), ("NET/AWS Libfabric/3/GDRDMA", "NET/AWS Libfabric/GDRDMA")],
)
def test_ways_are_told_without_the_number_of_the_device(way: str, told: str) -> None:
    found = read_log(f"{MARKER}nccl all\nh:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via {way}\n")
    assert found == {"via": [{"backend": "nccl", "leg": "all", "ways": [told]}]}


def test_a_log_that_says_nothing_is_empty() -> None:
    assert read_log("") == read_log("NCCL version 2.29.7+cuda13.0\n@gpudoctor leg gloo all\n") == {}


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("NET/IB : Got completion from peer 10.0.0.2<5555> with status=12 opcode=0", "NCCL_IB_DISABLE=1"),
        ("Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1", "NCCL_IB_GID_INDEX"),
        ("Call to ibv_reg_mr failed with error Cannot allocate memory", "ulimit -l"),
        ("socketPollConnect: connect to 10.0.0.2<43215> returned Connection refused", "open all TCP ports"),
        ("Call to connect to 10.0.0.2<43215> failed : No route to host", "NCCL_SOCKET_IFNAME"),
    ],
)
def test_what_nccl_says_between_hosts_has_its_advice(said: str, advice: str) -> None:
    assert advice in _nccl.advice(said)


def test_a_leg_that_hangs_has_the_advice_of_its_own_links() -> None:
    hung = 'rank 0 did not come to an end at "all_reduce 64 MiB, nccl, network"'
    assert "NCCL_P2P_DISABLE=1" in _nccl.advice(hung)
    assert "NCCL_IB_DISABLE=1" in _nccl.advice(hung, between_hosts=True)
