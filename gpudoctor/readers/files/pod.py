"""Kubernetes manifests that start pods: Pod, Deployment, Job, StatefulSet, DaemonSet, CronJob, and lists of them.

Their format: kubernetes.io, API reference of PodSpec; Schedule GPUs; volumes of medium Memory (read 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.readers._software import is_gpu_variable, variable_facts
from gpudoctor.readers.files._manifest import Manifest, Node, Service, documents, first_gpu_service, size_mib

KIND = "pod"
_DEFAULT_SHM_MIB = 64
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
    """Whether the file name is a pod manifest's: ``pod.yaml``, ``train-deployment.yml``, ``cronjob.yaml``."""
    return bool(re.fullmatch(r"(?:.*[-_.])?(?:pod|deployment|statefulset|daemonset|cronjob)\.ya?ml", name))


def recognizes(text: str) -> bool:
    """Whether the text is a Kubernetes manifest: an API version, and a kind that starts pods or is ``List``."""
    return len(_MANIFEST.findall(text[: 1 << 20])) > 1 and bool(_KINDS.search(text))


def read(manifest: Manifest) -> Iterator[tuple[str, Fact | Rows]]:
    """A row of ``service`` for each container; variables and /dev/shm size of the one that is about GPUs.

    Nothing where no pod is started; raises `UnreadableError` for broken YAML.
    """
    services: list[tuple[Service, str, tuple[Node, Node]]] = []
    for spec in _pod_specs(manifest):
        containers = [*spec.at("initContainers").list(), *spec.at("containers").list()]
        services += [
            (_service(container, spec), manifest.use(container.line), (container, spec)) for container in containers
        ]
    if not services:
        return
    yield "service", tuple(service.row(source) for service, source, _ in services)
    yield "container.asks_gpus", Known(any(service.asks for service, _, _ in services), manifest.name)
    service, source, (container, _) = first_gpu_service(services)
    yield "host.container", Known("kubernetes", source)
    yield "host.platform", Known("linux", source)
    if service.shm_mib is not None:
        yield "limits.shm_mib", Known(service.shm_mib, source)
    values: Mapping[str, Fact] = {
        entry.at("name").text: Known(entry.at("value").text, manifest.use(entry.at("value").line))
        for entry in container.at("env").list()
        if is_gpu_variable(entry.at("name").text) and entry.at("value").given and "$(" not in entry.at("value").text
    }
    yield from variable_facts(values)


def _pod_specs(manifest: Manifest) -> Iterator[Node]:
    """The PodSpec of every resource that starts pods, lists included."""
    for document in documents(manifest.text, _WORDS):
        for resource in [document, *document.at("items").list()] if document.at("kind").text == "List" else [document]:
            path = _TEMPLATES.get(resource.at("kind").text)
            if path and resource.at("apiVersion").text and (spec := resource.at(*path)):
                manifest.use(resource.key_line("kind"))
                yield spec


def _service(container: Node, spec: Node) -> Service:
    """The container's image, GPU request (limits, claims or runtime class) and /dev/shm size; `spec` is its pod's."""
    runtime = spec.at("runtimeClassName").text
    limits = [(name, value) for name, value in container.at("resources", "limits").items() if _GPU.fullmatch(name)]
    asks = next((f"{name}: {value.text}" for name, value in limits if value.text not in ("0", "")), "")
    if not asks and spec.at("resourceClaims").list() and container.at("resources", "claims").list():
        asks = "resourceClaims"
    if not asks and "nvidia" in runtime:
        asks = f"runtimeClassName: {runtime}"
    names = {entry.at("name").text for entry in container.at("env").list()}
    image = container.at("image").text
    return Service(container.at("name").text, image, asks, _shm_mib(container, spec), "NVIDIA_VISIBLE_DEVICES" in names)


def _shm_mib(container: Node, spec: Node) -> int | None:
    """MiB of /dev/shm, 64 by default; None if it is the host's (hostIPC), or a volume without a readable limit."""
    volume = next(
        (
            entry.at("name").text
            for entry in container.at("volumeMounts").list()
            if entry.at("mountPath").text.rstrip("/") == "/dev/shm"
        ),
        "",
    )
    if not volume:
        return None if spec.at("hostIPC").text.lower() == "true" else _DEFAULT_SHM_MIB
    for entry in spec.at("volumes").list():
        if entry.at("name").text == volume and (limit := entry.at("emptyDir", "sizeLimit").text):
            return size_mib(limit)
    return None
