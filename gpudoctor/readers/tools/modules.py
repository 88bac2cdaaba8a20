"""Kernel modules: lsmod, modinfo, modprobe's complaints, modprobe.d and the kernel's command line."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._system import kernel
from gpudoctor.readers._values import driver_version

EXACT = 6

_MODULE = Pattern(r"(nvidia|nvidia_uvm|nvidia_peermem|nv_peer_mem|nouveau|nova_core)\s+\d+\s+-?\d+(?:\s|$)")
_MODULES = {
    "nvidia": "driver.module_loaded",
    "nvidia_uvm": "driver.uvm_loaded",
    "nouveau": "driver.nouveau_loaded",
    "nova_core": "driver.nova_loaded",
    "nvidia_peermem": "driver.peermem_loaded",
    "nv_peer_mem": "driver.peermem_loaded",
}
_FILE = Pattern(r"filename:\s+/lib/modules/([^/]{1,120})/.{0,200}/?nvidia(?:-current)?\.ko")
_VERSION = Pattern(r"version:\s+(\d{3}\.\d+(?:\.\d+)?)$")
_LICENSE = Pattern(r"license:\s+(NVIDIA|Dual MIT/GPL)")
_NOT_FOUND = Pattern(r"Module nvidia(?:-current)? not found(?: in directory /lib/modules/(\S+))?")
_REFUSED = Pattern(r"could not insert '?(nvidia\w*)'?: (\S.*)")
_BLACKLIST = Pattern(r"^\s*blacklist\s+(nouveau|nvidia)\s*$")
_ON_COMMAND_LINE = Pattern(
    r"(?:modprobe\.blacklist|rd\.driver\.blacklist|module_blacklist)=\S{0,200}\b(nouveau|nvidia)\b"
)
_COMMAND_LINE = Pattern(r"(?:Kernel command line:\s*|^\s*)(BOOT_IMAGE=\S.*)")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Which modules are loaded, on the disk, refused or blacklisted."""
    low = paste.lower
    if any(word in low for word in ("nvidia", "nouveau", "nova_core")):
        yield from _loaded(paste)
    if "modinfo" in low or "filename:" in low:
        yield from _on_disk(paste)
    if "module nvidia" in low or "could not insert" in low:
        yield from _refused(paste)
    for index, _ in paste.asked("cat /sys/module/nvidia/version"):
        for after, line in paste.output(index, 1):
            if version := driver_version(line):
                yield "driver.module_version", Known(version, paste.use(after))
    if "blacklist" in low or "boot_image=" in low:
        yield from _blacklists(paste)


def _loaded(paste: Paste) -> Iterator[tuple[str, Fact]]:
    found: dict[str, str] = {}
    for index, line in enumerate(paste.bare):
        if line[:1] == "n" and (match := _MODULE.match(line)):
            found.setdefault(match.group(1), paste.use(index))
    for module, source in found.items():
        yield _MODULES[module], Known(True, source)
    for index, command in paste.asked("lsmod"):
        if "nvidia" in command or "|" not in command:
            shown = [line for _, line in paste.output(index) if line.strip()]
            if shown and "nvidia" not in found and all(len(line.split()) >= 3 for line in shown[:2]):
                yield "driver.module_loaded", Known(False, paste.use(index))


def _on_disk(paste: Paste) -> Iterator[tuple[str, Fact]]:
    for index, line in paste.having("/lib/modules/"):
        if not (match := _FILE.search(line)):
            continue
        source = paste.use(index)
        yield "driver.installed", Known(True, source)
        for after in range(index + 1, min(index + 12, len(paste.bare))):
            below = paste.bare[after].strip()
            if version := _VERSION.match(below):
                yield "driver.module_disk_version", Known(version.group(1), paste.use(after))
            elif told := _LICENSE.match(below):
                kind = "proprietary" if told.group(1) == "NVIDIA" else "open"
                yield "driver.module_kind", Known(kind, paste.use(after))
        if match.group(1) in paste.text.replace(line, ""):
            yield "driver.module_on_disk", Known(True, source)


def _refused(paste: Paste) -> Iterator[tuple[str, Fact]]:
    for index, line in paste.having("module nvidia"):
        if match := _NOT_FOUND.search(line):
            source = paste.use(index)
            yield "driver.module_on_disk", Known(False, source)
            yield "driver.module_loaded", Known(False, source)
            if match.group(1):
                yield from kernel(match.group(1).rstrip(".'"), source)
    for index, line in paste.having("could not insert"):
        if match := _REFUSED.search(line):
            source = paste.use(index)
            name = match.group(1).replace("current_", "")
            yield "driver.uvm_loaded" if name == "nvidia_uvm" else "driver.module_loaded", Known(False, source)
            if "key was rejected" in match.group(2).lower():
                yield "driver.module_on_disk", Known(True, source)


def _blacklists(paste: Paste) -> Iterator[tuple[str, Fact]]:
    for index, line in enumerate(paste.bare):
        source = f"line {paste.numbers[index]}"
        if told := _BLACKLIST.match(line):
            yield f"driver.{told.group(1)}_blacklisted", Known(True, paste.use(index))
        for module in _ON_COMMAND_LINE.finditer(line):
            yield f"driver.{module.group(1)}_blacklisted", Known(True, source)
        if booted := _COMMAND_LINE.search(line):
            yield "host.kernel_command_line", Known(booted.group(1).strip(), paste.use(index))
