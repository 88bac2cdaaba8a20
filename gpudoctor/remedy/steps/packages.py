"""The system's packages before and after a step, and the commands that take a change back."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpudoctor.target.child import run_child

Versions = Mapping[str, str]
"""By name, with the architecture where there may be several: ``libcuda1:amd64``, ``535.183.01-1``."""
_PATIENCE = 30.0
_MOST = 32 << 20
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
    """What one package manager has installed."""

    manager: str
    versions: Versions


def installed(environ: Mapping[str, str] = os.environ) -> Packages | None:
    """What is installed now; None where no package manager that we know is here, or it does not say."""
    path = environ.get("PATH", os.defpath)
    for manager, query in _QUERIES.items():
        if not shutil.which(manager, path=path) or not shutil.which(query[0], path=path):
            continue
        answer = run_child(query, _PATIENCE, {**environ, "LC_ALL": "C"}, limit=_MOST)
        if answer.status == 0:
            return Packages(manager, dict(_rows(manager, answer.out)))
    return None


def _rows(manager: str, text: str) -> list[tuple[str, str]]:
    if manager == "pacman":
        rows = [line.split() for line in text.splitlines()]
        return [(row[0], row[1]) for row in rows if len(row) == 2]
    found = (line.split("\t") for line in text.splitlines())
    return [(row[1], row[2]) for row in found if len(row) == 3 and row[0].strip().endswith("i")]


def changes(before: Versions, after: Versions) -> tuple[str, ...]:
    """What came, went and changed, in words."""
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return tuple(
        f"{name} {before.get(name, 'not installed')} → {after.get(name, 'removed')} (system)" for name in names
    )


def back(manager: str, before: Versions, after: Versions) -> tuple[tuple[str, ...], ...]:
    """The commands that bring `after` back to `before`; a name or version that is none is never a word of them."""
    names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    sane = [name for name in names if _SANE.fullmatch(name) and _SANE.fullmatch(before.get(name, "0"))]
    came = [name for name in sane if name not in before]
    others = [(name, before[name]) for name in sane if name in before]
    if not came and not others:
        return ()
    if manager == "apt-get":  # one transaction: what came and what it took the place of may not stand together
        words = [f"{name}={version}" for name, version in others] + [f"{name}-" for name in came]
        return (("apt-get", "install", "-y", "--allow-downgrades", *words),)
    return tuple(_apart(manager, came, others))


def _apart(manager: str, came: Sequence[str], others: Sequence[tuple[str, str]]) -> list[tuple[str, ...]]:
    remove = {"dnf": ("dnf", "remove", "-y"), "zypper": ("zypper", "--non-interactive", "remove")}
    install = {"dnf": ("dnf", "install", "-y"), "zypper": ("zypper", "--non-interactive", "install", "--oldpackage")}
    if manager == "pacman":  # older packages lie in its cache, by file
        files = [f"/var/cache/pacman/pkg/{name}-{version}-x86_64.pkg.tar.zst" for name, version in others]
        remove["pacman"], install["pacman"] = ("pacman", "-R", "--noconfirm"), ("pacman", "-U", "--noconfirm")
        words = files
    else:
        words = [_with_version(manager, name, version) for name, version in others]
    out = [(*remove[manager], *came)] if came else []
    return [*out, *([(*install[manager], *words)] if words else [])]


def _with_version(manager: str, name: str, version: str) -> str:
    plain, _, arch = name.rpartition(".")
    return f"{plain}-{version}.{arch}" if manager == "dnf" else f"{plain}.{arch}={version}"
