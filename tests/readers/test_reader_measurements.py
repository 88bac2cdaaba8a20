"""Rates per GPU, compared with the other GPUs of the same measurement."""

from __future__ import annotations

import pytest

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
