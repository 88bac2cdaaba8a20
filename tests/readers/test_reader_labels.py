"""Labels of people and bug forms; rates, power, clocks, memory errors and DCGM's fields as people write them."""

import pytest

from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.readers import read_text
from gpudoctor.readers._machine import split_gpu_names
from gpudoctor.readers._paste import normalized_label
from gpudoctor.readers._values import FORMS
from gpudoctor.readers.notes._label_facts import COLUMNS, FACTS_OF
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
        ("shm size: 64 (the default)", "limits.shm_mib", 64),
        ("shm size: 1,5 GB", "limits.shm_mib", 1536),
        ("shm size: 65,536 MiB", "limits.shm_mib", 65536),
        ("memlock: 64", "limits.memlock_kib", 64),
        ("memlock: unlimited", "limits.memlock_kib", -1),
        ("driver version: 31.0.15.3713", "driver.version", "537.13"),
        ("driver version: 31.0.101.4502", "driver.version", None),
        ("fabric manager: not active", "driver.fabric_manager", "stopped"),
        ("Driver: 535", "driver.version", "535"),
        ("CUDA driver version: 12.2", "driver.cuda_version", "12.2"),
        ("CUDA Driver Version: 550.54.15", "driver.version", "550.54.15"),
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
    assert values(read_text(line + "\n")).get(name) == value


@pytest.mark.parametrize(
    ("line", "name", "kind"),
    [
        ("cuda home: unset", "cuda.home", Absent),
        ("torch: not installed", "torch.version", Absent),
        ("CUDA toolkit: none", "cuda.toolkit_version", Absent),
        ("driver version: N/A", "driver.version", Unread),
        ("CUDA toolkit: Could not collect", "cuda.toolkit_version", Unread),
        ("nvcc version: unknown", "cuda.nvcc_version", Unread),
        ("Secure boot: not sure", "host.secure_boot", Unread),
        ("torch.cuda.is_available(): no idea", "live.cuda_available", Unread),
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
        "-- PyTorch: Header version is: 11.8",
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


def rates(text: str) -> list[tuple[object, ...]]:
    return [
        tuple(row[name] for name in ("gpu", "value", "unit", "others") if name in row) for row in rows(text, "rate")
    ]


BANDWIDTH_TEST = """\
 Device 0: NVIDIA A100-SXM4-80GB
 Host to Device Bandwidth, 1 Device(s)
   Transfer Size (Bytes)\tBandwidth(GB/s)
   32000000\t\t\t24.6
 Device to Device Bandwidth, 1 Device(s)
   32000000\t\t\t1621.9
 Device 1: NVIDIA A100-SXM4-80GB
 Device to Device Bandwidth, 1 Device(s)
   32000000\t\t\t1618.0
"""
LISTED = "GEMM fp16, TFLOP/s:\nGPU 0: 310.2\nGPU 1: 120.4\nGPU 2: 309.8\ndriver: 550.90.07\nGPU 3: 41\n"


@pytest.mark.parametrize(
    ("text", "unit", "told"),
    [
        (LISTED, "TFLOP/s", [(0, 310.2, 215.1), (1, 120.4, 310.0), (2, 309.8, 215.3)]),
        ("cuda:0: 24.1 GB/s\ncuda:1: 6.2 GB/s\n", "GB/s", [(0, 24.1, 6.2), (1, 6.2, 24.1)]),
        (BANDWIDTH_TEST, "GB/s", [(0, 1621.9, 1618.0), (1, 1618.0, 1621.9)]),
        (
            "GPU 3 matmul: 310 TFLOP/s\nGPUs 0,1,2 matmul: 690 TFLOP/s\n",
            "TFLOP/s",
            [(3, 310.0, 690.0), (0, 690.0, 690.0), (1, 690.0, 690.0), (2, 690.0, 690.0)],
        ),
        ("matmul per GPU (TFLOPS):\nGPU0 688.1\nGPU1 312.9\n", "TFLOPS", [(0, 688.1, 312.9), (1, 312.9, 688.1)]),
        ("TFLOP/s per rank: 0: 702, 1: 431, 2: 700", "TFLOP/s", [(0, 702, 565.5), (1, 431, 701), (2, 700, 566.5)]),
        ("per GPU: 702, 431 TFLOP/s", "TFLOP/s", [(0, 702, 431), (1, 431, 702)]),
        ("matmul TFLOPS: gpu0 248, gpu1 119\n", "TFLOPS", [(0, 248, 119), (1, 119, 248)]),
        # what was measured, and what was expected
        ("measured fp16 matmul: 118 TFLOPS\nexpected: about 250 TFLOPS\n", "TFLOPS", [(118, 250)]),
        ("measured: 193 TFLOPS\ntheoretical peak: 312 TFLOPS\n", "TFLOPS", [(193, 187.2)]),
        ("memory bandwidth measured: 480 GB/s\nspec: 1555 GB/s\n", "GB/s", [(480, 1244)]),
        ("step time: 94 ms\nexpected step time: 60 ms\n", "per 1000 ms", [(10.638, 16.667)]),
    ],
)
def test_rates_are_compared_with_the_others_or_with_what_was_expected(
    text: str, unit: str, told: list[tuple[float, ...]]
) -> None:
    assert rates(text) == [(*gpu, value, unit, others) for *gpu, value, others in told]


@pytest.mark.parametrize(
    "text",
    [
        "GPU 0: 41 C\nGPU 1: 44 C\n",
        "GPU 0: 97 %\nGPU 1: 12 %\nthroughput 3 it/s\n",
        "TFLOP/s:\nGPU 0: 310.2\n",
        "GPU 0: NVIDIA A100\nGPU 1: NVIDIA A100\nbandwidth 3 GB/s\n",
        "measured fp16: 118 TFLOPS\nmeasured fp32: 17 TFLOPS\nexpected: 250 TFLOPS\n",
    ],
)
def test_what_is_no_comparison(text: str) -> None:
    assert rates(text) == []


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("sm clock: 345 MHz of 1410", {"clock_mhz": 345, "clock_max_mhz": 1410}),
        ("GPU clock under load: 0.6 GHz (max 1.98 GHz)", {"clock_mhz": 600, "clock_max_mhz": 1980}),
        ("max sm clock: 1980 MHz", {"clock_max_mhz": 1980}),
        ("power limit: 150 W (default 300 W)", {"power_limit_w": 150, "power_limit_default_w": 300}),
        ("power draw: 61.3 W / 250 W", {"power_w": 61, "power_limit_w": 250}),
        ("default power limit: 450 W", {"power_limit_default_w": 450}),
        (
            "pcie link: gen3 x4 of gen4 x16",
            {"link_width": 4, "link_width_max": 16, "link_generation": 3, "link_generation_max": 4},
        ),
        ("row remapping: failed", {"remap_failed": True}),
        ("rows remapped: 1, pending reset", {"remap_pending": True}),
        ("rows remapped: 1, none pending", {"remap_pending": False}),
        ("DBE count: 3", {"ecc_uncorrected": 3}),
        ("double bit errors: 0", {"ecc_uncorrected": 0}),
        ("pending page retirements: yes", {"retired_pending": True}),
        ("sram uncorrectable errors: above threshold", {"sram_threshold_exceeded": True}),
        ("SW Power Cap: Active\nHW Slowdown: Not Active", {"throttle_reasons": ("sw_power_cap",)}),
    ],
)
def test_a_note(text: str, row: dict[str, object]) -> None:
    assert rows(text) == [row]


