"""compose.yaml: each service, its image, the GPUs that it asks for, its variables and its shared memory.

Its format: compose-spec (github.com/compose-spec/compose-spec, 05-services.md and deploy.md), and docs.docker.com,
Run Docker Compose services with GPU access (read 2026-11).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._variables import derived, wanted
from gpudoctor.readers.files._instructions import filled
from gpudoctor.readers.files._manifest import Manifest
from gpudoctor.readers.files._services import Service, gpu_first
from gpudoctor.readers.files._sizes import mib
from gpudoctor.readers.files._yaml import Node, documents

KIND = "compose"
_DOCKERS_SHM = 64
"""MiB of /dev/shm that Docker gives a container where nothing else is said."""
_NAME = re.compile(r"(?:.*[-_.])?compose(?:[-_.].*)?\.ya?ml")
_SERVICES = re.compile(r"^services:\s*(?:#.*)?$", re.MULTILINE)
_NO_GPUS = ("", "none", "void")


def named(name: str) -> bool:
    """``compose.yaml``, ``docker-compose.gpu.yml``."""
    return bool(_NAME.fullmatch(name))


def told(text: str) -> bool:
    """Whether it has services at its left edge, and images or builds below them."""
    return bool(_SERVICES.search(text)) and bool(re.search(r"^\s+(?:image|build):", text, re.MULTILINE))


def read(manifest: Manifest) -> Iterator[tuple[str, Fact | Rows]]:
    """A row for each service; the variables and the shared memory of the first that has to do with GPUs."""
    tree = next(iter(documents(manifest.text)), Node())
    found: list[tuple[Service, str, Node]] = []
    elsewhere: list[str] = []
    for name, node in tree.at("services").items():
        if node.is_mapping:
            found.append((_service(name, node), manifest.use(node.line - 1 if node.line > 1 else 1), node))
            elsewhere += _elsewhere(node)
    if not found:
        return
    yield "service", tuple(service.row(source) for service, source, _ in found)
    yield "container.asks_gpus", Known(any(service.asks for service, _, _ in found), manifest.name)
    service, source, node = gpu_first(found)
    yield "host.container", Known("docker", source)
    yield "host.platform", Known("linux", source)
    if service.shm_mib is not None:
        yield "limits.shm_mib", Known(service.shm_mib, _shm_source(node, source, manifest))
    yield from _variables(node, manifest)
    if elsewhere:
        yield "manifest.elsewhere", Known(tuple(dict.fromkeys(elsewhere))[:20], source)


def _service(name: str, node: Node) -> Service:
    values = dict(variables_of(node))
    runtime = _text(node.at("runtime"))
    asks = _asks(node) or ("runtime: nvidia" if "nvidia" in runtime else "")
    visible = values.get("NVIDIA_VISIBLE_DEVICES", (None, 0))[0]
    if visible is not None and visible.strip().lower() in _NO_GPUS and "runtime" in asks:
        asks = ""
    return Service(name, _text(node.at("image")), asks, _shm(node), bool(visible) and visible not in _NO_GPUS)


def _asks(node: Node) -> str:
    """How the service asks for GPUs; empty where it does not."""
    gpus = node.at("gpus")
    if _text(gpus) or gpus.list():
        return f"gpus: {_text(gpus) or 'devices'}"
    for device in node.at("deploy", "resources", "reservations", "devices").list():
        capabilities = [one.text for one in device.at("capabilities").list()]
        count = _text(device.at("count"))
        if count != "0" and (
            {"gpu", "nvidia", "compute"} & set(capabilities) or _text(device.at("driver")) in ("nvidia", "cdi")
        ):
            return f"devices: {count or 'all'}"
    for device in [*node.at("devices").list(), *node.at("device_requests").list()]:
        if "nvidia.com/gpu" in _text(device) or "/dev/nvidia" in _text(device):
            return f"devices: {_text(device)}"
    return ""


def _shm(node: Node) -> int | None:
    """MiB of /dev/shm; none where it is the host's, or a volume's."""
    if size := _text(node.at("shm_size")):
        return mib(size)
    mounts = [*node.at("tmpfs").list(), *node.at("volumes").list(), node.at("tmpfs")]
    if any("/dev/shm" in (one.text or one.at("target").text) for one in mounts):
        return None
    ipc = _text(node.at("ipc"))
    return None if ipc in ("host", "shareable") or ":" in ipc else _DOCKERS_SHM


def _shm_source(node: Node, source: str, manifest: Manifest) -> str:
    if size := node.at("shm_size"):
        return manifest.use(size.line)
    return f"{source}: Docker's own size, for nothing else is said"


def variables_of(node: Node) -> Iterator[tuple[str, tuple[str, int]]]:
    """Name, value and line of each variable, written as a mapping or as NAME=value."""
    section = node.at("environment")
    for name, node_of in section.items():
        if node_of.given:
            yield name, (_text(node_of), node_of.line)
    for entry in section.list():
        name, sign, value = entry.text.partition("=")
        if sign:
            yield name, (filled(value, {}), entry.line)


def _variables(node: Node, manifest: Manifest) -> Iterator[tuple[str, Fact | Rows]]:
    values: Mapping[str, Fact] = {
        name: Known(value, manifest.use(line))
        for name, (value, line) in variables_of(node)
        if wanted(name) and "$" not in value
    }
    yield from ((f"env.{name}", value) for name, value in values.items())
    yield from derived(values)


def _elsewhere(node: Node) -> Iterator[str]:
    """Files that say more of the service: its Dockerfile, the service that it extends, its variables."""
    build = node.at("build")
    if build:
        folder = _text(build) or _text(build.at("context")) or "."
        yield os.path.normpath(f"{folder}/{_text(build.at('dockerfile')) or 'Dockerfile'}")
    if file := node.at("extends", "file").text:
        yield file
    for entry in [node.at("env_file"), *node.at("env_file").list()]:
        if path := entry.text or entry.at("path").text:
            yield path


def _text(node: Node) -> str:
    """The scalar with its variables replaced by their defaults."""
    return filled(node.text, {})
