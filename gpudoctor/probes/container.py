"""Containers from both sides: what this container was asked to get and got; what a host's engines know of NVIDIA.

Inside a container the host's engines cannot be seen, and on a host there is no container to speak of: the facts of the
one side are unread or absent on the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Absent, Fact, Known, Reason, Rows, Unread, known, text_of, value_of
from gpudoctor.core.pattern import pattern
from gpudoctor.probes import _machine_kind
from gpudoctor.probes._driver_files import LIBRARY_FOLDERS, driver_libraries
from gpudoctor.probes._packages import DPKG_STATUS, installed_packages
from gpudoctor.probes._reading import as_unread, names, names_in, path_exists, resolve_path, text, usable
from gpudoctor.target import Target

_INSIDE = (
    fact(
        "container.requested",
        "list",
        "the GPUs that this container was to get, as they were named: all, 0, GPU-...; empty for none",
    ),
    fact(
        "container.capabilities",
        "list",
        "parts of the driver that NVIDIA_DRIVER_CAPABILITIES asks for; unset means utility and compute",
    ),
    fact("container.handover", "text", "who gave it the GPUs: CDI, NVIDIA's runtime, a device plugin, apptainer --nv"),
    fact("container.lacks", "list", "what of the driver is not in this container: libraries, device files"),
    fact("container.driver_mounts", "list", "files and folders of the driver that are mounted into this container"),
    fact("container.driver_version", "version", "the driver's version by the names of the mounted libraries"),
    fact(
        "container.driver_in_image",
        "list",
        "driver libraries that belong to the image, beside or in front of those mounted from the host",
    ),
    fact(
        "container.device_access",
        "bool",
        "whether the container's device rules let /dev/nvidiactl be opened, whatever its permissions",
    ),
)
_HOST = (
    fact("container.engines", "list", "container engines on this host, such as docker, containerd, podman, cri-o"),
    fact("container.toolkit", "bool", "whether the NVIDIA Container Toolkit is installed on this host"),
    fact("container.toolkit_version", "version", "its version"),
    fact("container.toolkit_mode", "text", "mode in config.toml of the toolkit, such as auto, legacy, cdi, csv"),
    fact("container.no_cgroups", "bool", "whether the toolkit leaves device rules alone, as rootless engines need it"),
    fact("container.runtimes", "list", "engines whose configuration names a runtime of NVIDIA's"),
    fact("container.default_runtime", "text", "Docker's default runtime, as its configuration names it"),
    fact(
        "container.broken",
        "list",
        "what in the engines' configuration cannot work: a runtime's program that is not there, a file that is no JSON",
    ),
    fact("container.cdi_specs", "list", "CDI files that describe nvidia.com/gpu, the one that counts first"),
    fact("container.cdi_driver", "version", "driver whose libraries the first of them hands over"),
)
ONLY = "linux"
FACTS = (*_INSIDE, *_HOST)


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the ``container`` facts, from files; inside a container one shell tries to open /dev/nvidiactl."""
    found = _machine_kind.container(target)
    if known(found):
        yield from _inside_facts(target, text_of(found))
        yield from ((spec.name, Unread(_machine_kind.host_hidden(target), reason=Reason.CONTAINED)) for spec in _HOST)
        return
    outside = Absent("not in a container") if isinstance(found, Absent) else found
    yield from ((spec.name, outside) for spec in _INSIDE)
    yield from _engine_facts(target)
    yield from _cdi_facts(target)


# ---- CDI files ----
# What a host hands into containers as ``nvidia.com/gpu``. Read by line patterns, as YAML or as JSON.

_CDI_FOLDERS = ("/var/run/cdi", "/run/cdi", "/etc/cdi")
"""Engines read these, and take a device from /var/run/cdi where both have it."""

_CDI_KIND = pattern(r"""^\s*"?kind"?\s*:\s*["']?nvidia\.com/gpu["']?\s*,?\s*$""", re.M)
_CDI_LIBRARY = pattern(r"/lib(?:cuda|nvidia-ml)\.so\.(\d{2,4}\.\d+(?:\.\d+)?)")


