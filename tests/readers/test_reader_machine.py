"""Kernel log, modules, packages, devices, limits, compilers, containers: what a shell session shows."""

import pytest

from gpudoctor.core.fact import Absent, Unread
from gpudoctor.readers import read_text
from tests.readers.reading import rows, told, values

SESSION = """\
(base) me@box:~$ nvcc -V
nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2023 NVIDIA Corporation
Built on Tue_Aug_15_22:02:13_PDT_2023
Cuda compilation tools, release 12.2, V12.2.140
Build cuda_12.2.r12.2/compiler.33191640_0
(base) me@box:~$ gcc --version
gcc (Ubuntu 13.2.0-23ubuntu4) 13.2.0
Copyright (C) 2023 Free Software Foundation, Inc.
(base) me@box:~$ uname -a
Linux box 6.8.0-45-generic #45-Ubuntu SMP PREEMPT_DYNAMIC Fri Aug 30 12:02:04 UTC 2024 x86_64 x86_64 x86_64 GNU/Linux
(base) me@box:~$ cat /etc/os-release
PRETTY_NAME="Ubuntu 24.04.1 LTS"
NAME="Ubuntu"
(base) me@box:~$ lsmod | grep -i nv
nvidia_uvm           4931584  0
nvidia              54308864  33 nvidia_uvm,nvidia_modeset
(base) me@box:~$ dkms status
nvidia/550.107.02, 6.8.0-44-generic, x86_64: installed
(base) me@box:~$ mokutil --sb-state
SecureBoot enabled
(base) me@box:~$ cat /proc/driver/nvidia/version
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build  (dvs-builder@U16-I1-N07-12-3)
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)
(base) me@box:~$ dpkg -l | grep nvidia-driver
ii  nvidia-driver-550   550.107.02-0ubuntu0.24.04.1   amd64   NVIDIA driver metapackage
(base) me@box:~$ df -h /dev/shm
Filesystem      Size  Used Avail Use% Mounted on
tmpfs            64M  1.0M   63M   2% /dev/shm
(base) me@box:~$ ulimit -l
8192
(base) me@box:~$ ls -l /dev/nvidia*
crw-rw-rw- 1 root root 195,   0 Nov 21 08:00 /dev/nvidia0
crw-rw---- 1 root video 195, 255 Nov 21 08:00 /dev/nvidiactl
(base) me@box:~$ systemctl status nvidia-fabricmanager
× nvidia-fabricmanager.service - NVIDIA fabric manager service
     Loaded: loaded (/lib/systemd/system/nvidia-fabricmanager.service; enabled; preset: enabled)
     Active: failed (Result: exit-code) since Thu 2024-09-05 09:00:00 UTC; 1min ago
(base) me@box:~$ lspci -nnk
01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [GeForce RTX 3090] [10de:2204] (rev ff)
\tSubsystem: eVga.com. Corp. GA102 [GeForce RTX 3090] [3842:3987]
\tKernel driver in use: nouveau
\tKernel modules: nvidiafb, nouveau, nvidia_drm, nvidia
00:02.0 VGA compatible controller [0300]: Intel Corporation AlderLake-S GT1 [8086:4680] (rev 0c)
\tKernel driver in use: i915
(base) me@box:~$ echo $LD_LIBRARY_PATH
/usr/local/cuda-11.8/lib64:/opt/x
"""


def test_a_shell_session() -> None:
    snapshot = read_text(SESSION)
    assert rows(snapshot, "node") == [
        {"path": "/dev/nvidia0", "mode": "0666", "usable": True},
        {"path": "/dev/nvidiactl", "mode": "0660"},
    ]
    gpu, _ = rows(snapshot, "pci")
    assert gpu["device_id"] == "10de:2204"
    assert gpu["alive"] is False, "rev ff: its configuration space answers all ones"
    running = SESSION.replace("6.8.0-44", "6.8.0-45")
    assert values(running)["driver.dkms"] == "installed", "it was built for another kernel"


