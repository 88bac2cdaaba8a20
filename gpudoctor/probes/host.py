"""The operating system, and what kind of machine it runs on: bare, virtual, container, WSL."""

from __future__ import annotations

import re
import shlex
import struct
import sys
from collections.abc import Iterator

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Absent, Fact, Known, Rows, Unread, known
from gpudoctor.core.secrets import without_secrets
from gpudoctor.probes import _machine_kind
from gpudoctor.probes._reading import as_unread, line, names, names_in, path_exists, refusal, text
from gpudoctor.target import Target

ONLY = "linux"
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
    fact("host.bios", "text", "version of the machine's firmware (BIOS or UEFI)"),
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
    """Yields the ``host`` facts, from files of /proc, /sys and /etc; nothing is run."""
    yield "host.platform", _platform(target)
    yield from _distribution_facts(target)
    yield "host.kernel", _machine_kind.kernel(target)
    yield "host.kernel_command_line", _command_line(target)
    yield "host.arch", _arch(target)
    yield "host.glibc", _glibc(target)
    yield "host.container", _machine_kind.container(target)
    yield "host.wsl", _machine_kind.wsl(target)
    yield "host.jetson", _machine_kind.jetson_model(target)
    processor = text(target, "/proc/cpuinfo", 8192)
    yield "host.cpu_vendor", _field(processor, r"^vendor_id\s*:\s*(\S+)", "/proc/cpuinfo")
    yield "host.virtual_machine", _virtual_machine(target, processor)
    yield "host.secure_boot", _efi_flag(target, f"SecureBoot-{_EFI_GLOBAL}", "this firmware has no Secure Boot")
    yield "host.shim_validation", _shim_validation(target)
    yield "host.lockdown", _lockdown(target)
    yield "host.module_signatures", _module_signatures(target)
    yield "host.iommu", _iommu_units(target)
    yield "host.memory_mib", _number_field(target, "/proc/meminfo", r"^MemTotal:\s*(\d{1,15}) kB", 1024)
    bios = line(target, "/sys/class/dmi/id/bios_version")
    yield "host.bios", as_unread(bios) if isinstance(bios, Absent) and path_exists(target, "/sys") is not True else bios
    yield "host.uptime_s", _number_field(target, "/proc/uptime", r"^(\d{1,15})\b", 1)


def _field(content: str | Absent | Unread, pattern: str, source: str) -> Fact:
    """Group 1 of the pattern in a text that was read; absent if the text does not match, unread if it was not read."""
    if not isinstance(content, str):
        return as_unread(content)
    match = re.search(pattern, content, re.M)
    return Known(match[1], source) if match else Absent(f"{source} does not say")


