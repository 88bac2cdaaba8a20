"""What lies on the disk for the NVIDIA driver: modules by kernel, headers, libraries."""

from __future__ import annotations

import re
import struct

from gpudoctor.model.fact import Absent, Fact, Known, Unread
from gpudoctor.model.pattern import pattern
from gpudoctor.probes._driver.dkms import version_built
from gpudoctor.probes._reading import names, real, text, there
from gpudoctor.target import Target

MODULE = pattern(r"nvidia(?:-current|-tesla(?:-\d+)?|-legacy-\d+xx|-\d{3})?(?:-open)?\.ko(?:\.(?:zst|xz|gz))?")
"""The main module's file; Debian names it nvidia-current.ko and the like, and aliases it."""

_ROOTS = ("/lib/modules", "/usr/lib/modules", "/run/booted-system/kernel-modules/lib/modules")
_FOLDERS = (
    "updates/dkms",
    "updates",
    "updates/drivers/video",
    "extra",
    "extra/nvidia",
    "weak-updates/nvidia",
    "extramodules",
    "kernel/drivers/video",
    "kernel/drivers/video/nvidia",
    "misc",
)
"""Where installers put the module; asked one by one where modules.dep does not list it (depmod was not run)."""

_KERNELS = 8
"""Most kernels that are looked through for a module that the running kernel lacks."""

LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia",
    "/usr/lib64/nvidia",
    "/usr/lib/nvidia",
    "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "/home/kubernetes/bin/nvidia/lib64",
)
_LIBRARY = pattern(r"(?:libcuda|libnvidia-ml)\.so\.(\d{2,4}\.\d+(?:\.\d+)?)")


def module_of(target: Target, kernel: str) -> Fact:
    """Path of the nvidia module for that kernel; absent where its folder has none, or there is no such folder."""
    why: Absent | Unread = Absent(f"no {_ROOTS[0]}/{kernel}")
    for root in _ROOTS:
        folder = f"{root}/{kernel}"
        here = names(target, folder)
        if isinstance(here, Unread):
            return here
        if not isinstance(here, list):
            continue
        listed = text(target, f"{folder}/modules.dep", 8 << 20)
        if isinstance(listed, str):
            match = re.search(rf"^((?:[^:\n]*/)?{MODULE.pattern}):", listed, re.M)
            if match:
                path = match[1] if match[1].startswith("/") else f"{folder}/{match[1]}"
                if there(target, path) is not False:
                    return Known(path, f"{folder}/modules.dep")
        found = _searched(target, folder)
        if found:
            return found
        if isinstance(listed, Unread):
            return listed
        why = Absent(f"no nvidia module in {folder}")
    return why


def _searched(target: Target, folder: str) -> Known | Unread | None:
    """The module where modules.dep does not list it."""
    kernel = names(target, f"{folder}/kernel")
    more = [f"kernel/{name}" for name in kernel if name.startswith("nvidia-")] if isinstance(kernel, list) else []
    trouble = kernel if isinstance(kernel, Unread) else None
    for inside in (*_FOLDERS, *more):
        found = names(target, f"{folder}/{inside}")
        if isinstance(found, Unread):
            trouble = trouble or found
        for name in found if isinstance(found, list) else ():
            if MODULE.fullmatch(name):
                return Known(f"{folder}/{inside}/{name}", f"{folder}/{inside}")
    return trouble


def other_kernels(target: Target, running: str) -> Fact:
    """Kernels other than the running one that do have the module."""
    kernels = names(target, _ROOTS[0])
    if not isinstance(kernels, list):
        return Unread(kernels.why)
    others = [name for name in reversed(kernels) if name != running][:_KERNELS]
    return Known(tuple(name for name in others if isinstance(module_of(target, name), Known)), _ROOTS[0])


def module_version(target: Target, module: str, kernel: str) -> Fact:
    """From the module's own section .modinfo; a compressed one is named by the DKMS folder that it was built in."""
    why = f"{module} is compressed; `modinfo -F version nvidia` prints its version"
    if module.endswith(".ko"):
        version = _modinfo(target, module, "version")
        if version:
            return Known(version, f"{module}: .modinfo")
        why = f"{module} does not say its version"
    if "/dkms/" in module and (built := version_built(target, kernel)):
        return built
    return Unread(why)


def _modinfo(target: Target, module: str, key: str) -> str:
    """One ``key=value`` of a 64-bit little-endian ELF file's section .modinfo; empty where it cannot be found."""
    try:
        with target.path(module).open("rb") as file:
            header = file.read(64)
            if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
                return ""
            (table,) = struct.unpack_from("<Q", header, 40)
            size, count, strings = struct.unpack_from("<HHH", header, 58)
            file.seek(table)
            raw = file.read(size * count)
            sections = [struct.unpack_from("<I20xQQ", raw, at * size) for at in range(count)]
            file.seek(sections[strings][1])
            labels = file.read(min(sections[strings][2], 1 << 20))
            for label, offset, length in sections:
                if labels[label : label + 9] == b".modinfo\0":
                    file.seek(offset)
                    match = re.search(rb"(?:^|\0)" + key.encode() + rb"=([^\0]*)", file.read(min(length, 1 << 20)))
                    return match[1].decode("utf-8", "replace") if match else ""
    except (OSError, struct.error, IndexError, ValueError, OverflowError):
        return ""
    return ""


def libraries(target: Target) -> tuple[dict[str, str], list[str], Unread | None]:
    """Versions of the driver's libraries by path, those of empty files, and what could not be read.

    In each folder the libcuda that its link names comes first.
    """
    versions: dict[str, str] = {}
    empty: list[str] = []
    trouble: Unread | None = None
    seen: set[str] = set()
    for folder in LIBRARY_FOLDERS:
        found = names(target, folder)
        if isinstance(found, Unread):
            trouble = trouble or found
        matches = [match for name in found if (match := _LIBRARY.fullmatch(name))] if isinstance(found, list) else []
        place = real(target, folder) if matches else ""
        if not matches or place in seen:
            continue
        seen.add(place)
        linked = real(target, f"{folder}/libcuda.so.1").rpartition("/")[2]
        for match in sorted(matches, key=lambda match: match[0] != linked):
            path = f"{folder}/{match[0]}"
            try:
                size = target.path(path).stat().st_size
            except OSError:
                continue
            if size:
                versions[path] = match[1]
            else:
                empty.append(path)
    return versions, empty, trouble


def headers(target: Target, kernel: str, hidden: str) -> Fact:
    """``build`` is a link to the headers; it dangles where their package is not installed."""
    tried = [f"{root}/{kernel}/build" for root in _ROOTS[:2]]
    for path in tried:
        here = there(target, path)
        if isinstance(here, Unread):
            return here
        if here:
            return Known(True, path)
    return Unread(hidden) if hidden else Known(False, f"no {tried[0]}")
