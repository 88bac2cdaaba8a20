"""The operating system, and what kind of machine it runs on: bare, virtual, container, WSL."""

from __future__ import annotations

import re
import shlex
import struct
import sys
from collections.abc import Iterator

from gpudoctor.model.catalog import fact
from gpudoctor.model.fact import Absent, Fact, Known, Rows, Unread
from gpudoctor.model.secrets import without_secrets
from gpudoctor.probes import _marks
from gpudoctor.probes._host import firmware
from gpudoctor.probes._reading import line, names, refusal, text, there
from gpudoctor.target import Target

FACTS = (
    fact("host.platform", "text", "linux, windows or macos"),
    fact("host.os", "text", "the operating system's name as it calls itself, such as Ubuntu 24.04.3 LTS"),
    fact("host.distribution", "text", "its short id, such as ubuntu, debian, fedora, rhel, sles, arch"),
    fact("host.distribution_version", "version", "its release, such as 24.04"),
    fact("host.package_manager", "text", "apt, dnf, zypper, pacman, apk or emerge"),
    fact("host.kernel", "version", "release of the running kernel, as uname -r prints it"),
    fact("host.kernel_command_line", "text", "what the boot loader handed to the kernel"),
    fact("host.arch", "text", "machine architecture, such as x86_64, aarch64"),
    fact("host.glibc", "version", "version of the C library"),
    fact(
        "host.virtual_machine",
        "text",
        "the hypervisor (kvm, vmware, hyper-v, xen, amazon, google); absent on bare metal",
    ),
    fact("host.container", "text", "docker, podman, kubernetes, lxc, apptainer or container; absent outside one"),
    fact("host.wsl", "int", "1 or 2 inside the Windows Subsystem for Linux; absent elsewhere"),
    fact("host.secure_boot", "bool", "whether UEFI Secure Boot is on, from the efivar"),
    fact("host.shim_validation", "bool", "whether shim hands Secure Boot on to the kernel; mokutil can switch it off"),
    fact("host.lockdown", "text", "kernel lockdown: none, integrity or confidentiality"),
    fact("host.module_signatures", "bool", "whether the kernel loads signed modules only"),
    fact("host.jetson", "text", "the Jetson or Tegra board, whose GPU is not on the PCI bus; absent elsewhere"),
    fact("host.iommu", "list", "IOMMU units of the machine, such as dmar0, ivhd0, smmu3; empty where none is on"),
    fact("host.cpu_vendor", "text", "GenuineIntel, AuthenticAMD; absent on ARM"),
    fact("host.memory_mib", "int", "the machine's memory", "MiB"),
    fact("host.uptime_s", "int", "time since the kernel booted", "s"),
)

_MANAGERS = {
    "debian": "apt",
    "ubuntu": "apt",
    "fedora": "dnf",
    "rhel": "dnf",
    "centos": "dnf",
    "amzn": "dnf",
    "azurelinux": "dnf",
    "mariner": "dnf",
    "suse": "zypper",
    "opensuse": "zypper",
    "sles": "zypper",
    "opensuse-leap": "zypper",
    "opensuse-tumbleweed": "zypper",
    "arch": "pacman",
    "alpine": "apk",
    "gentoo": "emerge",
}
"""By ID, else by ID_LIKE: derivatives name their parents there."""

_MACHINES = {0x03: "i686", 0x28: "armv7l", 0x3E: "x86_64", 0xB7: "aarch64", 0x15: "ppc64le", 0xF3: "riscv64"}
"""Field e_machine of an ELF header."""


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Only files of /proc, /sys and /etc; nothing is run."""
    yield "host.platform", _platform(target)
    yield from _release(target)
    yield "host.kernel", _marks.kernel(target)
    yield "host.kernel_command_line", _command_line(target)
    yield "host.arch", _arch(target)
    yield "host.glibc", _glibc(target)
    yield "host.container", _marks.container(target)
    yield "host.wsl", _marks.wsl(target)
    yield "host.jetson", _marks.jetson(target)
    processor = text(target, "/proc/cpuinfo", 8192)
    yield "host.cpu_vendor", _field(processor, r"^vendor_id\s*:\s*(\S+)", "/proc/cpuinfo")
    yield "host.virtual_machine", firmware.virtual_machine(target, processor)
    yield "host.secure_boot", firmware.secure_boot(target)
    yield "host.shim_validation", firmware.shim_validation(target)
    yield "host.lockdown", _lockdown(target)
    yield "host.module_signatures", _signatures(target)
    yield "host.iommu", _iommu(target)
    yield (
        "host.memory_mib",
        _counted(text(target, "/proc/meminfo"), r"^MemTotal:\s*(\d{1,15}) kB", "/proc/meminfo", 1024),
    )
    yield "host.uptime_s", _counted(text(target, "/proc/uptime"), r"^(\d{1,15})\b", "/proc/uptime", 1)


def _field(found: str | Absent | Unread, pattern: str, source: str) -> Fact:
    """The pattern's group in a text that was read; absent where the text does not have it."""
    if not isinstance(found, str):
        return Unread(found.why)
    match = re.search(pattern, found, re.M)
    return Known(match[1], source) if match else Absent(f"{source} does not say")


