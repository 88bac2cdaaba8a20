"""Loosely written labels of people and bug forms."""

from __future__ import annotations

import pytest

from gpudoctor.core.fact import Absent, Unread
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.readers import read_text
from gpudoctor.readers._machine import split_gpu_names
from gpudoctor.readers._paste import normalized_label
from gpudoctor.readers._values import FORMS
from gpudoctor.readers.notes._words import COLUMNS, FACTS_OF
from tests.readers.reading import rows, values


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("Python: 3.12", "python.version", "3.12"),
        ("CUDA toolkit: 12.4.131", "cuda.toolkit_version", "12.4"),
        ("torch.cuda.is_available(): False", "live.cuda_available", False),
        ("- PyTorch version (GPU?): 2.1.0+cu121 (True)", "live.cuda_available", True),
        ("driver: 550.54", "driver.version", "550.54"),
        ("NVIDIA driver 512.78", "driver.version", "512.78"),
        ("**NVIDIA driver**: 550.54.15", "driver.version", "550.54.15"),
        ("| Driver | 535.54 |", "driver.version", "535.54"),
        ("驱动版本：535.54", "driver.version", "535.54"),
        ("module kind: open", "driver.module_kind", "open"),
        ("kernel module: proprietary", "driver.module_kind", "proprietary"),
        ("fabricmanager state: failed", "driver.fabric_manager", "failed"),
        ("nvidia-fabricmanager: package not installed", "driver.fabric_manager", "not installed"),
        ("linux headers for running kernel: not installed", "driver.headers", False),
        ("nouveau_blacklisted: yes", "driver.nouveau_blacklisted", True),
        ("libcuda mapped: /usr/local/cuda/lib64/stubs/libcuda.so", "libs.libcuda_kind", "stub"),
        ("libcuda: /usr/lib/wsl/lib/libcuda.so.1", "libs.libcuda_kind", "wsl"),
        ("libcuda: /usr/local/cuda-12.9/compat/libcuda.so.1", "libs.libcuda_kind", "compat"),
        ("libcuda: /usr/lib/x86_64-linux-gnu/libcuda.so.1", "libs.libcuda_kind", "driver"),
        ("wsl version: 1", "host.wsl", 1),
        ("arch list: sm_50 sm_90 compute_90", "torch.archs", ("sm_50", "sm_90", "compute_90")),
        ("shm size: 64M", "limits.shm_mib", 64),
        ("memlock: 64", "limits.memlock_kib", 64),
        ("memlock: unlimited", "limits.memlock_kib", -1),
        ("driver version: 31.0.15.3713", "driver.version", "537.13"),
        ("Driver: 535", "driver.version", "535"),
        ("CUDA driver version: 12.2", "driver.cuda_version", "12.2"),
        ("torch: 2.4 with CUDA 12.1", "torch.cuda", "12.1"),
        ("torch build: nightly cu130", "torch.cuda", "13.0"),
        ("pytorch: 2.5.1, CPU build", "torch.flavor", "cpu"),
        ("kernel module: nvidia 550.54.14", "driver.module_version", "550.54.14"),
        ("lspci: no NVIDIA device", "pci.nvidia_count", 0),
        ("GPU: none", "pci.nvidia_count", 0),
        ("GPU: NVIDIA GeForce RTX 3090, 24 GB", "pci.nvidia_count", 1),
        ("env: CUDA_VISIBLE_DEVICES=3", "env.CUDA_VISIBLE_DEVICES", "3"),
        ("gcc: 13.2.0", "cuda.host_compiler_version", "13.2.0"),
        ("torch version .................... 2.1.0+cu121", "torch.version", "2.1.0+cu121"),
        ("PyTorch = 2.3.1", "torch.version", "2.3.1"),
        ("gpu count: 1", "gpu.count", 1),
        ("Kernel: 5.13.18-21-generic", "host.kernel", "5.13.18-21-generic"),
        ("orchestrator: kubernetes, hostNetwork true", "host.container", "kubernetes"),
        ("framework: TensorFlow 1.15", "tf.version", "1.15"),
        ("torch pins triton: 2.2.0", "triton.wanted", "2.2.0"),
        ("OS platform and distribution: Linux Ubuntu 22.04", "host.distribution", "ubuntu"),
        ("- Platform: Linux-5.15.0-105-generic-x86_64-with-glibc2.35", "host.glibc", "2.35"),
        ("  * torch.__version__: '2.1'", "torch.version", "2.1"),
        ('"driver_version": "550.54",', "driver.version", "550.54"),
        ("NCCL_IB_HCA -> mlx5_0", "env.NCCL_IB_HCA", "mlx5_0"),
        ("GPU: AMD Radeon RX 7900 XTX", "pci.gpu_vendors", ("amd",)),
        ("GPU: AMD Radeon RX 7900 XTX", "pci.nvidia_count", 0),
        ("GPU: AMD Instinct MI300X", "pci.gpu_vendors", ("amd",)),
        ("GPU: Intel HD Graphics 4000", "pci.gpu_vendors", ("intel",)),
        ("GPU: Intel Arc A770", "pci.gpu_vendors", ("intel",)),
        ("GPU: Apple M2 Max", "pci.gpu_vendors", ("other",)),
        ("GPU: Tesla P100-PCIE-16GB", "pci.nvidia_count", 1),
        ("GPU: H100", "pci.nvidia_count", 1),
        ("GPU: RTX 4090", "pci.nvidia_count", 1),
    ],
)
def test_labels(line: str, name: str, value: object) -> None:
    assert values(read_text(line + "\n"))[name] == value