def _cdi_facts(target: Target) -> Iterator[tuple[str, Fact]]:
    """Yields container.cdi_specs, CDI files for nvidia.com/gpu by precedence, and cdi_driver, that of the first.

    Both unread if none was found and a folder or file could not be read.
    """
    specs: dict[str, str] = {}
    trouble: Unread | None = None
    seen: set[str] = set()
    for folder in _CDI_FOLDERS:
        found = names(target, folder)
        if isinstance(found, Unread):
            trouble = trouble or found
        place = resolve_path(target, folder)
        if not isinstance(found, list) or place in seen:
            continue
        seen.add(place)
        for name in found:
            if name.endswith((".yaml", ".yml", ".json")):
                path = f"{folder}/{name}"
                content = text(target, path)
                if isinstance(content, str) and _CDI_KIND.search(content):
                    specs[path] = content
                elif isinstance(content, Unread):
                    trouble = trouble or content
    if not specs and trouble:
        yield from ((name, trouble) for name in ("container.cdi_specs", "container.cdi_driver"))
        return
    yield "container.cdi_specs", Known(tuple(specs), ", ".join(_CDI_FOLDERS[::2]))
    yield "container.cdi_driver", _cdi_driver(specs)


def _cdi_driver(specs: dict[str, str]) -> Fact:
    """Driver version in the first CDI file, by its libcuda's name; absent without one. `specs`: path to content."""
    if not specs:
        return Absent(f"no file in {_CDI_FOLDERS[0]} or {_CDI_FOLDERS[2]} describes nvidia.com/gpu")
    path, content = next(iter(specs.items()))
    match = _CDI_LIBRARY.search(content)
    return Known(match[1], path) if match else Absent(f"{path} names no libcuda with a version")


# ---- A container from inside: which GPUs it was to get, and what of the driver is in it ----

_MOUNTS = "/proc/self/mountinfo"
_PLUGIN = "/var/run/nvidia-container-devices"
_CONTROL = "/dev/nvidiactl"
_V1_RULES = "/sys/fs/cgroup/devices/devices.list"
_DRIVER_MOUNT = pattern(
    r"/(?:lib(?:cuda|nvidia-ml|nvidia-ptxjitcompiler)\.so[.\d]*|nvidia-smi)$"
    r"|^/usr/local/nvidia(?:/lib64)?$|^/usr/lib/wsl(?:/(?:lib|drivers)\b.*)?$"
)
"""Where mounts of the driver end: single files, or the folder that Google's and WSL's nodes mount."""

_DRIVER_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_MORE_FOLDERS = ("/usr/lib/wsl/lib", "/.singularity.d/libs")


def _inside_facts(target: Target, engine: str) -> Iterator[tuple[str, Fact]]:
    """Yields requested, capabilities, driver_mounts, driver_version, driver_in_image, handover, lacks, device_access.

    The ``container`` facts seen from inside one; `engine` as `host.container` names it.
    """
    plugin_devices = tuple(names_in(target, _PLUGIN))
    requested = _requested_gpus(target, plugin_devices)
    yield "container.requested", requested
    yield "container.capabilities", _capabilities(target.environ.get("NVIDIA_DRIVER_CAPABILITIES"))
    table = text(target, _MOUNTS, 1 << 20)
    points = re.findall(r"^\d+ \d+ \S+ \S+ (\S+) ", table, re.M) if isinstance(table, str) else []
    mounts = [point for point in dict.fromkeys(points) if _DRIVER_MOUNT.search(point)]
    yield "container.driver_mounts", Known(tuple(mounts), _MOUNTS) if isinstance(table, str) else as_unread(table)
    yield "container.driver_version", _mounted_version(mounts)
    versions, _, trouble = driver_libraries(target)
    yield "container.driver_in_image", _libraries_in_image(target, mounts, versions, trouble)
    devices = names(target, "/dev")
    present = devices if isinstance(devices, list) else []
    yield "container.handover", _handover(target, engine, points, bool(plugin_devices), mounts, present)
    yield "container.lacks", _missing_parts(target, devices, bool(mounts or versions), trouble)
    yield "container.device_access", _device_access(target)


def _requested_gpus(target: Target, plugin_devices: tuple[str, ...]) -> Fact:
    """The requested GPUs: the device plugin's mounts, else NVIDIA_VISIBLE_DEVICES (``none`` is an empty list).

    Absent if the variable is not set, empty or ``void``. The mounts count first, as most CUDA images set the variable
    to ``all`` by themselves.
    """
    if plugin_devices:
        return Known(plugin_devices, _PLUGIN)
    name = "NVIDIA_VISIBLE_DEVICES"
    value = target.environ.get(name)
    if value is None:
        return Absent(f"{name} is not set, and there is no {_PLUGIN}")
    if value == "void" or not value:
        return Absent(f"{name} is {value!r}: it asks NVIDIA's runtime for nothing, CDI may have handed GPUs over")
    return Known(() if value == "none" else tuple(filter(None, value.split(","))), name)


