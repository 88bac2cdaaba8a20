"""Collectives without torch: bandwidths, what NCCL says; whichever rank fails, dies or hangs is named, none is left."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpudoctor.kernels import runner
from gpudoctor.kernels.child import _ranks
from gpudoctor.kernels.child._kernel import Broken, CannotRun
from gpudoctor.kernels.child._ranks import End, faults
from gpudoctor.kernels.child.collective import _nccl, exchange
from gpudoctor.kernels.child.collective._nccl import MARKER, read_log
from gpudoctor.kernels.child.collective._operations import OPERATIONS, bandwidths, is_missing
from tests.corpus import pairs, sick_texts
from tests.processes import gone, is_alive, marked, until

LINE = "node7:4242:4260 [3] misc/shmutils.cc:87 NCCL WARN "


@pytest.mark.parametrize(
    ("name", "ranks", "busbw"),
    [
        ("all_reduce", 8, 1.75),
        ("all_gather", 8, 0.875),
        ("reduce_scatter", 4, 0.75),
        ("broadcast", 8, 1.0),
        ("all_reduce", 1, 0.0),
    ],
)
def test_bus_bandwidth_is_nccl_tests(name: str, ranks: int, busbw: float) -> None:
    """1 GB in 1 s on the slowest rank; the factors are those of nccl-tests' doc/PERFORMANCE.md."""
    assert bandwidths(name, ranks, 10**9, [0.5] * (ranks - 1) + [1.0]) == {"algbw": 1.0, "busbw": busbw}


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("Error while creating shared memory segment /dev/shm/nccl-Yf (size 33030528)", "--shm-size"),
        ("Bootstrap : no socket interface found", "NCCL_SOCKET_IFNAME"),
        ("Cuda failure 802 'system not yet initialized'", "nvidia-fabricmanager"),
        ("Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'", "a newer driver"),
        ("Call to posix_fallocate failed: No space left on device", "/dev/shm"),
        ("Cuda failure 217 'peer access is not supported between these two devices'", "NCCL_P2P_DISABLE=1"),
        ("Something new", "NCCL_DEBUG=INFO"),
        # between hosts
        ("NET/IB : Got completion from peer 10.0.0.2<5555> with status=12 opcode=0", "NCCL_IB_DISABLE=1"),
        ("Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1", "NCCL_IB_GID_INDEX"),
        ("Call to ibv_reg_mr failed with error Cannot allocate memory", "ulimit -l"),
        ("socketPollConnect: connect to 10.0.0.2<43215> returned Connection refused", "open all TCP ports"),
        ("Call to connect to 10.0.0.2<43215> failed : No route to host", "NCCL_SOCKET_IFNAME"),
        ("NET/OFI Couldn't open a fabric access domain. RC: -38, ERROR: Function not implemented", "fi_info -p efa"),
        ("NET/OFI Request 0x7f completed with error. RC: 103. Error: 4126 (Unresponsive receiver)", "security group"),
    ],
)
def test_the_first_warning_is_the_message_and_has_its_advice(said: str, advice: str) -> None:
    err = f"noise\n{LINE}{said}\n{LINE}Call to accept failed\n"
    assert _nccl.warning(err) == said
    assert advice in _nccl.advice(said)


def test_ranks_that_hang_or_crash_have_advice_without_any_warning() -> None:
    assert "NCCL_P2P_DISABLE=1" in _nccl.advice('rank 0 did not come to an end at "all-reduce of 64 KiB"')
    assert "/dev/shm" in _nccl.advice('rank 3 was killed by SIGBUS at "the first collective"')
    hung = 'rank 0 did not come to an end at "all_reduce 64 MiB, nccl, network"'
    assert "NCCL_P2P_DISABLE=1" in _nccl.advice(hung)
    assert "NCCL_IB_DISABLE=1" in _nccl.advice(hung, between_hosts=True)


@pytest.mark.parametrize(
    ("said", "because"),
    [
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000", "slices of it (MIG)"),
        ("Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable", "(MIG)"),
        ("Cuda failure 2 'out of memory'", "no memory is free for NCCL's own buffers"),
    ],
)
def test_what_nccl_cannot_do_here_says_nothing_against_the_links(said: str, because: str) -> None:
    ends = [_end(rank, "failed: DistBackendError: NCCL error", 0, err=LINE + said) for rank in range(2)]
    for name in OPERATIONS:
        cannot = exchange.why(ends, name)
        assert isinstance(cannot, CannotRun)
        assert because in str(cannot)


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ("no support for _allgather_base in Gloo process group", True),
        ("ProcessGroup gloodoes not support _reduce_scatter_base", True),
        ("ProcessGroupNCCL only supports alltoall* for NCCL lib version >= 2.7.0", True),
        ("NCCL error: unhandled cuda error. Last error: Cuda failure 801 'operation not supported'", False),
        ("Cuda failure 217 'peer access is not supported between these two devices'", False),
    ],
)
def test_an_operation_that_an_old_torch_lacks_is_told_from_one_that_fails(said: str, missing: bool) -> None:
    assert is_missing(RuntimeError(said)) is missing


