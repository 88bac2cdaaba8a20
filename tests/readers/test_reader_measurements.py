"""Rates per GPU, compared with each other; power, clocks, memory errors and DCGM's fields as people write them."""

from __future__ import annotations

import pytest

from gpudoctor.core.fact import Known
from gpudoctor.readers import read_text
from tests.readers.reading import rows


def rates(text: str) -> list[tuple[object, ...]]:
    return [
        tuple(row[name] for name in ("gpu", "value", "unit", "others") if name in row) for row in rows(text, "rate")
    ]


def test_a_list_under_its_unit() -> None:
    text = "GEMM fp16, TFLOP/s:\nGPU 0: 310.2\nGPU 1: 120.4\nGPU 2: 309.8\ndriver: 550.90.07\nGPU 3: 41\n"
    assert rates(text) == [(0, 310.2, "TFLOP/s", 215.1), (1, 120.4, "TFLOP/s", 310.0), (2, 309.8, "TFLOP/s", 215.3)]


def test_each_line_with_its_unit() -> None:
    assert rates("cuda:0: 24.1 GB/s\ncuda:1: 6.2 GB/s\n") == [(0, 24.1, "GB/s", 6.2), (1, 6.2, "GB/s", 24.1)]


def test_bandwidth_test_compares_one_direction_and_size() -> None:
    text = """\
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
    assert rates(text) == [(0, 1621.9, "GB/s", 1618.0), (1, 1618.0, "GB/s", 1621.9)]


@pytest.mark.parametrize(
    "text",
    [
        "GPU 0: 41 C\nGPU 1: 44 C\n",
        "GPU 0: 97 %\nGPU 1: 12 %\nthroughput 3 it/s\n",
        "TFLOP/s:\nGPU 0: 310.2\n",
        "GPU 0: NVIDIA A100\nGPU 1: NVIDIA A100\nbandwidth 3 GB/s\n",
    ],
)
def test_what_is_no_comparison(text: str) -> None:
    assert rates(text) == []


def test_several_gpus_on_one_line() -> None:
    text = "GPU 3 matmul: 310 TFLOP/s\nGPUs 0,1,2 matmul: 690 TFLOP/s\n"
    assert rates(text) == [
        (3, 310.0, "TFLOP/s", 690.0),
        (0, 690.0, "TFLOP/s", 690.0),
        (1, 690.0, "TFLOP/s", 690.0),
        (2, 690.0, "TFLOP/s", 690.0),
    ]


def test_rates_in_columns_under_a_heading() -> None:
    assert rates("matmul per GPU (TFLOPS):\nGPU0 688.1\nGPU1 312.9\n") == [
        (0, 688.1, "TFLOPS", 312.9),
        (1, 312.9, "TFLOPS", 688.1),
    ]


def test_all_ranks_in_one_line() -> None:
    assert rates("TFLOP/s per rank: 0: 702, 1: 431, 2: 700") == [
        (0, 702, "TFLOP/s", 565.5),
        (1, 431, "TFLOP/s", 701),
        (2, 700, "TFLOP/s", 566.5),
    ]
    assert rates("per GPU: 702, 431 TFLOP/s") == [(0, 702, "TFLOP/s", 431), (1, 431, "TFLOP/s", 702)]


def test_what_was_measured_and_what_was_expected() -> None:
    assert rates("measured fp16 matmul: 118 TFLOPS\nexpected: about 250 TFLOPS\n") == [(118, "TFLOPS", 250)]
    assert rates("measured: 193 TFLOPS\ntheoretical peak: 312 TFLOPS\n") == [(193, "TFLOPS", 187.2)]
    assert rates("memory bandwidth measured: 480 GB/s\nspec: 1555 GB/s\n") == [(480, "GB/s", 1244)]
    assert rates("step time: 94 ms\nexpected step time: 60 ms\n") == [(10.638, "per 1000 ms", 16.667)]
    assert rates("matmul TFLOPS: gpu0 248, gpu1 119\n") == [(0, 248, "TFLOPS", 119), (1, 119, "TFLOPS", 248)]
    assert rates("measured fp16: 118 TFLOPS\nmeasured fp32: 17 TFLOPS\nexpected: 250 TFLOPS\n") == []


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
