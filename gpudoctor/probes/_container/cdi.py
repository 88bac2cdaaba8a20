"""CDI files: what a host hands into containers as ``nvidia.com/gpu``. Read by line patterns, as YAML or as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.model.fact import Absent, Fact, Known, Unread
from gpudoctor.model.pattern import pattern
from gpudoctor.probes._reading import names, real, text
from gpudoctor.target import Target

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
