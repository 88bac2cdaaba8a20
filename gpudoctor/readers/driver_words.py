"""What people write of the driver in their own words: ``nvidia-smi: cannot talk to the driver``.

A label names the thing, in any order and with any words around it; the value says whether it is there and works.
What is told of the past, of a cure or of a wish is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpudoctor.model.catalog import fact
from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._gpus import named, vendor
from gpudoctor.readers._labels import Label
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._special import ANSWERS
from gpudoctor.readers._verdict import verdict
from gpudoctor.readers.driver_state import running_kernel

EXACT = 3

FACTS = (
    fact("driver.works_as_root", "bool", "whether the report says that root can use the GPU and another user cannot"),
)

Answers = Iterator[tuple[str, "Fact | Rows"]]

_TOLD_OF_ANOTHER_TIME = Pattern(
    r"^(?:after|before|since|when|fix\w*|solution|solved|workaround|cure\w*|helps?|works (?:with|in|on|after)"
    r"|expected|goal"
    r"|want\w*|earlier|previous\w*|formerly|yesterday|first|then|until|once|suggest\w*|advice|tried|attempt\w*"
    r"|question)\b"
)
_SMI = Pattern(
    r"^(host |node |bare metal )?nvidia smi(?: as (?:normal |regular |non root |my )?user)?(?: (?:on|in|inside"
    r"|from|at)(?: the| a)? (.+))?$"
)
_HOST_DRIVER = Pattern(
    r"^(?:nvidia |gpu )?(?:driver|smi|nvidia smi) (?:on|of)(?: the)? (?:host|node)\b|^(?:on )?(?:the )?(?:host"
    r"|node) (?:nvidia |gpu )?(?:driver|smi)\b"
)
"""The kernel, and with it the module, is the host's for containers as well."""
_CONTAINERS = ("container", "docker", "kubernetes", "podman", "lxc", "lxd", " pod")
_VIRTUAL = ("vfio", "passthrough", "pass-through", "hypervisor", "guest", " vm")
_SMI_AS_ROOT = Pattern(r"^(?:sudo nvidia smi|nvidia smi (?:as|with|under|using|via) (?:root|sudo))(?: .*)?$")
_NO_TALK = Pattern(
    r"\b(?:communicat\w+|talk|speak|reach|contact|connect\w*)\b[^,;]{0,30}\bdriver|no (?:communication"
    r"|connection|contact)\b"
    r"|driver (?:is )?not (?:loaded|running)|communication (?:error|fail\w*)",
    2,
)
_NO_DEVICE = Pattern(
    r"^\W*(?:no|0|zero) (?:nvidia )?(?:devices?|gpus?|cards?)\b|\b(?:sees?|shows?|finds?|lists?|reports?"
    r"|found)\b[^,;]{0,12}"
    r"\b(?:no|0|zero|none|nothing)\b(?: (?:nvidia )?(?:devices?|gpus?|cards?))?",
    2,
)
_SECURE_BOOT = Pattern(r"secure ?boot", 2)
_SECURE_STATE = Pattern(
    r"secure ?boot[^,;.]{0,12}?\b(?P<after>on|enabled|active|enforc\w+|off|disabled|inactive|not (?:on|enabled"
    r"|active))\b"
    r"|\b(?P<before>with|without|no|enabled|disabled)\s+(?:uefi )?secure ?boot",
    2,
)
_MODULE = Pattern(
    r"^(?!.*\b(?:uvm|peermem|drm|modeset|signature|signed|key|kind|type|flavou?r|version|kernel version|nouveau"
    r"|nova|blacklist\w*"
    r"|option|options|parameter|gdrdrv|nvidia fs|amdgpu|i915|python|torch|cudnn)\b)"
    r"(?:.*\b(?:nvidia|driver|gpu|kernel)\b.*\b(?:modules?|ko|kmod)\b.*|.*\b(?:modules?|kmod)\b.*\bnvidia\b.*"
    r"|lsmod\b.*|kmod nvidia.*)$"
)
_UNLOADED = Pattern(
    r"\b(?:not|n.t|never|fail\w*|refus\w+|cannot|won.t|unable to)\b[^,;]{0,20}\b(?:load\w*|insert\w*)\b|\bunloaded\b"
    r"|\bload\w*\b[^,;]{0,12}\b(?:fail\w*|refused|rejected)|not in lsmod|absent from lsmod",
    2,
)
_UNBUILT = Pattern(
    r"\b(?:not|n.t|never|fail\w*)\b[^,;]{0,16}\b(?:built|build|compil\w+|rebuilt)\b|\bbuild\w*\b[^,;]{0,12}\bfail\w*"
    r"|\bnone for (?:the |this )?(?:running |new |current )?kernel|\b(?:only|just) for\b[^,;]*\bkernel",
    2,
)
_BUILT = Pattern(r"\b(?:built|compiled|on (?:the )?disk|signed)\b", 2)
_PACKAGED = Pattern(r"^(?P<name>(?:nvidia|akmod|kmod|libnvidia|cuda drivers)\b[\w ]*)$")
_PACKAGE_LABEL = Pattern(r"^(?:installed |driver |nvidia )*packages?(?: installed)?(?P<name>)$")
_NAMED_PACKAGE = Pattern(
    r"\b(?P<name>nvidia-(?:open-)?dkms|nvidia-open(?:-dkms|-lts)?|nvidia-driver(?=[ -]\d)"
    r"|akmod-nvidia(?:-open)?|kmod-nvidia"
    r"|nvidia-utils|nvidia-kernel-dkms|nvidia-\d{3}xx-dkms|cuda-drivers)[ -]?(?P<branch>(?<=-)\d{3}(?![.\d]))?(?:-\w+)*"
    r"[ =:-]*(?:\d:)?(?P<version>\d{3}(?:\.\d+){0,2})?"
)
_RELEASE = Pattern(r"\b\d\.\d{1,2}\.\d{1,3}(?:[-.][\w.+-]*\w)?")
_HEADERS = Pattern(
    r"^(?:.* )?(?:kernel|linux)(?: \w+){0,2} (?:headers|devel|source|sources|build tree)(?: .*)?$"
    r"|^(?:.* )?headers(?: .*)?$"
)
_ROOT = Pattern(
    r"^(?:as|with|under|using|run as|running as|via|through)?\s*(?:user |the )?(?:root|sudo|superuser|uid 0)"
    r"(?: user)?(?: (?:in|inside|on|from) .*)?$"
)
_GRAPHICS = Pattern(
    r"^(?!.*\b(?:driver|memory|count|number|util\w*|temp\w*|power|mode|operator|plugin|image|container"
    r"|passthrough|backend)\b)"
    r".*\b(?:gpus?|graphics|accelerators?|video (?:card|adapter|controller)|display (?:adapter|card|controller)"
    r"|vga|igpu)\b.*$"
)
_FABRIC = Pattern(r"^(?!.*\b(?:version|package|log)\b).*\bfabric ?manager\b.*$")
_NO_GPU = Pattern(
    r"^(?!.*\bcontainer\b).*\b(?:has|have|with|there is|there are)?\s*\bno (?:nvidia |dedicated |discrete "
    r"|physical |cuda )?"
    r"(?:gpus?|graphics(?: card)?|video card|accelerators?|graphics hardware)\b\s*(?:at all|in it|here|present"
    r"|installed|attached)?$"
    r"|^(?:.*\b)?without (?:a |any )?(?:nvidia |dedicated )?(?:gpus?|graphics(?: card)?)$",
    2,
)
_MACHINE = Pattern(
    r"^(?:[\w-]+ ){0,2}(?:machine|hardware|host|node|server|instance|vm|box|computer|pc|laptop|system"
    r"|environment|runtime|droplet"
    r"|vps|workstation|host hardware|server hardware|cloud vm|setup|platform|compute node|worker)(?: type"
    r"| hardware| spec\w*)?$"
)
_OURS_DENIED = Pattern(r"\b(?:no|not an?|without(?: an?)?|non)[- ]nvidia\b[^,;]*", 2)
_OTHER_GRAPHICS = Pattern(
    r"\b(?:radeon|vega ?\d|iris|uhd|hd graphics|arc (?:a|b)\d|(?:integrated|onboard|internal) (?:graphics|gpu)"
    r"|apple m\d|m[1-5]\b"
    r"|apple silicon)",
    2,
)
_OTHER_MACHINE = Pattern(r"\b(?:login|head|build|other|second|dev\w*|mac|client)\b")


