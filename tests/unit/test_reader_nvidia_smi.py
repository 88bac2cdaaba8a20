"""nvidia-smi in all its outputs: tables old and new, -q, -L, CSV, topology, links, and its errors."""

from __future__ import annotations

import pytest

from gpudoctor.model.fact import Known
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.readers import read_text

TABLE = """\
Wed Nov 19 10:00:00 2025
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.124.06             Driver Version: 570.124.06     CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA GeForce RTX 5090        On  |   00000000:01:00.0 Off |                  N/A |
| 30%   45C    P8             15W /  575W |      12MiB /  32607MiB |      0%   E. Process |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    3 |
| N/A   41C    P0             65W /  400W |   73213MiB /  81920MiB |     99%      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+
|   2  NVIDIA GeForce RTX 30...       Off |   00000000:41:00.0 Off |                  N/A |
|ERR!  ERR! ERR!             N/A /  ERR!  |   GPU is lost          |    ERR!         ERR! |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    1   N/A  N/A           12345      C   /opt/conda/bin/python                  73200MiB |
+-----------------------------------------------------------------------------------------+
"""

QUERY = """\
==============NVSMI LOG==============

Timestamp                                 : Wed Aug 26 15:47:19 2026
Driver Version                            : 535.183.01
CUDA Version                              : 12.2

Attached GPUs                             : 2
GPU 00000000:06:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    Product Brand                         : NVIDIA
    MIG Mode
        Current                           : Disabled
        Pending                           : Enabled
    GPU UUID                              : GPU-5428af19-1e82-a38c-ee42-cdd3ad745b7e
    GPU Virtualization Mode
        Virtualization Mode               : VGPU
    PCI
        Bus Id                            : 00000000:06:00.0
        GPU Link Info
            PCIe Generation
                Max                       : 4
                Current                   : 3
                Host Max                  : 5
            Link Width
                Max                       : 16x
                Current                   : 8x
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Active
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Active
            HW Power Brake Slowdown       : Not Active
    FB Memory Usage
        Total                             : 81920 MiB
        Used                              : 7 MiB
    BAR1 Memory Usage
        Total                             : 131072 MiB
        Used                              : 1 MiB
    Compute Mode                          : Exclusive_Process
    Utilization
        Gpu                               : 12 %
        Memory                            : 99 %
    ECC Errors
        Volatile
            SRAM Uncorrectable            : 1
            DRAM Correctable              : 50
            DRAM Uncorrectable            : 2
        Aggregate
            DRAM Uncorrectable            : 90
    Remapped Rows
        Uncorrectable Error               : 2
        Pending                           : Yes
        Remapping Failure Occurred        : No
    Temperature
        GPU Current Temp                  : 85 C
        GPU Shutdown Temp                 : 92 C

GPU 00000000:07:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    Remapped Rows                         : N/A
"""


def values(snapshot: Snapshot) -> dict[str, object]:
    return {name: fact.value for name, fact in snapshot.facts.items() if isinstance(fact, Known)}


def rows(snapshot: Snapshot, group: str = "gpu") -> list[dict[str, object]]:
    found = snapshot.rows(group)
    assert isinstance(found, tuple)
    return [{name: fact.value for name, fact in row.items() if isinstance(fact, Known)} for row in found]


def test_table() -> None:
    snapshot = read_text(TABLE)
    assert (
        values(snapshot).items()
        >= {
            "driver.version": "570.124.06",
            "driver.cuda_version": "12.8",
            "driver.installed": True,
            "gpu.count": 3,
        }.items()
    )
    first, second, third = rows(snapshot)
    assert first == {
        "index": 0,
        "name": "NVIDIA GeForce RTX 5090",
        "address": "0000:01:00.0",
        "temperature_c": 45,
        "power_w": 15,
        "power_limit_w": 575,
        "memory_used_mib": 12,
        "memory_mib": 32607,
        "utilization": 0,
        "compute_mode": "Exclusive_Process",
    }
    assert (second["ecc_uncorrected"], second["mig"], second["compute_mode"]) == (3, True, "Default")
    assert third == {
        "index": 2,
        "name": "NVIDIA GeForce RTX 30...",
        "address": "0000:41:00.0",
        "error": "GPU is lost",
    }
    assert rows(snapshot, "gpu_process") == [
        {"gpu": 1, "pid": 12345, "name": "/opt/conda/bin/python", "memory_mib": 73200}
    ]


