"""What people and programs write of a machine in passing, a wording a row: what is told by it, and what is not."""

import pytest

from gpudoctor.app.reading import read
from gpudoctor.core.fact import Absent, listed
from gpudoctor.readers import read_text
from gpudoctor.readers._values import works
from tests.readers.reading import column, rows, told, values

BUS = (
    "00:00.0 Host bridge: Intel Corporation 440FX - 82441FX PMC [Natoma]\n"
    "00:01.0 ISA bridge: Intel Corporation 82371SB PIIX3 ISA [Natoma/Triton II]\n"
    "00:03.0 VGA compatible controller: Amazon.com, Inc. Device 1111\n"
    "00:05.0 Ethernet controller: Amazon.com, Inc. Elastic Network Adapter (ENA)\n"
)
INCOMPLETE = """\
Communicators... (0.00s)
#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank:
  Rank 13 -- GPU 5 managed by process 34 on node h002
"""
DEGRADED = """\
Nodes:
Node #0   - 10.0.5.1        - READY
Node #1   - 10.0.5.2        - UNAVAILABLE

 Nodes From\\To  0   1
       0        C   N
       1        N   N
Domain State: DEGRADED
"""
TOLD: list[tuple[str, dict[str, object]]] = [
    # compilers, toolkits and wheels
    ("which nvcc: (empty)", {"cuda.nvcc": Absent}),
    ("nvcc --version: command not found", {"cuda.nvcc": Absent}),
    ("there is no nvcc on the machine", {"cuda.nvcc": Absent}),
    ("FROM nvidia/cuda:12.1.0-runtime-ubuntu22.04", {"cuda.nvcc": Absent}),
    ("FROM pytorch/pytorch:2.3.0-cuda12.1-cudnn8-runtime", {"cuda.nvcc": Absent}),
    ("ls /usr/local: no cuda folder", {"cuda.toolkit_version": Absent}),
    ("/usr/local/cuda: does not exist", {"cuda.toolkit_version": Absent}),
    ("CUDA_HOME points to /usr/local/cuda-11.1, which does not exist", {"cuda.toolkit_version": Absent}),
    ("echo $CUDA_HOME: prints nothing", {"cuda.home": Absent}),
    ("$ python -c 'from torch.utils.cpp_extension import CUDA_HOME; print(CUDA_HOME)'\nNone", {"cuda.home": Absent}),
    ("no nvcc needed for inference", {"cuda.nvcc": None}),
    ("no CUDA toolkit required", {"cuda.toolkit_version": None}),
    (
        "runs in nvidia/cuda:12.1.0-runtime-ubuntu22.04\nbuilt in nvidia/cuda:12.1.0-devel-ubuntu22.04",
        {"cuda.nvcc": None},
    ),
    ("No CUDA runtime is found, using CUDA_HOME='/usr/local/cuda-11.7'", {"cuda.home": "/usr/local/cuda-11.7"}),
    ("ldd of the extension: libcudart.so.11.0 => not found", {"libs.missing": None}),
    ("libcudart.so.11.0 => not found", {"libs.missing": ("libcudart.so.11.0",)}),
    ("$ ldd ./saxpy\n\tlibcudart.so.12 => not found", {"libs.missing": None, "libs.needed_by": "saxpy"}),
    ("$ ldd torch/lib/libc10.so\nlibcudart.so.12 => not found", {"libs.missing": ("libcudart.so.12",)}),
    # how full the memory of a GPU is, in the three wordings of torch
    (
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 338.00 MiB (GPU 0; 3.95 GiB total"
            " capacity; 1.62 GiB already allocated; 23.00 MiB free; 9.10 MiB cached)"
        ),
        {"oom.total_mib": 4044, "oom.own_mib": 1667, "oom.others_mib": 2354},
    ),
    (
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total"
            " capacity; 2.81 GiB already allocated; 25.38 MiB free; 3.06 GiB reserved in total by"
            " PyTorch)"
        ),
        {"oom.total_mib": 8120, "oom.own_mib": 3133, "oom.others_mib": 4962},
    ),
    (
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of"
            " 23.64 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 22.00"
            " GiB memory in use. Of the allocated memory 21.50 GiB is allocated by PyTorch, and 256.10"
            " MiB is reserved by PyTorch but unallocated."
        ),
        {"oom.total_mib": 24207, "oom.own_mib": 22528, "oom.others_mib": 655},
    ),
    ("CUDA out of memory: total capacity exceeded", {"oom.total_mib": None}),
    # versions without a colon
    ("nvcc 10.1\nnvcc: 12.4", {"cuda.nvcc_version": "12.4"}),
    # the platform, without a field that names it
    (
        "Since the latest Windows 10 update the app says pynvml.NVMLError_Unknown: Unknown Error",
        {"host.platform": "windows"},
    ),
    ("win11, GTX 1060\npynvml.NVMLError_Unknown: Unknown Error", {"host.platform": "windows"}),
    ("Docker Desktop on Windows 11, in the container pynvml.NVMLError_Unknown: Unknown Error", {"host.platform": None}),
    ("In a VM on Proxmox with Windows 10: pynvml.NVMLError_Unknown: Unknown Error", {"host.platform": None}),
    ("It worked before I left Windows behind\npynvml.NVMLError_Unknown: Unknown Error", {"host.platform": None}),
    ("NVRM: GPU has fallen off the bus; Windows 10 has no such trouble", {"host.platform": "linux"}),
    ("On Windows 10: OSError: [WinError 126] c10.dll", {"host.platform": "windows"}),
    # torch, by the index of its wheel or its own answers
    (
        "pip3 install https://download.pytorch.org/whl/cu100/torch-1.0.1.post2-cp35-cp35m-linux_x86_64.whl",
        {"torch.version": "1.0.1.post2+cu100"},
    ),
    (">>> import torch;torch._C._cuda_getDriverVersion()\n9010", {"cuda_driver.version": "9.1"}),
    # the driver
    ("nvidia-smi on the host: works\ndocker: 27.1", {"nvml.state": None}),
    ("kernel running: 6.8.0-49-generic", {"host.kernel": "6.8.0-49-generic"}),
    ("driver in use: 535.183.01", {"driver.version": "535.183.01"}),
    ("driver on the node: not installed", {"driver.installed": False}),
    ("working driver: 470.223.02", {"driver.version": None}),
    ("nvidia.ko: built for 6.1.0-18-amd64\nuname -r: 6.1.0-18-amd64", {"driver.module_on_disk": True}),
    ("package: nvidia-open-dkms 590.48.01-2", {"driver.module_disk_version": "590.48.01"}),
    ("driver: nvidia-driver-570-open", {"driver.module_kind": "open"}),
    ("driver: 570.144, proprietary kernel module", {"driver.module_kind": "proprietary"}),
    ("server: fabric of 8 cards, no NVLink", {"pci.nvidia_count": None}),
    ("environment: Ubuntu app on WSL\nWindows: Version 10.0.17763.292", {"host.wsl": 1}),
    ("platform: WSL2, Ubuntu 22.04", {"host.wsl": 2}),
    ("fabric manager: 570.124.06", {"driver.fabric_manager_version": "570.124.06"}),
    (
        "$ ls /dev/nvidia*\n/dev/nvidia0  /dev/nvidiactl  /dev/nvidia-modeset\n",
        {"driver.nodes_missing": ("/dev/nvidia-uvm",)},
    ),
    ("$ ls /dev/nvidia*\n/dev/nvidia0  /dev/nvidiactl  /dev/nvidia-uvm\n", {"driver.nodes_missing": None}),
    # adapters in inventories
    (
        "Graphics:  Device-1: Intel UHD Graphics 620 driver: i915 v: kernel",
        {"pci.gpu_vendors": ("intel",), "pci.nvidia_drivers": None, "pci.nvidia_count": 0},
    ),
    (
        "Graphics:\n  Device-1: NVIDIA GA106 [GeForce RTX 3060] driver: nouveau v: kernel",
        {"pci.gpu_vendors": ("nvidia",), "pci.nvidia_drivers": ("nouveau",), "pci.nvidia_count": 1},
    ),
    (
        (
            "\n  *-display\n       product: G98 [GeForce 9300 GS]\n       vendor: NVIDIA Corporation\n"
            "       configuration: driver=nouveau latency=0\n  *-network\n       product: I219-V\n"
        ),
        {"pci.gpu_vendors": ("nvidia",), "pci.nvidia_drivers": ("nouveau",), "pci.nvidia_count": 1},
    ),
    (
        (
            "\n$ ubuntu-drivers devices\n== /sys/devices/pci0000:00 ==\nmodalias : pci:v000010DE\n"
            "vendor   : NVIDIA Corporation\nmodel    : GA104 [GeForce RTX 3070]\n"
        ),
        {"pci.gpu_vendors": ("nvidia",), "pci.nvidia_drivers": None, "pci.nvidia_count": 1},
    ),
    (
        "Graphics/Displays:\n      Chipset Model: Apple M3 Max\n",
        {"pci.gpu_vendors": ("other",), "pci.nvidia_drivers": None, "pci.nvidia_count": 0},
    ),
    # what is named in passing
    ("host driver: 535.129.03", {"driver.version": "535.129.03"}),
    ("torch in the container: 2.4.0", {"torch.version": "2.4.0"}),
    ('python -c "import torch; print(torch.version.cuda)"\n12.4', {"torch.cuda": "12.4"}),
    ("print(torch.cuda.is_available()) gives False", {"live.cuda_available": False}),
    ("packages: torch 2.8.0, torchvision 0.23.0", {"torch.version": "2.8.0"}),
    ("torch 1.13.0, torchvision 0.6.0", {"torch.version": "1.13.0"}),
    (
        "torch.__version__ gives 1.8.1 although 2.2.0 was installed",
        {"torch.installs": ("imported 1.8.1", "listed 2.2.0")},
    ),
    ("torch.__version__: 1.13.1\npip list: torch 2.0.1", {"torch.installs": ("imported 1.13.1", "listed 2.0.1")}),
    ("upgrading torch to 2.6.0 fixed it", {"torch.version": None}),
    ("it wants torch 2.6.0+cu124", {"torch.version": None}),
    ("works with driver 535.129.03", {"driver.version": None}),
    ("driver 535.129.03 or newer is required", {"driver.version": None}),
    ("pip install torch==1.13.1: no matching distribution", {"torch.version": None}),
    ("driver in the other machine: 535.129.03", {"driver.version": None}),
    ("torch.__version__: 2.0.1\npip list: torch 2.0.1+cu118", {"torch.installs": None}),
    ("torch.__version__ is 2.0.1 but torchvision is 0.14.0", {"torch.installs": None}),
    # what conda was asked for is not what torch is where it sees no GPU
    (
        "conda install pytorch torchvision cudatoolkit=11.3 -c pytorch\n>>> torch.cuda.is_available()\nFalse",
        {"torch.cuda": None},
    ),
    # boards
    ("NVIDIA Jetson AGX Orin, L4T R35.4.1, JetPack 5.1.2\n", {"host.jetson": "NVIDIA Jetson AGX Orin"}),
    ("# R36 (release), REVISION: 4.3, GCID: 38968081\n", {"host.jetson": "R36 (release), REVISION: 4.3"}),
    ("JetPack 6.2, cuda 12.6\n", {"host.jetson": "JetPack 6.2"}),
    ("the Jetson of my colleague is fine; here: RTX 3090\n", {"host.jetson": None}),
    ("me@jetson-nano:~$ ls", {"host.jetson": "jetson"}),
    ("mail me@jetson.example", {"host.jetson": None}),
    # other programs
    (
        (
            'time=2025-01-02T10:11:12Z level=INFO msg="server config" env="map[CUDA_VISIBLE_DEVICES:-1'
            " HIP_VISIBLE_DEVICES: OLLAMA_DEBUG:false OLLAMA_ORIGINS:[http://localhost]"
            ' NCCL_DEBUG:INFO]"\n'
        ),
        {
            "env.CUDA_VISIBLE_DEVICES": "-1",
            "env.NCCL_DEBUG": "INFO",
            "env.HIP_VISIBLE_DEVICES": None,
            "env.OLLAMA_DEBUG": None,
        },
    ),
    ("torch.__version__ 2.5.1+cu124", {"torch.version": "2.5.1+cu124"}),
    ("torch.cuda.get_arch_list() ['sm_80', 'sm_90']", {"torch.archs": ("sm_80", "sm_90")}),
    ("torch.version.cuda -> 12.4", {"torch.cuda": "12.4"}),
    ("    if torch.cuda.is_available() == False:\n", {"live.cuda_available": None}),
    ("torch.cuda.is_available() == False\n", {"live.cuda_available": False}),
    ("nvidia-smi: 410.48\n", {"driver.version": "410.48"}),
    ("nvidia-smi: 11.2 is shown\n", {"driver.version": None}),
    (
        "Name\nIntel(R) UHD Graphics 770\nNVIDIA GeForce RTX 4070\n",
        {"pci.gpu_vendors": ("nvidia", "intel"), "pci.nvidia_count": None},
    ),
    (
        (
            "$ lspci -nn | grep -Ei 'vga|3d|display'\n"
            "05:00.0 VGA compatible controller: Advanced Micro Devices, Inc. [AMD/ATI] Rembrandt [Radeon 680M]\n"
        ),
        {"pci.gpu_vendors": ("amd",), "pci.nvidia_count": 0},
    ),
    ("GPU: Arc A770\n", {"pci.gpu_vendors": ("intel",), "pci.nvidia_count": 0}),
    ("  Marketing Name:          AMD Radeon RX 7900 XTX\n", {"pci.gpu_vendors": ("amd",), "pci.nvidia_count": 0}),
    ("GPU[0]\t\t: Card series: \t\tAMD Instinct MI210\n", {"pci.gpu_vendors": ("amd",), "pci.nvidia_count": 0}),
    ("Name\nAMD Radeon RX 6700 XT\nAMD Radeon(TM) Graphics\n", {"pci.gpu_vendors": ("amd",), "pci.nvidia_count": 0}),
    ("local/nvidia-open-dkms 590.48.01-1", {"driver.module_disk_version": "590.48.01"}),
    ("nvidia-lts 1:590.48.01-3", {"driver.module_disk_version": "590.48.01"}),
    ("akmod-nvidia-590.48.01-1.fc42.x86_64", {"driver.module_disk_version": "590.48.01"}),
    ("nvidia-utils 590.48.01-1\nnvidia-settings 590.48.01-1\n", {"driver.module_disk_version": None}),
    (
        (
            'torch 2.7.0 has requirement nvidia-cudnn-cu12==9.5.1.17; platform_system == "Linux", but'
            " you have nvidia-cudnn-cu12 9.3.0.75.\n"
        ),
        {"torch.pins_unmet": ("nvidia-cudnn-cu12 wants 9.5.1.17, has 9.3.0.75",)},
    ),
    ("torch 2.9.0+cu130 fails, torch 2.8.0+cu128 works\n", {"torch.version": None}),
    ("pip torch: 2.1.2+cu121\nconda pytorch: 2.1.0 py3.10_cpu_0\n", {"torch.installs": ("conda 2.1.0", "pip 2.1.2")}),
    (
        "cuInit: 803\nnvidia-fabricmanager package: 550.90.07\ngpus on node: 8\n",
        {"cuda_driver.init_code": 803, "driver.fabric_manager_version": "550.90.07", "gpu.count": 8},
    ),
    # parts of long outputs
    (f"$ lspci\n{BUS}", {"pci.devices": 4, "pci.nvidia_count": 0, "host.wsl": Absent}),
    (BUS.removesuffix(" Elastic Network Adapter (ENA)\n"), {"pci.nvidia_count": 0}),
    (f"$ lspci | grep -i bridge\n{BUS.replace('VGA compatible controller', 'PCI bridge')}", {"pci.nvidia_count": None}),
    ("00:05.0 Ethernet controller: Amazon.com, Inc. Elastic Network Adapter (ENA)\n", {"pci.nvidia_count": None}),
    (
        "     11021:\tcalling init: /usr/lib/wsl/lib/libcuda.so.1\n",
        {"libs.libcuda": "/usr/lib/wsl/lib/libcuda.so.1", "libs.libcuda_kind": "wsl"},
    ),
    ("5.15.146.1-microsoft-standard-WSL2", {"host.wsl": 2}),
    ("Linux-6.6.87.2-microsoft-standard-x86_64", {"host.wsl": 2}),
    (
        "modprobe: ERROR: could not insert 'nvidia': Unknown symbol in module\n",
        {"driver.module_loaded": False, "driver.uvm_loaded": None},
    ),
    (
        "modprobe: ERROR: could not insert 'nvidia_uvm': Unknown symbol in module\n",
        {"driver.module_loaded": None, "driver.uvm_loaded": False},
    ),
    (
        "handle = pynvml.nvmlDeviceGetHandleByIndex(0)\npynvml.NVMLError_NoPermission: Insufficient Permissions\n",
        {"nvml.state": None},
    ),
    ("pynvml.nvmlInit()\npynvml.NVMLError_NoPermission\n", {"nvml.state": "no permission"}),
    # tools that print numbers for releases, and figures that no page reads yet
    ("CUDA Runtime Version: 12060\nCUDA Driver Version: 12060\n", {"driver.cuda_version": "12.6"}),
    (
        "  8589934592  2147483648  float  sum  -1  31290.0  274.53  480.43  0\n# Avg bus bandwidth    : 480.43",
        {"nccl.bus_bandwidth": 480.43},
    ),
    (
        "h1:41 NCCL DIAG [INFO] ECC: uncorrected volatile errors on rank(s) {5,9} (worst=2) across 16 ranks",
        {"nccl.ecc_ranks": ("5", "9"), "nccl.ecc_worst": 2},
    ),
    (
        "h1:41 NCCL DIAG [INFO] NVLink: inactive link(s) on rank(s) {3} across 16 ranks in comm 0xcf",
        {"nccl.links_inactive_ranks": ("3",)},
    ),
    (INCOMPLETE, {"nccl.ranks_missing": ("rank 13 (h002)",)}),
    (DEGRADED, {"imex.nodes": 2, "imex.domain": "degraded", "imex.unreached": ("10.0.5.2",)}),
]
GPUS: list[tuple[str, list[tuple[object, ...]], str]] = [
    ("hardware: 2x H100, driver 535.129.03", [("H100",), ("H100",)], "name"),
    ("gpu: A4000", [("A4000",)], "name"),
    ("GPU: RTX3090", [("RTX3090",)], "name"),
    ("gpu: mx150", [("mx150",)], "name"),
    ("Video card: 3060ti", [("3060ti",)], "name"),
    ("works on an A100", [], "name"),
    ("GPU: RTX 4060, replaced a GTX 1060", [("RTX 4060",)], "name"),
    ("Name\nIntel(R) UHD Graphics 770\nNVIDIA GeForce RTX 4070\n", [("NVIDIA GeForce RTX 4070",)], "name"),
    ("torch.cuda.get_device_name(1) NVIDIA B200\n", [("NVIDIA B200",)], "name"),
    ("torch.cuda.get_device_name(0) raises an error\n", [], "name"),
    ("host ram used: 120 of 128 GB", [], "memory_used_mib memory_mib"),
    ("gpu used: 3 of 8 GB\ngpu used: 7 of 8 GB", [], "memory_used_mib memory_mib"),
    ("gpu used: 12000 of 8000 MiB", [], "memory_used_mib memory_mib"),
    ("index, gpu_recovery_action\n0, None\n3, Reset\n", [("none",), ("reset",)], "recovery_action"),
    ("Utilization\n    Gpu : 12 %\nPower Supply : 300 W\n", [], "power_w"),
    (
        (
            "index, clocks_event_reasons.hw_thermal_slowdown, clocks_event_reasons.sw_power_cap,"
            " clocks.sm [MHz], power.limit [W]\n0, Not Active, Active, 1740 MHz, 300.00 W\n"
            "1, Active, Active, 330 MHz, [N/A]\n"
        ),
        [(("sw_power_cap",), 1740, 300), (("hw_thermal_slowdown", "sw_power_cap"), 330, None)],
        "throttle_reasons clock_mhz power_limit_w",
    ),
]