@dataclass(frozen=True, slots=True)
class Scene:
    """What else the text says of the machine: whether a container is meant, and which kernel runs."""

    contained: bool
    kernel: str


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Each label that names a part of the driver, with the verdict on it."""
    scene = Scene(any(word in paste.lower for word in _CONTAINERS), running_kernel(paste))
    host = not any(word in paste.lower for word in _VIRTUAL)
    yield from _secure_boot(paste)
    for label in paste.labels:
        if not label.value or len(label.name) > 60 or _TOLD_OF_ANOTHER_TIME.search(label.name):
            continue
        source = f"line {paste.numbers[label.index]}"
        if host and _HOST_DRIVER.match(label.name) and verdict(label.value):
            yield "driver.module_loaded", Known(True, source)
        if match := _PACKAGED.match(label.name) or _PACKAGE_LABEL.match(label.name):
            yield from _package(match.group("name") or "", label, source)
        for pattern, answer in _SUBJECTS:
            if pattern.match(label.name):
                yield from answer(label, source, scene)
                break
        else:
            yield from _any(label, source)


def _package(name: str, label: Label, source: str) -> Answers:
    """``nvidia-dkms: 590.48.01``, ``package: nvidia-open-dkms 590.48.01-2``: what the driver's package is, and brings."""
    text = f"{name.replace(' ', '-')} {label.value}"
    match = _NAMED_PACKAGE.search(text)
    if not match or verdict(label.value) is False:
        return
    version = match.group("version") or match.group("branch")
    libraries = match.group("name").startswith(("nvidia-utils", "libnvidia", "nvidia-compute"))
    yield "driver.installed", Known(True, source)
    if version:
        yield "driver.library_version" if libraries else "driver.module_disk_version", Known(version, source)
    if "open" in match.group("name"):
        yield "driver.module_kind", Known("open", source)


