"""Writes the files of a machine from a few words about it: the ``host`` section of a scenario.

``render(words, nvml)`` takes the scenario's ``machine``, an object of the keys of `Words`; how many GPUs there are, at
which addresses, with which links, is read from the answers of NVML, so that bus and driver agree unless a scenario
changes one of them.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from typing import Any

from tests.sim import software
from tests.sim.files import Files
from tests.unit.trees import EFI_GLOBAL, elf_module

SPEEDS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}
"""PCIe generation to GT/s."""

SYSTEMS = {
    "ubuntu-24.04": 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nNAME="Ubuntu"\nVERSION_ID="24.04"\nID=ubuntu\nID_LIKE=debian\n',
    "ubuntu-22.04": 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\nNAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu\nID_LIKE=debian\n',
    "debian-12": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nNAME="Debian GNU/Linux"\nVERSION_ID="12"\nID=debian\n',
    "rhel-9.6": 'PRETTY_NAME="Red Hat Enterprise Linux 9.6 (Plow)"\nVERSION_ID="9.6"\nID="rhel"\nID_LIKE="fedora"\n',
    "fedora-43": 'PRETTY_NAME="Fedora Linux 43 (Workstation Edition)"\nVERSION_ID=43\nID=fedora\n',
    "arch": 'PRETTY_NAME="Arch Linux"\nNAME="Arch Linux"\nID=arch\n',
}

DEFAULTS: dict[str, Any] = {
    "system": "ubuntu-24.04",
    "kernel": "6.8.0-79-generic",
    "arch": "x86_64",
    "vendor": "Supermicro",
    "product": "SYS-821GE-TNHR",
    "virtual": False,  # a hypervisor below: DMI names it in vendor and product
    "cpus": 112,
    "numa": 2,
    "memory_gib": 1024,
    "secure_boot": False,
    "driver": "580.95.05",  # null: none installed
    "open": True,  # the kernel modules' kind
    "loaded": True,
    "container": None,  # docker, podman, kubernetes
    "wsl": False,
    "bridges": "own",  # each GPU below a root port of its own, or below a shared switch: "switch"
    "nvswitches": 0,
    "hcas": 0,  # InfiniBand adapters, one port each
    "rate": "400 Gb/sec (4X NDR)",
    "fabric_manager": None,  # its version, where it is installed and runs
    "environ": {},
    "torch": {"version": "2.9.0+cu128", "cuda": "12.8"},  # null: not installed
    "kmsg": [],  # lines the kernel printed since boot
    "shm_mib": None,  # by default half the memory
    "user": 0,
    "display_class": False,  # GPUs that are VGA controllers (GeForce), not 3D controllers
}


def render(words: Mapping[str, Any], nvml: Mapping[str, Any] | None) -> dict[str, Any]:
    """The host section; raises `KeyError` for a word that is none."""
    unknown = set(words) - set(DEFAULTS) - {"gpus"}
    if unknown:
        raise KeyError(f"machine: {sorted(unknown)}")
    machine = {**DEFAULTS, **words}
    files = Files()
    gpus = machine.get("gpus") or gpus_of(nvml)
    _system(files, machine)
    _processes(files, machine)
    _network(files, machine)
    if not machine["wsl"]:
        _bus(files, machine, gpus)
    if machine["driver"]:
        _driver(files, machine, gpus)
    if machine["container"]:
        _contain(files, machine)
    if machine["torch"]:
        software.torch(files, machine["torch"], gpus)
    memory = machine["memory_gib"] << 30
    shm = (machine["shm_mib"] << 20) if machine["shm_mib"] is not None else memory // 2
    return {
        **files.section(),
        "space": {"/dev/shm": [shm, shm], "/": [1 << 40, 1 << 39], "/tmp": [1 << 40, 1 << 39]},
        "environ": {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            **({"VIRTUAL_ENV": software.PREFIX} if machine["torch"] else {}),
            **machine["environ"],
        },
        "python": software.PYTHON if machine["torch"] else "/usr/bin/python3",
        "name": "node",
    }


def gpus_of(nvml: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """What the bus shows of each GPU that NVML lists: address, PCI ids, link, memory window, name."""
    if not nvml:
        return []
    found: list[dict[str, Any]] = []
    for own in nvml.get("gpus", ()):
        said = {**nvml.get("every", {}), **own}
        pci = said["nvmlDeviceGetPciInfo"]
        window = said.get("nvmlDeviceGetBAR1MemoryInfo", {}).get("bar1Total", 256 << 20)
        found.append(
            {
                "address": f"{pci['domain']:04x}:{pci['bus']:02x}:{pci['device']:02x}.0",
                "id": pci["pciDeviceId"],
                "subsystem": pci.get("pciSubSystemId", 0),
                "width": said.get("nvmlDeviceGetCurrPcieLinkWidth", 16),
                "width_max": said.get("nvmlDeviceGetMaxPcieLinkWidth", 16),
                "speed": said.get("nvmlDeviceGetCurrPcieLinkGeneration", 4),
                "speed_max": said.get("nvmlDeviceGetMaxPcieLinkGeneration", 4),
                "bar1": window,
                "numa": said.get("nvmlDeviceGetMemoryAffinity(0)", [1])[0].bit_length() - 1,
                "name": said.get("nvmlDeviceGetName", "NVIDIA"),
                "uuid": said.get("nvmlDeviceGetUUID", "GPU-0"),
                "minor": said.get("nvmlDeviceGetMinorNumber", len(found)),
                "capability": ".".join(map(str, said.get("nvmlDeviceGetCudaComputeCapability", [0, 0]))),
            }
        )
    return found


def _system(files: Files, machine: Mapping[str, Any]) -> None:
    kernel = machine["kernel"]
    files.add("/etc/os-release", SYSTEMS[machine["system"]])
    files.add("/proc/sys/kernel/ostype", "Linux\n").add("/proc/sys/kernel/osrelease", f"{kernel}\n")
    files.add("/proc/sys/kernel/arch", f"{machine['arch']}\n")
    files.add("/proc/version", f"Linux version {kernel} (builder@host) (gcc 13.3.0) #1 SMP\n")
    files.add("/proc/cmdline", f"BOOT_IMAGE=/vmlinuz-{kernel} root=/dev/nvme0n1p2 ro quiet\n")
    files.add("/proc/meminfo", f"MemTotal:       {machine['memory_gib'] << 20} kB\nMemFree: 1048576 kB\n")
    files.add("/proc/uptime", "864000.00 96000000.00\n").add("/proc/loadavg", "0.52 0.58 0.59 2/1893 4711\n")
    flags = "fpu sse2 avx2" + (" hypervisor" if machine["virtual"] or machine["wsl"] else "")
    if machine["arch"] == "x86_64":
        files.add("/proc/cpuinfo", f"processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: {flags}\n")
    else:
        files.add("/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nFeatures\t: fp asimd\n")
    if not machine["wsl"]:
        files.add("/sys/class/dmi/id/sys_vendor", f"{machine['vendor']}\n")
        files.add("/sys/class/dmi/id/product_name", f"{machine['product']}\n")
        place = f"/sys/firmware/efi/efivars/SecureBoot-{EFI_GLOBAL}"
        files.add(place, bytes([6, 0, 0, 0, machine["secure_boot"]]))
    files.add("/sys/kernel/security/lockdown", "[none] integrity confidentiality\n")
    files.add("/sys/power/suspend_stats/success", "0\n").add("/sys/module/module/parameters/sig_enforce", "N\n")
    files.folder("/sys/class/iommu")
    per = machine["cpus"] // machine["numa"]
    for node in range(machine["numa"]):
        files.add(f"/sys/devices/system/node/node{node}/cpulist", f"{node * per}-{node * per + per - 1}\n")
    files.add("/sys/devices/system/node/online", f"0-{machine['numa'] - 1}\n" if machine["numa"] > 1 else "0\n")
    files.add("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n")
    files.add("/sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm\n")
    files.add(f"/lib/modules/{kernel}/modules.dep", "kernel/fs/ext4/ext4.ko.zst: kernel/fs/jbd2/jbd2.ko.zst\n")
    files.folder(f"/usr/src/linux-headers-{kernel}")
    files.link(f"/lib/modules/{kernel}/build", f"/usr/src/linux-headers-{kernel}")
    lines = [f"6,{at},{60_000_000 + at * 1000},-;{line}\n" for at, line in enumerate(machine["kmsg"], 900)]
    files.add("/dev/kmsg", f"6,1,0,-;Linux version {kernel}\n" + "".join(lines))
    if machine["wsl"]:
        files.folder("/run/WSL").device("/dev/dxg", "10:125 0666")


def _processes(files: Files, machine: Mapping[str, Any]) -> None:
    """Process 1, the kernel's threads, and what the session inherits."""
    user, last = machine["user"], machine["cpus"] - 1
    uids = "\t".join([str(user)] * 4)
    files.add("/proc/self/status", f"Name:\tpython3\nUid:\t{uids}\nCpus_allowed_list:\t0-{last}\n")
    files.add("/proc/self/mountinfo", "27 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n")
    files.add("/proc/self/cgroup", "0::/user.slice\n").add("/proc/1/cgroup", "0::/init.scope\n")
    limits = {"Max locked memory": ("unlimited", "bytes"), "Max open files": ("1048576", "files")}
    limits.update({"Max processes": ("unlimited", "processes"), "Max stack size": ("8388608", "bytes")})
    table = "".join(f"{name:<26}{value:<21}{value:<21}{unit:<10}\n" for name, (value, unit) in limits.items())
    files.add("/proc/self/limits", f"{'Limit':<26}{'Soft Limit':<21}{'Hard Limit':<21}{'Units':<10}\n{table}")
    for pid, name in ((1, "systemd"), (2, "kthreadd")):
        files.add(f"/proc/{pid}/comm", f"{name}\n").add(f"/proc/{pid}/stat", f"{pid} ({name}) S 0 0 0\n")
    files.folder("/run/systemd/system")
    for name in ("maps", "fd", "exe", "environ", "stat"):
        files.link(f"/proc/self/{name}", f"/.host/proc/self/{name}")


