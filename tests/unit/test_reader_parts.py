"""Parts of long outputs: what people paste of nvidia-smi -q, of a query, of lspci and of the loader."""

from __future__ import annotations

import pytest

from gpudoctor.model.fact import Absent, Known
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.readers import read_text


def gpu(text: str, place: int = 0) -> dict[str, object]:
    rows = read_text(text).groups["gpu"]
    assert isinstance(rows, tuple)
    return {name: fact.value for name, fact in rows[place].items() if isinstance(fact, Known)}


def value(snapshot: Snapshot, name: str) -> object:
    fact = snapshot.facts.get(name)
    return fact.value if isinstance(fact, Known) else fact


CLOCKS = """\
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Active
    GPU Power Readings
        Average Power Draw                : 238.41 W
        Current Power Limit               : 400.00 W
        Default Power Limit               : 400.00 W
    Clocks
        Graphics                          : 615 MHz
        SM                                : 615 MHz
    Applications Clocks
        Graphics                          : 1275 MHz
    Max Clocks
        SM                                : 1410 MHz
    Utilization
        Gpu                               : 100 %
        Memory                            : 61 %
"""


@pytest.mark.parametrize("head", ["", "GPU 00000000:CA:00.0\n", "Attached GPUs : 1\nGPU 00000000:CA:00.0\n"])
def test_sections_of_nvidia_smi_q_are_read_without_its_beginning(head: str) -> None:
    row = gpu(head + CLOCKS)
    assert (
        row.items()
        >= {
            "throttle_reasons": ("sw_power_cap",),
            "power_w": 238,
            "power_limit_w": 400,
            "power_limit_default_w": 400,
            "clock_mhz": 615,
            "clock_max_mhz": 1410,
            "utilization": 100,
        }.items()
    )


def test_labels_that_only_sound_like_nvidia_smi_q() -> None:
    assert "gpu" not in read_text("Utilization\n    Gpu : 12 %\nPower Supply : 300 W\n").groups


def test_a_query_of_single_reasons_and_clocks() -> None:
    text = """\
index, clocks_event_reasons.hw_thermal_slowdown, clocks_event_reasons.sw_power_cap, clocks.sm [MHz], power.limit [W]
0, Not Active, Active, 1740 MHz, 300.00 W
1, Active, Active, 330 MHz, [N/A]
"""
    assert gpu(text)["throttle_reasons"] == ("sw_power_cap",)
    assert gpu(text, 1) == {
        "index": 1,
        "throttle_reasons": ("hw_thermal_slowdown", "sw_power_cap"),
        "clock_mhz": 330,
    }


BUS = """\
00:00.0 Host bridge: Intel Corporation 440FX - 82441FX PMC [Natoma]
00:01.0 ISA bridge: Intel Corporation 82371SB PIIX3 ISA [Natoma/Triton II]
00:03.0 VGA compatible controller: Amazon.com, Inc. Device 1111
00:05.0 Ethernet controller: Amazon.com, Inc. Elastic Network Adapter (ENA)
"""


def test_a_whole_listing_of_the_bus_shows_what_is_not_there() -> None:
    snapshot = read_text(f"$ lspci\n{BUS}")
    assert value(snapshot, "pci.devices") == 4
    assert value(snapshot, "pci.nvidia_count") == 0
    assert isinstance(snapshot.facts["host.wsl"], Absent)


def test_a_whole_listing_without_any_display() -> None:
    lines = [line for line in BUS.splitlines() if "VGA" not in line] + [
        "00:06.0 SCSI storage controller: Red Hat, Inc."
    ]
    assert value(read_text("\n".join(lines)), "pci.nvidia_count") == 0


@pytest.mark.parametrize(
    "text",
    [
        "$ lspci | grep -i bridge\n" + BUS.replace("VGA compatible controller", "PCI bridge"),
        "00:05.0 Ethernet controller: Amazon.com, Inc. Elastic Network Adapter (ENA)\n",
    ],
)
def test_a_part_of_the_bus_says_nothing_of_the_rest(text: str) -> None:
    assert "pci.nvidia_count" not in read_text(text).facts


def test_the_library_that_the_loader_initialises() -> None:
    snapshot = read_text("     11021:\tcalling init: /usr/lib/wsl/lib/libcuda.so.1\n")
    assert value(snapshot, "libs.libcuda") == "/usr/lib/wsl/lib/libcuda.so.1"
    assert value(snapshot, "libs.libcuda_kind") == "wsl"


@pytest.mark.parametrize("line", ["5.15.146.1-microsoft-standard-WSL2", "Linux-6.6.87.2-microsoft-standard-x86_64"])
def test_the_kernel_of_wsl(line: str) -> None:
    assert value(read_text(line), "host.wsl") == 2


@pytest.mark.parametrize(("module", "fact"), [("nvidia", "driver.module_loaded"), ("nvidia_uvm", "driver.uvm_loaded")])
def test_which_module_was_refused(module: str, fact: str) -> None:
    snapshot = read_text(f"modprobe: ERROR: could not insert '{module}': Unknown symbol in module\n")
    assert value(snapshot, fact) is False
    assert len(snapshot.facts.keys() & {"driver.module_loaded", "driver.uvm_loaded"}) == 1


def test_a_question_that_nvml_refuses_is_no_state_of_it() -> None:
    asked = "handle = pynvml.nvmlDeviceGetHandleByIndex(0)\npynvml.NVMLError_NoPermission: Insufficient Permissions\n"
    assert "nvml.state" not in read_text(asked).facts
    assert value(read_text("pynvml.nvmlInit()\npynvml.NVMLError_NoPermission\n"), "nvml.state") == "no permission"