@pytest.mark.parametrize(("text", "facts"), TOLD)
def test_what_a_text_tells(text: str, facts: dict[str, object]) -> None:
    """None: the text says nothing of it."""
    assert told(text, *facts) == facts


@pytest.mark.parametrize(("text", "found", "columns"), GPUS)
def test_gpus_that_a_text_names(text: str, found: list[tuple[object, ...]], columns: str) -> None:
    assert [tuple(row.get(name) for name in columns.split()) for row in rows(text)] == found


@pytest.mark.parametrize("line", ["works with CUDA 11.8", "the build for CUDA 12.1 and torch 2.4 fails"])
def test_a_version_in_passing_is_nobodys(line: str) -> None:
    assert not [name for name in values(line) if not name.startswith(("report.", "host.platform"))]


def test_a_wheel_by_its_tag_and_one_that_is_not_installed() -> None:
    installed = {"name": "flash-attn", "torch": "2.3", "abi": "pre-cxx11"}
    (row,) = rows("flash-attn wheel: cu12torch2.3cxx11abiFALSE", "extension")
    assert row.items() >= installed.items()
    assert column("flash-attn: 2.5.6 (wheel cu122torch2.1cxx11abiFALSE)\n", "extension", "torch") == ["2.1"]
    refused = "flash_attn-2.7.4+cu12torch2.6cxx11abiFALSE-cp310-cp310-linux_x86_64.whl is not a supported wheel"
    for line in ("tried flash-attn wheel: cu12torch2.3cxx11abiFALSE", refused):
        assert not isinstance(read_text(line).rows("extension"), tuple)