MODULE = """\
$ uname -r
6.8.0-45-generic
$ modinfo nvidia
filename:       /lib/modules/6.8.0-45-generic/updates/dkms/nvidia.ko.zst
version:        550.107.02
license:        Dual MIT/GPL
$ sudo modprobe nvidia
modprobe: ERROR: could not insert 'nvidia': Key was rejected by service
$ cat /etc/modprobe.d/x.conf
blacklist nouveau
$ cat /proc/cmdline
BOOT_IMAGE=/vmlinuz root=/dev/sda2 ro modprobe.blacklist=nvidia quiet
"""
LDD = """\
$ ldd libtorch_cuda.so
\tlibcudnn.so.9 => /usr/lib/x86_64-linux-gnu/libcudnn.so.9 (0x00007f0000000000)
\tlibcublas.so.12 => not found
\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f0000000000)
$ ldconfig -p | grep libcuda.so
\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1
7f1c00000000-7f1c00021000 r-xp 00000000 08:02 1234   /usr/local/cuda/lib64/stubs/libcuda.so
"""
CLI = """\
NVRM version:   535.54.03
CUDA version:   12.2

Device Index:   0
Model:          NVIDIA L4
Bus Location:   00000000:3b:00.0
"""
REFUSED = (
    "NVRM: The NVIDIA GPU 0000:09:00.0 (PCI ID: 10de:1d01) installed in this system is not supported by open"
    " nvidia.ko because it does not include the required GPU System Processor (GSP)."
)
QUERY = """\
Device 0: "NVIDIA GeForce RTX 3090"
  CUDA Driver Version / Runtime Version          12.2 / 11.8
  CUDA Capability Major/Minor version number:    8.6
  Total amount of global memory:                 24260 MBytes (25438126080 bytes)
"""
DKMS = "$ dkms status\nnvidia/550.54.15, 6.8.0-45-generic, x86_64: installed\n"
UPGRADES = """\
$ dnf list nvidia-driver
Installed Packages
nvidia-driver.x86_64                 3:550.54.15-1.el9        @cuda-rhel9-x86_64
Available Packages
nvidia-driver.x86_64                 3:560.35.03-1.el9        cuda-rhel9-x86_64
$ sudo dnf check-update
nvidia-driver-cuda-libs.x86_64       3:560.35.03-1.el9        cuda-rhel9-x86_64
$ pacman -Ss nvidia
extra/nvidia 560.35.03-1
"""
MISMATCH = """\
[ 100.042] NVRM: API mismatch: the client has the version 535.54.03, but
[ 101.142] NVRM: this kernel module has the version 530.30.02.  Please
"""


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (
            SESSION,
            {"cuda.nvcc_version": "12.2", "cuda.toolkit_version": "12.2", "cuda.host_compiler_version": "13.2.0"},
        ),
        (SESSION, {"host.kernel": "6.8.0-45-generic", "host.arch": "x86_64", "host.os": "Ubuntu 24.04.1 LTS"}),
        (
            SESSION,
            {"driver.module_loaded": True, "driver.uvm_loaded": True, "driver.dkms": "added", "host.secure_boot": True},
        ),
        (
            SESSION,
            {
                "driver.module_version": "560.35.03",
                "driver.module_kind": "open",
                "driver.library_version": "550.107.02",
            },
        ),
        (
            SESSION,
            {
                "limits.shm_mib": 64,
                "limits.shm_free_mib": 63,
                "limits.memlock_kib": 8192,
                "driver.fabric_manager": "failed",
            },
        ),
        (SESSION, {"pci.nvidia_count": 1, "pci.gpu_vendors": ("nvidia", "intel"), "pci.nvidia_drivers": ("nouveau",)}),
        (SESSION, {"env.LD_LIBRARY_PATH": "/usr/local/cuda-11.8/lib64:/opt/x"}),
        (SESSION, {"env.library_path": ("/usr/local/cuda-11.8/lib64", "/opt/x")}),
        ("NVRM: Xid (PCI:0000:3b:00): 154, GPU Reset", {"kernel_log.first_xid": Absent}),
        (MISMATCH, {"driver.library_version": "535.54.03", "driver.module_version": "530.30.02"}),
        (
            "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12",
            {"driver.module_version": "535.183.01", "driver.module_kind": "proprietary", "driver.module_loaded": True},
        ),
        ("NVRM: GPU 0000:01:00.0 is already bound to NovaCore.", {"pci.nvidia_drivers": ("nova",)}),
        (
            "kernel version 470.57.2 does not match DSO version 470.82.1 -- cannot find working devices",
            {"driver.module_version": "470.57.2", "driver.library_version": "470.82.1"},
        ),
        (
            "fabric manager NVIDIA GPU driver interface version 530.30.02 don't match with driver version 530.41.03.",
            {"driver.fabric_manager_version": "530.30.02", "driver.version": "530.41.03"},
        ),
        (
            "The detected CUDA version (11.8) mismatches the version that was used to compile\nPyTorch (12.1). Please",
            {"cuda.toolkit_version": "11.8", "torch.cuda": "12.1"},
        ),
        (
            "Installed CUDA version 11.7 does not match the version torch was compiled with 12.1, unable",
            {"cuda.toolkit_version": "11.7", "torch.cuda": "12.1"},
        ),
        ("Linux version 5.15.90.1-microsoft-standard-WSL2 (oe-user@oe-host)", {"host.wsl": 2}),
        ("Linux version 4.4.0-19041-Microsoft (Microsoft@Microsoft.com)", {"host.wsl": 1}),
        ("max locked memory           (kbytes, -l) unlimited", {"limits.memlock_kib": -1}),
        ("docker run --gpus all --shm-size=8g img python x.py", {"limits.shm_mib": 8192, "host.container": "docker"}),
        ("inside a container (/.dockerenv present)", {"host.container": "docker"}),
        (
            "$ docker run --gpus all img\ndocker: Error response from daemon: could not select device driver\n",
            {"host.container": None},
        ),
        (REFUSED, {"driver.module_kind": "open"}),
        (
            "$ lsmod | grep -E 'nvidia|nouveau'\nnouveau              2306048  4\n",
            {"driver.nouveau_loaded": True, "driver.module_loaded": False},
        ),
        ("$ lsmod | grep nvidia_uvm\n(it shows nothing here)\n", {"driver.module_loaded": None}),
        (
            "ls: cannot access '/dev/nvidia*': No such file or directory",
            {"driver.nodes_missing": ("/dev/nvidia0", "/dev/nvidiactl")},
        ),
        ("modprobe: FATAL: Module nvidia not found", {"host.platform": "linux"}),
        ("modprobe: FATAL\nOS: Windows 11", {"host.platform": "windows"}),
        (
            "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.8.0-45-generic",
            {"driver.module_on_disk": False, "driver.module_loaded": False, "host.kernel": "6.8.0-45-generic"},
        ),
        (
            "modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument",
            {"driver.module_loaded": None, "driver.peermem_loaded": False},
        ),
        (
            "            Kernel: Linux 6.8.0-45-generic\n      Architecture: x86-64\n" + DKMS,
            {"driver.dkms": "installed", "host.kernel": "6.8.0-45-generic", "host.arch": "x86_64"},
        ),
        (DKMS.replace("nvidia/", "nvidia-fs/"), {"driver.dkms": None}),
        (UPGRADES, {"driver.library_version": "550.54.15", "driver.module_disk_version": None}),
        (
            "$ df -i /dev/shm\nFilesystem Inodes IUsed IFree IUse% Mounted on\nshm 65536 5 65531 1% /dev/shm",
            {"limits.shm_mib": None},
        ),
        (LDD, {"libs.missing": ("libcublas.so.12",), "libs.libcuda_kind": "stub"}),
        (LDD, {"libs.libcuda": "/usr/local/cuda/lib64/stubs/libcuda.so"}),
        (MODULE, {"host.kernel": "6.8.0-45-generic", "driver.module_on_disk": True, "driver.module_kind": "open"}),
        (MODULE, {"driver.module_disk_version": "550.107.02", "driver.module_loaded": False}),
        (MODULE, {"driver.nouveau_blacklisted": True, "driver.nvidia_blacklisted": True}),
        (MODULE, {"host.kernel_command_line": MODULE.splitlines()[-1]}),
        (CLI, {"driver.version": "535.54.03", "driver.cuda_version": "12.2", "cuda.toolkit_version": None}),
        (QUERY, {"driver.cuda_version": "12.2"}),
        (
            "-- The CXX compiler identification is GNU 13.2.0",
            {"cuda.host_compiler_version": "13.2.0", "cuda.host_compiler_kind": "gcc"},
        ),
        ("-- The CUDA compiler identification is NVIDIA 12.4.131", {"cuda.nvcc_version": "12.4"}),
        ("$ lspci | grep -i nvidia\n$ nvidia-smi", {"pci.nvidia_count": 0}),
        ("$ lspci | grep -i nvidia", {"pci.nvidia_count": None}),  # the paste may have been cut here
        (
            "00:02.0 VGA compatible controller: Intel UHD 620 (rev 07)",
            {"pci.nvidia_count": Unread, "pci.gpu_vendors": ("intel",)},
        ),
        (
            "$ lspci | grep -i vga\n00:02.0 VGA compatible controller: Intel UHD 620 (rev 07)",
            {"pci.nvidia_count": Unread},
        ),
        (
            "$ lspci -nn | grep -Ei 'vga|3d|display'\n00:02.0 VGA compatible controller: Intel UHD 620 (rev 07)",
            {"pci.nvidia_count": 0},
        ),
        (
            "$ lspci\nlspci: 01:00.0 3D controller [0302]: NVIDIA Corporation GA100 [10de:20b5] (rev a1)",
            {"pci.nvidia_count": 1},
        ),
    ],
)
def test_what_a_text_tells(text: str, facts: dict[str, object]) -> None:
    """None: the text says nothing of it."""
    assert told(text + "\n", *facts) == facts