@pytest.mark.parametrize(
    ("line", "name", "kind"),
    [
        ("cuda home: unset", "cuda.home", Absent),
        ("torch: not installed", "torch.version", Absent),
        ("CUDA toolkit: none", "cuda.toolkit_version", Absent),
        ("driver version: N/A", "driver.version", Unread),
        ("CUDA toolkit: Could not collect", "cuda.toolkit_version", Unread),
        ("nvcc version: unknown", "cuda.nvcc_version", Unread),
    ],
)
def test_absent_and_unread_are_told_apart(line: str, name: str, kind: type) -> None:
    assert isinstance(read_text(line + "\n").facts[name], kind)


@pytest.mark.parametrize(
    "line",
    [
        "driver: nvidia",
        "driver version: 12.2",
        "ptxas : Unsupported .version 8.4; current version is '8.2'",
        "torch: needs 2.1 or newer",
        "symptom: hangs at step 3.5",
        "https://example.invalid/driver: 550.54",
        "GPU: 0 of 8",
        "Python: cannot import 3.5",
        "* CUDA:",
        "http://x.y/z",
        "std::vector<int> x",
        "C:\\Users",
        ": 3",
    ],
)
def test_what_is_no_value_gives_no_fact(line: str) -> None:
    found = {name for name in read_text(line + "\n").facts if not name.startswith(("report.", "host.platform"))}
    assert found == set()


def test_columns_of_the_gpu() -> None:
    text = """\
GPU: NVIDIA RTX PRO 6000 Blackwell
pcie link gen current: 2
pcie link gen max: 5
pcie link width current: 16
compute mode: Exclusive_Process
gpu util: 100%
temperature: 88 C
row remap pending: yes
uncorrectable ECC errors: 3
throttle reasons: SW Power Cap, HW Thermal Slowdown
vram: 96 GB
"""
    snapshot = read_text(text)
    assert rows(snapshot) == [
        {
            "index": 0,
            "name": "NVIDIA RTX PRO 6000 Blackwell",
            "link_generation": 2,
            "link_generation_max": 5,
            "link_width": 16,
            "compute_mode": "Exclusive_Process",
            "utilization": 100,
            "temperature_c": 88,
            "remap_pending": True,
            "ecc_uncorrected": 3,
            "throttle_reasons": ("hw_thermal_slowdown", "sw_power_cap"),
            "memory_mib": 98304,
        }
    ]
    assert values(snapshot)["pci.nvidia_count"] == 1
    assert isinstance(snapshot.get("gpu.count"), Unread), "a person's word is not the driver's list"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NVIDIA A10, NVIDIA A10", ["NVIDIA A10"] * 2),
        ("NVIDIA A100 x8", ["NVIDIA A100"] * 8),
        ("8x H100", ["H100"] * 8),
        ("2 x RTX 4090 + RTX 3090", ["RTX 4090", "RTX 4090", "RTX 3090"]),
        ("Tesla T4", ["Tesla T4"]),
        ("0: NVIDIA L4; 1: NVIDIA L40S", ["NVIDIA L4", "NVIDIA L40S"]),
        ("NVIDIA GeForce RTX 3090 (24 GB)", ["NVIDIA GeForce RTX 3090"]),
    ],
)
def test_lists_of_gpus(text: str, expected: list[str]) -> None:
    assert split_gpu_names(text) == expected


def test_every_label_leads_to_a_declared_fact_in_a_known_form() -> None:
    for label, entries in FACTS_OF.items():
        assert normalized_label(label) == label, "a label that can never match"
        for name, form in entries:
            assert catalog().find(name), name
            assert form in FORMS, form
    for label, (name, form) in COLUMNS.items():
        assert normalized_label(label) == label
        assert catalog().find(f"gpu.{name}")
        assert form in FORMS
