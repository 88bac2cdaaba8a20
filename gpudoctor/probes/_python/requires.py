"""What a distribution requires, by its METADATA, where the environment markers hold for the target's interpreter."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from gpudoctor.model.distribution import normal
from gpudoctor.model.pattern import pattern
from gpudoctor.probes._python.dists import Dist, headers
from gpudoctor.probes._python.site import Site
from gpudoctor.target import Target

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TAG = pattern(r"(linux|win|macosx).*?_(x86_64|aarch64|ppc64le|s390x|amd64|arm64)\b")


def requirements(
    target: Target, site: Site, dist: Dist, wanted: Callable[[str], bool], extras: Sequence[str] = ("",)
) -> Iterator[Requirement]:
    """Requirements on names that `wanted` takes and that apply here with one of `extras`; unreadable ones are left out.

    Raises `OSError` where METADATA is refused.
    """
    told = headers(target, dist).get("requires-dist", ())
    lines = [line for line in told if _is(line, wanted) and _may_apply(line, extras)]
    if not lines:
        return
    from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
    from packaging.requirements import InvalidRequirement, Requirement  # 25 ms: only where there is something to check

    surroundings = [_markers(target, site, dist, extra) for extra in extras]
    for line in lines:
        try:
            found = Requirement(line)
            applies = found.marker is None or any(found.marker.evaluate(around) for around in surroundings)
        except (InvalidRequirement, UndefinedComparison, UndefinedEnvironmentName):
            continue
        if applies:
            yield found


def meets(version: str, requirement: Requirement) -> bool:
    """Whether that version is one the requirement takes, pre-releases included."""
    return requirement.specifier.contains(version, prereleases=True)


def exact(requirement: Requirement) -> list[str]:
    """The versions that it pins with ``==``."""
    return [item.version for item in requirement.specifier if item.operator == "=="]


def wanted_text(requirement: Requirement) -> str:
    """``9.1.0.70`` for an exact pin, ``<14,>=13.0.3`` for anything else."""
    specifiers = list(requirement.specifier)
    if len(specifiers) == 1 and specifiers[0].operator == "==":
        return specifiers[0].version
    return ",".join(sorted(map(str, specifiers)))


def least(requirement: Requirement) -> str:
    """The exact or lowest version that meets it, ``13.0.96`` for ``==13.0.96.*``; empty where it names none."""
    found = [item.version for item in requirement.specifier if item.operator in ("==", ">=", "~=")]
    return found[0].removesuffix(".*") if found else ""


def _is(line: str, wanted: Callable[[str], bool]) -> bool:
    match = _NAME.match(line)
    return bool(match) and wanted(normal(match[0])) if match else False


def _may_apply(line: str, extras: Sequence[str]) -> bool:
    """Whether the marker, as text, asks for none of the extras or for one of ours."""
    found = re.findall(r"""\bextra\s*==\s*["']([^"']+)["']""", line)
    return not found or any(normal(extra) in extras for extra in found)


def _platform(target: Target, dist: Dist) -> tuple[str, str]:
    """System and machine that the distribution's wheel was made for; of no wheel, those of this machine."""
    try:
        match = _TAG.search(target.read(f"{dist.path}/WHEEL", 1 << 14))
    except OSError:
        match = None
    return (match[1], match[2]) if match else ("linux", os.uname().machine)


def _markers(target: Target, site: Site, dist: Dist, extra: str) -> dict[str, str]:
    """The marker environment of the target's interpreter."""
    system, machine = _platform(target, dist)
    name = {"linux": "Linux", "win": "Windows", "macosx": "Darwin"}[system]
    return {
        "implementation_name": site.implementation,
        "implementation_version": site.version,
        "os_name": "nt" if system == "win" else "posix",
        "platform_machine": machine.upper() if system == "win" else machine,
        "platform_python_implementation": {"cpython": "CPython", "pypy": "PyPy"}.get(site.implementation, ""),
        "platform_release": "",
        "platform_system": name,
        "platform_version": "",
        "python_full_version": site.version,
        "python_version": site.minor,
        "sys_platform": {"Linux": "linux", "Windows": "win32", "Darwin": "darwin"}[name],
        "extra": extra,
    }
