"""Packages, variables, torch's and NCCL's words, tracebacks and prompts."""

import pytest

from gpudoctor.core.fact import Absent
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.readers import read_text
from tests.readers.reading import rows, told, values

ASKED = "torch.cuda.is_available()"
WHEEL = "flash_attn-2.3.4+cu122torch2.1cxx11abiTRUE-cp39-cp39-linux_x86_64.whl"
PLUGIN = (
    "RuntimeWarning: JAX plugin jax_cuda12_plugin version 0.9.2 is installed, but it is not compatible with the"
    " installed jaxlib version 0.9.0.1, so it will not be used."
)
SHELL = """\
$ env | grep -E 'CUDA|NCCL|LD_'
CUDA_VISIBLE_DEVICES=
NCCL_SOCKET_IFNAME==eth0
LD_LIBRARY_PATH=/usr/local/cuda-12.1/lib64:
PATH=/usr/local/cuda-12.1/bin:/usr/bin:/bin
AWS_SECRET_ACCESS_KEY=x
"""
LAUNCHED = """\
[rank0]: ImportError: /x/torch/lib/libtorch_cuda.so: undefined symbol: ncclMemFree
(RayWorkerWrapper pid=123, ip=10.0.0.1) PyTorch version: 2.3.1
worker-1  | Nvidia driver version: 550.54.15
[1,0]<stderr>: Is CUDA available: False
"""
IMPORTED = """\
Traceback (most recent call last):
  File "/home/u/venv/lib/python3.11/site-packages/torch/__init__.py", line 367, in <module>
    from torch._C import *  # noqa: F403
ImportError: libcudnn.so.9: cannot open shared object file
"""


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("[conda] pytorch   1.11.0 py3.8_cpu_0", {"torch.cuda": Absent, "torch.flavor": "cpu"}),
        ("[conda] pytorch-mutex   1.0 cpu", {"torch.cuda": Absent, "torch.flavor": "cpu"}),
        ("[conda] cpuonly   2.0", {"torch.cuda": Absent, "torch.flavor": "cpu"}),
        (
            "[pip3] torchvision==the one installed with torch 2.5.1\n[conda] pytorch   installed",
            {"torch.version": None},
        ),
        ("NVIDIA DRIVER CAPABILITIES: not set", {"env.NVIDIA_DRIVER_CAPABILITIES": Absent}),
        ("unset LD_LIBRARY_PATH", {"env.LD_LIBRARY_PATH": Absent}),
        ("export CUDA_HOME=/opt/conda", {"env.CUDA_HOME": "/opt/conda"}),
        ('declare -x NCCL_DEBUG="INFO"', {"env.NCCL_DEBUG": "INFO"}),
        ("CUDA_VISIBLE_DEVICES=1,2 NCCL_DEBUG=INFO torchrun train.py", {"env.CUDA_VISIBLE_DEVICES": "1,2"}),
        ("$ docker run -e NVIDIA_DRIVER_CAPABILITIES=utility img", {"env.NVIDIA_DRIVER_CAPABILITIES": "utility"}),
        ('os.environ["TORCH_CUDA_ARCH_LIST"] = "8.6"', {"env.TORCH_CUDA_ARCH_LIST": "8.6"}),
        ("NCCL INFO NCCL_IB_DISABLE set by environment to 1.", {"env.NCCL_IB_DISABLE": "1"}),
        ("PS C:\\> $env:CUDA_PATH=C:\\CUDA", {"env.CUDA_PATH": "C:\\CUDA"}),
        ("set CUDA_VISIBLE_DEVICES=0", {"env.CUDA_VISIBLE_DEVICES": "0"}),
        ("MASTER PORT: 29500 (default)", {"env.MASTER_PORT": "29500"}),
        ("cuda home: /usr/local/cuda", {"env.CUDA_HOME": "/usr/local/cuda"}),
        (SHELL, {"env.CUDA_VISIBLE_DEVICES": "", "env.NCCL_SOCKET_IFNAME": "=eth0"}),
        (SHELL, {"env.library_path": ("/usr/local/cuda-12.1/lib64",), "env.path": ("/usr/local/cuda-12.1/bin",)}),
        (SHELL, {"env.nccl_set": ("NCCL_SOCKET_IFNAME",), "env.AWS_SECRET_ACCESS_KEY": None}),
        ("env:\n- name: NVIDIA_VISIBLE_DEVICES\n  value: all\n", {"env.NVIDIA_VISIBLE_DEVICES": "all"}),
        ("env:\n- name: HF_TOKEN\n  value: x\n", {"env.HF_TOKEN": None}),
        (
            "RuntimeError: The NVIDIA driver on your system is too old (found version 12090).",
            {"driver.cuda_version": "12.9", "live.cuda_available": False},
        ),
        (
            "UserWarning: CUDA initialization: CUDA unknown error - this may be due to",
            {"live.cuda_error": "CUDA unknown error - this may be due to"},
        ),
        ("RuntimeError: No CUDA GPUs are available", {"live.cuda_error": "No CUDA GPUs are available"}),
        (
            "PyTorch was compiled  against (8, 5, 0) but found runtime version (8, 4, 1).",
            {"torch.cudnn_built": "8.5.0", "live.cudnn": "8.4.1"},
        ),
        (
            "PyTorch has CUDA Version=11.3 and torchvision has CUDA Version=11.7.",
            {"torch.cuda": "11.3", "torch.companions_unmet": ("torchvision is for CUDA 11.7, torch is for CUDA 11.3",)},
        ),
        (
            "torch 2.1 requires nvidia-nccl-cu12==2.18; but you have nvidia-nccl-cu12 2.21.5 which is incompatible.",
            {"torch.pins_unmet": ("nvidia-nccl-cu12 wants 2.18, has 2.21.5",)},
        ),
        (
            "2.5.1+cu124 12.4 False",
            {"torch.version": "2.5.1+cu124", "torch.cuda": "12.4", "live.cuda_available": False},
        ),
        (f">>> {ASKED}\nFalse\n>>> torch.backends.cudnn.version()\n8902", {"live.cudnn": "8.9.2"}),
        (f">>> {ASKED}\nFalse", {"live.cuda_available": False}),
        (f"I see that {ASKED} returns False", {"live.cuda_available": False}),
        (">>> torch.version.cuda\n'11.7'\n", {"torch.cuda": "11.7"}),
        (
            ">>> torch.cuda.get_arch_list()\n['sm_50', 'sm_90']\n",
            {"torch.archs": ("sm_50", "sm_90"), "live.arch_list": ("sm_50", "sm_90")},
        ),
        ("Loaded runtime CuDNN library: 9.0.0 but source was compiled with: 9.3.0.", {"tf.cudnn": "9.3.0"}),
        (PLUGIN, {"jax.plugin": "0.9.2", "jax.plugin_cuda": 12, "jax.jaxlib": "0.9.0.1"}),
        ("tf.config.list_physical_devices('GPU') -> []", {"tf.gpus": 0}),
        ("AssertionError: Torch not compiled with CUDA enabled", {"torch.cuda": Absent}),
        (IMPORTED, {"live.import_error": "ImportError: libcudnn.so.9: cannot open shared object file"}),
        (IMPORTED, {"live.import_outcome": "error"}),
        ("ImportError: flash_attn_2_cuda.cpython-39.so: undefined symbol: _ZN3c105E", {"live.import_outcome": None}),
        ("ModuleNotFoundError: No module named 'torch'", {"torch.version": Absent}),
        ("ModuleNotFoundError: No module named 'torch.distributed.x'", {"torch.version": None}),
        (LAUNCHED, {"live.import_outcome": "error", "torch.version": "2.3.1"}),
        (LAUNCHED, {"driver.version": "550.54.15", "live.cuda_available": False}),
    ],
)
def test_what_a_text_tells(text: str, facts: dict[str, object]) -> None:
    """None: the text says nothing of it."""
    assert told(text + "\n", *facts) == facts