@pytest.mark.parametrize(
    ("text", "group", "found"),
    [
        (REFUSED, "pci", [{"address": "0000:09:00.0", "vendor": "nvidia", "device_id": "10de:1d01"}]),
        (
            LDD,
            "lib",
            [
                {"name": "libcudnn", "version": "9", "path": "/usr/lib/x86_64-linux-gnu/libcudnn.so.9", "chosen": True},
                {"name": "libcuda", "version": "1", "path": "/lib/x86_64-linux-gnu/libcuda.so.1"},
            ],
        ),
        (
            QUERY,
            "gpu",
            [{"index": 0, "name": "NVIDIA GeForce RTX 3090", "compute_capability": "8.6", "memory_mib": 24260}],
        ),
        (
            "  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes",
            "gpu",
            [{"index": 0, "name": "NVIDIA GeForce RTX 4090", "compute_capability": "8.9"}],
        ),
        (
            "_CudaDeviceProperties(name='Tesla T4', major=7, minor=5, total_memory=15102MB, multi_processor_count=40)",
            "gpu",
            [{"name": "Tesla T4", "compute_capability": "7.5", "memory_mib": 15102}],
        ),
        ("GPUs: AMD Radeon 680M, NVIDIA RTX 4090", "gpu", [{"index": 0, "name": "NVIDIA RTX 4090"}]),
        (CLI, "gpu", [{"index": 0, "name": "NVIDIA L4", "address": "0000:3b:00.0"}]),
    ],
)
def test_rows_that_a_text_tells(text: str, group: str, found: list[dict[str, object]]) -> None:
    assert rows(text + "\n", group) == found


