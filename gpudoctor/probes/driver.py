"""The NVIDIA kernel module and its user-space libraries, from procfs, sysfs and the disk.

Inside a container the modules, blacklists and services of the host cannot be seen: their facts are unread there,
never "not installed". In WSL there is no Linux kernel module at all: those facts are absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread, known, text_of, value_of
from gpudoctor.probes import _machine_kind
from gpudoctor.probes._driver_files import (
    dkms_builds,
    driver_libraries,
    kernel_headers,
    module_path,
    module_version,
    other_kernels,
    persistenced,
)
from gpudoctor.probes._pci_bus import BUS, unread_if_asleep
from gpudoctor.probes._reading import as_unread, line, names, names_in, number, path_exists, text, usable
from gpudoctor.target import Target

ONLY = "linux"
FACTS = (
    fact(
        "driver.version", "version", "the driver's version: of the loaded module, or as NVML or a pasted tool prints it"
    ),
    fact("driver.cuda_version", "version", "newest CUDA that the driver serves, as nvidia-smi's banner prints it"),
    fact("driver.installed", "bool", "whether any NVIDIA driver files are on the disk: module, library or nvidia-smi"),
    fact("driver.module_loaded", "bool", "whether the kernel module nvidia is loaded"),
    fact("driver.module_version", "version", "version of the loaded kernel module"),
    fact("driver.module_kind", "text", "open or proprietary kernel module"),
    fact("driver.module_on_disk", "bool", "whether there is an nvidia module for the running kernel"),
    fact("driver.module_disk_version", "version", "version of the module on disk for the running kernel"),
    fact("driver.module_kernels", "list", "other kernels that have an nvidia module, where the running one has none"),
    fact("driver.library_version", "version", "version of libcuda or libnvidia-ml on disk, from the file name"),
    fact(
        "driver.library_versions", "list", "every version of libcuda and libnvidia-ml on disk; more than one is a mix"
    ),
    fact(
        "driver.libraries_empty", "list", "driver libraries that are empty files, as a committed container leaves them"
    ),
    fact("driver.nouveau_loaded", "bool", "whether the kernel module nouveau is loaded"),
    fact("driver.nova_loaded", "bool", "whether nova_core is loaded"),
    fact("driver.nouveau_blacklisted", "bool", "whether modprobe.d or the kernel command line blacklists nouveau"),
    fact("driver.nvidia_blacklisted", "bool", "whether modprobe.d or the kernel command line blacklists nvidia"),
    fact(
        "driver.dkms",
        "text",
        "what DKMS says of nvidia for the running kernel: installed, built, added; absent without DKMS source",
    ),
    fact("driver.dkms_error", "text", "first error of a failed build by DKMS or akmods for the running kernel"),
    fact("driver.headers", "bool", "whether headers of the running kernel are installed"),
    fact("driver.uvm_loaded", "bool", "whether the kernel module nvidia_uvm is loaded"),
    fact("driver.peermem_loaded", "bool", "whether nvidia_peermem (or nv_peer_mem) is loaded, for GPUDirect RDMA"),
    fact("driver.bound_count", "int", "GPUs that the loaded module has taken, from /proc/driver/nvidia/gpus"),
    fact("driver.excluded", "list", "PCI addresses of GPUs that the driver was told to leave out"),
    fact("driver.gsp_firmware", "version", "version of the GSP firmware in use; absent where GPUs run without"),
    fact("driver.gsp_files", "bool", "whether the GSP firmware of the loaded module's version is on the disk"),
    fact("driver.module_params", "map", "parameters of the loaded module, as /proc/driver/nvidia/params prints them"),
    fact("driver.nodes_missing", "list", "device files that should be there and are not: /dev/nvidiactl"),
    fact("driver.nodes_denied", "list", "device files that this user may not open for reading and writing"),
    fact("driver.persistenced", "bool", "whether nvidia-persistenced runs"),
    fact("driver.nvswitch", "bool", "whether the machine has NVSwitches, which need the fabric manager"),
    fact("driver.recent_suspend", "bool", "whether the machine was suspended and resumed since boot"),
    column("node.path", "text", "device file: /dev/nvidia0"),
    column("node.mode", "text", "its permissions, octal, such as 0666"),
    column("node.usable", "bool", "whether this user may open it for reading and writing"),
)

_NOTHING = "no module, library or nvidia-smi in the usual folders"
_NO_MODULE_IN_WSL = "in WSL the Windows driver serves the GPU; no Linux module is loaded"


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the ``driver`` facts and the group ``node``: what is loaded, on disk and in /dev, and running services."""
    wsl = known(_machine_kind.wsl(target)) is not None
    inside = _machine_kind.container(target)
    hidden = _machine_kind.host_hidden(target)
    loaded = _module_loaded(target, "nvidia")
    version, kind = _loaded_module(target, loaded)
    yield "driver.module_loaded", Absent(_NO_MODULE_IN_WSL) if wsl else loaded
    yield "driver.module_version", version
    yield "driver.module_kind", kind
    yield "driver.version", as_unread(version) if wsl and isinstance(version, Absent) else version
    for name, module in (("nouveau", "nouveau"), ("nova", "nova_core"), ("uvm", "nvidia_uvm")):
        yield f"driver.{name}_loaded", Absent(_NO_MODULE_IN_WSL) if wsl else _module_loaded(target, module)
    peer = [_module_loaded(target, module) for module in ("nvidia_peermem", "nv_peer_mem")]
    yield "driver.peermem_loaded", next((fact for fact in peer if value_of(fact)), peer[0])
    yield from _bound_gpu_facts(target, loaded)
    yield "driver.gsp_files", _gsp_files(target, version)
    yield "driver.module_params", module_params(target)
    yield from device_files(target, loaded, inside, wsl)
    yield from _disk_facts(target, loaded, hidden, wsl)
    for module in ("nouveau", "nvidia"):
        yield f"driver.{module}_blacklisted", blacklisted(target, module, hidden)
    yield "driver.persistenced", persistenced(target, hidden)
    yield "driver.recent_suspend", _recent_suspend(target)


