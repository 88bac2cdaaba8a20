"""nvidia-smi in all its outputs: tables old and new, -q, -L, CSV, topology, links, and its errors."""

import pytest

from gpudoctor.readers import read_text
from tests.readers.reading import rows, told, values

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

Driver Version                            : 535.183.01
CUDA Version                              : 12.2

Attached GPUs                             : 2
GPU 00000000:06:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
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
    GPU Power Readings
        Average Power Draw                : 238.41 W
        Current Power Limit               : 400.00 W
        Default Power Limit               : 450.00 W
    Clocks
        SM                                : 615 MHz
    Applications Clocks
        Graphics                          : 1275 MHz
    Max Clocks
        SM                                : 1410 MHz
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


WINDOWS = """\
| NVIDIA-SMI 471.41       Driver Version: 471.41       CUDA Version: 11.4     |
|   0  NVIDIA GeForce ... WDDM  | 00000000:01:00.0  On |                  N/A |
|  0%   41C    P8     8W / 160W |   1012MiB /  8188MiB |      3%      Default |
"""
TOPOLOGY = """\
\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity
GPU0\t X \tNV18\tSYS\tPXB\t0-31
GPU1\tNV18\t X \tNODE\tSYS\t0-31
GPU2\tSYS\tNODE\t X \tPIX\t0-31
NIC0\tPXB\tSYS\tPIX\t X \t
"""
VERSIONS = (
    "NVIDIA-SMI version  : 610.88\nNVML version        : 610.88\n"
    'DRIVER version      : Deprecated, see "KMD version" instead\n'
    "KMD version         : 610.88\nCUDA UMD version    : 13.3\n"
)
BANNER_610 = "| NVIDIA-SMI 610.43.02              KMD Version: 610.43.02     CUDA UMD Version: 13.3     |"
OLDER = "| NVIDIA-SMI 390.87                 Driver Version: 390.87                    |\n"
NEWER = "| NVIDIA-SMI 410.79       Driver Version: 410.79       CUDA Version: 10.0     |\n"
UUID = "GPU-5428af19-1e82-a38c-ee42-cdd3ad745b7e"
CSV = "name, driver_version, memory.total [MiB], compute_cap\nNVIDIA L4, 535.104.05, 23034 MiB, 8.9"
LOOP = "$ nvidia-smi --query-gpu=name,temperature.gpu --format=csv,noheader -l 1"
LOGGED = """\
timestamp, name, utilization.gpu [%]
2024/05/01 10:00:00.123, NVIDIA L4, 12 %
2024/05/01 10:00:00.125, NVIDIA L4, 13 %
2024/05/01 10:00:01.124, NVIDIA L4, 90 %
2024/05/01 10:00:01.126, NVIDIA L4, 91 %
"""
BARE = (
    "$ nvidia-smi --query-gpu=index,name,pcie.link.width.current,clocks_throttle_reasons.active --format=csv\n"
    "0, NVIDIA H100, 16, 0x0000000000000004\n1, NVIDIA H100, 8, 0x0000000000000000"
)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (BANNER_610, {"driver.version": "610.43.02", "driver.cuda_version": "13.3", "nvml.state": "ok"}),
        (VERSIONS, {"driver.version": "610.88", "driver.cuda_version": "13.3"}),
        (WINDOWS, {"driver.version": "471.41", "host.platform": "windows", "driver.module_loaded": None}),
        (TOPOLOGY, {"topology.pairs": ("GPU0-GPU1 NV18", "GPU0-GPU2 SYS", "GPU1-GPU2 NODE")}),
        (CSV, {"driver.version": "535.104.05"}),
        (f"{TABLE}\nFailed to initialize NVML: Unknown Error", {"nvml.state": "unknown error"}),
        ("$ nvidia-smi\nNo devices were found", {"nvml.state": "ok", "gpu.count": 0}),
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.107",
            {"driver.library_version": "550.107"},
        ),
        (
            "Driver Version: 535.54.03     CUDA Version: 12.2",
            {"driver.version": "535.54.03", "driver.cuda_version": "12.2", "cuda.toolkit_version": None},
        ),
        (f"fails:\n{OLDER}works:\n{NEWER}", {"driver.version": "390.87", "driver.cuda_version": None}),
        (NEWER + NEWER, {"driver.cuda_version": "10.0"}),
        (f"$ nvidia-smi -i 0\n{TABLE}", {"gpu.count": None}),
        (TABLE.replace("|   0  ", "|   4  "), {"gpu.count": None}),
    ],
)
def test_what_a_text_tells(text: str, facts: dict[str, object]) -> None:
    """None: the text says nothing of it."""
    assert told(text + "\n", *facts) == facts