def test_a_list_of_devices_over_several_lines() -> None:
    text = (
        "[PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU'),\n"
        " PhysicalDevice(name='/physical_device:XLA_GPU:0', device_type='XLA_GPU')]"
    )
    assert values(text)["tf.gpus"] == values(f"`{text}`")["tf.gpus"] == 0  # quoted, as in a report on GitHub


def test_windows_has_no_kernel_module_to_build() -> None:
    said = "Error! Bad return status for module build on kernel: 6.8.0-79-generic (x86_64)"
    assert "driver.module-not-built" in {finding.id for finding in read(said, "report").findings}
    assert not read(f"On Windows 10: {said}", "report").findings


@pytest.mark.parametrize(
    ("text", "expected"),
    [("works", True), ("lists both GPUs", True), ("no errors", True), ("not there", False), ("n.a.", None)],
)
def test_verdict(text: str, expected: bool | None) -> None:
    assert works(text) is expected


DEVIATIONS = "matmul, max abs difference to the CPU\ncuda:0: 3.8e-05\ncuda:1 nan\ncuda:2: 4.1e-05\n"


def test_results_against_a_reference() -> None:
    assert column(DEVIATIONS, "deviation", "gpu") == [0, 1, 2]
    assert column(DEVIATIONS, "deviation", "value") == [3.8e-05, 1e300, 4.1e-05]
    assert column(DEVIATIONS, "deviation", "others")[1] == pytest.approx(3.95e-05)


