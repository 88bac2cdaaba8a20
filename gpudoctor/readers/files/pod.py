"""Kubernetes manifests that start pods: Pod, Deployment, Job, StatefulSet, DaemonSet, CronJob, and lists of them.

Their format: kubernetes.io, API reference of PodSpec; Schedule GPUs; volumes of medium Memory (read 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._variables import derived, wanted
from gpudoctor.readers.files._manifest import Manifest
from gpudoctor.readers.files._services import Service, gpu_first
from gpudoctor.readers.files._sizes import mib
from gpudoctor.readers.files._yaml import Node, documents

KIND = "pod"
_KUBERNETES_SHM = 64
"""MiB of /dev/shm that a container runtime gives where no volume is mounted there."""
_TEMPLATES = {
    "Pod": ("spec",),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
    **dict.fromkeys(("Deployment", "Job", "StatefulSet", "DaemonSet", "ReplicaSet"), ("spec", "template", "spec")),
}
_MANIFEST = re.compile(r"^(?:apiVersion|kind):\s*\S", re.MULTILINE)
_KINDS = re.compile(rf"^[\s-]*kind:\s*(?:{'|'.join(_TEMPLATES)}|List)\b", re.MULTILINE)
_GPU = re.compile(r"nvidia\.com/(?:gpu(?:\.shared)?|mig-\w[\w.]*|[\w.-]*gpu[\w.-]*)|.*/(?:gpu|vgpu)", re.IGNORECASE)
_WORDS = ("containers:", 'containers":')


def named(name: str) -> bool:
    """``pod.yaml``, ``job.yaml``, ``deployment.yml``."""
    return bool(re.fullmatch(r"(?:.*[-_.])?(?:pod|deployment|statefulset|daemonset|cronjob)\.ya?ml", name))


def told(text: str) -> bool:
    """Whether it names an API version and a kind that starts pods."""
    return len(_MANIFEST.findall(text[: 1 << 20])) > 1 and bool(_KINDS.search(text))


def read(manifest: Manifest) -> Iterator[tuple[str, Fact | Rows]]:
    """A row for each container; the variables and the shared memory of the first that has to do with GPUs."""
    found: list[tuple[Service, str, tuple[Node, Node]]] = []
    for spec in _specs(manifest):
        containers = [*spec.at("initContainers").list(), *spec.at("containers").list()]
        found += [(_service(one, spec), manifest.use(one.line), (one, spec)) for one in containers]
    if not found:
        return
    yield "service", tuple(service.row(source) for service, source, _ in found)
    yield "container.asks_gpus", Known(any(service.asks for service, _, _ in found), manifest.name)
    service, source, (container, _) = gpu_first(found)
    yield "host.container", Known("kubernetes", source)
    yield "host.platform", Known("linux", source)
    if service.shm_mib is not None:
        yield "limits.shm_mib", Known(service.shm_mib, source)
    values: Mapping[str, Fact] = {
        entry.at("name").text: Known(entry.at("value").text, manifest.use(entry.at("value").line))
        for entry in container.at("env").list()
        if wanted(entry.at("name").text) and entry.at("value").given and "$(" not in entry.at("value").text
    }
    yield from ((f"env.{name}", value) for name, value in values.items())
    yield from derived(values)


def _specs(manifest: Manifest) -> Iterator[Node]:
    """The specification of every pod that the documents start."""
    for document in documents(manifest.text, _WORDS):
        for one in [document, *document.at("items").list()] if document.at("kind").text == "List" else [document]:
            path = _TEMPLATES.get(one.at("kind").text)
            if path and one.at("apiVersion").text and (spec := one.at(*path)):
                manifest.use(one.key_line("kind"))
                yield spec


def _service(container: Node, spec: Node) -> Service:
    runtime = spec.at("runtimeClassName").text
    limits = [(name, value) for name, value in container.at("resources", "limits").items() if _GPU.fullmatch(name)]
    asks = next((f"{name}: {value.text}" for name, value in limits if value.text not in ("0", "")), "")
    if not asks and spec.at("resourceClaims").list() and container.at("resources", "claims").list():
        asks = "resourceClaims"
    if not asks and "nvidia" in runtime:
        asks = f"runtimeClassName: {runtime}"
    names = {entry.at("name").text for entry in container.at("env").list()}
    image = container.at("image").text
    return Service(container.at("name").text, image, asks, _shm(container, spec), "NVIDIA_VISIBLE_DEVICES" in names)


def _shm(container: Node, spec: Node) -> int | None:
    """MiB of /dev/shm; none where a volume without a limit, or the host's, is mounted there."""
    volume = next(
        (
            one.at("name").text
            for one in container.at("volumeMounts").list()
            if one.at("mountPath").text.rstrip("/") == "/dev/shm"
        ),
        "",
    )
    if not volume:
        return None if spec.at("hostIPC").text.lower() == "true" else _KUBERNETES_SHM
    for one in spec.at("volumes").list():
        if one.at("name").text == volume and (limit := one.at("emptyDir", "sizeLimit").text):
            return mib(limit)
    return None