def _counted(found: str | Absent | Unread, pattern: str, source: str, divisor: int) -> Fact:
    state = _field(found, pattern, source)
    if isinstance(state, Known):
        return Known(int(str(state.value)) // divisor, source)
    return Unread(state.why)


def _signatures(target: Target) -> Fact:
    """The parameter sig_enforce of the module loader: Y or N."""
    state = line(target, "/sys/module/module/parameters/sig_enforce")
    if isinstance(state, Known):
        return Known(state.value in ("Y", "1"), state.source)
    if isinstance(state, Absent) and there(target, "/sys/module") is True:
        return Absent("this kernel checks no signatures of modules")
    return Unread(state.why)


def _platform(target: Target) -> Fact:
    kind = line(target, "/proc/sys/kernel/ostype")
    if isinstance(kind, Known) and kind.value == "Linux":
        return Known("linux", kind.source)
    if sys.platform in ("win32", "darwin"):
        return Known("windows" if sys.platform == "win32" else "macos", "the platform of the Python that runs this")
    return Known("linux", "the platform of the Python that runs this") if sys.platform == "linux" else Unread(str(kind))


def _command_line(target: Target) -> Fact:
    state = line(target, "/proc/cmdline")
    if isinstance(state, Known):
        return Known(without_secrets(str(state.value)), state.source)
    return Unread(state.why)


def _release(target: Target) -> Iterator[tuple[str, Fact]]:
    """os-release: lines NAME=value, quoted as a shell would."""
    fields: dict[str, str] = {}
    source = "/etc/os-release"
    why: Fact = Unread(f"neither {source} nor /usr/lib/os-release is there")
    for source in ("/etc/os-release", "/usr/lib/os-release"):
        found = text(target, source, 1 << 16)
        if isinstance(found, str):
            fields = dict(filter(None, (_assignment(entry) for entry in found.splitlines())))
            break
        if isinstance(found, Unread):
            why = found
            break

    def said(key: str) -> Fact:
        if fields.get(key):
            return Known(fields[key], source)
        return Absent(f"{source} has no {key}") if fields else why

    yield "host.os", said("PRETTY_NAME")
    yield "host.distribution", said("ID")
    yield "host.distribution_version", said("VERSION_ID")
    yield "host.package_manager", _manager(fields, source) if fields else why


def _assignment(entry: str) -> tuple[str, str] | None:
    key, sign, value = entry.strip().partition("=")
    if not sign or not re.fullmatch(r"[A-Z0-9_]+", key):
        return None
    try:
        return key, "".join(shlex.split(value, comments=False)[:1])
    except ValueError:  # a quote that is not closed
        return key, value.strip("\"'")


def _manager(fields: dict[str, str], source: str) -> Fact:
    for name in (fields.get("ID", ""), *fields.get("ID_LIKE", "").split()):
        if name in _MANAGERS:
            return Known(_MANAGERS[name], f"{source}: {name}")
    return Unread(f"no package manager is known for {fields.get('ID', 'a system without ID')}")


def _arch(target: Target) -> Fact:
    """By the kernel (6.1 and newer), else by the ELF header of the shell."""
    said = line(target, "/proc/sys/kernel/arch")
    if isinstance(said, Known):
        return said
    try:
        header = target.read_bytes("/bin/sh", 20)
    except OSError as error:
        return refusal("/bin/sh", error)
    if len(header) == 20 and header[:4] == b"\x7fELF":
        (machine,) = struct.unpack("<H" if header[5] == 1 else ">H", header[18:20])
        if machine in _MACHINES:
            return Known(_MACHINES[machine], "ELF header of /bin/sh")
    return Unread("/bin/sh is not an ELF file of a known machine")


def _glibc(target: Target) -> Fact:
    """From the banner inside libc.so.6: ``GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.``"""
    tried: list[str] = []
    for folder in ("/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"):
        path = f"{folder}/libc.so.6"
        try:
            library = target.read_bytes(path, 4 << 20)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return refusal(path, error)
        start = library.find(b"GNU C Library")
        match = re.search(rb"version (\d+\.\d+)", library[start : start + 200]) if start >= 0 else None
        if match:
            return Known(match[1].decode(), path)
        tried.append(path)
    musl = [name for name in _listed(target, "/lib") if name.startswith("ld-musl-")]
    if musl:
        return Absent(f"/lib/{musl[0]}: musl instead of the GNU C library")
    return Unread(f"{tried[0]} does not say its version" if tried else "libc.so.6 is in no usual folder")


def _listed(target: Target, folder: str) -> list[str]:
    found = names(target, folder)
    return found if isinstance(found, list) else []


def _lockdown(target: Target) -> Fact:
    """``none [integrity] confidentiality``: the one in brackets holds."""
    path = "/sys/kernel/security/lockdown"
    state = _field(text(target, path, 256), r"\[(\w+)\]", path)
    return Unread(state.why) if isinstance(state, Absent) else state


def _iommu(target: Target) -> Fact:
    units = names(target, "/sys/class/iommu")
    if isinstance(units, list):
        return Known(tuple(units), "/sys/class/iommu")
    if isinstance(units, Absent) and there(target, "/sys/class") is True:
        return Known((), "/sys/class has no iommu")
    return Unread(units.why)