def _module_loaded(target: Target, module: str) -> Fact:
    """Whether the kernel module is loaded, by /proc/modules and /sys/module (which also holds built-in modules).

    Unread if neither can be read.
    """
    listed = text(target, "/proc/modules")
    if isinstance(listed, str) and re.search(rf"^{module} ", listed, re.M):
        return Known(True, "/proc/modules")
    folder = f"/sys/module/{module}"
    if path_exists(target, folder) is True:
        return Known(True, folder)
    if isinstance(listed, str):
        return Known(False, "/proc/modules")
    shown = names(target, "/sys/module")
    if isinstance(shown, list) and shown:
        return Known(False, f"no {folder}")
    return Unread(f"{listed.why}, and /sys/module cannot be read either")


def _loaded_module(target: Target, loaded: Fact) -> tuple[Fact, Fact]:
    """Version and kind (open or proprietary) of the loaded nvidia module; both absent if it is not loaded, else unread.

    ``NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 ...`` or ``NVRM version: NVIDIA UNIX Open
    Kernel Module for x86_64  580.95.05  Release Build  (...)``.
    """
    path = f"{PROC}/version"
    content = text(target, path, 4096)
    first = content.partition("\n")[0] if isinstance(content, str) else ""
    match = re.search(r"Kernel Module(?: for \S+)?\s+(\d+\.\d+(?:\.\d+)?)", first)
    if match:
        kind = "open" if "Open Kernel Module" in first else "proprietary"
        return Known(match[1], path), Known(kind, path)
    if (state := known(loaded)) and not state.value:
        gone = Absent(f"the nvidia module is not loaded ({state.source})")
        return gone, gone
    version = line(target, "/sys/module/nvidia/version")
    if isinstance(version, (Absent, Unread)):
        version = Unread(loaded.why if isinstance(loaded, Unread) else version.why)
    return version, Unread(f"{path} does not say" if isinstance(content, str) else content.why)