def _smi_of_user(label: Label, source: str, scene: Scene) -> Answers:
    """``nvidia-smi as root: fine``"""
    if verdict(label.value):
        yield "driver.works_as_root", Known(True, source)
    del scene


def _smi(label: Label, source: str, scene: Scene) -> Answers:
    match = _SMI.match(label.name)
    place = (match.group(1) or match.group(2) or "").strip() if match else ""
    if place.startswith(("windows", "guest", "vm")):
        return
    good = verdict(label.value)
    if place.startswith(("host", "node", "bare", "physical", "machine")):
        if good:
            yield "driver.installed", Known(True, source)
        return
    if _NO_TALK.search(label.value):
        yield "nvml.state", Known("driver not loaded", source)
        yield "nvml.message", Known(label.value[:300], source)
    elif _NO_DEVICE.search(label.value):
        yield "nvml.state", Known("ok", source)
        yield "gpu.count", Known(0, source)
    elif good and not place and not scene.contained:
        yield "nvml.state", Known("ok", source)


def _module(label: Label, source: str, scene: Scene) -> Answers:
    value = label.value
    kernels = _RELEASE.compiled.findall(value)
    if kernels and scene.kernel and _BUILT.search(f"{label.name} {value}"):
        yield "driver.module_on_disk", Known(any(scene.kernel in kernel for kernel in kernels), source)
    elif _UNLOADED.search(value):
        yield "driver.module_loaded", Known(False, source)
        if _BUILT.search(value) and not _UNBUILT.search(value):
            yield "driver.module_on_disk", Known(True, source)
    elif _UNBUILT.search(value):
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
    if "nvidia" not in label.value.lower() and vendor(label.value) not in (None, "nvidia"):
        yield from named(label.value, source)


def _fabric(label: Label, source: str, scene: Scene) -> Answers:
    del scene
    yield from ANSWERS["fabric manager"](label, source)


def _machine(label: Label, source: str, scene: Scene) -> Answers:
    others = _OURS_DENIED.compiled.sub("", label.value)
    if _OTHER_GRAPHICS.search(others) and vendor(others) not in (None, "nvidia") and "nvidia" not in others.lower():
        yield "pci.gpu_vendors", Known((vendor(others) or "other",), source)
        yield "pci.nvidia_count", Known(0, source)
    elif _NO_GPU.search(label.value.rstrip(" .")) and not scene.contained and not _OTHER_MACHINE.search(label.name):
        yield "pci.nvidia_count", Known(0, source)
    yield from _any(label, source)


def _secure_boot(paste: Paste) -> Answers:
    """What lines without a label say of Secure Boot."""
    labelled = {label.index for label in paste.labels}
    for index, line in paste.having("secure boot", "secureboot"):
        if index not in labelled and (state := _SECURE_STATE.search(line)) and state.group("after"):
            on = not state.group("after").lower().startswith(("no", "off", "disabled", "inactive"))
            yield "host.secure_boot", Known(on, f"line {paste.numbers[index]}")


def _any(label: Label, source: str) -> Answers:
    """Secure Boot, wherever in a label or value it is named."""
    text = f"{label.name}: {label.value}"
    if not _SECURE_BOOT.search(text):
        return
    if _SECURE_BOOT.search(label.name):
        good = verdict(label.value)
        if good is not None:
            yield "host.secure_boot", Known(good, source)
    elif state := _SECURE_STATE.search(label.value):
        word = (state.group("after") or state.group("before")).lower()
        if not word.startswith(("no", "without", "off", "disabled", "inactive")):
            yield "host.secure_boot", Known(True, source)
        elif state.group("after"):
            yield "host.secure_boot", Known(False, source)


_SUBJECTS: tuple[tuple[Pattern, Callable[[Label, str, Scene], Answers]], ...] = (
    (_SMI_AS_ROOT, _smi_of_user),
    (_SMI, _smi),
    (_FABRIC, _fabric),
    (_HEADERS, _headers),
    (_MODULE, _module),
    (_ROOT, _root),
    (_GRAPHICS, _graphics),
    (_MACHINE, _machine),
)
