"""Power, clocks, link, memory errors and DCGM's fields, as people and dcgm-exporter write them."""

from __future__ import annotations

import pytest

from gpudoctor.core.fact import Known
from gpudoctor.readers import read_text
from tests.readers.reading import rows


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