def _bound_gpu_facts(target: Target, loaded: Fact) -> Iterator[tuple[str, Fact]]:
    """Yields bound_count, excluded (PCI addresses) and gsp_firmware of the GPUs in /proc/driver/nvidia/gpus.

    All are absent if the nvidia module is not loaded, unread if the folder cannot be read.
    """
    folder = f"{PROC}/gpus"
    found = names(target, folder)
    if not isinstance(found, list):
        none: Fact = as_unread(found)
        if value_of(loaded) is False:
            none = Absent("the nvidia module is not loaded")
        for name in ("bound_count", "excluded", "gsp_firmware"):
            yield f"driver.{name}", none
        return
    notes = {address: _gpu_information(target, address) for address in found}
    yield "driver.bound_count", Known(len(found), folder)
    excluded = tuple(
        a for a, note in notes.items() if isinstance(note, str) and re.search(r"GPU Excluded:\s*Yes", note)
    )
    unread = next((note for note in notes.values() if isinstance(note, Unread)), None)
    yield "driver.excluded", Known(excluded, folder) if excluded or not unread else unread
    firmware: Fact = Absent(f"{folder}: no GPU uses GSP firmware")
    for address, note in notes.items():
        match = re.search(r"^GPU Firmware:\s*(\d\S*)", note, re.M) if isinstance(note, str) else None
        if match:
            firmware = Known(match[1], f"{folder}/{address}/information")
            break
        if isinstance(note, Unread):
            firmware = note
    yield "driver.gsp_firmware", firmware


def _gpu_information(target: Target, address: str) -> str | Absent | Unread:
    """The driver's information file of a GPU as text; unread while the GPU sleeps, as reading would wake it."""
    return unread_if_asleep(target, f"{BUS}/{address}") or text(target, f"{PROC}/gpus/{address}/information", 4096)


def _gsp_files(target: Target, version: Fact) -> Fact:
    """Whether GSP firmware of the module's version is on disk: /lib/firmware/nvidia/580.95.05/gsp_ga10x.bin.

    Absent or unread as `version` is; unread if a folder is, or if the host's files cannot be seen from a container.
    """
    if not isinstance(version, Known):
        return version
    for root in ("/lib", "/usr/lib", "/run/current-system"):
        folder = f"{root}/firmware/nvidia/{version.value}"
        found = names(target, folder)
        if isinstance(found, Unread):
            return found
        if isinstance(found, list) and any(name.startswith("gsp") for name in found):
            return Known(True, folder)
    if hidden := _machine_kind.host_hidden(target):
        return Unread(hidden)
    return Known(False, f"no gsp*.bin in /lib/firmware/nvidia/{version.value}")


def _disk_facts(target: Target, loaded: Fact, hidden: str, wsl: bool) -> Iterator[tuple[str, Fact]]:
    """Yields facts about the nvidia module, driver libraries, DKMS builds and headers on disk, and driver.installed.

    `hidden`: why the host cannot be seen from this container, empty if it can.
    """
    kernel = _machine_kind.kernel(target)
    release = text_of(kernel)
    found = module_path(target, release) if release else Unread(getattr(kernel, "why", "no kernel release"))
    others: Fact = Absent("the running kernel has one")
    version: Fact
    on_disk: Fact
    if wsl:
        on_disk = version = others = Absent(_NO_MODULE_IN_WSL)
    elif isinstance(found, Known):
        on_disk = Known(True, str(found.value))
        version = module_version(target, str(found.value), release)
    elif isinstance(found, Absent) and not hidden:
        on_disk, version, others = Known(False, found.why), found, other_kernels(target, release)
    else:
        on_disk = version = others = Unread(hidden or found.why)
    yield "driver.module_on_disk", on_disk
    yield "driver.module_disk_version", version
    yield "driver.module_kernels", others
    libraries, empty, trouble = driver_libraries(target)
    yield from _library_facts(libraries, empty, trouble)
    installed = _installed(target, (loaded, on_disk), libraries, trouble, hidden)
    yield "driver.installed", installed
    if installed == Known(False, _NOTHING):
        yield "driver.version", Absent(_NOTHING)
    yield from dkms_builds(target, release, hidden)
    yield "driver.headers", Absent(_NO_MODULE_IN_WSL) if wsl else kernel_headers(target, release, hidden)


