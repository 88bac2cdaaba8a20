"""NVIDIA's driver on a simulated machine: modules, libraries, device files, and the daemons beside it."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.probes.trees import elf_module
from tests.sim import software
from tests.sim.files import Files
from tests.sim.host import PACKAGES, process

_FOLDERS = {"rhel": "/usr/lib64", "fedora": "/usr/lib64", "arch": "/usr/lib"}
"""Where distributions keep libraries; Debian's family has a folder for each architecture."""


def library_folder(machine: Mapping[str, Any]) -> str:
    own = f"/usr/lib/{machine['arch']}-linux-gnu"
    return _FOLDERS.get(machine["system"].partition("-")[0], own) if not machine["container"] else own


def install(files: Files, machine: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]) -> None:
    """The driver as its packages leave it, loaded or not; under WSL what Windows hands over."""
    if machine["wsl"]:
        _windows(files)
        return
    version, folder = machine["upgraded"] or machine["driver"], library_folder(machine)
    software.driver_libraries(files, version, folder)
    if folder != "/usr/lib/x86_64-linux-gnu":  # the loader that runs here looks there only because the cache says so
        _cache(files, folder)
    _modules(files, machine)
    for name in ("nvidia-smi", "nvidia-modprobe"):
        files.program(f"/usr/bin/{name}")
    for name in ("gsp_ga10x.bin", "gsp_tu10x.bin"):
        files.add(f"/lib/firmware/nvidia/{version}/{name}", b"\x7fELF")
    if not machine["loaded"]:
        return
    _loaded(files, machine, gpus)
    _nodes(files, machine, gpus)
    _daemons(files, machine)


def _windows(files: Files) -> None:
    software.driver_libraries(files, "", "/usr/lib/wsl/lib", versioned=False)
    files.add("/etc/ld.so.conf.d/ld.wsl.conf", "/usr/lib/wsl/lib\n").add("/usr/lib/wsl/lib/libdxcore.so", b"\x7fELF")
    _cache(files, "/usr/lib/wsl/lib")
    files.program("/usr/lib/wsl/lib/nvidia-smi").folder("/usr/lib/wsl/drivers/nv_dispi.inf_amd64_0123456789abcdef")
    files.folder("/run/WSL").device("/dev/dxg", "10:125 0666")
    files.add("/proc/sys/fs/binfmt_misc/WSLInterop", "enabled\ninterpreter /init\n")
    files.add("/etc/wsl.conf", "[boot]\nsystemd=true\n")


def _cache(files: Files, folder: str) -> None:
    names = ("libcuda.so.1", "libnvidia-ml.so.1")
    files.add("/etc/ld.so.cache", software.loader_cache({name: f"{folder}/{name}" for name in names}))


def _modules(files: Files, machine: Mapping[str, Any]) -> None:
    version, kernel = machine["upgraded"] or machine["driver"], machine["built_for"] or machine["kernel"]
    files.add(f"/lib/modules/{kernel}/modules.dep", "updates/dkms/nvidia.ko:\n")
    files.add(f"/lib/modules/{kernel}/updates/dkms/nvidia.ko", elf_module(version))


def _loaded(files: Files, machine: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]) -> None:
    version = machine["driver"]
    kind = "Open Kernel Module" if machine["open"] else "Kernel Module"
    files.add(
        "/proc/driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX {kind} for {machine['arch']}  {version}  Release Build  (dvs-builder@U22)\n"
        "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n",
    )
    files.add(
        "/proc/driver/nvidia/params", "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nEnableGpuFirmware: 18\n"
    )
    names = ["nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia"] + ["nvidia_peermem"] * machine["peermem"]
    fabric = ["ib_umad", "ib_uverbs", "mlx5_ib", "mlx5_core"] if machine["hcas"] or machine["switch_ports"] else []
    lines = [f"{name} 1048576 1 - Live 0x0000000000000000 (OE)\n" for name in [*names, *fabric]]
    files.add("/proc/modules", "".join(lines))
    for name in names:
        files.add(f"/sys/module/{name}/version", f"{version}\n")
    for gpu in gpus:
        firmware = f"GPU Firmware: \t {version if machine['gsp'] else 'N/A'}\n"
        files.add(
            f"/proc/driver/nvidia/gpus/{gpu['address']}/information",
            f"Model: \t\t {gpu['name']}\nIRQ:   \t\t 16\nGPU UUID: \t {gpu['uuid']}\nVideo BIOS: \t {gpu['vbios']}\n"
            f"Bus Type: \t PCIe\nBus Location: \t {gpu['address']}\nDevice Minor: \t {gpu['minor']}\n"
            f"{firmware}GPU Excluded:\t No\n",
        )


