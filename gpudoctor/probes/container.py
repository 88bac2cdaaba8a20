"""Containers from both sides: what this container was asked to get and got; what a host's engines know of NVIDIA.

Inside a container the host's engines cannot be seen, and on a host there is no container to speak of: the facts of the
one side are unread or absent on the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.model.catalog import fact
from gpudoctor.model.fact import Absent, Fact, Known, Rows, Unread
from gpudoctor.model.pattern import pattern
from gpudoctor.probes import _marks
from gpudoctor.probes._container import engines, inside
from gpudoctor.probes._reading import names, real, text
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
FACTS = (*_INSIDE, *_HOST)


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Files only; inside a container one shell opens /dev/nvidiactl, which is how device rules are asked."""
    found = _marks.container(target)
    if isinstance(found, Known):
        yield from inside.facts(target, str(found.value))
        yield from ((spec.name, Unread(_marks.host_hidden(target))) for spec in _HOST)
        return
    outside = Absent("not in a container") if isinstance(found, Absent) else found
    yield from ((spec.name, outside) for spec in _INSIDE)
    yield from engines.facts(target)
    yield from facts(target)


# ---- CDI files ----
# What a host hands into containers as ``nvidia.com/gpu``. Read by line patterns, as YAML or as JSON.

_FOLDERS = ("/var/run/cdi", "/run/cdi", "/etc/cdi")
"""Engines read these, and take a device from /var/run/cdi where both have it."""

_KIND = pattern(r"""^\s*"?kind"?\s*:\s*["']?nvidia\.com/gpu["']?\s*,?\s*$""", re.M)
_DRIVER = pattern(r"/lib(?:cuda|nvidia-ml)\.so\.(\d{2,4}\.\d+(?:\.\d+)?)")


def facts(target: Target) -> Iterator[tuple[str, Fact]]:
    """The files by precedence, and the driver that the first one was written for."""
    specs: dict[str, str] = {}
    trouble: Unread | None = None
    seen: set[str] = set()
    for folder in _FOLDERS:
        found = names(target, folder)
        if isinstance(found, Unread):
            trouble = trouble or found
        place = real(target, folder)
        if not isinstance(found, list) or place in seen:
            continue
        seen.add(place)
        for name in found:
            if name.endswith((".yaml", ".yml", ".json")):
                path = f"{folder}/{name}"
                said = text(target, path)
                if isinstance(said, str) and _KIND.search(said):
                    specs[path] = said
                elif isinstance(said, Unread):
                    trouble = trouble or said
    if not specs and trouble:
        yield from ((name, trouble) for name in ("container.cdi_specs", "container.cdi_driver"))
        return
    yield "container.cdi_specs", Known(tuple(specs), ", ".join(_FOLDERS[::2]))
    yield "container.cdi_driver", _driver(specs)


def _driver(specs: dict[str, str]) -> Fact:
    if not specs:
        return Absent(f"no file in {_FOLDERS[0]} or {_FOLDERS[2]} describes nvidia.com/gpu")
    path, said = next(iter(specs.items()))
    match = _DRIVER.search(said)
    return Known(match[1], path) if match else Absent(f"{path} names no libcuda with a version")