def test_what_lines_say_of_being_fatal() -> None:
    text = """\
NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000)
NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)
NVRM: Xid (PCI:0018:01:00): 119, pid=1, name=python3, Timeout
nvidia-nvswitch0: SXid (PCI:0000:c4:00.0): 24007, Data {0x00000001}
nvidia-nvswitch0: SXid (PCI:0000:c4:00.0): 24007, Fatal, Link 28 sourcetrack timeout error (First)
nvidia-nvswitch0: SXid (PCI:0000:c4:00.0): 12028, Non-fatal, Link 32 egress
"""
    snapshot = read_text(text)
    assert [row.get("fatal") for row in rows(snapshot, "xid")] == [True, False, None]
    assert [(row["code"], row["fatal"]) for row in rows(snapshot, "sxid")] == [(24007, True), (12028, False)]
    assert values(snapshot)["kernel_log.sxid"] == (24007, 12028)


GPUS, WHERE, COUNT = "container.asks_gpus", "host.container", "gpu.count"
MASK = "env.CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("$ docker run -it --rm my/image python train.py", {GPUS: False}),
        ("$ docker run -it --rm --gpus all my/image python train.py", {GPUS: True}),
        ("$ docker run -it \\\n    --gpus all \\\n    my/image bash", {GPUS: True}),
        ("$ docker run -it -v $PWD:/work my/image bash", {GPUS: False}),
        ("$ docker run $GPU_OPTIONS my/image bash", {GPUS: None}),
        ("docker run fails with an error", {GPUS: None}),
        ("docker args: -it --shm-size=8g", {GPUS: False}),
        ("docker run flags: --runtime=nvidia -it", {GPUS: True}),
        ("command: apptainer exec train.sif python train.py", {GPUS: False}),
        ("command: apptainer exec --nv train.sif python train.py", {GPUS: True}),
        ("$ docker exec -it web nvidia-smi", {GPUS: None}),
        ("      nvidia.com/gpu: 1", {GPUS: True}),
        ("daemon.json: no nvidia runtime", {GPUS: None}),
        ("after adding the missing --gpus all: works", {GPUS: None}),
        ("with runtimeClassName: nvidia: same error", {GPUS: None}),
        ("runs in: Docker container with the nvidia runtime", {WHERE: "docker"}),
        ("running in: a k8s pod, 8 GPUs", {WHERE: "kubernetes"}),
        ("runs in: conda environment", {WHERE: None}),
        ("where: on the Docker host, not in the container", {WHERE: None}),
        ("platform: Docker Desktop", {WHERE: None}),
        ("another machine has two GPUs and works", {COUNT: None}),
        ("the model needs two GPUs", {COUNT: None}),
        ("run script contains: export CUDA_VISIBLE_DEVICES=1", {MASK: "1"}),
        ("train.py: os.environ['CUDA_VISIBLE_DEVICES'] = '2'", {MASK: "2"}),
        ("CUDA_VISIBLE_DEVICES in the job: 5", {MASK: "5"}),
        ("works with: CUDA_VISIBLE_DEVICES=0 python train.py", {MASK: None}),
        ("fixed after: export CUDA_VISIBLE_DEVICES=0", {MASK: None}),
        ("CUDA_VISIBLE_DEVICES inside the ray actor: empty", {MASK: ""}),
        ("os.environ['CUDA_VISIBLE_DEVICES'] in the task: ''", {MASK: ""}),
        ("print(os.environ['CUDA_VISIBLE_DEVICES']) prints an empty string", {MASK: ""}),
        ("CUDA_VISIBLE_DEVICES: not set", {MASK: Absent}),
        ("CUDA_VISIBLE_DEVICES is 0,1", {MASK: None}),
        ("shm on /dev/shm type tmpfs (rw,nosuid,size=65536k)", {"limits.shm_mib": 64}),
        ('level=INFO source=gpu.go:392 msg="no compatible GPUs were discovered"', {"live.cuda_available": False}),
        ("WARNING: CUDA not available, using CPU", {"live.cuda_available": False}),
        ("No GPU found", {"live.cuda_available": False}),
        ("failed call to cuInit: CUDA_ERROR_NO_DEVICE: no device is detected", {"live.cuda_available": False}),
    ],
)
def test_what_the_start_of_a_container_tells(text: str, facts: dict[str, object]) -> None:
    """None: the text says nothing of it."""
    assert told(text, *facts) == facts