@pytest.mark.parametrize(
    ("text", "group", "columns", "found"),
    [
        (WINDOWS, "gpu", "memory_mib driver_model", [(8188, "WDDM")]),
        (
            f"GPU 0: A100 (UUID: {UUID})\n  MIG 3g.20gb  Device 0: (UUID: MIG-c6d4)\nGPU 1: A100",
            "gpu",
            "mig",
            [(True,), (None,)],
        ),
        (
            f"GPU 0: A100 (UUID: {UUID})\n  MIG 3g.20gb     Device  0: (UUID: MIG-{UUID[4:]})",
            "mig",
            "gpu profile uuid",
            [(0, "3g.20gb", f"MIG-{UUID[4:]}")],
        ),
        (CSV, "gpu", "index name memory_mib compute_capability", [(0, "NVIDIA L4", 23034, "8.9")]),
        (f"{LOOP}\nNVIDIA L4, 40\nNVIDIA L4, 41", "gpu", "index temperature_c", [(None, 40)]),
        (LOGGED, "gpu", "index utilization", [(0, 12), (1, 13)]),
        (BARE, "gpu", "link_width throttle_reasons", [(16, ("sw_power_cap",)), (8, ())]),
        (
            f"GPU 0: Tesla V100 (UUID: {UUID})\n\t Link 0: 25.781 GB/s\n\t Link 1: <inactive>",
            "nvlink",
            "gpu link active",
            [(0, 0, True), (0, 1, False)],
        ),
    ],
)
def test_rows_that_a_text_tells(text: str, group: str, columns: str, found: list[tuple[object, ...]]) -> None:
    assert [tuple(row.get(name) for name in columns.split()) for row in rows(text + "\n", group)] == found


@pytest.mark.parametrize(
    ("sentence", "state"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch", "version mismatch"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "driver not loaded"),
        ("Failed to initialize NVML: Unknown Error", "unknown error"),
        ("Failed to initialize NVML: Insufficient Permissions", "no permission"),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "library not found"),
        ("pynvml.NVMLError_LibraryNotFound: NVML Shared Library Not Found", "library not found"),
        ("Unable to determine the device handle for GPU 0000:A1:00.0: GPU is lost.  Reboot the system", "gpu is lost"),
        ("Unable to determine the device handle for GPU0000:03:00.0: Unknown Error", "unknown error"),
        ("Unable to determine the device handle for GPU0000:03:00.0: Insufficient Permissions", "no permission"),
    ],
)
def test_errors(sentence: str, state: str) -> None:
    assert told(f"$ nvidia-smi\n{sentence}\n", "nvml.state", "nvml.message") == {
        "nvml.state": state,
        "nvml.message": sentence,
    }


def test_table() -> None:
    snapshot = read_text(TABLE)
    facts = {"driver.version": "570.124.06", "driver.cuda_version": "12.8", "driver.installed": True, "gpu.count": 3}
    assert told(snapshot, *facts) == facts
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
    assert third == {"index": 2, "name": "NVIDIA GeForce RTX 30...", "address": "0000:41:00.0", "error": "GPU is lost"}
    assert rows(snapshot, "gpu_process") == [
        {"gpu": 1, "pid": 12345, "name": "/opt/conda/bin/python", "memory_mib": 73200}
    ]


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
        "power_w": 238,
        "power_limit_w": 400,
        "power_limit_default_w": 450,
        "clock_mhz": 615,
        "clock_max_mhz": 1410,
        "ecc_uncorrected": 3,
        "remap_pending": True,
        "remap_failed": False,
        "temperature_c": 85,
    }
    assert second == {"index": 1, "address": "0000:07:00.0", "name": "NVIDIA A100-SXM4-80GB"}