def _library_facts(libraries: dict[str, str], empty: list[str], trouble: Unread | None) -> Iterator[tuple[str, Fact]]:
    """Yields library_version (of the first), library_versions (each once) and libraries_empty.

    `libraries`: path to version; `empty`: paths of empty files; `trouble`: a folder that could not be read.
    """
    first = next(iter(libraries), "")
    one: Fact = Known(libraries[first], first) if first else Absent("no libcuda.so.<version> in the usual folders")
    yield "driver.library_version", one if first or not trouble else trouble
    several = tuple(dict.fromkeys(libraries.values()))
    yield "driver.library_versions", Known(several, ", ".join(libraries)) if several else trouble or one
    yield "driver.libraries_empty", Known(tuple(empty), "sizes of libcuda and libnvidia-ml")


def _installed(
    target: Target, modules: tuple[Fact, Fact], libraries: dict[str, str], trouble: Unread | None, hidden: str
) -> Fact:
    """Whether any driver file is there: a module, a library or nvidia-smi; unread if not all could be looked at.

    `modules`: whether the nvidia module is loaded, and whether it is on disk.
    """
    for state in modules:
        if (module := known(state)) and module.value:
            return Known(True, module.source)
    if libraries:
        return Known(True, next(iter(libraries)))
    for path in ("/usr/bin/nvidia-smi", "/usr/lib/wsl/lib/libcuda.so.1", "/run/current-system/sw/bin/nvidia-smi"):
        if path_exists(target, path) is True:
            return Known(True, path)
    unseen = hidden or (trouble.why if trouble else "")
    unseen = unseen or next((state.why for state in modules if isinstance(state, Unread)), "")
    return Unread(unseen) if unseen else Known(False, _NOTHING)


def _recent_suspend(target: Target) -> Fact:
    """Whether the machine was suspended and resumed since boot; absent if the kernel cannot suspend, else unread."""
    path = "/sys/power/suspend_stats/success"
    count = number(target, path)
    if isinstance(count, Absent) and path_exists(target, "/sys/power") is True:
        return Absent("this kernel cannot suspend")
    if isinstance(count, (Absent, Unread)):
        return as_unread(count)
    return Known(count.value != 0, path)


# ---- Modules that modprobe is told to leave alone ----


def blacklisted(target: Target, module: str, hidden: str) -> Fact:
    """Whether the module is kept from loading, by the kernel's command line or a line in modprobe.d.

    Unread if nothing says so and a file could not be read, or `hidden` gives why the host's files cannot be seen. A
    line for ``nvidia-drm`` is about another module than ``nvidia``.
    """
    boot = text(target, "/proc/cmdline")
    if isinstance(boot, str):
        for word in boot.split():
            key, _, value = word.partition("=")
            if key in ("modprobe.blacklist", "rd.driver.blacklist", "module_blacklist") and module in value.split(","):
                return Known(True, f"/proc/cmdline: {word}")
            if word in (f"{module}.modeset=0", f"{module}.blacklist=1", f"{module}.blacklist=yes"):
                return Known(True, f"/proc/cmdline: {word}")
    rule = re.compile(
        rf"^[ \t]*(?:blacklist[ \t]+{module}|alias[ \t]+{module}[ \t]+off|options[ \t]+{module}[ \t]+.*\bmodeset=0"
        rf"|install[ \t]+{module}[ \t]+(?:/usr)?(?:/bin/)?(?:false|true))(?![\w-])",
        re.M,
    )
    paths, refused = _modprobe_files(target)
    trouble: str = hidden or refused
    for path in paths:
        content = text(target, path)
        if isinstance(content, Unread):
            trouble = trouble or content.why
        match = rule.search(content) if isinstance(content, str) else None
        if match and not hidden and isinstance(content, str):
            return Known(True, f"{path} line {content.count(chr(10), 0, match.start()) + 1}")
    if isinstance(boot, Unread):
        trouble = trouble or boot.why
    return Unread(trouble) if trouble else Known(False, "modprobe.d and /proc/cmdline")


def _modprobe_files(target: Target) -> tuple[list[str], str]:
    """Paths of modprobe.d's files in force (one replaces its namesake in a later folder), and why some may lack."""
    out: dict[str, str] = {}
    trouble = ""
    for folder in ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"):
        found = names(target, f"{folder}/modprobe.d")
        if isinstance(found, Unread):
            trouble = trouble or found.why
        for name in found if isinstance(found, list) else ():
            if name.endswith(".conf"):
                out.setdefault(name, f"{folder}/modprobe.d/{name}")
    return list(out.values()), trouble


