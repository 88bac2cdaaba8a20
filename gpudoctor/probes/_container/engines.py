"""Container engines on a host, and what their configuration says of NVIDIA's runtime."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.model.fact import Absent, Fact, Known, Unread
from gpudoctor.probes._dpkg import STATUS, packages
from gpudoctor.probes._reading import names, text, there
from gpudoctor.target import Target

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
_FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/toolkit", "/run/current-system/sw/bin")
_SEARCHED = (*_FOLDERS, "/usr/sbin", "/usr/local/sbin", "/sbin", "/bin")
"""Where a daemon of the system finds a program that is named without its folder."""

_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
_PLAIN = ("runc", "io.containerd.runc.v2", "io.containerd.runtime.v1.linux")
"""Runtimes that Docker has without being told."""


def facts(target: Target) -> Iterator[tuple[str, Fact]]:
    engines = [name for name, paths in _ENGINES.items() if any(there(target, path) is True for path in paths)]
    yield "container.engines", Known(tuple(engines), "programs in the usual folders")
    yield from _toolkit(target)
    broken: list[str] = []
    docker, default, trouble = _docker(target, broken)
    known = ["docker"] if docker else []
    for engine, paths in (("containerd", _CONTAINERD), ("cri-o", _inside(target, _CRIO))):
        if any(_names_nvidia(target, path, broken) for path in paths):
            known.append(engine)
    yield "container.runtimes", trouble or Known(tuple(known), "the engines' configuration")
    yield "container.default_runtime", default
    yield "container.broken", trouble if trouble and not broken else Known(tuple(broken), "the engines' configuration")


def _inside(target: Target, folder: str) -> tuple[str, ...]:
    found = names(target, folder)
    return tuple(f"{folder}/{name}" for name in found) if isinstance(found, list) else ()


def _toolkit(target: Target) -> Iterator[tuple[str, Fact]]:
    """Version by dpkg, else by the name of libnvidia-container, which is released with the toolkit."""
    packaged = packages(target, "nvidia-container-toolkit(?:-base)?|libnvidia-container1")
    version: Fact = Absent("neither dpkg nor a libnvidia-container.so.<version> names it")
    if isinstance(packaged, dict) and packaged:
        name = next(iter(sorted(packaged, reverse=True)))
        version = Known(packaged[name].partition("-")[0], f"{STATUS}: {name}")
    else:
        for folder in _LIBRARIES:
            found = names(target, folder)
            for name in found if isinstance(found, list) else ():
                if match := re.fullmatch(r"libnvidia-container\.so\.(\d+\.\d+\.\d+)", name):
                    version = Known(match[1], f"{folder}/{name}")
    programs = [f"{folder}/{name}" for folder in _FOLDERS for name in _PROGRAMS]
    program = next((path for path in programs if there(target, path) is True), "")
    none = "no nvidia-ctk or nvidia-container-runtime in the usual folders"
    yield "container.toolkit", Known(True, program) if program else Known(False, none)
    yield "container.toolkit_version", version
    said = text(target, _TOOLKIT)
    yield "container.toolkit_mode", _setting(said, r'mode\s*=\s*"([\w-]+)"')
    cgroups = _setting(said, r"no-cgroups\s*=\s*(true|false)")
    yield "container.no_cgroups", Known(cgroups.value == "true", _TOOLKIT) if isinstance(cgroups, Known) else cgroups


def _setting(said: str | Absent | Unread, pattern: str) -> Fact:
    if not isinstance(said, str):
        return said
    match = re.search(rf"^\s*{pattern}", said, re.M)
    return Known(match[1], _TOOLKIT) if match else Absent(f"{_TOOLKIT} does not say")


def _docker(target: Target, broken: list[str]) -> tuple[bool, Fact, Unread | None]:
    """Whether it has NVIDIA's runtime, its default runtime, and what kept us from reading; adds what is `broken`."""
    import json

    for path in _DOCKER:
        said = text(target, path)
        if isinstance(said, Unread):
            return False, said, said
        if not isinstance(said, str):
            continue
        try:
            settings = json.loads(said or "{}")
        except (ValueError, RecursionError) as error:
            broken.append(f"{path} is not JSON ({error}): Docker does not start with it")
            return False, Unread(f"{path} is not JSON"), None
        runtimes = settings.get("runtimes") if isinstance(settings, dict) else None
        given = runtimes if isinstance(runtimes, dict) else {}
        nvidia = False
        for name, runtime in given.items():
            program = str(runtime.get("path", "")) if isinstance(runtime, dict) else ""
            if "nvidia" in f"{name} {program}":
                nvidia = True
                _check(target, f"{path}: runtime {name}", program, broken)
        default = settings.get("default-runtime") if isinstance(settings, dict) else None
        if not isinstance(default, str):
            return nvidia, Absent(f"{path} names none"), None
        if default not in given and default not in _PLAIN and "nvidia" in default:
            broken.append(f"{path}: default-runtime is {default}, which is not among its runtimes")
        return nvidia, Known(default, path), None
    return False, Absent(f"no {_DOCKER[0]}"), None


def _names_nvidia(target: Target, path: str, broken: list[str]) -> bool:
    """``BinaryName = "/usr/bin/nvidia-container-runtime"`` of containerd, ``runtime_path = "..."`` of CRI-O."""
    said = text(target, path)
    if not isinstance(said, str):
        return False
    programs = re.findall(r"""^\s*(?:BinaryName|runtime_path)\s*=\s*["'](\S*nvidia\S*)["']""", said, re.M)
    for program in dict.fromkeys(programs):
        _check(target, path, program, broken)
    return bool(programs)


def _check(target: Target, where: str, program: str, broken: list[str]) -> None:
    if not program:
        return
    paths = [program] if program.startswith("/") else [f"{folder}/{program}" for folder in _SEARCHED]
    if all(there(target, path) is False for path in paths):
        broken.append(f"{where} is {program}, which is not there")
