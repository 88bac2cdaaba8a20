"""Lays out a folder that looks like a machine: /proc, /sys, /dev, /etc and /lib as the probes read them.

``Tree(tmp_path).linux().gpu().driver("580.95.05").target()`` is a `Local` whose root is that folder; probes read it
as they read a real machine. Links may be absolute: they mean a place in the tree.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from gpudoctor.core.fact import Known
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.target.local import Local

KERNEL = "6.8.0-79-generic"
EFI_GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
SHIM = "605dab50-e046-4300-abb6-3dd810dd8b23"
DEAD = b"\xff" * 256


class Tree:
    """A root under construction; every method returns it, so that a machine reads as one sentence."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.addresses: list[str] = []
        self.shut: list[Path] = []

    def close(self) -> Local:
        """The machine, seen by nobody in particular, to whom the folders of `refused` are shut."""
        for place in self.shut:
            place.chmod(0)
        if os.geteuid() == 0:
            os.seteuid(65534)
        return self.target()

    def target(self, level: str = "quick", **environ: str) -> Local:
        """The finished machine, with these environment variables and no others."""
        return Local(level, root=str(self.root), environ=environ)

    def file(self, path: str, content: str | bytes = "", mode: int = 0o644) -> Tree:
        """A file, its folders made as needed."""
        real = self.root / path.lstrip("/")
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_bytes(content.encode() if isinstance(content, str) else content)
        real.chmod(mode)
        return self

    def folder(self, path: str) -> Tree:
        """An empty folder."""
        (self.root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
        return self

    def link(self, path: str, goal: str) -> Tree:
        """A symbolic link; `goal` as the patient would have it."""
        real = self.root / path.lstrip("/")
        real.parent.mkdir(parents=True, exist_ok=True)
        real.symlink_to(goal)
        return self

    def without(self, path: str) -> Tree:
        """Take one file or link away again."""
        (self.root / path.lstrip("/")).unlink()
        return self

    def linux(self, kernel: str = KERNEL, command_line: str = "ro quiet", os_release: str | None = None) -> Tree:
        """A plain x86-64 Ubuntu machine: bare metal, UEFI, Secure Boot off, no GPU, nothing of NVIDIA."""
        ubuntu = 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nNAME="Ubuntu"\nVERSION_ID="24.04"\nID=ubuntu\nID_LIKE=debian\n'
        self.file("/proc/sys/kernel/ostype", "Linux\n").file("/proc/sys/kernel/osrelease", f"{kernel}\n")
        self.file("/proc/sys/kernel/arch", "x86_64\n").file("/proc/cmdline", f"BOOT_IMAGE=/vmlinuz {command_line}\n")
        self.file("/proc/modules", "ext4 1101824 1 - Live 0x0000000000000000\n").folder("/sys/module/ext4")
        self.file("/proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu sse2 avx2\n")
        self.file("/proc/meminfo", "MemTotal:       65536000 kB\nMemFree:  1 kB\n").file(
            "/proc/uptime", "4711.08 1.0\n"
        )
        self.file("/proc/self/mountinfo", "27 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n")
        self.file("/proc/self/status", "Name:\tpython3\nUid:\t1000\t1000\t1000\t1000\nCpus_allowed_list:\t0-15\n")
        self.file("/proc/self/cgroup", "0::/user.slice\n").file("/proc/1/cgroup", "0::/init.scope\n")
        self.file("/proc/1/comm", "systemd\n").folder("/sys/bus/pci/devices").folder("/sys/class/iommu")
        self.file("/etc/os-release", ubuntu if os_release is None else os_release)
        self.file("/sys/class/dmi/id/sys_vendor", "Supermicro\n").file("/sys/class/dmi/id/product_name", "SYS-4029\n")
        self.file("/sys/power/suspend_stats/success", "0\n").file("/sys/kernel/security/lockdown", "[none] integrity\n")
        self.folder("/dev").folder(f"/usr/src/linux-headers-{kernel}")
        self.link(f"/lib/modules/{kernel}/build", f"/usr/src/linux-headers-{kernel}")
        self.file(f"/lib/modules/{kernel}/modules.dep", "kernel/fs/ext4/ext4.ko.zst: kernel/fs/jbd2/jbd2.ko.zst\n")
        return self.secure_boot(False)

    def secure_boot(self, on: bool) -> Tree:
        """The EFI variable: four bytes of attributes, one of value."""
        return self.file(f"/sys/firmware/efi/efivars/SecureBoot-{EFI_GLOBAL}", bytes([6, 0, 0, 0, on]))

    def container(self, engine: str = "docker") -> Tree:
        """What a container sees of a machine that `linux` laid out: no modules, no firmware, an overlay for a root."""
        import shutil

        for path in ("lib/modules", "usr/src", "sys/firmware", "proc/1/cgroup", "proc/1/comm"):
            place = self.root / path
            shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
        self.folder("/sys/firmware").file("/proc/1/cgroup", "0::/\n").file("/proc/self/cgroup", "0::/\n")
        self.file("/proc/self/mountinfo", "651 533 0:72 / / rw,relatime master:1 - overlay overlay rw,lowerdir=/x\n")
        mark = {"docker": "/.dockerenv", "podman": "/run/.containerenv"}.get(engine)
        return self.file(mark) if mark else self

    def pci(
        self,
        address: str,
        vendor: int,
        device: int,
        kind: int,
        driver: str | None = None,
        config: bytes | None = None,
        speed: str = "32.0 GT/s PCIe",
        width: int = 16,
        port: str = "0000:00:01.0",
        regions: tuple[tuple[int, int], ...] = ((0xA0000000, 0xA0FFFFFF), (0x2000000000, 0x3FFFFFFFFF)),
    ) -> Tree:
        """A device below a port: the port x16 at 32 GT/s, the device able to as much, its link as given."""
        above = f"/sys/devices/pci0000:00/{port}"
        folder = f"{above}/{address}"
        header = struct.pack("<HHHHBBBB", vendor, device, 0x406, 0x10, 0xA1, kind & 0xFF, kind >> 8 & 0xFF, kind >> 16)
        self.file(f"{folder}/config", header.ljust(256, b"\0") if config is None else config)
        lines = [f"0x{start:016x} 0x{end:016x} 0x{0x40200:016x}" for start, end in regions]
        lines += ["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * (13 - len(lines))
        for name, value in {
            "vendor": f"0x{vendor:04x}",
            "device": f"0x{device:04x}",
            "class": f"0x{kind:06x}",
            "current_link_speed": speed,
            "current_link_width": str(width),
            "max_link_speed": "32.0 GT/s PCIe",
            "max_link_width": "16",
            "numa_node": "0",
            "power_state": "D0",
            "resource": "\n".join(lines),
        }.items():
            self.file(f"{folder}/{name}", f"{value}\n")
        self.file(f"{above}/max_link_speed", "32.0 GT/s PCIe\n").file(f"{above}/max_link_width", "16\n")
        self.link(f"/sys/bus/pci/devices/{address}", f"../../../devices/pci0000:00/{port}/{address}")
        if driver:
            self.folder(f"/sys/bus/pci/drivers/{driver}")
            self.link(f"{folder}/driver", f"/sys/bus/pci/drivers/{driver}")
        return self

    def gpu(
        self, driver: str | None = None, config: bytes | None = None, device: int = 0x2330, width: int = 16
    ) -> Tree:
        """One more H100 (or other `device`), on a port of its own."""
        number = len(self.addresses)
        self.addresses.append(f"0000:{0x1A + 16 * number:02x}:00.0")
        port = f"0000:00:{number + 1:02x}.0"
        return self.pci(self.addresses[-1], 0x10DE, device, 0x030200, driver, config=config, width=width, port=port)

    def driver(self, version: str, kind: str = "open", library: str | None = None, nodes: bool = True) -> Tree:
        """A healthy driver: loaded, on the disk, with libraries and device files for every GPU so far."""
        form = "Open Kernel Module for x86_64" if kind == "open" else "x86_64 Kernel Module"
        end = "Release Build  (dvs-builder@U22-I3-AM04-26-2)" if kind == "open" else "Sat Aug 19 01:15:15 UTC 2023"
        self.file(
            "/proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX {form}  {version}  {end}\nGCC version:  x\n"
        )
        self.file("/proc/driver/nvidia/params", "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\n")
        self.module("nvidia", "14381056 12 nvidia_uvm, Live 0x0000000000000000 (OE)", version)
        self.module("nvidia_uvm", "4939776 0 - Live 0x0000000000000000 (OE)", version)
        for number, address in enumerate(self.addresses):
            self.file(f"/proc/driver/nvidia/gpus/{address}/information", information(number, address, version))
        names = ["nvidiactl", "nvidia-uvm", *(f"nvidia{number}" for number in range(len(self.addresses)))]
        for name in names if nodes else ():
            self.file(f"/dev/{name}", mode=0o666)
        self.on_disk(version)
        return self.libraries(library or version)

    def module(self, name: str, rest: str = "3096576 1 - Live 0x0000000000000000", version: str = "") -> Tree:
        """A loaded kernel module."""
        place = self.root / "proc/modules"
        self.file("/proc/modules", (place.read_text() if place.exists() else "") + f"{name} {rest}\n")
        return (
            self.file(f"/sys/module/{name}/version", f"{version}\n") if version else self.folder(f"/sys/module/{name}")
        )

    def on_disk(self, version: str, kernel: str = KERNEL, path: str = "updates/dkms/nvidia.ko") -> Tree:
        """The module's file for that kernel, listed in modules.dep; uncompressed ones hold a real section .modinfo."""
        folder = f"/lib/modules/{kernel}"
        listed = self.root / folder.lstrip("/") / "modules.dep"
        self.file(f"{folder}/modules.dep", (listed.read_text() if listed.exists() else "") + f"{path}: \n")
        return self.file(f"{folder}/{path}", elf_module(version) if path.endswith(".ko") else b"\xfd7zXZ\0")

    def libraries(self, version: str, folder: str = "/usr/lib/x86_64-linux-gnu") -> Tree:
        """libcuda and libnvidia-ml with their links."""
        for name in ("libcuda", "libnvidia-ml"):
            self.file(f"{folder}/{name}.so.{version}", b"\x7fELF")
            if not (self.root / folder.lstrip("/") / f"{name}.so.1").is_symlink():
                self.link(f"{folder}/{name}.so.1", f"{name}.so.{version}")
        return self


@contextmanager
def refused(*paths: str) -> Iterator[Tree]:
    """An empty root of its own, seen by a user without rights; after it is laid out, `close` shuts these folders.

    Only root can become that user; for anybody else the folders are shut for themselves as well.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        tree = Tree(Path(folder))
        tree.shut = [tree.root / path.lstrip("/") for path in paths]
        user = os.geteuid()
        try:
            yield tree
        finally:
            if user == 0:
                os.seteuid(0)
            for place in tree.shut:
                place.chmod(0o755)


def said(probe: ModuleType, target: Local) -> dict[str, Any]:
    """What a probe yields, by name; it must yield nothing that is not declared by some probe."""
    out: dict[str, Any] = dict(probe.probe(target))
    groups = {"text", *(spec.name.rpartition(".")[0] for spec in probe.FACTS if spec.group)}
    undeclared = {name for name in out if catalog().find(name) is None and name not in groups}
    assert not undeclared
    return out


def values(probe: ModuleType, target: Local) -> dict[str, Any]:
    """The known facts' values, and `Absent` or `Unread`, the types, for the others; groups as they are."""
    facts = said(probe, target)
    return {n: f.value if isinstance(f, Known) else f if isinstance(f, tuple) else type(f) for n, f in facts.items()}


def information(number: int, address: str, version: str) -> str:
    """/proc/driver/nvidia/gpus/<address>/information as the driver prints it."""
    return (
        f"Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 16\nGPU UUID: \t GPU-0000000{number}-aaaa\n"
        f"Video BIOS: \t 96.00.5e.00.01\nBus Type: \t PCIe\nBus Location: \t {address}\n"
        f"Device Minor: \t {number}\nGPU Firmware: \t {version}\nGPU Excluded:\t No\n"
    )


def elf_module(version: str) -> bytes:
    """A 64-bit ELF file with the sections .modinfo and .shstrtab, and nothing else."""
    info = f"firmware=nvidia/{version}/gsp_tu10x.bin\0version={version}\0license=Dual MIT/GPL\0".encode()
    labels = b"\0.modinfo\0.shstrtab\0"
    table = 64 + len(info) + len(labels)
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header += struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)
    sections = b"\0" * 64
    for label, offset, size in ((1, 64, len(info)), (10, 64 + len(info), len(labels))):
        sections += struct.pack("<IIQQQQIIQQ", label, 1, 0, 0, offset, size, 0, 0, 1, 0)
    return header + info + labels + sections


def spoilt(place: Path) -> Iterator[str]:
    """The file at `place` made, one after another, into things that no kernel writes; then put back."""
    content = place.read_bytes()
    for name, bad in {
        "empty": b"",
        "bytes": b"\xff\0\xfe" * 99,
        "digits": b"9" * 9000,
        "lines": b":\n=\n-\n" * 9,
    }.items():
        place.write_bytes(bad)
        yield name
    place.unlink()
    place.mkdir()
    yield "a folder"
    place.rmdir()
    place.symlink_to(place.name)
    yield "a link to itself"
    place.unlink()
    yield "gone"
    place.write_bytes(content)