@pytest.mark.parametrize(
    ("text", "group", "expected"),
    [
        ("[pip3] torchvision==the one installed with torch 2.5.1", "package", {"name": "torchvision"}),
        (
            f"pip install {WHEEL}",
            "extension",
            {"name": "flash-attn", "version": WHEEL[11:42], "cuda": "12.2", "torch": "2.1", "abi": "cxx11"},
        ),
        (
            "    Found GPU0 Tesla K40c which is of cuda capability 3.5.",
            "gpu",
            {"index": 0, "name": "Tesla K40c", "compute_capability": "3.5"},
        ),
    ],
)
def test_rows_that_a_text_tells(text: str, group: str, expected: dict[str, object]) -> None:
    (row,) = rows(text + "\n", group)
    assert {name: row.get(name) for name in ("version", *expected)} == {"version": None, **expected}


def test_torch_refuses_a_gpu() -> None:
    text = """\
/x/torch/cuda/__init__.py:230: UserWarning:\x20
NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.
The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_90 compute_37.
GPU models and configuration: GPU 0: NVIDIA GeForce RTX 5090
"""
    assert values(text)["torch.archs"] == ("sm_50", "sm_60", "sm_90", "compute_37")
    assert rows(text) == [{"index": 0, "name": "NVIDIA GeForce RTX 5090", "compute_capability": "12.0"}]


