"""Modules that are built on the machine itself, by DKMS or akmods, and why a build failed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.model.fact import Absent, Fact, Known, Unread
from gpudoctor.model.pattern import pattern
from gpudoctor.probes._reading import names, text, there
from gpudoctor.target import Target

_DKMS = "/var/lib/dkms"
_AKMODS = "/var/cache/akmods/nvidia"
_PACKAGE = pattern(r"nvidia(?:-(?:current|open|tesla|legacy|srv|\d+\w*))*")
"""The driver's name in DKMS; Debian says nvidia-current. nvidia-fs beside it is another module."""

_ERROR = pattern(r"^.*(?:\berror:|\bError [1-9]|\*\*\* |No such file or directory).*$", re.M | re.I)


def sources(target: Target) -> list[str] | Unread:
    """Folders ``<package>/<version>`` of each driver whose source DKMS keeps, newest name last."""
    packages = names(target, _DKMS)
    out: list[str] = []
    for package in packages if isinstance(packages, list) else ():
        if not _PACKAGE.fullmatch(package):
            continue
        found = names(target, f"{_DKMS}/{package}")
        if isinstance(found, Unread):
            return found
        out += [f"{_DKMS}/{package}/{name}" for name in found if name[:1].isdigit()] if isinstance(found, list) else []
    return packages if isinstance(packages, Unread) else out


def version_built(target: Target, kernel: str) -> Known | None:
    """Version of the driver that DKMS has built for that kernel."""
    found = sources(target)
    for folder in found if isinstance(found, list) else ():
        if there(target, f"{folder}/{kernel}") is True:
            return Known(folder.rpartition("/")[2], f"{folder}/{kernel}")
    return None


def builds(target: Target, kernel: str, hidden: str) -> Iterator[tuple[str, Fact]]:
    """``installed`` where the built module is in the kernel's folder, else ``built``, else ``added``."""
    kept = sources(target)
    state: Fact
    error: Fact
    if isinstance(kept, Unread):
        state = error = kept
    elif hidden and not kept:
        state = error = Unread(hidden)
    else:
        state = _state(target, kept, kernel)
        failed = isinstance(state, Known) and state.value == "added"
        log = f"{kept[-1]}/build/make.log" if failed else _akmods_log(target, kernel)
        error = _first_error(target, log, kernel) if log else Absent("no build for the running kernel has failed")
    yield "driver.dkms", state
    yield "driver.dkms_error", error


def _state(target: Target, kept: list[str], kernel: str) -> Fact:
    if not kept:
        return Absent(f"no driver in {_DKMS}")
    state = Known("added", kept[-1])
    for folder in kept:
        if there(target, f"{folder}/{kernel}") is True:
            marks = names(target, folder.rpartition("/")[0])
            linked = isinstance(marks, list) and any(name.startswith(f"kernel-{kernel}-") for name in marks)
            state = Known("installed" if linked else "built", f"{folder}/{kernel}")
    return state


def _akmods_log(target: Target, kernel: str) -> str:
    """akmods keeps ``<version>-for-<kernel>.failed.log`` of a build that failed."""
    found = names(target, _AKMODS)
    logs = [name for name in found if name.endswith(f"-for-{kernel}.failed.log")] if isinstance(found, list) else []
    return f"{_AKMODS}/{logs[-1]}" if logs else ""


def _first_error(target: Target, path: str, kernel: str) -> Fact:
    """The first error in the log. The first line of DKMS's log names the kernel it was for; akmods' file name does."""
    log = text(target, path, 8 << 20)
    if not isinstance(log, str):
        return log
    if kernel not in log.partition("\n")[0] and kernel not in path:
        return Absent(f"{path} is of another kernel's build")
    match = _ERROR.search(log)
    return Known(match[0].strip()[:300], path) if match else Absent(f"{path} shows no error")
