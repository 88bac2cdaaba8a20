"""compose.yaml: each service, its image, the GPUs that it asks for, its variables and its shared memory.

Its format: compose-spec (github.com/compose-spec/compose-spec, 05-services.md and deploy.md), and docs.docker.com,
Run Docker Compose services with GPU access (read 2026-11).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.readers._software import is_gpu_variable, variable_facts
from gpudoctor.readers.files._manifest import (
    Manifest,
    Node,
    Service,
    documents,
    first_gpu_service,
    size_mib,
    substituted,
)

KIND = "compose"
_DEFAULT_SHM_MIB = 64
"""MiB of /dev/shm that Docker gives a container where nothing else is said."""
_NAME = re.compile(r"(?:.*[-_.])?compose(?:[-_.].*)?\.ya?ml")
_SERVICES = re.compile(r"^services:\s*(?:#.*)?$", re.MULTILINE)
_NO_GPUS = ("", "none", "void")


def named(name: str) -> bool:
    """Whether a file of that name (lower case) is a compose file: ``compose.yaml``, ``docker-compose.gpu.yml``."""
    return bool(_NAME.fullmatch(name))


def recognizes(text: str) -> bool:
    """Whether the text looks like a compose file: top-level ``services:``, and images or builds below it."""
    return bool(_SERVICES.search(text)) and bool(re.search(r"^\s+(?:image|build):", text, re.MULTILINE))


def read(manifest: Manifest) -> Iterator[tuple[str, Fact | Rows]]:
    """A row of ``service`` for each service; variables and /dev/shm size of the one that is about GPUs.

    Also container.asks_gpus, host.container and host.platform, and the files that add to it. Nothing where there are no
    services; raises `UnreadableError` for broken YAML.
    """
    tree = next(iter(documents(manifest.text)), Node())
    services: list[tuple[Service, str, Node]] = []
    other_files: list[str] = []
    for name, node in tree.at("services").items():
        if node.is_mapping:
            services.append((_service(name, node), manifest.use(node.line - 1 if node.line > 1 else 1), node))
            other_files += _referenced_files(node)
    if not services:
        return
    yield "service", tuple(service.row(source) for service, source, _ in services)
    yield "container.asks_gpus", Known(any(service.asks for service, _, _ in services), manifest.name)
    service, source, node = first_gpu_service(services)
    yield "host.container", Known("docker", source)
    yield "host.platform", Known("linux", source)
    if service.shm_mib is not None:
        yield "limits.shm_mib", Known(service.shm_mib, _shm_source(node, source, manifest))
    yield from _variable_facts(node, manifest)
    if other_files:
        yield "manifest.elsewhere", Known(tuple(dict.fromkeys(other_files))[:20], source)


def _service(name: str, node: Node) -> Service:
    """The compose service's image, GPU request and /dev/shm size.

    NVIDIA_VISIBLE_DEVICES without GPUs cancels a request by runtime.
    """
    values = dict(variables_of(node))
    runtime = _substituted_text(node.at("runtime"))
    asks = _gpu_request(node) or ("runtime: nvidia" if "nvidia" in runtime else "")
    visible = values.get("NVIDIA_VISIBLE_DEVICES", (None, 0))[0]
    if visible is not None and visible.strip().lower() in _NO_GPUS and "runtime" in asks:
        asks = ""
    return Service(
        name, _substituted_text(node.at("image")), asks, _shm_mib(node), bool(visible) and visible not in _NO_GPUS
    )


def _gpu_request(node: Node) -> str:
    """How the compose service asks for GPUs by ``gpus`` or devices, such as ``gpus: all``; empty if it does not."""
    gpus = node.at("gpus")
    if _substituted_text(gpus) or gpus.list():
        return f"gpus: {_substituted_text(gpus) or 'devices'}"
    for device in node.at("deploy", "resources", "reservations", "devices").list():
        capabilities = [capability.text for capability in device.at("capabilities").list()]
        count = _substituted_text(device.at("count"))
        if count != "0" and (
            {"gpu", "nvidia", "compute"} & set(capabilities)
            or _substituted_text(device.at("driver")) in ("nvidia", "cdi")
        ):
            return f"devices: {count or 'all'}"
    for device in [*node.at("devices").list(), *node.at("device_requests").list()]:
        if "nvidia.com/gpu" in _substituted_text(device) or "/dev/nvidia" in _substituted_text(device):
            return f"devices: {_substituted_text(device)}"
    return ""


def _shm_mib(node: Node) -> int | None:
    """MiB of /dev/shm, 64 by default; None where it is the host's, another container's or a mount, or the size is
    unreadable.
    """
    if size := _substituted_text(node.at("shm_size")):
        return size_mib(size)
    mounts = [*node.at("tmpfs").list(), *node.at("volumes").list(), node.at("tmpfs")]
    if any("/dev/shm" in (mount.text or mount.at("target").text) for mount in mounts):
        return None
    ipc = _substituted_text(node.at("ipc"))
    return None if ipc == "host" or ":" in ipc else _DEFAULT_SHM_MIB


def _shm_source(node: Node, source: str, manifest: Manifest) -> str:
    """The source of the /dev/shm size: its line, which is marked as understood, or that it is Docker's default."""
    if size := node.at("shm_size"):
        return manifest.use(size.line)
    return f"{source}: Docker's own size, for nothing else is said"


def variables_of(node: Node) -> Iterator[tuple[str, tuple[str, int]]]:
    """Name, value and line of each environment variable, given as a mapping or as NAME=value."""
    section = node.at("environment")
    for name, value_node in section.items():
        if value_node.given:
            yield name, (_substituted_text(value_node), value_node.line)
    for entry in section.list():
        name, equals, value = entry.text.partition("=")
        if equals:
            yield name, (substituted(value, {}), entry.line)


def _variable_facts(node: Node, manifest: Manifest) -> Iterator[tuple[str, Fact | Rows]]:
    """Facts ``env.NAME`` of variables about GPU software, and what follows; those with a ``$`` left are left out."""
    values: Mapping[str, Fact] = {
        name: Known(value, manifest.use(line))
        for name, (value, line) in variables_of(node)
        if is_gpu_variable(name) and "$" not in value
    }
    yield from variable_facts(values)


def _referenced_files(node: Node) -> Iterator[str]:
    """Paths of files that add to the service: its Dockerfile, the file of the extended service, variable files."""
    build = node.at("build")
    if build:
        folder = _substituted_text(build) or _substituted_text(build.at("context")) or "."
        yield os.path.normpath(f"{folder}/{_substituted_text(build.at('dockerfile')) or 'Dockerfile'}")
    if file := node.at("extends", "file").text:
        yield file
    for entry in [node.at("env_file"), *node.at("env_file").list()]:
        if path := entry.text or entry.at("path").text:
            yield path


def _substituted_text(node: Node) -> str:
    """The node's scalar with variables replaced by their defaults; variables without one stay as written."""
    return substituted(node.text, {})
