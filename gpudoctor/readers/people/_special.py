"""Labels whose value says several things: GPUs, systems, kernels, torch builds; `_special_driver` has the driver's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from gpudoctor.model.fact import Absent, Fact, Known, Rows, Unread
from gpudoctor.readers._forms import FORMS
from gpudoctor.readers._gpus import named, names, sorted_by_vendor, vendor
from gpudoctor.readers._labels import Label
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._system import kernel, platform_string, system
from gpudoctor.readers._values import driver_version, libcuda_kind, missing

# Labels of the driver whose value says several things: its package, its kernel modules, its services.

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


_BUILT = Pattern(r"\bcu(\d{2,3})\b|\bCUDA[ -]?(\d+\.\d+)", 2)
_CPU = Pattern(r"\bcpu\b", 2)
_UNNAMED = Pattern(r"NVIDIA Corporation Device ([0-9a-f]{4})\b")
_UNAME = Pattern(r"release='([^']+)'")


def _gpu_names(label: Label, source: str) -> Answers:
    if missing(label.value, source):
        if label.value.lower() in ("none", "no", "absent", "missing"):
            yield "pci.nvidia_count", Known(0, source)
        return
    listed = label.value.removeprefix("only ").removeprefix("Only ")
    for name, entry in named(listed.removesuffix(" only"), source):
        yield name, entry
        if name == "gpu" and isinstance(entry, tuple):
            yield "pci.nvidia_count", Known(len(entry), source)
            yield "gpu.count", Unread(f"the report names the GPUs, and does not show the driver's list ({source})")


def named_system(label: Label, source: str) -> Answers:
    """An operating system by name, or `platform.platform` or `platform.uname` of Python; what is none says nothing."""
    if missing(label.value, source) or (label.name == "host os" and "windows" in label.value.lower()):
        return
    if _UNAME.search(label.value):
        yield from _kernel(label, source)
        return
    told = list(platform_string(label.value, source)) or list(system(label.value, source))
    if len(told) > 1:
        yield from told


def _kernel(label: Label, source: str) -> Answers:
    if release := _UNAME.search(label.value):
        yield from kernel(release.group(1), source)
        return
    if label.value[:1].isdecimal() and not label.value.startswith(("10.0.1", "10.0.2")):
        yield from kernel(label.value.split()[0], source)
    elif label.value.startswith("Linux "):
        yield from kernel(label.value.split()[1], source)


def _wsl(label: Label, source: str) -> Answers:
    low = label.value.lower()
    if low[:1] in ("1", "2"):
        yield "host.wsl", Known(int(low[0]), source)
    elif low in ("yes", "true"):
        yield "host.wsl", Known(2, source)
    elif low in ("no", "false", "none"):
        yield "host.wsl", Absent(f"the report says {label.value} ({source})")


def _container(label: Label, source: str) -> Answers:
    low = label.value.lower()
    kinds = ("kubernetes", "podman", "apptainer", "singularity", "docker", "lxc")
    kind = next((kind for kind in kinds if kind in low), None)
    if kind or low in ("yes", "true"):
        yield "host.container", Known("apptainer" if kind == "singularity" else kind or "container", source)
    elif low in ("no", "none", "false", "bare metal"):
        yield "host.container", Absent(f"the report says {label.value} ({source})")


def _cuda_and_cudnn(label: Label, source: str) -> Answers:
    """``CUDA/cuDNN version: 11.8 / 8.6`` of TensorFlow's bug form."""
    parts = [FORMS["version"](part) for part in label.value.replace(",", "/").split("/")]
    if parts and parts[0]:
        yield "cuda.toolkit_version", Known(FORMS["release"](str(parts[0])), source)
    if len(parts) > 1 and parts[1]:
        yield "lib", ({"name": Known("libcudnn", source), "version": Known(parts[1], source)},)


def _library(name: str) -> Callable[[Label, str], Answers]:
    def answers(label: Label, source: str) -> Answers:
        if version := FORMS["version"](label.value) or FORMS["number"](label.value):
            yield "lib", ({"name": Known(name, source), "version": Known(version, source)},)

    return answers