def _nodes(files: Files, machine: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]) -> None:
    for gpu in gpus:
        files.device(f"/dev/nvidia{gpu['minor']}", f"195:{gpu['minor']} 0666")
    files.device("/dev/nvidiactl", "195:255 0666").device("/dev/nvidia-modeset", "195:254 0666")
    files.device("/dev/nvidia-uvm", "511:0 0666").device("/dev/nvidia-uvm-tools", "511:1 0666")
    switches = machine["nvswitches"]
    for number in range(len(switches) if isinstance(switches, list) else switches):
        files.device(f"/dev/nvidia-nvswitch{number}", f"509:{number} 0666")
    if switches:
        files.device("/dev/nvidia-nvswitchctl", "509:255 0666")


def _daemons(files: Files, machine: Mapping[str, Any]) -> None:
    """Each installed, started at boot, running, and in dpkg's list where the distribution has dpkg."""
    packages = []
    manager, imex = machine["fabric_manager"], machine["imex"]
    if manager:
        _daemon(files, 4711, "/usr/bin/nv-fabricmanager", "nvidia-fabricmanager")
        files.add("/run/nvidia-fabricmanager/nv-fabricmanager.pid", "4711\n")
        files.add("/var/log/fabricmanager.log", _log("Fabric Manager", manager))
        packages.append((f"nvidia-fabricmanager-{manager.partition('.')[0]}", manager))
    if machine["switch_ports"]:
        files.program("/opt/nvidia/nvlsm/sbin/nvlsm").add("/run/nvlsm.pid", "4712\n")
        process(files, 4712, "/opt/nvidia/nvlsm/sbin/nvlsm")
    if imex:
        _daemon(files, 4713, "/usr/bin/nvidia-imex", "nvidia-imex")
        files.add("/etc/nvidia-imex/nodes_config.cfg", "".join(f"10.0.7.{node}\n" for node in range(1, 19)))
        files.add("/var/log/nvidia-imex.log", _log("IMEX", imex))
        files.device("/dev/nvidia-caps-imex-channels/channel0", "508:0 0666")
        packages.append((f"nvidia-imex-{imex.partition('.')[0]}", imex))
    if machine["persistenced"]:
        _daemon(files, 4714, "/usr/bin/nvidia-persistenced", "nvidia-persistenced")
        files.add("/run/nvidia-persistenced/nvidia-persistenced.pid", "4714\n")
    packages.append((f"nvidia-driver-{machine['driver'].partition('.')[0]}", machine["driver"]))
    for name, version in packages if PACKAGES in files.files else ():
        entry = f"Package: {name}\nStatus: install ok installed\nVersion: {version}-1\n\n"
        files.add(PACKAGES, files.files[PACKAGES] + entry.encode())


def _daemon(files: Files, pid: int, program: str, unit: str) -> None:
    files.program(program)
    process(files, pid, program)
    service = f"{unit}.service"
    files.add(f"/usr/lib/systemd/system/{service}", f"[Service]\nExecStart={program}\n")
    files.link(f"/etc/systemd/system/multi-user.target.wants/{service}", f"/usr/lib/systemd/system/{service}")


def _log(name: str, version: str) -> str:
    return (
        f"[Nov 11 2026 07:53:55] [INFO] [tid 841] {name} version {version} is running with the following configuration "
        f"options\n[Nov 11 2026 07:53:57] [INFO] [tid 841] Successfully configured all the available NVSwitches\n"
    )


def log(machine: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the kernel prints when the modules start."""
    if not machine["driver"] or not machine["loaded"] or machine["wsl"]:
        return []
    kind = "Open Kernel Module" if machine["open"] else "Kernel Module"
    version = machine["driver"]
    lines = ["nvidia: loading out-of-tree module taints kernel."]
    if not machine["open"]:
        lines.append("nvidia: module license 'NVIDIA' taints kernel.")
    if not machine["secure_boot"]:
        lines.append("nvidia: module verification failed: signature and/or required key missing - tainting kernel")
    lines.append("nvidia-nvlink: Nvlink Core is being initialized, major device number 510")
    lines += [f"nvidia {gpu['address']}: enabling device (0000 -> 0002)" for gpu in gpus]
    lines.append(f"NVRM: loading NVIDIA UNIX {kind} for {machine['arch']}  {version}  Release Build  (dvs-builder@U22)")
    lines.append(f"nvidia-modeset: Loading NVIDIA Kernel Mode Setting Driver for UNIX platforms  {version}")
    lines += [f"[drm] Initialized nvidia-drm 0.0.0 for {gpu['address']} on minor {at}" for at, gpu in enumerate(gpus)]
    return [*lines, "nvidia-uvm: Loaded the UVM driver, major device number 511."]


def commands(machine: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the daemons' programs print; the fabric manager is asked for its version where rpm's database is no text."""
    version = machine["fabric_manager"]
    if not version or not machine["driver"] or not machine["loaded"] or machine["container"]:
        return []
    said = f"Fabric Manager version is : {version}\n"
    return [{"argv": ["/usr/bin/nv-fabricmanager", "--version"], "status": 0, "out": said}]