def _network(files: Files, machine: Mapping[str, Any]) -> None:
    for name in ("lo", "eth0"):
        files.add(f"/sys/class/net/{name}/operstate", "unknown\n" if name == "lo" else "up\n")
        files.add(f"/sys/class/net/{name}/mtu", "65536\n" if name == "lo" else "1500\n")
    for number in range(machine["hcas"]):
        folder = f"/sys/class/infiniband/mlx5_{number}"
        port = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": machine["rate"], "link_layer": "InfiniBand"}
        for name, value in port.items():
            files.add(f"{folder}/ports/1/{name}", f"{value}\n")
        files.add(f"{folder}/ports/1/gids/0", f"fe80:0000:0000:0000:a088:c203:00b1:{number:04x}\n")
        for name in ("link_downed", "symbol_error", "port_rcv_errors"):
            files.add(f"{folder}/ports/1/counters/{name}", "0\n")


def _bus(files: Files, machine: Mapping[str, Any], gpus: list[dict[str, Any]]) -> None:
    files.folder("/sys/bus/pci/devices")
    driver = "nvidia" if machine["driver"] and machine["loaded"] else None
    _device(files, "0000:00:1f.0", 0x8086, 0x7A04, 0x060100, machine)
    for gpu in gpus:
        kind = 0x030000 if machine["display_class"] else 0x030200
        _device(files, gpu["address"], gpu["id"] & 0xFFFF, gpu["id"] >> 16, kind, machine, gpu, driver)
    for number in range(machine["nvswitches"]):
        _device(files, f"0000:{5 + number:02x}:00.0", 0x10DE, 0x22A3, 0x068000, machine, None, driver)
    for number in range(machine["hcas"]):
        address = f"0000:{0x8A + 2 * number:02x}:00.0"
        _device(
            files, address, 0x15B3, 0x1021, 0x020700, machine, {"numa": number * machine["numa"] // machine["hcas"]}
        )
        files.link(f"/sys/class/infiniband/mlx5_{number}/device", f"/sys/bus/pci/devices/{address}")


def _device(
    files: Files,
    address: str,
    vendor: int,
    device: int,
    kind: int,
    machine: Mapping[str, Any],
    link: Mapping[str, Any] | None = None,
    driver: str | None = None,
) -> None:
    """A device below a root port that can do as much as the device."""
    link = link or {}
    domain, bus = address.split(":")[:2]
    port = f"{domain}:{int(bus, 16) - 1 if int(bus, 16) else 0:02x}:01.0"
    above = f"/sys/devices/pci{port[:7]}/{port}" if int(bus, 16) else f"/sys/devices/pci{domain}:00"
    folder = f"{above}/{address}"
    header = struct.pack("<HHHHBBBB", vendor, device, 0x406, 0x10, 0xA1, kind & 0xFF, kind >> 8 & 0xFF, kind >> 16)
    files.add(f"{folder}/config", header.ljust(256, b"\0"))
    fastest = f"{SPEEDS[link.get('speed_max', 4)]} GT/s PCIe"
    bars = [(0xA0000000, 0xA0FFFFFF), (0x2000000000, 0x2000000000 + link.get("bar1", 256 << 20) - 1)]
    regions = [f"0x{start:016x} 0x{end:016x} 0x{0x40200:016x}" for start, end in bars] + [
        " ".join(["0x" + "0" * 16] * 3)
    ] * 11
    for name, value in {
        "vendor": f"0x{vendor:04x}",
        "device": f"0x{device:04x}",
        "class": f"0x{kind:06x}",
        "current_link_speed": f"{SPEEDS[link.get('speed', 4)]} GT/s PCIe",
        "current_link_width": str(link.get("width", 16)),
        "max_link_speed": fastest,
        "max_link_width": str(link.get("width_max", 16)),
        "numa_node": str(link.get("numa", 0) if machine["numa"] > 1 else -1),
        "power_state": "D0",
        "resource": "\n".join(regions),
    }.items():
        files.add(f"{folder}/{name}", f"{value}\n")
    if int(bus, 16):
        files.add(f"{above}/max_link_speed", f"{fastest}\n").add(
            f"{above}/max_link_width", f"{link.get('width_max', 16)}\n"
        )
    files.link(f"/sys/bus/pci/devices/{address}", folder)
    if driver:
        files.folder(f"/sys/bus/pci/drivers/{driver}")
        files.link(f"{folder}/driver", f"/sys/bus/pci/drivers/{driver}")


def _driver(files: Files, machine: Mapping[str, Any], gpus: list[dict[str, Any]]) -> None:
    version, kernel = machine["driver"], machine["kernel"]
    if machine["wsl"]:
        software.driver_libraries(files, version, "/usr/lib/wsl/lib", versioned=False)
        files.add("/etc/ld.so.conf.d/ld.wsl.conf", "/usr/lib/wsl/lib\n")
        names = ("libcuda.so.1", "libnvidia-ml.so.1")
        files.add("/etc/ld.so.cache", software.loader_cache({name: f"/usr/lib/wsl/lib/{name}" for name in names}))
        files.program("/usr/lib/wsl/lib/nvidia-smi")
        return
    folder = f"/usr/lib/{machine['arch']}-linux-gnu"
    software.driver_libraries(files, version, folder)
    if machine["arch"] != "x86_64":  # the loader that runs here looks there only because the cache says so
        names = ("libcuda.so.1", "libnvidia-ml.so.1")
        files.add("/etc/ld.so.cache", software.loader_cache({name: f"{folder}/{name}" for name in names}))
    files.add(f"/lib/modules/{kernel}/modules.dep", "updates/dkms/nvidia.ko:\n")
    files.add(f"/lib/modules/{kernel}/updates/dkms/nvidia.ko", elf_module(version))
    if not machine["loaded"]:
        return
    kind = "Open Kernel Module" if machine["open"] else "Kernel Module"
    files.add(
        "/proc/driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX {kind} for {machine['arch']}  {version}  Release Build  (dvs-builder@U22)\n"
        "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n",
    )
    files.add(
        "/proc/driver/nvidia/params", "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nEnableGpuFirmware: 18\n"
    )
    modules = ["nvidia_uvm 4939776 0", "nvidia 14381056 12 nvidia_uvm,"]
    files.add("/proc/modules", "".join(f"{line} - Live 0x0000000000000000 (OE)\n" for line in modules))
    for name in ("nvidia", "nvidia_uvm"):
        files.add(f"/sys/module/{name}/version", f"{version}\n")
    for gpu in gpus:
        files.add(
            f"/proc/driver/nvidia/gpus/{gpu['address']}/information",
            f"Model: \t\t {gpu['name']}\nIRQ:   \t\t 16\nGPU UUID: \t {gpu['uuid']}\nVideo BIOS: \t 96.00.5e.00.01\n"
            f"Bus Type: \t PCIe\nBus Location: \t {gpu['address']}\nDevice Minor: \t {gpu['minor']}\n"
            f"GPU Firmware: \t {version}\nGPU Excluded:\t No\n",
        )
        files.device(f"/dev/nvidia{gpu['minor']}", f"195:{gpu['minor']} 0666")
    files.device("/dev/nvidiactl", "195:255 0666").device("/dev/nvidia-uvm", "511:0 0666")
    files.add(f"/lib/firmware/nvidia/{version}/gsp_ga10x.bin", b"\x7fELF").add(
        f"/lib/firmware/nvidia/{version}/gsp_tu10x.bin", b"\x7fELF"
    )
    files.program("/usr/bin/nvidia-smi").program("/usr/bin/nvidia-modprobe")
    if machine["fabric_manager"]:
        files.program("/usr/bin/nv-fabricmanager").add("/proc/4711/comm", "nv-fabricmanage\n")
        files.add("/run/nvidia-fabricmanager/nv-fabricmanager.pid", "4711\n")
        files.add(
            "/var/lib/dpkg/status",
            f"Package: nvidia-fabricmanager-{machine['fabric_manager'].partition('.')[0]}\n"
            f"Status: install ok installed\nVersion: {machine['fabric_manager']}-1\n\n",
        )


def _contain(files: Files, machine: Mapping[str, Any]) -> None:
    """What a container does not see of the machine, and what it sees instead."""
    files.drop(
        "/lib/modules", "/usr/src", "/sys/firmware", "/proc/2", "/run/systemd", "/dev/kmsg", "/run/nvidia-fabricmanager"
    )
    files.folder("/sys/firmware")
    files.add("/proc/1/cgroup", "0::/\n").add("/proc/self/cgroup", "0::/\n").add("/proc/1/comm", "bash\n")
    lines = ["651 533 0:72 / / rw,relatime master:1 - overlay overlay rw,lowerdir=/x"]
    version, folder = machine["driver"], f"/usr/lib/{machine['arch']}-linux-gnu"
    if version:
        lines += [
            f"66{at} 651 259:2 {folder}/{name}.so.{version} {folder}/{name}.so.{version} ro,nosuid - ext4 /dev/root rw"
            for at, name in enumerate(("libcuda", "libnvidia-ml"))
        ]
    files.add("/proc/self/mountinfo", "\n".join(lines) + "\n")
    mark = {"docker": "/.dockerenv", "podman": "/run/.containerenv"}.get(machine["container"])
    if mark:
        files.add(mark, "")
    else:
        files.add("/run/secrets/kubernetes.io/serviceaccount/namespace", "default\n")


def encoded(content: bytes) -> str:
    """As the section ``bytes`` holds it."""
    return base64.b64encode(content).decode()
