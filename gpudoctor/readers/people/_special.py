"""Labels whose value says several things: GPUs, systems, kernels, torch builds; `_special_driver` has the driver's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpudoctor.model.fact import Absent, Known, Unread
from gpudoctor.readers._forms import FORMS
from gpudoctor.readers._gpus import named, names, sorted_by_vendor, vendor
from gpudoctor.readers._labels import Label
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._system import kernel, platform_string, system
from gpudoctor.readers._values import missing
from gpudoctor.readers.people._special_driver import OF_THE_DRIVER, Answers

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
