"""Where torch is in the target's environment and what its ``version.py`` says."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpudoctor.model.fact import Absent, Unread
from gpudoctor.model.frozen import frozen
from gpudoctor.model.pattern import pattern
from gpudoctor.probes._python.dists import Dist, Environment, environment
from gpudoctor.probes._python.site import Site, once, site_of
from gpudoctor.target import Target

_ASSIGNMENT = pattern(r"^(\w+)\s*(?::[^=\n]+)?=\s*(?:(['\"])(.*?)\2|None|True|False)\s*$", re.MULTILINE)


@frozen
class Torch:
    """The torch that an import would meet: `said` are version.py's texts, `path` is empty where it has no package."""

    version: str
    path: str
    said: Mapping[str, str]
    site: Site
    environment: Environment
    dist: Dist | None

    @property
    def source(self) -> str:
        """Where the version was read."""
        return f"{self.path}/version.py" if self.path else self.dist.path if self.dist else ""


def torch_of(target: Target) -> Torch | Absent | Unread:
    """The target's torch, read from its files."""
    return once(target, "torch", lambda: _find(target))


def assignments(text: str) -> dict[str, str]:
    """Top-level ``name = 'text'`` lines of a Python file, never executed; None, True and False are left out."""
    return {match[1]: match[3] for match in _ASSIGNMENT.finditer(text) if match[3] is not None}


def _find(target: Target) -> Torch | Absent | Unread:
    site = site_of(target)
    found = environment(target)
    if not isinstance(site, Site):
        return site
    if not isinstance(found, Environment):
        return found
    for folder in site.folders:
        try:
            text = target.read(f"{folder}/torch/version.py", 1 << 16)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return Unread(f"{folder}/torch/version.py could not be read: {error.strerror or error}")
        said = assignments(text)
        dists = [dist for dist in found.all("torch") if dist.folder == folder]
        dist = next((one for one in dists if one.version == said.get("__version__")), dists[0] if dists else None)
        version = said.get("__version__") or (dist.version if dist else "")
        if not version:
            return Unread(f"{folder}/torch/version.py names no version")
        return Torch(version, f"{folder}/torch", said, site, found, dist)
    dist = found.first("torch")
    if dist:
        return Torch(dist.version, "", {}, site, found, dist)
    return Absent(f"torch is not installed in {site.prefix} (looked in {', '.join(site.folders) or 'no folder'})")