def test_pip_list_and_conda_list() -> None:
    text = """\
$ pip list
Package                  Version
------------------------ ------------
flash_attn               2.7.4.post1
torch                    2.5.1+cu121
nvidia-nccl-cu12         2.21.5
jax-cuda12-plugin        0.4.35
$ conda list
# packages in environment at /opt/conda:
#
# Name                    Version                   Build  Channel
_libgcc_mutex             0.1                        main
pytorch                   2.1.0           py3.10_cuda11.8_cudnn8.7.0_0    pytorch
torchvision               0.16.0                   pypi_0    pypi
"""
    snapshot = read_text(text)
    assert rows(snapshot, "package") == [
        {"name": "flash-attn", "version": "2.7.4.post1", "installer": "pip"},
        {"name": "torch", "version": "2.5.1+cu121", "installer": "pip"},
        {"name": "nvidia-nccl-cu12", "version": "2.21.5", "installer": "pip"},
        {"name": "jax-cuda12-plugin", "version": "0.4.35", "installer": "pip"},
        {"name": "pytorch", "version": "2.1.0", "installer": "conda", "build": "py3.10_cuda11.8_cudnn8.7.0_0"},
        {"name": "torchvision", "version": "0.16.0", "installer": "pip"},
    ]
    facts = {"torch.version": "2.5.1+cu121", "torch.installs": ("conda 2.1.0", "pip 2.5.1"), "torch.nccl": "2.21.5"}
    assert told(snapshot, *facts) == facts
    assert told(snapshot, "jax.plugin", "jax.plugin_cuda") == {"jax.plugin": "0.4.35", "jax.plugin_cuda": 12}


@pytest.mark.parametrize(
    "advice",
    [
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1.",
        "invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.19.3",
        "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
        "set NCCL_P2P_DISABLE=1 and it works",
        "NCCL WARN NET/IB : Got completion with error 12, opcode 1",
        "CUDA SETUP: Required library version not found",
    ],
)
def test_advice_sets_nothing(advice: str) -> None:
    assert not [name for name in read_text(advice + "\n").facts if name.startswith("env.")]


def test_nccl_log() -> None:
    text = """\
node1:123:456 [0] NCCL INFO Bootstrap : Using eth0:10.1.2.3<0>
node1:123:456 [0] NCCL INFO NCCL version 2.21.5+cuda12.4
node1:123:789 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/IB [RO]; OOB eth0:10.1.2.3<0>
node1:123:789 [0] NCCL INFO Using network IB
node1:123:789 [0] NCCL INFO comm 0x5 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 1000 commId 0x1 - Init START
node1:123:789 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
node1:123:789 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA
node2:123:456 [0] NCCL INFO NCCL version 2.20.5+cuda12.4
"""
    facts: dict[str, object] = {"interface": "eth0", "version": "2.21.5", "versions": ("2.21.5", "2.20.5")}
    facts |= {"cuda": "12.4", "network": "IB", "devices": ("mlx5_0", "mlx5_1"), "world_size": 16, "nodes": 2}
    facts |= {"transports": ("P2P/CUMEM/read", "NET/IB/0/GDRDMA")}
    assert told(text, *(f"nccl.{name}" for name in facts)) == {f"nccl.{name}": value for name, value in facts.items()}
    alone = text.replace("node2:", "node1:")
    assert "nccl.nodes" not in values(read_text(alone))
    whole = alone.replace("nranks 16 cudaDev", "nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0 cudaDev")
    assert values(read_text(whole))["nccl.nodes"] == 2


_COUNTED = (
    "[rank{rank}]:[E101 10:02:11.3 ProcessGroupNCCL.cpp:1895] [PG ID 1 PG GUID {group} Rank {local}] Exception (either"
    " an error or timeout) detected by watchdog at work: {done}, last enqueued NCCL work: {called}, last completed NCCL"
    " work: {done}.\n"
)


def _watchdogs(*ranks: tuple[int, int, int, int], group: str = "0(default_pg)") -> str:
    """What the watchdogs write of ranks, each its number, its number in the group, what it called and completed."""
    return "".join(
        _COUNTED.format(rank=rank, local=local, called=called, done=done, group=group)
        for rank, local, called, done in ranks
    )