def _capabilities(value: str | None) -> Fact:
    """The driver capabilities in NVIDIA_DRIVER_CAPABILITIES' value; utility and compute if it is None or empty."""
    name = "NVIDIA_DRIVER_CAPABILITIES"
    if not value:
        return Known(("utility", "compute"), f"{name} is not set; these are what the toolkit then gives")
    return Known(tuple(filter(None, (part.strip() for part in value.split(",")))), name)


def _mounted_version(mounts: list[str]) -> Fact:
    """The driver version in the name of a mounted library; absent if no name has one."""
    for mount in mounts:
        if match := re.search(r"/lib(?:cuda|nvidia-ml)\.so\.(\d{2,4}\.\d+(?:\.\d+)?)$", mount):
            return Known(match[1], f"{_MOUNTS}: {mount}")
    return Absent(f"{_MOUNTS}: no mounted libcuda names its version")


def _libraries_in_image(target: Target, mounts: list[str], versions: dict[str, str], trouble: Unread | None) -> Fact:
    """Paths of driver libraries (`versions`) that are in the image and not mounted.

    Absent if no single library is mounted. `trouble` (a folder that could not be read) is returned if none is found.
    """
    if not any(".so" in mount for mount in mounts):
        return Absent("no single library of the driver is mounted into this container")
    own = tuple(path for path in versions if path not in mounts and resolve_path(target, path) not in mounts)
    return trouble if trouble and not own else Known(own, "libraries of the driver that are no mounts")


def _handover(
    target: Target, engine: str, points: list[str], by_plugin: bool, mounts: list[str], devices: list[str]
) -> Fact:
    """Who handed the GPUs over: device plugin, CDI, apptainer --nv or NVIDIA's runtime; unread if nothing shows it.

    Absent if the container has nothing of the driver. NVIDIA's older runtime lays a file system of its own over
    /proc/driver/nvidia; CDI sets NVIDIA_VISIBLE_DEVICES to void.
    """
    cards = any(re.fullmatch(r"nvidia\d+|dxg", name) for name in devices)
    if not mounts and not cards:
        return Absent("nothing of the driver is in this container")
    if by_plugin:
        return Known("device plugin", _PLUGIN)
    if target.environ.get("NVIDIA_VISIBLE_DEVICES") == "void":
        return Known("CDI", "NVIDIA_VISIBLE_DEVICES is void")
    if engine == "apptainer":
        return Known("apptainer --nv", "/.singularity.d")
    if "/proc/driver/nvidia" in points:
        return Known("NVIDIA's runtime", f"{_MOUNTS}: /proc/driver/nvidia")
    if engine == "podman" and mounts:
        return Known("CDI", f"{_MOUNTS}: {mounts[0]}")
    return Unread("nothing shows who handed the GPUs over")


def _missing_parts(
    target: Target, devices: list[str] | Absent | Unread, libraries: bool, trouble: Unread | None
) -> Fact:
    """What of the driver the container lacks: its libraries, nvidiactl, a GPU's device file (in WSL: /dev/dxg).

    `libraries`: some were found. Unread if a folder could not be read.
    """
    if isinstance(devices, Unread):
        return devices
    missing: list[str] = []
    if not libraries:
        places = [f"{folder}/{name}" for folder in (*LIBRARY_FOLDERS, *_MORE_FOLDERS) for name in _DRIVER_LIBRARIES]
        states = [path_exists(target, path) for path in places]
        unread = next((state for state in (trouble, *states) if isinstance(state, Unread)), None)
        if unread and True not in states:
            return unread
        if True not in states:
            missing.append("the driver's libraries")
    present = devices if isinstance(devices, list) else []
    if known(_machine_kind.wsl(target)):
        needed = {"/dev/dxg": "dxg"}
    elif known(_machine_kind.jetson_model(target)):
        needed = {}  # the chip's GPU has device files of other names, which differ by release
    else:
        needed = {_CONTROL: "nvidiactl", "/dev/nvidia0 (or another GPU's)": r"nvidia\d+"}
    missing += [label for label, pattern in needed.items() if not any(re.fullmatch(pattern, name) for name in present)]
    return Known(tuple(missing), "/dev and the loader's usual folders")


