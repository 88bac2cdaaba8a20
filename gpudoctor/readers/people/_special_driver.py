"""Labels of the driver whose value says several things: its package, its kernel modules, its services."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._forms import FORMS
from gpudoctor.readers._labels import Label
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import driver_version, libcuda_kind, missing

Answers = Iterator[tuple[str, "Fact | Rows"]]

_PACKAGE = Pattern(
    r"\bnvidia-(?:driver|dkms|kernel-source|headless)-(?P<branch>\d{3})(?:-server)?(?:-open)?\b"
    r"|\bnvidia-open(?:-dkms|-lts|-beta|-\d{3})?\b|\bakmod-nvidia-open\b|\bnvidia-dkms\b|\bnvidia-driver\b",
    2,
)
_FLAVOUR = Pattern(
    r"\b(?:open(?:[- ]source)? (?:gpu )?(?:kernel )?(?:modules?|flavou?r|variant|driver)|proprietary"
    r"|closed[- ]?(?:source)?)\b"
    r"|\bopen\s*$|\(open\)|\bopen\b(?= kernel)",
    2,
)


_LIBCUDA = Pattern(r"\blibcuda\.so\.(\d{3}\.\d+(?:\.\d+)?)\b")


def _libcuda(label: Label, source: str) -> Answers:
    gone = missing(label.value, source)
    if gone:
        yield "libs.libcuda", gone
        return
    path = label.value.split()[0]
    if (release := _LIBCUDA.search(label.value)) and "compat" not in label.value:
        yield "driver.library_version", Known(release.group(1), source)
    yield "libs.libcuda", Known(path, source)
    yield "libs.libcuda_kind", Known(libcuda_kind(path), source)


def _fabric_manager(label: Label, source: str) -> Answers:
    low = label.value.lower()
    if version := driver_version(label.value):
        yield "driver.fabric_manager_version", Known(version, source)
    if any(
        word in low for word in ("not installed", "never installed", "not found", "missing", "absent", "false")
    ) or low in (
        "no",
        "none",
    ):
        yield "driver.fabric_manager", Known("not installed", source)
    elif any(word in low for word in ("failed", "error", "crash")):
        yield "driver.fabric_manager", Known("failed", source)
    elif any(word in low for word in ("not running", "inactive", "stopped", "dead", "disabled", "not started", "down")):
        yield "driver.fabric_manager", Known("stopped", source)
    elif any(word in low for word in ("running", "active", "started")):
        yield "driver.fabric_manager", Known("running", source)


def _module_kind(label: Label, source: str) -> Answers:
    low = label.value.lower()
    if "open" in low.replace("opensuse", "") or low in ("dual mit/gpl", "mit/gpl", "gpl"):
        yield "driver.module_kind", Known("open", source)
    elif any(word in low for word in ("proprietary", "closed")) or ("license" in label.name and low == "nvidia"):
        yield "driver.module_kind", Known("proprietary", source)
    elif (version := driver_version(label.value)) and label.name.startswith("kernel module"):
        yield "driver.module_version", Known(version, source)
    elif low in ("nouveau", "nova", "nova_core"):
        yield f"driver.{low.removesuffix('_core')}_loaded", Known(True, source)
        yield "pci.nvidia_drivers", Known((low.removesuffix("_core"),), source)


def _driver(label: Label, source: str) -> Answers:
    """``570.144, proprietary kernel module``, ``nvidia-driver-570-open``, ``nvidia-open-dkms 590.48.01``, ``none``."""
    value = label.value
    gone = missing(value, source)
    packages = "package" in label.name
    if gone:
        if not packages:
            yield "driver.version", gone
        if value.lower().startswith(("not installed", "missing", "uninstalled", "absent")):
            yield "driver.installed", Known(False, source)
        return
    version = FORMS["driver"](value)
    package = _PACKAGE.search(value)
    if version and not packages:
        yield "driver.version", Known(version, source)
    elif version:
        yield "driver.module_disk_version", Known(version, source)
    if (said := FORMS["bool"](value)) is not None:
        yield "driver.installed", Known(said, source)
    elif package or version:
        yield "driver.installed", Known(True, source)
    if kind := _kind(value, package):
        yield "driver.module_kind", Known(kind, source)


def _kind(value: str, package: re.Match[str] | None) -> str:
    """The flavour of kernel module that a driver's name tells: open, proprietary, or nothing."""
    if told := _FLAVOUR.search(value):
        return "open" if "open" in told.group().lower() else "proprietary"
    if package:
        return "open" if "open" in package.group().lower() else "proprietary" if package.group("branch") else ""
    return ""


def _nvidia_smi(label: Label, source: str) -> Answers:
    """``nvidia-smi: 535.104``; what it says in other words is read where its own lines are."""
    if label.value[:1].isdecimal() and " " not in label.value and (version := driver_version(label.value)):
        yield "driver.version", Known(version, source)


OF_THE_DRIVER: Mapping[str, Callable[[Label, str], Answers]] = {
    "libcuda": _libcuda,
    "fabric manager": _fabric_manager,
    "module kind": _module_kind,
    "driver": _driver,
    "nvidia smi": _nvidia_smi,
}
