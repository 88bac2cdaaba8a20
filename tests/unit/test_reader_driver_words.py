"""What people write of the driver, adapters in inventories, and the verdicts that both rest on."""

from __future__ import annotations

import pytest

from gpudoctor.model.fact import Fact, Known
from gpudoctor.readers import read_text
from gpudoctor.readers._verdict import past, verdict

LSHW = """
  *-display
       product: G98 [GeForce 9300 GS]
       vendor: NVIDIA Corporation
       configuration: driver=nouveau latency=0
  *-network
       product: I219-V
"""
UBUNTU_DRIVERS = """
$ ubuntu-drivers devices
== /sys/devices/pci0000:00 ==
modalias : pci:v000010DE
vendor   : NVIDIA Corporation
model    : GA104 [GeForce RTX 3070]
"""


def value(text: str, name: str) -> object:
    state: Fact = read_text(text).get(name)
    return state.value if isinstance(state, Known) else None


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("nvidia-smi: cannot talk to the driver", "nvml.state", "driver not loaded"),
        ("nvidia-smi: sees no GPU", "gpu.count", 0),
        ("nvidia-smi: fine", "nvml.state", "ok"),
        ("nvidia-smi on the host: works\ndocker: 27.1", "nvml.state", None),
        ("kernel running: 6.8.0-49-generic", "host.kernel", "6.8.0-49-generic"),
        ("driver in use: 535.183.01", "driver.version", "535.183.01"),
        ("driver on the node: not installed", "driver.installed", False),
        ("working driver: 470.223.02", "driver.version", None),
        ("nvidia kernel module: built by akmods, does not load", "driver.module_loaded", False),
        ("nvidia kernel module: built by akmods, does not load", "driver.module_on_disk", True),
        ("nvidia.ko: built for 6.1.0-17-amd64\nuname -r: 6.1.0-18-amd64", "driver.module_on_disk", False),
        ("nvidia.ko: built for 6.1.0-18-amd64\nuname -r: 6.1.0-18-amd64", "driver.module_on_disk", True),
        ("kernel devel package: not there", "driver.headers", False),
        ("firmware: UEFI with secure boot active", "host.secure_boot", True),
        ("Secure Boot: switched off in the BIOS", "host.secure_boot", False),
        ("after disabling secure boot: works", "host.secure_boot", None),
        ("nvidia-smi as root: fine", "driver.works_as_root", True),
        ("package: nvidia-open-dkms 590.48.01-2", "driver.module_disk_version", "590.48.01"),
        ("driver: nvidia-driver-570-open", "driver.module_kind", "open"),
        ("driver: 570.144, proprietary kernel module", "driver.module_kind", "proprietary"),
        ("server: has no graphics card", "pci.nvidia_count", 0),
        ("server: fabric of 8 cards, no NVLink", "pci.nvidia_count", None),
        ("laptop: Ryzen 7 5700G with Radeon graphics", "pci.gpu_vendors", ("amd",)),
        ("environment: Ubuntu app on WSL\nWindows: Version 10.0.17763.292", "host.wsl", 1),
        ("platform: WSL2, Ubuntu 22.04", "host.wsl", 2),
        ("fabric manager: 570.124.06", "driver.fabric_manager_version", "570.124.06"),
    ],
)
def test_words_become_facts(text: str, name: str, expected: object) -> None:
    assert value(text, name) == expected


@pytest.mark.parametrize(
    ("listing", "vendors", "drivers"),
    [
        ("Graphics:  Device-1: Intel UHD Graphics 620 driver: i915 v: kernel", ("intel",), None),
        ("Graphics:\n  Device-1: NVIDIA GA106 [GeForce RTX 3060] driver: nouveau v: kernel", ("nvidia",), ("nouveau",)),
        (
            LSHW,
            ("nvidia",),
            ("nouveau",),
        ),
        (
            UBUNTU_DRIVERS,
            ("nvidia",),
            None,
        ),
        ("Graphics/Displays:\n      Chipset Model: Apple M3 Max\n", ("other",), None),
    ],
)
def test_adapters_of_inventories(listing: str, vendors: tuple[str, ...], drivers: tuple[str, ...] | None) -> None:
    assert value(listing, "pci.gpu_vendors") == vendors
    assert value(listing, "pci.nvidia_drivers") == drivers
    assert value(listing, "pci.nvidia_count") == vendors.count("nvidia")


def test_a_listing_of_device_files_tells_which_is_missing() -> None:
    shown = "$ ls /dev/nvidia*\n/dev/nvidia0  /dev/nvidiactl  /dev/nvidia-modeset\n"
    assert value(shown, "driver.nodes_missing") == ("/dev/nvidia-uvm",)
    assert value(shown.replace("modeset", "uvm"), "driver.nodes_missing") is None


def test_a_gpu_that_was_replaced_is_not_in_the_machine() -> None:
    rows = read_text("GPU: RTX 4060, replaced a GTX 1060").rows("gpu")
    assert isinstance(rows, tuple)
    assert [row["name"].value for row in rows if isinstance(row["name"], Known)] == ["RTX 4060"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("works", True), ("lists both GPUs", True), ("no errors", True), ("not there", False), ("n.a.", None)],
)
def test_verdict(text: str, expected: bool | None) -> None:
    assert verdict(text) is expected


def test_what_is_past_says_so() -> None:
    assert past("earlier today: Failed to initialize NVML: Driver/library version mismatch")
    assert past("after a reboot: driver/library version mismatch gone")
    assert not past("Failed to initialize NVML: Driver/library version mismatch")
