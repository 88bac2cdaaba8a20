"""The system's packages before and after a step, and the commands that take a change back."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpudoctor.target.child import run_child

Versions = Mapping[str, str]
"""By name, with the architecture where there may be several: ``libcuda1:amd64``, ``535.183.01-1``. Versions that stand
beside one another, as of kernels by rpm, are joined by commas.
"""
_QUERY_SECONDS = 30.0
_MOST_OUTPUT_BYTES = 32 << 20
_QUERIES = {
    "apt-get": ("dpkg-query", "-W", "-f", "${db:Status-Abbrev}\t${binary:Package}\t${Version}\n"),
    "dnf": ("rpm", "-qa", "--qf", "ii\t%{NAME}.%{ARCH}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\n"),
    "zypper": ("rpm", "-qa", "--qf", "ii\t%{NAME}.%{ARCH}\t%{VERSION}-%{RELEASE}\n"),
    "pacman": ("pacman", "-Q"),
}
MANAGERS = (*_QUERIES, "apt", "yum", "microdnf")
_SANE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_:~^-]*")


@dataclass(frozen=True, slots=True)
class Packages:
    """Packages installed by one package manager of the system."""

    manager: str
    versions: Versions


def installed(environ: Mapping[str, str] = os.environ) -> Packages | None:
    """The system's packages by its package manager; None if it has no known one or the query fails."""
    path = environ.get("PATH", os.defpath)
    for manager, query in _QUERIES.items():
        if not shutil.which(manager, path=path) or not shutil.which(query[0], path=path):
            continue
        answer = run_child(query, _QUERY_SECONDS, {**environ, "LC_ALL": "C"}, limit=_MOST_OUTPUT_BYTES)
        if answer.status == 0:
            return Packages(manager, _installed_versions(manager, answer.out))
    return None


def _installed_versions(manager: str, text: str) -> Versions:
    """Version by package in the output of the manager's query: ``name version`` lines from pacman, else status (ends in
    ``i`` if installed), name and version, separated by tabs. Several versions of one are joined by commas.
    """
    rows = [["i", *line.split()] if manager == "pacman" else line.split("\t") for line in text.splitlines()]
    found: dict[str, list[str]] = {}
    for status, name, version in (row for row in rows if len(row) == 3):
        if status.strip().endswith("i"):
            found.setdefault(name, []).append(version)
    return {name: ", ".join(sorted(versions)) for name, versions in found.items()}


def changes(before: Versions, after: Versions) -> tuple[str, ...]:
    """Differences of two states as text, one per package: ``libcuda1:amd64 535.183.01-1 → removed (system)``."""
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return tuple(
        f"{name} {before.get(name, 'not installed')} → {after.get(name, 'removed')} (system)" for name in names
    )


def revert_commands(manager: str, before: Versions, after: Versions) -> tuple[tuple[str, ...], ...]:
    """Commands that change the packages from `after` back to `before`; malformed names and versions are left out."""
    came: list[str] = []
    others: list[tuple[str, str]] = []
    for name in sorted({*before, *after}):
        then, now = (versions[name].split(", ") if name in versions else [] for versions in (before, after))
        beside = [version for version in now if version not in then] if max(len(then), len(now)) > 1 else []
        if not all(map(_SANE.fullmatch, (name, *then, *beside))):
            continue
        came += [_pinned_name(manager, name, version) for version in beside] if then else [name]
        others += [(name, version) for version in then if version not in now]
    if not came and not others:
        return ()
    if manager == "apt-get":  # one transaction: what came and what it took the place of may not stand together
        words = [f"{name}={version}" for name, version in others] + [f"{name}-" for name in came]
        return (("apt-get", "install", "-y", "--allow-downgrades", *words),)
    return tuple(_remove_and_install(manager, came, others))


def _remove_and_install(manager: str, added: Sequence[str], others: Sequence[tuple[str, str]]) -> list[tuple[str, ...]]:
    """Up to two commands: one removes the added packages, one installs the (name, version) in `others`."""
    remove = {"dnf": ("dnf", "remove", "-y"), "zypper": ("zypper", "--non-interactive", "remove")}
    install = {"dnf": ("dnf", "install", "-y"), "zypper": ("zypper", "--non-interactive", "install", "--oldpackage")}
    if manager == "pacman":  # older packages lie in its cache, by file
        words = [f"/var/cache/pacman/pkg/{name}-{version}-x86_64.pkg.tar.zst" for name, version in others]
        remove["pacman"], install["pacman"] = ("pacman", "-R", "--noconfirm"), ("pacman", "-U", "--noconfirm")
    else:
        words = [_pinned_name(manager, name, version) for name, version in others]
    out = [(*remove[manager], *added)] if added else []
    return [*out, *([(*install[manager], *words)] if words else [])]


def _pinned_name(manager: str, name: str, version: str) -> str:
    """Package with version as dnf takes it (``name-version.arch``), else as zypper does (``name.arch=version``)."""
    plain, _, arch = name.rpartition(".")
    return f"{plain}-{version}.{arch}" if manager == "dnf" else f"{plain}.{arch}={version}"
