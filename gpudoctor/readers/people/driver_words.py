"""What people write of the driver in their own words: ``nvidia-smi: cannot talk to the driver``.

A label names the thing, in any order and with any words around it; the value says whether it is there and works.
What is told of the past, of a cure or of a wish is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpudoctor.model.catalog import fact
from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._gpus import named, names, vendor
from gpudoctor.readers._labels import Label
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import driver_version
from gpudoctor.readers._verdict import verdict
from gpudoctor.readers.people._driver_patterns import (
    BUILT,
    CONTAINERS,
    FABRIC,
    GRAPHICS,
    HEADERS,
    HOST_DRIVER,
    MACHINE,
    MODULE,
    NAMED_PACKAGE,
    NO_DEVICE,
    NO_GPU,
    NO_TALK,
    NOT_LOADED,
    OTHER_GRAPHICS,
    OTHER_MACHINE,
    OURS_DENIED,
    PACKAGE_LABEL,
    PACKAGED,
    RELEASE,
    ROOT,
    SECURE_BOOT,
    SECURE_STATE,
    SMI,
    SMI_AS_ROOT,
    TOLD_OF_ANOTHER_TIME,
    UNBUILT,
    UNLOADED,
    VIRTUAL,
)
from gpudoctor.readers.people._special import ANSWERS
from gpudoctor.readers.tools.driver_state import running_kernel

EXACT = 3

FACTS = (
    fact("driver.works_as_root", "bool", "whether the report says that root can use the GPU and another user cannot"),
)

Answers = Iterator[tuple[str, "Fact | Rows"]]


@dataclass(frozen=True, slots=True)
class Scene:
    """What else the text says of the machine: whether a container is meant, and which kernel runs."""

    contained: bool
    kernel: str


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Each label that names a part of the driver, with the verdict on it."""
    scene = Scene(any(word in paste.lower for word in CONTAINERS), running_kernel(paste))
    host = not any(word in paste.lower for word in VIRTUAL)
    yield from _secure_boot(paste)
    for label in paste.labels:
        if not label.value or len(label.name) > 60 or TOLD_OF_ANOTHER_TIME.search(label.name):
            continue
        source = f"line {paste.numbers[label.index]}"
        if host and HOST_DRIVER.match(label.name) and verdict(label.value):
            yield "driver.module_loaded", Known(True, source)
        if match := PACKAGED.match(label.name) or PACKAGE_LABEL.match(label.name):
            yield from _package(match.group("name") or "", label, source)
        for pattern, answer in _SUBJECTS:
            if pattern.match(label.name):
                yield from answer(label, source, scene)
                break
        else:
            yield from _any(label, source)


_TRIED = Pattern(r"\W*(?:it )?(?:works|worked|fix(?:es|ed)|solve[sd]|cure[sd]|help(?:s|ed))\b", 2)
"""What is said of a package that was put in to see whether it helps."""


def _package(name: str, label: Label, source: str) -> Answers:
    """``nvidia-dkms: 590.48.01``, ``package: nvidia-open-dkms 590.48.01-2``: the package and what it brings."""
    text = f"{name.replace(' ', '-')} {label.value}"
    match = NAMED_PACKAGE.search(text)
    if not match or verdict(label.value) is False or _TRIED.match(label.value):
        return
    version = match.group("version") or match.group("branch")
    libraries = match.group("name").startswith(("nvidia-utils", "libnvidia", "nvidia-compute"))
    yield "driver.installed", Known(True, source)
    if version:
        yield "driver.library_version" if libraries else "driver.module_disk_version", Known(version, source)
    if "open" in match.group():
        yield "driver.module_kind", Known("open", source)
    elif match.group("branch") and match.group("name") in ("nvidia-dkms", "nvidia-driver") and "open" not in text:
        yield "driver.module_kind", Known("proprietary", source)


def _smi_of_user(label: Label, source: str, scene: Scene) -> Answers:
    """``nvidia-smi as root: fine``"""
    if verdict(label.value):
        yield "driver.works_as_root", Known(True, source)
    del scene


def _smi(label: Label, source: str, scene: Scene) -> Answers:
    match = SMI.match(label.name)
    if match and match.group("version"):
        yield "driver.version", Known(match.group("version").replace(" ", "."), source)
    place = (match.group(1) or match.group(2) or "").strip() if match else ""
    if place.startswith(("windows", "guest", "vm")):
        return
    good = verdict(label.value)
    if place.startswith(("host", "node", "bare", "physical", "machine")):
        if good:
            yield "driver.installed", Known(True, source)
        return
    if NO_TALK.search(label.value):
        yield "nvml.state", Known("driver not loaded", source)
        yield "nvml.message", Known(label.value[:300], source)
    elif NO_DEVICE.search(label.value):
        yield "nvml.state", Known("ok", source)
        yield "gpu.count", Known(0, source)
    elif good and not place and not scene.contained:
        yield "nvml.state", Known("ok", source)