def _number_field(target: Target, path: str, pattern: str, divisor: int) -> Fact:
    """Group 1 of the pattern in that file, a whole number, floor-divided by `divisor`; unread if the file cannot be
    read or nothing in it matches.
    """
    state = _field(text(target, path), pattern, path)
    if isinstance(state, (Absent, Unread)):
        return as_unread(state)
    return Known(int(str(state.value)) // divisor, path)


def _module_signatures(target: Target) -> Fact:
    """Whether the kernel enforces module signatures (parameter sig_enforce); absent if it checks none, else unread."""
    state = line(target, "/sys/module/module/parameters/sig_enforce")
    if isinstance(state, Absent) and path_exists(target, "/sys/module") is True:
        return Absent("this kernel checks no signatures of modules")
    if isinstance(state, (Absent, Unread)):
        return as_unread(state)
    return Known(state.value in ("Y", "1"), state.source)


def _platform(target: Target) -> Fact:
    """linux, windows or macos, by the kernel's ostype, else by the Python that runs this; unread on other systems."""
    kind = line(target, "/proc/sys/kernel/ostype")
    if (fact := known(kind)) and fact.value == "Linux":
        return Known("linux", fact.source)
    if sys.platform in ("win32", "darwin"):
        return Known("windows" if sys.platform == "win32" else "macos", "the platform of the Python that runs this")
    return Known("linux", "the platform of the Python that runs this") if sys.platform == "linux" else Unread(str(kind))


def _command_line(target: Target) -> Fact:
    """The kernel's command line without secrets; unread if it cannot be read."""
    state = line(target, "/proc/cmdline")
    if isinstance(state, (Absent, Unread)):
        return as_unread(state)
    return Known(without_secrets(str(state.value)), state.source)


def _distribution_facts(target: Target) -> Iterator[tuple[str, Fact]]:
    """Yields host.os, distribution, distribution_version and package_manager from os-release.

    Unread if it cannot be read. A field that the file lacks is absent.
    """
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

    def field_fact(key: str) -> Fact:
        """The value of that key of os-release; absent if the file lacks it, unread without the file."""
        if fields.get(key):
            return Known(fields[key], source)
        return Absent(f"{source} has no {key}") if fields else why

    yield "host.os", field_fact("PRETTY_NAME")
    yield "host.distribution", field_fact("ID")
    yield "host.distribution_version", field_fact("VERSION_ID")
    yield "host.package_manager", _package_manager(fields, source) if fields else why


def _assignment(entry: str) -> tuple[str, str] | None:
    """Key and unquoted value of a line ``NAME=value``; None for any other line."""
    key, sign, value = entry.strip().partition("=")
    if not sign or not re.fullmatch(r"[A-Z0-9_]+", key):
        return None
    try:
        return key, "".join(shlex.split(value, comments=False)[:1])
    except ValueError:  # a quote that is not closed
        return key, value.strip("\"'")


def _package_manager(fields: dict[str, str], source: str) -> Fact:
    """The package manager by ID, else by ID_LIKE of os-release (`fields`); unread if neither is known."""
    for name in (fields.get("ID", ""), *fields.get("ID_LIKE", "").split()):
        if name in _MANAGERS:
            return Known(_MANAGERS[name], f"{source}: {name}")
    return Unread(f"no package manager is known for {fields.get('ID', 'a system without ID')}")


def _arch(target: Target) -> Fact:
    """The machine architecture by the kernel (6.1 and newer), else by /bin/sh's ELF header; else unread."""
    if arch := known(line(target, "/proc/sys/kernel/arch")):
        return arch
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
    """glibc's version from the banner in libc.so.6; absent on musl, unread if the library is not found or does not say.

    ``GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.``
    """
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
    musl = [name for name in names_in(target, "/lib") if name.startswith("ld-musl-")]
    if musl:
        return Absent(f"/lib/{musl[0]}: musl instead of the GNU C library")
    return Unread(f"{tried[0]} does not say its version" if tried else "libc.so.6 is in no usual folder")


def _lockdown(target: Target) -> Fact:
    """The kernel lockdown mode (none, integrity, confidentiality), in brackets in its file; else unread."""
    path = "/sys/kernel/security/lockdown"
    state = _field(text(target, path, 256), r"\[(\w+)\]", path)
    return as_unread(state) if isinstance(state, Absent) else state


def _iommu_units(target: Target) -> Fact:
    """Names of the IOMMU units in /sys/class/iommu; an empty list if none is on, unread if /sys cannot be read."""
    units = names(target, "/sys/class/iommu")
    if isinstance(units, list):
        return Known(tuple(units), "/sys/class/iommu")
    if isinstance(units, Absent) and path_exists(target, "/sys/class") is True:
        return Known((), "/sys/class has no iommu")
    return as_unread(units)


# ---- What the firmware says: its makers' names (a hypervisor's among them), and Secure Boot ----

_EFI_GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
_SHIM = "605dab50-e046-4300-abb6-3dd810dd8b23"

_HYPERVISORS = (
    ("amazon", r"amazon ec2|\.amazon"),
    ("google", r"google"),
    ("vmware", r"vmware"),
    ("hyper-v", r"microsoft corporation.*virtual machine"),
    ("virtualbox", r"virtualbox|innotek"),
    ("xen", r"\bxen\b|hvm domu"),
    ("parallels", r"parallels"),
    ("kvm", r"kvm|qemu|openstack|ovirt|rhev|nutanix|alibaba cloud|cloudstack|bochs|proxmox|bhyve"),
)
"""Words of the firmware's tables (vendor, product, BIOS), most telling first."""

_ALSO_BARE = ("amazon", "google")
"""Clouds that rent bare machines under the same vendor name."""


def _virtual_machine(target: Target, processor: str | Absent | Unread) -> Fact:
    """The hypervisor by the firmware's names and the CPU flag (which the host can hide); absent on bare metal.

    ``hypervisor`` if only the flag shows one; unread if neither can be read.
    """
    if known(_machine_kind.wsl(target)):
        return Known("hyper-v", "WSL runs on it")
    product: list[str] = []
    for name in ("sys_vendor", "product_name", "bios_vendor", "bios_version", "board_vendor"):
        state = known(line(target, f"/sys/class/dmi/id/{name}"))
        product += [str(state.value)] if state else []
    table = " ".join(product).lower()
    flags = re.search(r"^flags\s*:(.*)$", processor, re.M) if isinstance(processor, str) else None
    flag = "hypervisor" in flags[1].split() if flags else None
    for engine, pattern in _HYPERVISORS:
        if re.search(pattern, table):
            if engine in _ALSO_BARE and (flag is False or ".metal" in table):
                return Absent(f"/sys/class/dmi/id: {product[0]}, and /proc/cpuinfo shows no hypervisor")
            return Known(engine, f"/sys/class/dmi/id: {' '.join(product[:2])}")
    if below := known(line(target, "/sys/hypervisor/type")):
        return below
    if flag:
        return Known("hypervisor", "flag hypervisor in /proc/cpuinfo; the firmware does not name it")
    if flag is False or product:
        return Absent("no hypervisor in /sys/class/dmi/id or /proc/cpuinfo")
    return Unread("neither /sys/class/dmi/id nor the processor's flags can be read")


def _efi_flag(target: Target, variable: str, missing: str) -> Fact:
    """Whether an EFI variable is 1 (its fifth byte, after four of attributes); absent in WSL and without UEFI.

    If it is not there: absent, with the reason `missing`, where other variables are; unread if they are hidden.
    """
    folder = "/sys/firmware/efi/efivars"
    if known(_machine_kind.wsl(target)):
        return Absent("WSL boots without UEFI")
    path = f"{folder}/{variable}"
    try:
        content = target.read_bytes(path, 16)
    except (FileNotFoundError, NotADirectoryError):
        return _no_variable(target, folder, missing)
    except OSError as error:
        return refusal(path, error)
    return Known(content[4] == 1, path) if len(content) > 4 else Unread(f"{path} is cut short")


def _no_variable(target: Target, folder: str, missing: str) -> Fact:
    """Why an EFI variable is not there: absent with the reason `missing` where others are, absent with its own without
    UEFI; unread if efivars is hidden or not mounted.

    Containers hide /sys/firmware under an empty folder, so that its emptiness means nothing.
    """
    firmware = names(target, "/sys/firmware")
    if not isinstance(firmware, list):
        return as_unread(firmware)
    if not firmware:
        return Unread("/sys/firmware is empty: hidden, as containers do")
    if "efi" not in firmware:
        return Absent("booted without UEFI")
    variables = names(target, folder)
    if isinstance(variables, list) and variables:
        return Absent(missing)
    return Unread(variables.why if isinstance(variables, Unread) else f"{folder} is not mounted")


def _shim_validation(target: Target) -> Fact:
    """Whether the boot loader shim checks signatures; off if ``mokutil --disable-validation`` set MokSBStateRT.

    That variable does not exist otherwise. Absent without UEFI, unread if variables are hidden.
    """
    state = _efi_flag(target, f"MokSBStateRT-{_SHIM}", "")
    if flag := known(state):
        return Known(not flag.value, flag.source)
    if isinstance(state, Absent) and not state.why:
        return Known(True, "no EFI variable MokSBStateRT")
    return state