# ---- Device files of the NVIDIA driver ----
# Which are there, which should be, and who may open them.

PROC = "/proc/driver/nvidia"


def module_params(target: Target) -> Fact:
    """A map of the loaded nvidia module's parameters, text by name, of lines as ``EnableGpuFirmware: 18``; absent or
    unread as the file is.
    """
    path = f"{PROC}/params"
    found = text(target, path, 1 << 16)
    if not isinstance(found, str):
        return found
    return Known(dict(re.findall(r"^(\w+): (.*)$", found, re.M)), path)


def device_files(target: Target, loaded: Fact, inside: Fact, wsl: bool) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the group ``node`` (device files of the driver), and driver.nodes_missing and driver.nodes_denied.

    `loaded`: whether the nvidia module is; `inside`: the fact host.container.
    """
    present = names(target, "/dev")
    if not isinstance(present, list):
        why = as_unread(present)
        yield from (("node", why), ("driver.nodes_missing", why), ("driver.nodes_denied", why))
        return
    paths = [f"/dev/{name}" for name in present if re.fullmatch(r"nvidia(?:\d+|ctl|-uvm|-uvm-tools|-modeset)", name)]
    rows = tuple(_node_row(target, path) for path in paths)
    yield "node", rows
    needed = re.compile(r"/dev/nvidia(?:\d+|ctl|-uvm)")
    denied = [path for path, row in zip(paths, rows, strict=True) if row["usable"] == Known(False, path)]
    yield "driver.nodes_denied", Known(tuple(path for path in denied if needed.fullmatch(path)), "/dev")
    if wsl:
        yield "driver.nodes_missing", Absent("WSL has /dev/dxg in their place")
    elif not known(loaded):
        yield "driver.nodes_missing", loaded
    elif not value_of(loaded):
        yield "driver.nodes_missing", Absent("the nvidia module is not loaded")
    else:
        yield "driver.nodes_missing", _missing_nodes(target, paths, inside)


def _node_row(target: Target, path: str) -> Row:
    """The row of one device file: path, mode (octal, such as 0666) and usable, whether this user may open it."""
    try:
        mode: Fact = Known(f"{target.path(path).stat().st_mode & 0o7777:04o}", path)
    except OSError as error:
        mode = Unread(f"{path}: {error.strerror}")
    return {"path": Known(path, "/dev"), "mode": mode, "usable": Known(usable(target, path), path)}


def _missing_nodes(target: Target, present: list[str], inside: Fact) -> Fact:
    """Paths of device files that a process needs, that are not there, and that nothing will create.

    Outside containers nvidia-modprobe, set to run as root, makes them at first use, unless the module forbids it.
    Inside a container a GPU that was not handed over has no node, so that one GPU's node is enough.
    """
    wanted = ["/dev/nvidiactl", "/dev/nvidia-uvm"]
    contained = known(inside) is not None
    if not contained and _created_on_demand(target):
        return Known((), "nvidia-modprobe makes them at first use")
    cards = [f"/dev/nvidia{minor}" for minor in _minors(target)]
    if not (contained and any(card in present for card in cards)):
        wanted += cards
    return Known(tuple(path for path in wanted if path not in present), "/dev")


def _minors(target: Target) -> list[str]:
    """Minor numbers of the bound GPUs, as text, without those that are asleep."""
    notes = [_gpu_information(target, address) for address in names_in(target, f"{PROC}/gpus")]
    minors = [re.search(r"^Device Minor:\s*(\d+)", note, re.M) for note in notes if isinstance(note, str)]
    return sorted(minor[1] for minor in minors if minor)


def _created_on_demand(target: Target) -> bool:
    """True if device files are made at first use: the module allows it and we are root or nvidia-modprobe is setuid."""
    values = value_of(module_params(target))
    if isinstance(values, dict) and values.get("ModifyDeviceFiles") == "0":
        return False
    status = text(target, "/proc/self/status", 4096)
    if isinstance(status, str) and re.search(r"^Uid:\s+\d+\s+0\s", status, re.M):
        return True
    try:
        mode = target.path("/usr/bin/nvidia-modprobe").stat().st_mode
    except OSError:
        return False
    return bool(mode & 0o4000 and mode & 0o001)