def _module(label: Label, source: str, scene: Scene) -> Answers:
    value = label.value
    kernels = RELEASE.compiled.findall(value)
    if kernels and scene.kernel and BUILT.search(f"{label.name} {value}"):
        yield "driver.module_on_disk", Known(any(scene.kernel in kernel for kernel in kernels), source)
    elif release := driver_version(value):
        if "disk" not in label.name and "modinfo" not in label.name:
            yield "driver.module_version", Known(release, source)
    elif UNLOADED.search(value) or NOT_LOADED.match(label.name):
        yield "driver.module_loaded", Known(False, source)
        if BUILT.search(value) and not UNBUILT.search(value):
            yield "driver.module_on_disk", Known(True, source)
    elif UNBUILT.search(value):
        yield "driver.module_on_disk", Known(False, source)
    elif label.name.startswith("lsmod"):
        low = value.lower()
        if "nouveau" in low and verdict(value) is not False:
            yield "driver.nouveau_loaded", Known(True, source)
        elif verdict(value) is False:
            yield "driver.module_loaded", Known(False, source)
        elif "nvidia" in low and "no nvidia" not in low:
            yield "driver.module_loaded", Known(True, source)


def _headers(label: Label, source: str, scene: Scene) -> Answers:
    del scene
    good = verdict(label.value)
    if good is not None:
        yield "driver.headers", Known(good, source)


def _root(label: Label, source: str, scene: Scene) -> Answers:
    del scene
    if verdict(label.value):
        yield "driver.works_as_root", Known(True, source)


def _graphics(label: Label, source: str, scene: Scene) -> Answers:
    del scene
    makers = {vendor(part) for part in names(label.value)}
    if "nvidia" not in label.value.lower() and "nvidia" not in makers and vendor(label.value) not in (None, "nvidia"):
        yield from named(label.value, source)


def _fabric(label: Label, source: str, scene: Scene) -> Answers:
    del scene
    yield from ANSWERS["fabric manager"](label, source)


def _machine(label: Label, source: str, scene: Scene) -> Answers:
    others = OURS_DENIED.compiled.sub("", label.value)
    makers = {vendor(part) for part in names(others)}
    if OTHER_GRAPHICS.search(others) and "nvidia" not in makers and vendor(others) not in (None, "nvidia"):
        yield "pci.gpu_vendors", Known((vendor(others) or "other",), source)
        yield "pci.nvidia_count", Known(0, source)
    elif NO_GPU.search(label.value.rstrip(" .")) and not scene.contained and not OTHER_MACHINE.search(label.name):
        yield "pci.nvidia_count", Known(0, source)
    yield from _any(label, source)


def _secure_boot(paste: Paste) -> Answers:
    """What lines without a label say of Secure Boot."""
    labelled = {label.index for label in paste.labels}
    for index, line in paste.having("secure boot", "secureboot"):
        if index not in labelled and (state := SECURE_STATE.search(line)) and state.group("after"):
            on = not state.group("after").lower().startswith(("no", "off", "disabled", "inactive"))
            yield "host.secure_boot", Known(on, f"line {paste.numbers[index]}")


def _any(label: Label, source: str) -> Answers:
    """Secure Boot, wherever in a label or value it is named."""
    text = f"{label.name}: {label.value}"
    if not SECURE_BOOT.search(text):
        return
    if SECURE_BOOT.search(label.name):
        good = verdict(label.value)
        if good is not None:
            yield "host.secure_boot", Known(good, source)
    elif state := SECURE_STATE.search(label.value):
        word = (state.group("after") or state.group("before")).lower()
        if not word.startswith(("no", "without", "off", "disabled", "inactive")):
            yield "host.secure_boot", Known(True, source)
        elif state.group("after"):
            yield "host.secure_boot", Known(False, source)


_SUBJECTS: tuple[tuple[Pattern, Callable[[Label, str, Scene], Answers]], ...] = (
    (SMI_AS_ROOT, _smi_of_user),
    (SMI, _smi),
    (FABRIC, _fabric),
    (HEADERS, _headers),
    (MODULE, _module),
    (ROOT, _root),
    (GRAPHICS, _graphics),
    (MACHINE, _machine),
)