@pytest.mark.parametrize(
    "text",
    [
        "memory clock: 810 MHz",
        "cpu power: 65 W",
        "power supply: 1600 W",
        "HW Slowdown: Not Active",
        "power state: P8",
        "nvlink: x4",
        "ecc: off",
    ],
)
def test_a_note_of_something_else(text: str) -> None:
    assert rows(text) == []


def test_dcgm_exporter() -> None:
    text = """\
# HELP DCGM_FI_DEV_ROW_REMAP_FAILURE Whether remapping of rows has failed
DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="0",modelName="NVIDIA H100 80GB HBM3"} 0
DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="1",modelName="NVIDIA H100 80GB HBM3"} 1
DCGM_FI_DEV_GPU_TEMP{gpu="1",modelName="NVIDIA H100 80GB HBM3"} 61
DCGM_FI_DEV_POWER_USAGE{gpu="1"} 131.4
DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu="1"} 64
DCGM_FI_DEV_MEMORY_TEMP{gpu="1"} 9.223372036854775794e+18
DCGM_FI_DEV_XID_ERRORS{gpu="1",pci_bus_id="00000000:3B:00.0"} 94
DCGM_FI_DEV_XID_ERRORS{gpu="0"} 0
"""
    assert rows(text) == [
        {"index": 0, "name": "NVIDIA H100 80GB HBM3", "remap_failed": False},
        {
            "index": 1,
            "name": "NVIDIA H100 80GB HBM3",
            "remap_failed": True,
            "temperature_c": 61,
            "power_w": 131,
            "throttle_reasons": ("hw_thermal_slowdown",),
        },
    ]
    xids = read_text(text).groups["xid"]
    assert isinstance(xids, tuple)
    assert [(row["code"], row["address"]) for row in xids] == [(Known(94, "line 8"), Known("0000:3b:00.0", "line 8"))]


def test_the_answers_of_a_bug_form_are_read_and_headings_of_prose_are_not() -> None:
    answers = {"TensorFlow version": "2.18.0", "Python version": "_No response_", "GPU model and memory": "RTX 4080"}
    form = "".join(f"### {heading}\n\n{answer}\n\n" for heading, answer in answers.items())
    found = read_text(form)
    assert values(found)["tf.version"] == "2.18.0"
    assert "python.version" not in values(found)
    assert [row["name"] for row in rows(found, "gpu")] == ["RTX 4080"]
    prose = "### TensorFlow version\n\n2.18.0 and later\nneed another Python.\n\n### Python version\n\n3.11\nor older\n"
    assert not {"tf.version", "python.version"} & set(values(read_text(prose)))