@pytest.mark.parametrize(
    "text",
    [
        "ECC error counts\nGPU 0: 0\nGPU 1: 4120\n",
        "CUDA error on device 0: 700\nCUDA error on device 1: 700\n",
        "max error\ncuda:0: 3.8e-05\n",
        "GPU 0: 1.5\nGPU 1: 1500.5\nerror\n",
    ],
)
def test_no_results_against_a_reference(text: str) -> None:
    assert column(text, "deviation", "gpu") == []


WRAPPED = """\
[    4.009981] NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2c05)
               NVRM: installed in this system is not supported by the
               NVRM: NVIDIA 550.120 driver release.
               NVRM: Please see 'Appendix A' in the README.
[    5.000000] NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus
[    5.000001] NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed
[    6.100000] NVRM: API mismatch: the client has the version 535.54.03, but
[    6.100001] NVRM: this kernel module has the version 530.30.02.  Please
"""


def test_a_message_that_the_driver_wraps_is_also_one_line() -> None:
    lines = [line for line in map(str, column(WRAPPED, "text", "line")) if "Xid" not in line]
    whole = "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2c05) installed in this system is not supported by the"
    assert f"{whole} NVIDIA 550.120 driver release." in lines
    mismatch = "NVRM: API mismatch: the client has the version 535.54.03, but this kernel module has the version"
    assert f"{mismatch} 530.30.02.  Please" in lines
    found = {getattr(row["line"], "source", "") for row in listed(read_text(WRAPPED).rows("text"))}
    assert found >= {"lines 1-3", "lines 7-8"}