def _torch(label: Label, source: str) -> Answers:
    """``2.1.0+cu121 (True)`` of transformers-cli env; ``2.4 with CUDA 12.1``, ``nightly cu130``, ``2.5 CPU build``."""
    value = label.value
    gone = missing(value, source)
    if gone:
        yield "torch.version", gone
        return
    built = _BUILT.search(value)
    if (version := FORMS["version"](value.partition("CUDA")[0])) and "build" not in label.name:
        yield "torch.version", Known(version, source)
    if built:
        digits = built.group(1)
        yield "torch.cuda", Known(f"{digits[:-1]}.{digits[-1]}" if digits else built.group(2), source)
    elif _CPU.search(value):
        yield "torch.flavor", Known("cpu", source)
    if "(True)" in value or "(False)" in value:
        yield "live.cuda_available", Known("(True)" in value, source)


_MACHINE = Pattern(r"\b(?:(aarch64|arm64)|(x86[_-]64|amd64))\b", 2)


_AMD_GPU = Pattern(r"\b(?:radeon|instinct|gfx\d+|rx ?\d{4})", 2)


def _machine(label: Label, source: str) -> Answers:
    """``machine: aarch64, NVIDIA GB200``: the processor's architecture, and the GPUs of NVIDIA in the list."""
    if match := _MACHINE.search(label.value):
        yield "host.arch", Known("aarch64" if match.group(1) else "x86_64", source)
    found = [name for name in names(label.value) if len(name) < 50]
    gpus = [name for name in found if vendor(name) == "nvidia" or _AMD_GPU.search(name)]
    if gpus and label.name not in ("cpu", "processor"):
        yield from _gpu_names(Label(label.index, "gpus", ", ".join(gpus)), source)


def _lspci(label: Label, source: str) -> Answers:
    """``lspci: no NVIDIA device``, ``lspci: Intel UHD only``; what it does show is read where lspci's own lines are."""
    if unnamed := _UNNAMED.search(label.value):
        yield "pci", ({"vendor": Known("nvidia", source), "device_id": Known(f"10de:{unnamed.group(1)}", source)},)
        yield "pci.nvidia_count", Known(1, source)
    if label.value.lower().startswith(("no ", "none", "nothing", "empty", "(empty", "(no ")):
        yield "pci.nvidia_count", Known(0, source)
    elif label.value.lower().startswith("only ") or label.value.lower().rstrip(".)").endswith(" only"):
        said = label.value.removeprefix("only ").removeprefix("Only ")
        if vendor(said) not in (None, "nvidia"):
            yield from sorted_by_vendor([{"name": Known(said, source)}])


def _framework(label: Label, source: str) -> Answers:
    """``TensorFlow 1.15``"""
    facts = {
        "tensorflow": "tf.version",
        "tf": "tf.version",
        "pytorch": "torch.version",
        "torch": "torch.version",
        "jax": "jax.version",
    }
    name, _, rest = label.value.partition(" ")
    if name.lower() in facts and rest[:1].isdecimal():
        yield facts[name.lower()], Known(rest.split()[0], source)


def _image(label: Label, source: str) -> Answers:
    if label.value and not missing(label.value, source):
        yield "host.container", Known("docker", source)


def _processes(label: Label, _source: str) -> Answers:
    if label.value.lower() in ("none", "none listed", "no running processes found", "empty"):
        yield "gpu_process", ()


ANSWERS: Mapping[str, Callable[[Label, str], Answers]] = {
    "gpus": _gpu_names,
    "kernel": _kernel,
    "wsl": _wsl,
    "container": _container,
    "cuda and cudnn": _cuda_and_cudnn,
    "cudnn": _library("libcudnn"),
    "nvjitlink": _library("libnvJitLink"),
    "torch": _torch,
    "lspci": _lspci,
    "machine": _machine,
    "framework": _framework,
    "image": _image,
    "processes": _processes,
    **OF_THE_DRIVER,
}
