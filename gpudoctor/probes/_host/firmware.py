"""What the firmware says: its makers' names (a hypervisor's among them), and Secure Boot."""

from __future__ import annotations

import re

from gpudoctor.model.fact import Absent, Fact, Known, Unread
from gpudoctor.probes import _marks
from gpudoctor.probes._reading import line, names, refusal
from gpudoctor.target import Target

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


def virtual_machine(target: Target, processor: str | Absent | Unread) -> Fact:
    """The firmware's names and the processor's flag ``hypervisor``. Either can be switched off by the host."""
    if isinstance(_marks.wsl(target), Known):
        return Known("hyper-v", "WSL runs on it")
    words: list[str] = []
    for name in ("sys_vendor", "product_name", "bios_vendor", "bios_version", "board_vendor"):
        state = line(target, f"/sys/class/dmi/id/{name}")
        words += [str(state.value)] if isinstance(state, Known) else []
    table = " ".join(words).lower()
    flag = _flag(processor)
    for engine, pattern in _HYPERVISORS:
        if re.search(pattern, table):
            if engine in _ALSO_BARE and (flag is False or ".metal" in table):
                return Absent(f"/sys/class/dmi/id: {words[0]}, and /proc/cpuinfo shows no hypervisor")
            return Known(engine, f"/sys/class/dmi/id: {' '.join(words[:2])}")
    below = line(target, "/sys/hypervisor/type")
    if isinstance(below, Known):
        return below
    if flag:
        return Known("hypervisor", "flag hypervisor in /proc/cpuinfo; the firmware does not name it")
    if flag is False or words:
        return Absent("no hypervisor in /sys/class/dmi/id or /proc/cpuinfo")
    return Unread("neither /sys/class/dmi/id nor the processor's flags can be read")


def _flag(processor: str | Absent | Unread) -> bool | None:
    """Whether an x86 processor says that it is virtual; None where it says nothing (ARM)."""
    flags = re.search(r"^flags\s*:(.*)$", processor, re.M) if isinstance(processor, str) else None
    return "hypervisor" in flags[1].split() if flags else None


def secure_boot(target: Target) -> Fact:
    """The variable SecureBoot that UEFI defines."""
    return _efi_flag(target, f"SecureBoot-{_EFI_GLOBAL}", "this firmware has no Secure Boot")


def _efi_flag(target: Target, variable: str, missing: str) -> Fact:
    """The fifth byte of an EFI variable, after four of attributes."""
    folder = "/sys/firmware/efi/efivars"
    if isinstance(_marks.wsl(target), Known):
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
    """Containers hide /sys/firmware under an empty folder, so that its emptiness means nothing."""
    firmware = names(target, "/sys/firmware")
    if not isinstance(firmware, list):
        return Unread(firmware.why)
    if not firmware:
        return Unread("/sys/firmware is empty: hidden, as containers do")
    if "efi" not in firmware:
        return Absent("booted without UEFI")
    variables = names(target, folder)
    if isinstance(variables, list) and variables:
        return Absent(missing)
    return Unread(variables.why if isinstance(variables, Unread) else f"{folder} is not mounted")


def shim_validation(target: Target) -> Fact:
    """shim's MokSBStateRT is 1 where ``mokutil --disable-validation`` was used; it exists only then."""
    state = _efi_flag(target, f"MokSBStateRT-{_SHIM}", "")
    if isinstance(state, Known):
        return Known(not state.value, state.source)
    if isinstance(state, Absent) and not state.why:
        return Known(True, "no EFI variable MokSBStateRT")
    return state