def test_an_operation_that_the_back_end_lacks_is_not_run_and_the_next_one_is() -> None:
    notes = {"all_gather": "RuntimeError: no support for _allgather_base in Gloo process group"}
    ends = [_end(rank)._replace(notes={**_end(rank).notes, **notes}) for rank in range(2)]
    context = SimpleNamespace(devices=("cpu", "cpu"), ends=lambda: ends, nccl=dict)
    with pytest.raises(CannotRun, match="no support"):
        exchange.run(context, exchange.KERNELS[1])  # type: ignore[arg-type]
    assert exchange.run(context, exchange.KERNELS[2]).right  # type: ignore[arg-type]


def _end(rank: int, why: str = "", done: int = len(OPERATIONS), **more: Any) -> End:
    one = {"size": 4096, "seconds": 1e-3, "differ": 0, "compared": 1024, "first": None}
    notes = {name: [one] for name in list(OPERATIONS)[:done]}
    return End(rank, None if why else {}, why, notes=notes, **more)


def test_a_failure_begins_with_what_nccl_warned_of() -> None:
    ends = [
        _end(0, "did not come to an end", 1, step="all-gather of 64 KiB", steps=9),
        _end(1, "failed: unhandled system error", 1, step="all-gather of 64 KiB", steps=9, err=LINE + "no room"),
    ]
    error = exchange.why(ends, "all_gather")
    assert isinstance(error, Broken)
    assert str(error).startswith("NCCL: no room; rank 0 did not come to an end")
    assert 'rank 1 failed: unhandled system error at "all-gather of 64 KiB"' in str(error)
    assert str(exchange.why(ends, "broadcast")) == "not tried: all-gather before it failed"


def test_who_waited_in_vain_is_named_after_whom_it_waited_for() -> None:
    late = _end(0, "failed: RuntimeError: Timed out waiting 2000ms for send operation", steps=4, order=1)
    reset = _end(1, "failed: RuntimeError: Connection closed by peer [127.0.0.1]:3", steps=4, order=2)
    hung, died = _end(2, "did not come to an end", steps=4, order=9), _end(3, "killed", steps=5, order=3, signal=11)
    assert [end.rank for end in faults([late, reset, hung, died])] == [3, 2, 0, 1]


def test_what_says_nothing_against_the_links() -> None:
    ends = [_end(0, "no memory is free for it", 0, cannot=True), _end(1, "failed: connection reset", 0, order=1)]
    assert isinstance(exchange.why(ends, "all_reduce"), CannotRun)
    outcome = exchange.outcome("all_reduce", [_end(0).notes["all_reduce"]], {"nccl": "2.29.7"})
    assert (outcome.right, outcome.value) == (True, None)
    assert outcome.words == "one GPU: NCCL starts and reduces, and no link was tested"
    assert outcome.details
    assert outcome.details["nccl"] == "2.29.7"
    wrong = [{**_end(rank).notes["all_reduce"][0], "differ": 2 * rank, "first": 7} for rank in range(2)]
    outcome = exchange.outcome("all_reduce", [[one] for one in wrong], {})
    assert (outcome.right, outcome.differ) == (False, 2)
    assert outcome.words == "rank 1: 2 of 1024 values are wrong, the first at 7"
    idle = 'Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!'
    assert _nccl.warning(f"{LINE}{idle}\n{LINE}no room\n") == "no room"


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


def _via(way: str) -> str:
    return f"{MARKER}nccl all\nh:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via {way}\n"


@pytest.mark.parametrize(
    ("log", "network", "devices", "via"),
    [
        (
            RDMA,
            "IB",
            ["mlx5_0 RoCE", "mlx5_3 RoCE"],
            {"node": ["P2P/CUMEM/read", "SHM/direct/direct"], "network": ["NET/IB/GDRDMA", "NET/IB/GDRDMA/Shared"]},
        ),
        (SOCKETS, "Socket", None, {"network": ["NET/Socket"]}),
        ("h:1:1 [0] NCCL INFO Using network AWS Libfabric\n", "AWS Libfabric", None, {}),
        ("h:1:1 [0] NCCL INFO Assigned NET plugin AWS Libfabric to comm\n", "AWS Libfabric", None, {}),
        (_via("P2P/direct pointer"), None, None, {"all": ["P2P/direct pointer"]}),
        (_via("NET/AWS Libfabric/3/GDRDMA"), None, None, {"all": ["NET/AWS Libfabric/GDRDMA"]}),
        ("NCCL version 2.29.7+cuda13.0\n@gpudoctor leg gloo all\n", None, None, {}),
        ("", None, None, {}),
    ],
)
def test_network_devices_and_ways_are_told_by_leg(
    log: str, network: str | None, devices: list[str] | None, via: dict[str, list[str]]
) -> None:
    """Of sockets in the words of an old NCCL; ways without the number of their device."""
    legs = [{"backend": "nccl", "leg": leg, "ways": ways} for leg, ways in via.items()]
    told = {"network": network, "devices": devices, "via": legs}
    assert read_log(log) == {name: value for name, value in told.items() if value}