def test_ranks_that_called_fewer_collectives_are_behind() -> None:
    counts = (0, 0, 1782, 1781), (1, 1, 1783, 1781), (2, 2, 1780, 1779), (3, 3, 1782, 1781)
    told = values(read_text(_watchdogs(*counts)))
    assert {name: value for name, value in told.items() if name.startswith("nccl.")} == {
        "nccl.ranks_behind": ("2",),
        "nccl.behind_at": 1780,
        "nccl.ahead_at": 1783,
        "nccl.ranks_counted": 4,
    }
    told = values(read_text(_watchdogs((0, 0, 1, 0), (1, 1, -1, -1))))
    assert (told["nccl.ranks_behind"], told["nccl.behind_at"], told["nccl.ahead_at"]) == (("1",), 0, 1)
    assert values(read_text(_watchdogs((0, 0, 1782, 1780), (1, 1, 1781, 1780))))["nccl.ranks_behind"] == ()
    one, other = (0, 0, 900, 899), (1, 1, 40, 39)
    apart = _watchdogs(one, group="3(tp)") + _watchdogs(other, group="4(dp)")
    shared = _watchdogs((0, 0, 900, 899), (1, 1, 900, 899), (2, 0, 40, 39), (3, 1, 40, 39), group="1")
    assert "nccl.ranks_behind" not in values(read_text(apart))
    assert "nccl.ranks_behind" not in values(read_text(shared))


def test_an_exported_conda_environment() -> None:
    text = "dependencies:\n  - pytorch::pytorch=2.1.0=py3.10_cpu_0\n  - pip:\n    - flash-attn==2.3.4\n"
    snapshot = complete(read_text(text))
    assert [(row["name"], row["version"]) for row in rows(snapshot, "package")] == [("torch", "2.1.0")]
    assert values(snapshot)["torch.flavor"] == "cpu"


def _waits(rank: int, number: int, op: str, size: int, own: int | None = None) -> str:
    """What the watchdog writes of a rank that waits; `own` is its number in its group, which the line does not name."""
    return (
        f"[rank{rank}]:[E101 10:02:11.3 ProcessGroupNCCL.cpp:607] [Rank {rank if own is None else own}] Watchdog caught"
        f" collective operation timeout: WorkNCCL(SeqNum={number}, OpType={op}, NumelIn={size}, NumelOut={size},"
        " Timeout(ms)=600000) ran for 600060 milliseconds before timing out.\n"
    )


@pytest.mark.parametrize(
    ("lines", "differing"),
    [
        ((_waits(0, 7, "BROADCAST", 4), _waits(1, 7, "ALLREDUCE", 4)), 2),
        ((_waits(0, 7, "ALLREDUCE", 4), _waits(1, 7, "ALLREDUCE", 8), _waits(2, 7, "ALLREDUCE", 8)), 2),
        ((_waits(0, 7, "ALLREDUCE", 4), _waits(1, 7, "ALLREDUCE", 4)), 0),
        ((_waits(0, 7, "ALLTOALL_BASE", 4), _waits(1, 7, "ALLTOALL_BASE", 8)), 0),
        ((_waits(0, 7, "COALESCED", 4), _waits(1, 7, "ALLREDUCE", 8)), 0),
        # What a rank waits in later is for want of the first.
        ((_waits(0, 7, "ALLREDUCE", 4), _waits(1, 7, "ALLREDUCE", 4), _waits(0, 8, "BROADCAST", 1)), 0),
        ((_waits(0, 7, "ALLREDUCE", 4), _waits(1, 9, "BROADCAST", 4)), None),
        ((_waits(4, 7, "ALLREDUCE", 4, own=0), _waits(0, 7, "BROADCAST", 4)), None),
        ((_waits(0, 7, "ALLREDUCE", 4),), None),
    ],
)
def test_ranks_that_wait_in_different_collectives(lines: tuple[str, ...], differing: int | None) -> None:
    told = values(read_text("".join(lines))).get("nccl.differing_calls")
    assert (len(told) if isinstance(told, tuple) else told) == differing


def test_what_the_fewest_ranks_called_comes_first() -> None:
    calls = [_waits(rank, 7, "ALLREDUCE", 4096) for rank in range(10)]
    told = values(read_text("".join([*calls, _waits(10, 7, "BROADCAST", 1)])))
    assert told["nccl.differing_calls"] == (
        "BROADCAST of 1 element (rank 10)",
        "ALLREDUCE of 4096 elements (ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more)",
    )
    assert told["nccl.differing_at"] == 7


def test_older_torch_tells_no_size_or_a_shape() -> None:
    line = "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE, {}) ran\n"
    bare = "".join(line.format(rank, "Timeout(ms)=1800000") for rank in range(2))
    assert values(read_text(bare))["nccl.differing_calls"] == ()
    shapes = "".join(line.format(rank, f"TensorShape=[{rank + 1}, 4], Timeout(ms)=1800000") for rank in range(2))
    assert values(read_text(shapes))["nccl.differing_calls"] == (
        "ALLREDUCE of shape [1, 4] (rank 0)",
        "ALLREDUCE of shape [2, 4] (rank 1)",
    )
