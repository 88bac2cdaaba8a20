"""What lies on the disk for the NVIDIA driver: modules by kernel, headers, libraries; what DKMS and akmods built."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.core.fact import Absent, Fact, Known, Unread, known, value_of
from gpudoctor.core.pattern import pattern
from gpudoctor.probes._binaries import MalformedError, opened
from gpudoctor.probes._reading import as_unread, names, names_in, path_exists, resolve_path, text
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
    """Path of the nvidia module for that kernel; absent if its folder has none or does not exist."""
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
                if path_exists(target, path) is not False:
                    return Known(path, f"{folder}/modules.dep")
        found = _search_module(target, folder)
        if found:
            return found
        if isinstance(listed, Unread):
            return listed
        why = Absent(f"no nvidia module in {folder}")
    return why


def _search_module(target: Target, folder: str) -> Known | Unread | None:
    """The module in the usual folders, where modules.dep does not list it; None if there is none."""
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
    """Releases of at most 8 other kernels that have the nvidia module."""
    kernels = names(target, _ROOTS[0])
    if not isinstance(kernels, list):
        return as_unread(kernels)
    others = [name for name in reversed(kernels) if name != running][:_KERNELS]
    return Known(tuple(name for name in others if known(module_of(target, name))), _ROOTS[0])


def module_version(target: Target, module: str, kernel: str) -> Fact:
    """The module's version by its section .modinfo; a compressed one's by the DKMS folder it was built in."""
    why = f"{module} is compressed; `modinfo -F version nvidia` prints its version"
    if module.endswith(".ko"):
        version = _modinfo(target, module, "version")
        if version:
            return Known(version, f"{module}: .modinfo")
        why = f"{module} does not say its version"
    if "/dkms/" in module and (built := _dkms_version(target, kernel)):
        return built
    return Unread(why)


def _modinfo(target: Target, module: str, key: str) -> str:
    """The value of ``key=value`` in the module's section .modinfo; empty if it cannot be read."""
    try:
        with opened(target.path(module)) as elf:
            section = next((section for section in elf.sections() if section.name == ".modinfo"), None)
            section_bytes = elf.read(section.offset, min(section.size, 1 << 20)) if section else b""
    except (OSError, MalformedError):
        return ""
    match = re.search(rb"(?:^|\0)" + key.encode() + rb"=([^\0]*)", section_bytes)
    return match[1].decode("utf-8", "replace") if match else ""


def driver_libraries(target: Target) -> tuple[dict[str, str], list[str], Unread | None]:
    """Path to version of the driver's libraries, paths of empty ones, and why a folder could not be read (or None).

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
        place = resolve_path(target, folder) if matches else ""
        if not matches or place in seen:
            continue
        seen.add(place)
        linked = resolve_path(target, f"{folder}/libcuda.so.1").rpartition("/")[2]
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


def kernel_headers(target: Target, kernel: str, hidden: str) -> Fact:
    """Whether headers of that kernel are installed, by the link ``build``, which dangles without them."""
    tried = [f"{root}/{kernel}/build" for root in _ROOTS[:2]]
    for path in tried:
        here = path_exists(target, path)
        if isinstance(here, Unread):
            return here
        if here:
            return Known(True, path)
    return Unread(hidden) if hidden else Known(False, f"no {tried[0]}")


# ---- Modules that are built on the machine itself, by DKMS or akmods, and why a build failed ----

_DKMS = "/var/lib/dkms"
_AKMODS = "/var/cache/akmods/nvidia"
_DKMS_PACKAGE = pattern(r"nvidia(?:-(?:current|open|tesla|legacy|srv|\d+\w*))*")
"""The driver's name in DKMS; Debian says nvidia-current. nvidia-fs beside it is another module."""

_BUILD_ERROR = pattern(r"^.*(?:\berror:|\bError [1-9]|\*\*\* |No such file or directory).*$", re.M | re.I)


def _dkms_sources(target: Target) -> list[str] | Unread:
    """Folders ``<package>/<version>`` of each driver whose source DKMS keeps, by name, the newest last."""
    packages = names(target, _DKMS)
    out: list[str] = []
    for package in packages if isinstance(packages, list) else ():
        if not _DKMS_PACKAGE.fullmatch(package):
            continue
        found = names(target, f"{_DKMS}/{package}")
        if isinstance(found, Unread):
            return found
        out += [f"{_DKMS}/{package}/{name}" for name in found if name[:1].isdigit()] if isinstance(found, list) else []
    return packages if isinstance(packages, Unread) else out


def _dkms_version(target: Target, kernel: str) -> Known | None:
    """The driver version that DKMS has built for that kernel; None if it has built none."""
    found = _dkms_sources(target)
    for folder in found if isinstance(found, list) else ():
        if path_exists(target, f"{folder}/{kernel}") is True:
            return Known(folder.rpartition("/")[2], f"{folder}/{kernel}")
    return None


def dkms_builds(target: Target, kernel: str, hidden: str) -> Iterator[tuple[str, Fact]]:
    """The DKMS state (installed, built or added) and the first error of a failed build for that kernel."""
    sources = _dkms_sources(target)
    state: Fact
    error: Fact
    if isinstance(sources, Unread):
        state = error = sources
    elif hidden and not sources:
        state = error = Unread(hidden)
    else:
        state = _dkms_state(target, sources, kernel)
        failed = value_of(state) == "added"
        log = f"{sources[-1]}/build/make.log" if failed else _akmods_log(target, kernel)
        error = _first_error(target, log, kernel) if log else Absent("no build for the running kernel has failed")
    yield "driver.dkms", state
    yield "driver.dkms_error", error


def _dkms_state(target: Target, sources: list[str], kernel: str) -> Fact:
    """installed if the built module is in the kernel's folder, else built, else added; absent without a source."""
    if not sources:
        return Absent(f"no driver in {_DKMS}")
    state = Known("added", sources[-1])
    for folder in sources:
        if path_exists(target, f"{folder}/{kernel}") is True:
            marks = names(target, folder.rpartition("/")[0])
            linked = isinstance(marks, list) and any(name.startswith(f"kernel-{kernel}-") for name in marks)
            state = Known("installed" if linked else "built", f"{folder}/{kernel}")
    return state


def _akmods_log(target: Target, kernel: str) -> str:
    """Path of akmods' log of a failed build, ``<version>-for-<kernel>.failed.log``; empty if there is none."""
    logs = [name for name in names_in(target, _AKMODS) if name.endswith(f"-for-{kernel}.failed.log")]
    return f"{_AKMODS}/{logs[-1]}" if logs else ""


def _first_error(target: Target, path: str, kernel: str) -> Fact:
    """The first error line in a build log; absent if it has none or is of another kernel.

    The first line of DKMS's log names the kernel; of akmods' log the file name does.
    """
    log = text(target, path, 8 << 20)
    if not isinstance(log, str):
        return log
    if kernel not in log.partition("\n")[0] and kernel not in path:
        return Absent(f"{path} is of another kernel's build")
    match = _BUILD_ERROR.search(log)
    return Known(match[0].strip()[:300], path) if match else Absent(f"{path} shows no error")
