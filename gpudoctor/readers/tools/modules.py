"""Kernel modules: lsmod, modinfo, modprobe's complaints, modprobe.d and the kernel's command line."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.readers._machine import kernel_facts
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import driver_version

EXACT = 6

_MODULE = Pattern(r"(nvidia|nvidia_uvm|nvidia_peermem|nv_peer_mem|nouveau|nova_core)\s+\d+\s+-?\d+(?:\s|$)")
_ON_TOP = Pattern(r"nvidia_(?:uvm|modeset|drm|peermem)\s+\d+\s+-?\d+(?:\s|$)")
"""Modules that cannot be loaded without nvidia."""
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
    """Which kernel modules are loaded, on disk, refused or blacklisted, and the kernel's command line."""
    low = paste.lower
    if any(word in low for word in ("nvidia", "nouveau", "nova_core")):
        yield from _loaded_modules(paste)
    if "modinfo" in low or "filename:" in low:
        yield from _module_on_disk(paste)
    if "module nvidia" in low or "could not insert" in low:
        yield from _load_errors(paste)
    for index, _ in paste.commands_starting("cat /sys/module/nvidia/version"):
        for after, line in paste.output(index, 1):
            if version := driver_version(line):
                yield "driver.module_version", Known(version, paste.use(after))
    if "blacklist" in low or "boot_image=" in low:
        yield from _blacklists(paste)


def _loaded_modules(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """True for each module in lsmod; driver.module_loaded is False where lsmod was filtered and lists no nvidia."""
    sources: dict[str, str] = {}
    for index, line in enumerate(paste.bare):
        if line[:1] == "n" and (match := _MODULE.match(line)):
            sources.setdefault(match.group(1), paste.use(index))
        if line[:1] == "n" and _ON_TOP.match(line):
            sources.setdefault("nvidia", paste.use(index))
    for module, source in sources.items():
        yield _MODULES[module], Known(True, source)
    for index, command in paste.commands_starting("lsmod"):
        if "nvidia" in command or "|" not in command:
            output = [line for _, line in paste.output(index) if line.strip()]
            if output and "nvidia" not in sources and all(len(line.split()) >= 3 for line in output[:2]):
                yield "driver.module_loaded", Known(False, paste.use(index))


def _module_on_disk(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Version and kind of the module file from modinfo; on disk where the same kernel release is in the text."""
    for index, line in paste.having("/lib/modules/"):
        if not (match := _FILE.search(line)):
            continue
        source = paste.use(index)
        yield "driver.installed", Known(True, source)
        for after in range(index + 1, min(index + 12, len(paste.bare))):
            below = paste.bare[after].strip()
            if version := _VERSION.match(below):
                yield "driver.module_disk_version", Known(version.group(1), paste.use(after))
            elif license_line := _LICENSE.match(below):
                kind = "proprietary" if license_line.group(1) == "NVIDIA" else "open"
                yield "driver.module_kind", Known(kind, paste.use(after))
        if match.group(1) in paste.text.replace(line, ""):
            yield "driver.module_on_disk", Known(True, source)


def _load_errors(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Facts from modprobe's ``Module nvidia not found`` and ``could not insert``."""
    for index, line in paste.having("module nvidia"):
        if match := _NOT_FOUND.search(line):
            source = paste.use(index)
            yield "driver.module_on_disk", Known(False, source)
            yield "driver.module_loaded", Known(False, source)
            if match.group(1):
                yield from kernel_facts(match.group(1).rstrip(".'"), source)
    for index, line in paste.having("could not insert"):
        if match := _REFUSED.search(line):
            source = paste.use(index)
            name = match.group(1).replace("current_", "")
            yield "driver.uvm_loaded" if name == "nvidia_uvm" else "driver.module_loaded", Known(False, source)
            if "key was rejected" in match.group(2).lower():
                yield "driver.module_on_disk", Known(True, source)


def _blacklists(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Blacklisted modules in modprobe.d and on the kernel's command line, and that command line."""
    for index, line in enumerate(paste.bare):
        source = f"line {paste.numbers[index]}"
        if blacklist := _BLACKLIST.match(line):
            yield f"driver.{blacklist.group(1)}_blacklisted", Known(True, paste.use(index))
        for module in _ON_COMMAND_LINE.finditer(line):
            yield f"driver.{module.group(1)}_blacklisted", Known(True, source)
        if command_line := _COMMAND_LINE.search(line):
            yield "host.kernel_command_line", Known(command_line.group(1).strip(), paste.use(index))