def _device_access(target: Target) -> Fact:
    """Whether the container's device rules allow /dev/nvidiactl.

    Absent without it, unread if its mode denies this user. Version 1 of cgroups lists its rules; version 2 keeps them
    in a program, so that only opening the file in a shell tells.
    """
    rules = text(target, _V1_RULES, 1 << 16)
    if isinstance(rules, str) and rules:
        allowed = re.search(r"^(?:a |c (?:195|\*):\S+ \w*r)", rules, re.M)
        return Known(bool(allowed), _V1_RULES)
    if path_exists(target, _CONTROL) is not True:
        return Absent(f"no {_CONTROL}")
    if not usable(target, _CONTROL):
        return Unread(f"the permissions of {_CONTROL} keep this user from opening it")
    try:  # the place is no argument, so that a record of the command holds on any machine
        place = {"LC_ALL": "C", "NODE": str(target.path(_CONTROL))}
        answer = target.run(("sh", "-c", ': <> "$NODE"'), timeout=2, env=place)
    except OSError as error:
        return Unread(f"{_CONTROL} could not be tried: no shell ({error.strerror})")
    if answer.ok:
        return Known(True, f"{_CONTROL} could be opened")
    if "not permitted" in answer.err:
        return Known(False, f"{_CONTROL}: Operation not permitted, though its mode allows it")
    return Unread(f"{_CONTROL}: {answer.err.strip()[-120:] or answer.how}", reason=answer.reason)


# ---- Container engines on a host, and what their configuration says of NVIDIA's runtime ----

_ENGINES = {
    "docker": ("/usr/bin/dockerd", "/usr/local/bin/dockerd", "/usr/sbin/dockerd", "/snap/bin/docker"),
    "containerd": ("/usr/bin/containerd", "/usr/local/bin/containerd", "/var/lib/rancher/k3s", "/var/lib/rancher/rke2"),
    "podman": ("/usr/bin/podman", "/usr/local/bin/podman"),
    "cri-o": ("/usr/bin/crio", "/usr/local/bin/crio"),
}
_DOCKER = ("/etc/docker/daemon.json", "/var/snap/docker/current/config/daemon.json")
_CONTAINERD = (
    "/etc/containerd/config.toml",
    "/etc/containerd/conf.d/99-nvidia.toml",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
)
_CRIO = "/etc/crio/crio.conf.d"
_TOOLKIT = "/etc/nvidia-container-runtime/config.toml"
_PROGRAMS = ("nvidia-ctk", "nvidia-container-runtime", "nvidia-container-runtime-hook", "nvidia-container-toolkit")
_PROGRAM_FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/toolkit", "/run/current-system/sw/bin")
_SEARCHED = (*_PROGRAM_FOLDERS, "/usr/sbin", "/usr/local/sbin", "/sbin", "/bin")
"""Where a daemon of the system finds a program that is named without its folder."""

_TOOLKIT_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
_PLAIN = ("runc", "io.containerd.runc.v2", "io.containerd.runtime.v1.linux")
"""Runtimes that Docker has without being told."""


def _engine_facts(target: Target) -> Iterator[tuple[str, Fact]]:
    """Yields container.engines, runtimes, default_runtime, broken and the toolkit's facts, of a host's engines."""
    engines = [name for name, paths in _ENGINES.items() if any(path_exists(target, path) is True for path in paths)]
    yield "container.engines", Known(tuple(engines), "programs in the usual folders")
    yield from _toolkit_facts(target)
    broken: list[str] = []
    docker, default, trouble = _docker_runtimes(target, broken)
    known = ["docker"] if docker else []
    crio = [f"{_CRIO}/{name}" for name in names_in(target, _CRIO)]
    for engine, paths in (("containerd", _CONTAINERD), ("cri-o", crio)):
        if any(_names_nvidia(target, path, broken) for path in paths):
            known.append(engine)
    yield "container.runtimes", trouble or Known(tuple(known), "the engines' configuration")
    yield "container.default_runtime", default
    yield "container.broken", trouble if trouble and not broken else Known(tuple(broken), "the engines' configuration")