def test_banner_of_610() -> None:
    text = "| NVIDIA-SMI 610.43.02              KMD Version: 610.43.02     CUDA UMD Version: 13.3     |\n"
    expected = {"driver.version": "610.43.02", "driver.cuda_version": "13.3", "nvml.state": "ok"}
    assert values(read_text(text)).items() >= expected.items()


def test_version_option_of_610() -> None:
    text = (
        "NVIDIA-SMI version  : 610.88\nNVML version        : 610.88\n"
        'DRIVER version      : Deprecated, see "KMD version" instead\n'
        "KMD version         : 610.88\nCUDA UMD version    : 13.3\n"
    )
    assert values(read_text(text)).items() >= {"driver.version": "610.88", "driver.cuda_version": "13.3"}.items()


def test_an_older_table_of_windows() -> None:
    text = """\
| NVIDIA-SMI 471.41       Driver Version: 471.41       CUDA Version: 11.4     |
|   0  NVIDIA GeForce ... WDDM  | 00000000:01:00.0  On |                  N/A |
|  0%   41C    P8     8W / 160W |   1012MiB /  8188MiB |      3%      Default |
"""
    snapshot = read_text(text)
    assert values(snapshot).items() >= {"driver.version": "471.41", "host.platform": "windows"}.items()
    assert rows(snapshot)[0]["memory_mib"] == 8188
    assert "driver.module_loaded" not in snapshot.facts, "Windows has no kernel module of that name"


def test_of_two_tables_the_first_counts() -> None:
    table = """\
| NVIDIA-SMI 570.124.06             Driver Version: 570.124.06     CUDA Version: 12.8     |
|   0  NVIDIA GeForce RTX 5090        On  |   00000000:01:00.0 Off |                  N/A |
| 30%   {}C    P8             15W /  575W |      12MiB /  32607MiB |      0%      Default |
"""
    snapshot = read_text(f"{table.format(45)}and under load\n{table.format(71)}")
    assert values(snapshot)["gpu.count"] == 1
    assert [row["temperature_c"] for row in rows(snapshot)] == [45]


def test_query() -> None:
    snapshot = read_text(QUERY)
    assert values(snapshot).items() >= {"driver.version": "535.183.01", "driver.cuda_version": "12.2"}.items()
    assert "cuda.toolkit_version" not in snapshot.facts, "the driver's CUDA version is no toolkit"
    first, second = rows(snapshot)
    assert first == {
        "index": 0,
        "address": "0000:06:00.0",
        "name": "NVIDIA A100-SXM4-80GB",
        "uuid": "GPU-5428af19-1e82-a38c-ee42-cdd3ad745b7e",
        "mig": False,
        "mig_pending": True,
        "remapped_uncorrected": 2,
        "virtual": True,
        "virtualization": "vgpu",
        "link_generation": 3,
        "link_generation_max": 4,
        "link_width": 8,
        "link_width_max": 16,
        "throttle_reasons": ("sw_power_cap", "hw_slowdown", "hw_thermal_slowdown"),
        "memory_mib": 81920,
        "memory_used_mib": 7,
        "compute_mode": "Exclusive_Process",
        "utilization": 12,
        "ecc_uncorrected": 3,
        "remap_pending": True,
        "remap_failed": False,
        "temperature_c": 85,
    }
    assert second == {"index": 1, "address": "0000:07:00.0", "name": "NVIDIA A100-SXM4-80GB"}


def test_list_with_mig() -> None:
    text = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5428af19-1e82-a38c-ee42-cdd3ad745b7e)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-5428af19-1e82-a38c-ee42-cdd3ad745b7f)
