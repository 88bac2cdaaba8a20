"""torch's collect_env, of several ages, and what its wordings really mean."""

import pytest

from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.readers import read_text
from tests.readers.reading import column, told

MODERN = """\
Collecting environment information...
PyTorch version: 2.8.0+cu128
CUDA used to build PyTorch: 12.8
ROCM used to build PyTorch: N/A

OS: Ubuntu 24.04.3 LTS (x86_64)
GCC version: (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0
Libc version: glibc-2.39

Python version: 3.12.3 (main, Aug 14 2025, 17:47:21) [GCC 13.3.0] (64-bit runtime)
Python platform: Linux-6.8.0-79-generic-x86_64-with-glibc2.39
Is CUDA available: True
CUDA runtime version: 12.0.140
GPU models and configuration:\x20
GPU 0: NVIDIA GeForce RTX 5090
GPU 1: NVIDIA GeForce RTX 3090

Nvidia driver version: 580.65.06
cuDNN version: Probably one of the following:
/usr/lib/x86_64-linux-gnu/libcudnn.so.9.1.0
/usr/lib/x86_64-linux-gnu/libcudnn_adv.so.9.1.0

CPU:
Architecture:                         x86_64
Model name:                           AMD Ryzen 9 7950X 16-Core Processor

Versions of relevant libraries:
[pip3] numpy==1.26.4
[pip3] nvidia-cudnn-cu12==9.10.2.21
[pip3] nvidia-nccl-cu12==2.27.3
[pip3] torch==2.8.0+cu128
[pip3] triton==3.4.0
[conda] Could not collect
"""

FIRST = """\
PyTorch version: 1.0.1.post2
Is debug build: No
CUDA used to build PyTorch: None

OS: Mac OSX 10.14.3
GCC version: Could not collect

Python version: 3.7
Is CUDA available: No
CUDA runtime version: No CUDA
GPU models and configuration: No CUDA
Nvidia driver version: No CUDA
cuDNN version: No CUDA

Versions of relevant libraries:
[pip] numpy (1.14.5)
[pip] torch (1.0.1.post2)
[conda] pytorch                   1.0.1           py3.7_cuda9.0.176_cudnn7.4.2_2    pytorch
"""


OS = ("host.platform", "host.distribution", "host.distribution_version")
NOTHING = "Could not collect"


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (
            f"PyTorch version: 1.12.1\nCUDA used to build PyTorch: {NOTHING}",
            {"torch.cuda": Absent, "torch.flavor": "cpu"},
        ),
        (f"CUDA runtime version: {NOTHING}", {"cuda.nvcc_version": Unread}),
        (f"Nvidia driver version: {NOTHING}", {"driver.version": Unread}),
        ("Is CUDA available: N/A", {"live.cuda_available": Unread}),
        ("PyTorch version: N/A\nVersions of relevant libraries:\n[pip3] numpy==1.26.4", {"torch.version": Absent}),
        (
            "PyTorch version: N/A\nVersions of relevant libraries:\n[pip3] torch==2.5.1",
            {"torch.version": "2.5.1", "live.import_outcome": "error"},
        ),
        (
            "PyTorch version: 2.7.0+rocm6.3\nCUDA used to build PyTorch: N/A\nROCM used to build PyTorch: 6.3.42131-f",
            {"torch.hip": "6.3.42131", "torch.flavor": "rocm", "torch.cuda": Absent},
        ),
        ("OS: Microsoft Windows 11 Pro (10.0.22631 64-bit)", dict(zip(OS, ("windows", None, None), strict=True))),
        ("OS: macOS 15.1.1 (arm64)", dict(zip(OS, ("macos", None, None), strict=True))),
        ("OS: Red Hat Enterprise Linux release 8.10 (Ootpa)", dict(zip(OS, ("linux", "rhel", "8.10"), strict=True))),
        ("OS: Debian GNU/Linux 12 (bookworm) (x86_64)", dict(zip(OS, ("linux", "debian", "12"), strict=True))),
        ("OS: openSUSE Tumbleweed (x86_64)", dict(zip(OS, ("linux", "opensuse", None), strict=True))),
        ("OS: Linux (x86_64)", dict(zip(OS, ("linux", None, None), strict=True))),
        ("OS: Pop!_OS 22.04 LTS (x86_64)", dict(zip(OS, ("linux", "pop", "22.04"), strict=True))),
        ("GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)", {"cuda.host_compiler_version": None}),
        (
            "GPU models and configuration: GPU 0: Intel UHD Graphics 630",
            {"pci.gpu_vendors": ("intel",), "pci.nvidia_count": 0},
        ),
    ],
)
def test_what_a_line_tells(text: str, facts: dict[str, object]) -> None:
    """None: the line says nothing of it."""
    assert told(f"{text}\n", *facts) == facts