def _toolkit_facts(target: Target) -> Iterator[tuple[str, Fact]]:
    """Yields toolkit, toolkit_version, toolkit_mode and no_cgroups of the NVIDIA Container Toolkit.

    The version is that of dpkg, else in the file name of libnvidia-container, else absent.
    """
    packaged = installed_packages(target, "nvidia-container-toolkit(?:-base)?|libnvidia-container1")
    version: Fact = Absent("neither dpkg nor a libnvidia-container.so.<version> names it")
    if isinstance(packaged, dict) and packaged:
        name = next(iter(sorted(packaged, reverse=True)))
        version = Known(packaged[name].partition("-")[0], f"{DPKG_STATUS}: {name}")
    else:
        for folder in _TOOLKIT_FOLDERS:
            for name in names_in(target, folder):
                if match := re.fullmatch(r"libnvidia-container\.so\.(\d+\.\d+\.\d+)", name):
                    version = Known(match[1], f"{folder}/{name}")
    programs = [f"{folder}/{name}" for folder in _PROGRAM_FOLDERS for name in _PROGRAMS]
    program = next((path for path in programs if path_exists(target, path) is True), "")
    none = "no nvidia-ctk or nvidia-container-runtime in the usual folders"
    yield "container.toolkit", Known(True, program) if program else Known(False, none)
    yield "container.toolkit_version", version
    content = text(target, _TOOLKIT)
    yield "container.toolkit_mode", _setting(content, r'mode\s*=\s*"([\w-]+)"')
    cgroups = _setting(content, r"no-cgroups\s*=\s*(true|false)")
    yield "container.no_cgroups", Known(value_of(cgroups) == "true", _TOOLKIT) if known(cgroups) else cgroups


def _setting(content: str | Absent | Unread, pattern: str) -> Fact:
    """Group 1 of the pattern at a line's start in the NVIDIA container toolkit's config (`content`).

    Absent if no line matches, absent or unread as the file is.
    """
    if not isinstance(content, str):
        return content
    match = re.search(rf"^\s*{pattern}", content, re.M)
    return Known(match[1], _TOOLKIT) if match else Absent(f"{_TOOLKIT} does not say")


def _docker_runtimes(target: Target, broken: list[str]) -> tuple[bool, Fact, Unread | None]:
    """(whether Docker has NVIDIA's runtime, its default runtime, an `Unread` if daemon.json cannot be read, else None).

    The default is absent if none is named, unread if daemon.json cannot be read or is no JSON. What cannot work (no
    JSON, missing programs) is appended to `broken`.
    """
    for path in _DOCKER:
        content = text(target, path)
        if isinstance(content, Unread):
            return False, content, content
        if not isinstance(content, str):
            continue
        try:
            settings = json.loads(content or "{}")
        except (ValueError, RecursionError) as error:
            broken.append(f"{path} is not JSON ({error}): Docker does not start with it")
            return False, Unread(f"{path} is not JSON"), None
        runtimes = settings.get("runtimes") if isinstance(settings, dict) else None
        configured = runtimes if isinstance(runtimes, dict) else {}
        nvidia = False
        for name, runtime in configured.items():
            program = str(runtime.get("path", "")) if isinstance(runtime, dict) else ""
            if "nvidia" in f"{name} {program}":
                nvidia = True
                _check_program(target, f"{path}: runtime {name}", program, broken)
        default = settings.get("default-runtime") if isinstance(settings, dict) else None
        if not isinstance(default, str):
            return nvidia, Absent(f"{path} names none"), None
        if default not in configured and default not in _PLAIN and "nvidia" in default:
            broken.append(f"{path}: default-runtime is {default}, which is not among its runtimes")
        return nvidia, Known(default, path), None
    return False, Absent(f"no {_DOCKER[0]}"), None


def _names_nvidia(target: Target, path: str, broken: list[str]) -> bool:
    """True if the engine's configuration file names a runtime program of NVIDIA's; appends missing ones to `broken`.

    ``BinaryName = "/usr/bin/nvidia-container-runtime"`` of containerd, ``runtime_path = "..."`` of CRI-O.
    """
    content = text(target, path)
    if not isinstance(content, str):
        return False
    programs = re.findall(r"""^\s*(?:BinaryName|runtime_path)\s*=\s*["'](\S*nvidia\S*)["']""", content, re.M)
    for program in dict.fromkeys(programs):
        _check_program(target, path, program, broken)
    return bool(programs)


def _check_program(target: Target, where: str, program: str, broken: list[str]) -> None:
    """Append to `broken` if the program is in none of the folders that a daemon searches; nothing for an empty name."""
    if not program:
        return
    paths = [program] if program.startswith("/") else [f"{folder}/{program}" for folder in _SEARCHED]
    if all(path_exists(target, path) is False for path in paths):
        broken.append(f"{where} is {program}, which is not there")