@pytest.mark.parametrize("sick", [True, False])
def test_what_nccls_own_diagnostics_remark_is_read(sick: bool) -> None:
    """The report of 2.31, as tests/readers/pairs/nccl_ras.toml has it."""
    (pair,) = [one for one in pairs() if one["name"] == "nccl_ras: NCCL's own diagnostics of 2.31"]
    (faulty,) = [text for text, one in sick_texts(pair) if one["says"].startswith("rank 5, 7")]
    said = read_log(faulty if sick else pair["sound"])
    assert said["diagnosed"] is True
    remark = "ECC: uncorrected volatile errors on rank(s) {5,7} (N=2) (worst=3) across 16 ranks"
    assert said.get("remarks", []) == [remark] * sick


HERE = {"PYTHONPATH": str(Path(__file__).parent)}


def _argv(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")


def _together(*do: str, seconds: float = 300.0, **more: str) -> list[_ranks.End]:
    return _ranks.run_ranks("ranks_job", len(do), {"do": do, **more}, seconds, HERE)


def test_each_rank_knows_its_number_and_answers() -> None:
    ends = _ranks.run_ranks("ranks_job", 3, {"do": ["", "", ""]}, 300.0, {**HERE, "NOISY": "yes"})
    answers = _ranks.answers(ends)
    assert [(one["rank"], one["count"], one["noisy"]) for one in answers] == [(at, 3, "yes") for at in range(3)]
    assert not any(is_alive(one["pid"]) for one in answers)
    assert "what libraries print" in ends[0].err


def test_what_a_rank_printed_before_its_answer_is_read_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its standard output alone was ready when it was looked at, and is read only once the rank has ended."""
    take = _ranks.Rank.take

    def late(rank: _ranks.Rank, stream: Any) -> bool:
        return until(lambda: not is_alive(rank.process.pid)) and take(rank, stream)

    monkeypatch.setattr(_ranks.Rank, "take", late)
    (end,) = _together("")
    assert end.answer
    assert "what libraries print" in end.err


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("die", 'rank 1 was killed by SIGSEGV at "begin"'),
        ("leave", 'rank 1 ended with exit 3: some library: fatal at "begin"'),
        ("raise", 'rank 1 failed: ValueError: bad link at "begin"'),
    ],
)
def test_who_fails_is_named_before_those_that_wait_for_it(
    fault: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_ranks, "GRACE_SECONDS", 0.3)
    ends = _together("wait", fault, waiting=str(tmp_path / "waiting"))
    assert _ranks.faults(ends)[0].words == words
    with pytest.raises(RuntimeError) as raised:
        _ranks.answers(ends)
    assert str(raised.value) == f'{words}; rank 0 did not come to an end at "wait for the others"'


def test_who_is_ended_by_torch_for_waiting_in_vain_is_named_last() -> None:
    """torch's watchdog ends such a rank by SIGABRT, and no crash is at fault."""
    assert [end.words for end in _ranks.faults(_together("give up", "hang", seconds=2.0))] == [
        'rank 1 did not come to an end at "begin"',
        'rank 0 failed: collective operation timeout: WorkNCCL(OpType=ALLREDUCE) at "begin"',
    ]


def test_a_rank_that_is_killed_leaves_nothing_in_shared_memory() -> None:
    (end,) = _together("share", seconds=2.0)
    assert end.notes["path"].startswith("/dev/shm/nccl-")
    assert not Path(end.notes["path"]).exists()


def test_what_cannot_be_run_is_no_failure() -> None:
    with pytest.raises(CannotRun, match="nothing to do here"):
        _ranks.answers(_together("cannot", "cannot"))


@pytest.mark.parametrize("said", ["CUDA out of memory. Tried to allocate 2 GiB", "CUDA error: out of memory"])
def test_no_memory_is_no_failure_by_whatever_type_torch_tells_it(said: str) -> None:
    """torch 1.12 has no type of its own for that."""
    with pytest.raises(CannotRun, match=f"no memory is free for rank 1: RuntimeError: {said}"):
        _ranks.answers(_together("", said))


def test_ranks_share_the_processors_unless_the_user_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    share = str(max(1, len(os.sched_getaffinity(0)) // 2))
    assert [one["threads"] for one in _ranks.answers(_together("", ""))] == [share, share]
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert [one["threads"] for one in _ranks.answers(_together("", ""))] == ["7", "7"]


def test_ranks_end_with_the_process_that_started_them() -> None:
    """It is killed, which leaves it no time to clean up."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(runner.program()).parent.parent)!r})
from child import _ranks
_ranks.run_ranks("ranks_job", 2, {{"do": ["hang", "hang"]}}, 600.0, {HERE!r})
"""
    mark = f"ranks of process {os.getpid()}."
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "MARK": mark}) as parent:

        def started() -> list[int]:
            return [pid for pid in marked(mark) if pid != parent.pid and '"entry"' in _argv(pid)[-1]]

        there = until(lambda: len(started()) == 2)
        ranks = started()
        entries = [json.loads(_argv(pid)[-1])["entry"] for pid in ranks]
        parent.kill()
    assert there
    assert entries == ["_ranks"] * 2
    assert all(map(gone, ranks))