def test_what_was_not_collected_and_what_others_made_is_no_gpu_of_ours() -> None:
    assert isinstance(read_text(f"GPU models and configuration: {NOTHING}\n").rows("gpu"), Unread)
    assert "gpu" not in read_text("GPU models and configuration: GPU 0: Intel UHD Graphics 630\n").groups


def test_modern() -> None:
    snapshot = read_text(MODERN)
    facts: dict[str, object] = {
        "torch.version": "2.8.0+cu128",
        "torch.cuda": "12.8",
        "torch.flavor": "cuda",
        "torch.cudnn": "9.10.2.21",
        "torch.nccl": "2.27.3",
        "triton.version": "3.4.0",
        "host.os": "Ubuntu 24.04.3 LTS (x86_64)",
        "host.platform": "linux",
        "host.distribution": "ubuntu",
        "host.distribution_version": "24.04.3",
        "host.package_manager": "apt",
        "host.kernel": "6.8.0-79-generic",
        "host.arch": "x86_64",
        "host.glibc": "2.39",
        "python.version": "3.12.3",
        "live.cuda_available": True,
        "cuda.nvcc_version": "12.0",
        "cuda.toolkit_version": "12.0",
        "cuda.host_compiler_version": "13.3.0",
        "cuda.host_compiler_kind": "gcc",
        "driver.version": "580.65.06",
    }
    assert told(snapshot, *facts) == facts
    assert isinstance(snapshot.get("host.wsl"), Absent)
    assert column(snapshot, "gpu", "name") == ["NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 3090"]
    assert column(snapshot, "gpu", "index") == [0, 1]
    assert column(snapshot, "lib", "version") == ["9.1.0", "9.1.0"]
    assert column(snapshot, "lib", "name") == ["libcudnn", "libcudnn_adv"]
    assert snapshot.get("torch.version") == Known("2.8.0+cu128", "line 2")


def test_cudnn_9_has_eight_libraries() -> None:
    parts = ("", "_adv", "_cnn", "_engines_precompiled", "_engines_runtime_compiled", "_graph", "_heuristic", "_ops")
    listed = "".join(f"/usr/lib/x86_64-linux-gnu/libcudnn{part}.so.9.1.0\n" for part in parts)
    snapshot = read_text(f"PyTorch version: 2.8.0+cu128\ncuDNN version: Probably one of the following:\n{listed}")
    assert column(snapshot, "lib", "name") == [f"libcudnn{part}" for part in parts]


def test_the_first_of_its_kind() -> None:
    snapshot = read_text(FIRST)
    facts: dict[str, object] = {
        "torch.version": "1.0.1.post2",
        "torch.flavor": "cpu",
        "host.platform": "macos",
        "live.cuda_available": False,
    }
    assert told(snapshot, *facts) == facts
    assert isinstance(snapshot.get("torch.cuda"), Absent), "torch.version.cuda is None: more exact than conda's build"
    assert isinstance(snapshot.get("driver.version"), Unread), "it could not look"
    assert isinstance(snapshot.rows("gpu"), Unread), "No CUDA is no proof that there is no GPU"
    assert "torch.installs" not in snapshot.facts, "conda's 1.0.1 and pip's 1.0.1.post2 are one"


def test_vllms_wider_form() -> None:
    text = """\
==============================
       CUDA / GPU Info
==============================
Is CUDA available            : False
GPU models and configuration :\x20
GPU 0: NVIDIA H100 80GB HBM3
GPU 1: NVIDIA H100 80GB HBM3

Nvidia driver version        : 550.54.15
vLLM Version                 : 0.9.1
GPU Topology:
  \tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV18\tPIX\t0-63\t0\t\tN/A
GPU1\tNV18\t X \tSYS\t0-63\t0\t\tN/A

NVIDIA_VISIBLE_DEVICES=all
NVIDIA_REQUIRE_CUDA=cuda>=12.4 brand=tesla,driver>=470,driver<471
HF_TOKEN=hf_secret
"""
    snapshot = read_text(text)
    facts: dict[str, object] = {
        "live.cuda_available": False,
        "driver.version": "550.54.15",
        "topology.pairs": ("GPU0-GPU1 NV18",),
        "env.NVIDIA_VISIBLE_DEVICES": "all",
        "env.NVIDIA_REQUIRE_CUDA": "cuda>=12.4 brand=tesla,driver>=470,driver<471",
    }
    assert told(snapshot, *facts) == facts
    assert column(snapshot, "extension", "version") == ["0.9.1"]
    assert "env.HF_TOKEN" not in snapshot.facts