"""
    snapshot = read_text(text)
    assert [row.get("mig") for row in rows(snapshot)] == [True, None]
    assert rows(snapshot, "mig") == [
        {"gpu": 0, "profile": "3g.20gb", "uuid": "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"}
    ]


def test_csv_with_a_header_and_csv_without() -> None:
    headed = "name, driver_version, memory.total [MiB], compute_cap\nNVIDIA L4, 535.104.05, 23034 MiB, 8.9\n"
    snapshot = read_text(headed)
    assert values(snapshot)["driver.version"] == "535.104.05"
    assert rows(snapshot) == [{"index": 0, "name": "NVIDIA L4", "memory_mib": 23034, "compute_capability": "8.9"}]
    bare = (
        "$ nvidia-smi --query-gpu=index,name,pcie.link.width.current,clocks_throttle_reasons.active --format=csv\n"
        "0, NVIDIA H100 80GB HBM3, 16, 0x0000000000000004\n1, NVIDIA H100 80GB HBM3, 8, 0x0000000000000000\n"
    )
    found = rows(read_text(bare))
    assert [row["link_width"] for row in found] == [16, 8]
    assert [row["throttle_reasons"] for row in found] == [("sw_power_cap",), ()]


def test_topology_counts_no_network_cards() -> None:
    text = """\
\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity
GPU0\t X \tNV18\tSYS\tPXB\t0-31
GPU1\tNV18\t X \tNODE\tSYS\t0-31
GPU2\tSYS\tNODE\t X \tPIX\t0-31
NIC0\tPXB\tSYS\tPIX\t X \t
"""
    assert values(read_text(text))["topology.pairs"] == ("GPU0-GPU1 NV18", "GPU0-GPU2 SYS", "GPU1-GPU2 NODE")


def test_links() -> None:
    text = """\
GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-5428af19-1e82-a38c-ee42-cdd3ad745b7e)
\t Link 0: 25.781 GB/s
\t Link 1: <inactive>
"""
    assert rows(read_text(text), "nvlink") == [
        {"gpu": 0, "link": 0, "active": True},
        {"gpu": 0, "link": 1, "active": False},
    ]


@pytest.mark.parametrize(
    ("sentence", "state"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch", "version mismatch"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "driver not loaded"),
        ("Failed to initialize NVML: Unknown Error", "unknown error"),
        ("Failed to initialize NVML: Insufficient Permissions", "no permission"),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "library not found"),
        ("pynvml.NVMLError_LibraryNotFound: NVML Shared Library Not Found", "library not found"),
        (
            "Unable to determine the device handle for GPU 0000:A1:00.0: GPU is lost.  Reboot the system to recover",
            "gpu is lost",
        ),
        ("Unable to determine the device handle for GPU0000:03:00.0: Unknown Error", "unknown error"),
    ],
)
def test_errors(sentence: str, state: str) -> None:
    found = values(read_text(f"$ nvidia-smi\n{sentence}\n"))
    assert found["nvml.state"] == state
    assert found["nvml.message"] == sentence


def test_a_sentence_counts_for_more_than_a_table() -> None:
    assert values(read_text(TABLE + "\nFailed to initialize NVML: Unknown Error\n"))["nvml.state"] == "unknown error"


def test_no_devices_is_an_answer() -> None:
    found = values(read_text("$ nvidia-smi\nNo devices were found\n"))
    assert (found["nvml.state"], found["gpu.count"]) == ("ok", 0)


def test_library_version_of_a_mismatch() -> None:
    text = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.107\n"
    assert values(read_text(text))["driver.library_version"] == "550.107"


def test_versions_of_a_banner_without_its_frame() -> None:
    found = values(read_text("Driver Version: 535.54.03     CUDA Version: 12.2\n"))
    assert found.items() >= {"driver.version": "535.54.03", "driver.cuda_version": "12.2"}.items()
    assert "cuda.toolkit_version" not in found


def test_the_banner_of_another_machine_adds_nothing_to_the_first() -> None:
    older = "| NVIDIA-SMI 390.87                 Driver Version: 390.87                    |\n"
    newer = "| NVIDIA-SMI 410.79       Driver Version: 410.79       CUDA Version: 10.0     |\n"
    found = values(read_text(f"fails:\n{older}works:\n{newer}"))
    assert found["driver.version"] == "390.87"
    assert "driver.cuda_version" not in found
    assert values(read_text(newer + newer))["driver.cuda_version"] == "10.0"
