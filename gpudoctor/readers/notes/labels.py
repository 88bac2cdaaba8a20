"""Loosely written ``label: value`` lines of people and bug forms: a table of labels, the fact each is, and its form.

A label is matched in one spelling (lower case, words parted by single spaces, see `_paste.normalized_label`). ``not
set`` and its like become an absent fact, ``N/A`` and its like an unread one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from gpudoctor.core.fact import Absent, Fact, Known, Rows, Unread, Value
from gpudoctor.core.frozen import replace
from gpudoctor.readers._machine import (
    gpu_facts,
    gpu_facts_by_vendor,
    gpu_vendor,
    kernel_facts,
    platform_facts,
    split_gpu_names,
    system_facts,
)
from gpudoctor.readers._paste import Label, Paste
from gpudoctor.readers._pattern import Pattern, phrases, table, words
from gpudoctor.readers._software import is_gpu_variable, variable_facts
from gpudoctor.readers._values import FORMS, driver_version, env_name, libcuda_kind, missing_fact
from gpudoctor.readers.notes._label_facts import COLUMNS, FACTS_OF, SPECIAL, SYSTEMS, VARIABLES, canonical_label

EXACT = 2

Answers = Iterator[tuple[str, "Fact | Rows"]]
_MASK = "CUDA_VISIBLE_DEVICES"
"""The variable that hides every GPU where it is set and empty."""
_QUOTES = Pattern(r"(?:''|\"\")\W*$")
_EMPTY = Pattern(r"(?i)\W*(?:(?:set|present|there)\b[^\n]{0,10}\b)?(?:an? )?empty(?: string)?\W*$")
_GPU_NUMBERS = Pattern(r"gpu(?: \d{1,2})+")
_DRIVER = Pattern(
    r"(?i)(?:nvidia )?(?:gpu )?driver(?: version)?\s+v?(\d{3}\.\d+(?:\.\d+)?)\s*$"
    r"|(?:nvidia )(?:gpu )?driver(?: version)?[\s-]v?(\d{3}(?:\.\d+){0,2})[\s,(-]*(?:server-?)?"
    r"(?:(?:open|proprietary)[\w ]{0,30}\)?)?\s*$|nvidia-driver-(\d{3})(?:-server)?(?:-open)?\s*$"
)
_DRIVER_NUMBER = Pattern(r"\d{3}\.\d")
"""A driver's version: CUDA's has two digits in front of its point."""
_CHANGED = Pattern(
    r"(?i)\W*(?:\w+ )?(?:nvidia )?drivers?\b[^:\n]{0,30}:[^\n]*?\d{3}(?:\.\d+)*\s*(?:->|→|=>"
    r"|to)\s*v?(\d{3}(?:\.\d+){0,2})\b"
)


def read(paste: Paste) -> Answers:
    """Yields the facts of the ``label: value`` lines that no other reader has placed, and marks these lines as placed.

    All GPU columns make one ``gpu`` row, left out if all are unread; environment variables give ``env.NAME`` and what
    follows from them; lines without a colon that name the driver's version give that.
    """
    gpu: dict[str, Fact] = {}
    variables: dict[str, Fact] = {}
    for label in paste.labels:
        if label.index in paste.used or label.value:
            continue
        if (variable := env_name(label.name)) == _MASK and _QUOTES.search(paste.bare[label.index]):
            variables.setdefault(variable, Known("", paste.use(label.index)))
    for original in unplaced_labels(paste):
        label = replace(original, name=canonical_label(original.name))
        source = f"line {paste.numbers[label.index]}"
        if entries := FACTS_OF.get(label.name):
            if entries[0][0] == "driver.cuda_version" and _DRIVER_NUMBER.match(label.value):
                entries = (("driver.version", "driver"),)  # sglang's "CUDA Driver Version: 550.54.15"
            yield from _facts_of_label(entries, label, source)
        elif label.name in COLUMNS:
            name, form = COLUMNS[label.name]
            if (answer := _fact_of_value(form, label.value, source)) is not None:
                gpu.setdefault(name, answer)
        elif label.name in SPECIAL:
            yield from ANSWERS[SPECIAL[label.name]](label, source)
        elif label.name in SYSTEMS:
            yield from named_system(label, source)
        elif _GPU_NUMBERS.fullmatch(label.name):
            yield from _numbered_gpus(label, source)
        elif variable := _variable_name(label, paste):
            missing_value = (
                None if variable == _MASK and _EMPTY.match(label.value) else missing_fact(label.value, source)
            )
            variables.setdefault(variable, missing_value or Known(_variable_value(variable, label), source))
        else:
            continue
        paste.use(label.index)
    known = {name: fact for name, fact in gpu.items() if not isinstance(fact, Unread)}
    if known:
        yield "gpu", (known,)
    yield from variable_facts(variables)
    yield from _driver_lines(paste)


def _facts_of_label(entries: tuple[tuple[str, str], ...], label: Label, source: str) -> Answers:
    """Yields (name, fact) for each (name, form) entry in whose form the label's value can be read."""
    for name, form in entries:
        if (answer := _fact_of_value(form, label.value, source)) is not None:
            yield name, answer


def _fact_of_value(form: str, text: str, source: str) -> Fact | None:
    """The text parsed in the form, a key of `FORMS`; None where it does not fit.

    `Absent` of ``not set``, `Unread` of ``N/A`` and their like; in the form bool, words that mean yes or no come first:
    ``not set`` is False.
    """
    parse: Callable[[str], Value] = FORMS[form]
    if form == "bool":
        answer = parse(text)
        if answer is not None:
            return Known(answer, source)
    missing_value = missing_fact(text, source)
    if missing_value:
        return missing_value
    value = parse(text)
    return None if value is None else Known(value, source)


def _variable_name(label: Label, paste: Paste) -> str:
    """The environment variable that the label spells; empty where it spells none.

    Either one of `VARIABLES`, or one of GPU software written in capitals with at most one word as value, whose name
    holds no word of a message (``NCCL WARN``).
    """
    name = env_name(label.name)
    is_capitals = paste.bare[label.index].partition(":")[0].strip("-* ").isupper() and len(label.value.split()) < 2
    is_message = any(word in name.split("_") for word in ("SMI", "WARN", "INFO", "ERROR", "SETUP", "VERSION"))
    return name if name in VARIABLES or (is_capitals and is_gpu_variable(name) and not is_message) else ""


def _variable_value(variable: str, label: Label) -> str:
    """The variable's value; of a port without the remark behind it (``29500 (default)``), and of CUDA_VISIBLE_DEVICES
    empty for words such as ``empty string``.
    """
    if variable == _MASK and _EMPTY.match(label.value):
        return ""
    return label.value.split(" (")[0] if variable.endswith("_PORT") else label.value


def _driver_lines(paste: Paste) -> Answers:
    """Driver version, and module kind if named, from lines without a colon (``NVIDIA driver 512.78``); and from lines
    of a changed driver (``driver: 535 -> 550``), whose new version is taken.
    """
    for index, line in paste.having("driver"):
        if match := _DRIVER.match(line.strip()) or _CHANGED.match(line):
            yield "driver.version", Known(next(filter(None, match.groups())), paste.use(index))
            low = line.lower().replace("opensuse", "")
            if kind := next((word for word in ("proprietary", "open") if word in low), ""):
                yield "driver.module_kind", Known(kind, paste.use(index))


def _numbered_gpus(label: Label, source: str) -> Answers:
    """A row of ``gpu`` per number of ``GPU 0,1: NVIDIA GeForce RTX 3090``; nothing for several or unknown names."""
    gpu_names = split_gpu_names(label.value)
    if len(gpu_names) == 1 and gpu_vendor(gpu_names[0]):
        numbers = [int(number) for number in label.name.split()[1:]]
        yield from gpu_facts_by_vendor(
            [{"index": Known(number, source), "name": Known(gpu_names[0], source)} for number in numbers]
        )


# ---- Labels that say where or when, without that part ----
# ``host driver``, ``torch in the container``, ``node GPU``.

_BEFORE = words(
    """
    host node cluster server machine worker instance vm workstation laptop pc desktop compute my our the actual
    current currently installed present
    """
)
"""Words in front of a label that change nothing of what it names."""
_BEHIND = Pattern(
    r" (?:installed|in use|used|now|currently|here|inside|imported"
    r"|(?:on|in|inside|of) (?:the |this |my |our )?(?P<where>[\w.]+(?: [\w.]+)?))$"
)
_ELSEWHERE = words(
    """
    other another old older previous former second working good fresh new clean base first before requirements
    requirement docs readme setup lock index wheel
    """
)
"""Words that say that it is not the thing of this report."""
_CORES = frozenset(
    phrases(
        """driver | nvidia driver | driver version | nvidia driver version | gpu driver | gpu | gpus | gpu model
        | gpu name | graphics card | card | torch | pytorch | torch version | pytorch version | kernel | kernel version
        | torch cuda is available | cuda available | is cuda available | torch cuda device count"""
    )
)
"""What may be told apart from its place: of these a report has one."""


def unplaced_labels(paste: Paste) -> Iterator[Label]:
    """The labels with a value that no reader has placed; last those with a place or time (``host driver``), without it.

    Several such labels that give one thing different values are left out: one may be another machine or the past.
    """
    by_core: dict[str, list[Label]] = {}
    for label in paste.labels:
        if label.index in paste.used or not label.value:
            continue
        core = _without_place(label.name)
        if core == label.name:
            yield label
        else:
            by_core.setdefault(core, []).append(label)
    for core, labels in by_core.items():
        if len({label.value for label in labels}) == 1:
            yield replace(labels[0], name=core)


def _without_place(name: str) -> str:
    """The label without words of place and time, if that leaves a thing of which a report has one; else unchanged."""
    if any(name in table for table in (_CORES, FACTS_OF, COLUMNS, SPECIAL, SYSTEMS)):
        return name
    core = name
    if behind := _BEHIND.search(core):
        if behind.group("where") and _ELSEWHERE & set(behind.group("where").split()):
            return name
        core = core[: behind.start()]
    while (first := core.partition(" "))[0] in _BEFORE and first[2]:
        core = first[2]
    return core if core in _CORES else name


# ---- Labels whose value says several things ----
# GPUs, systems, kernels, torch builds; the driver, its package, its kernel modules and services.

_PACKAGE = Pattern(
    r"(?i)\bnvidia-(?:driver|dkms|kernel-source|headless)-(?P<branch>\d{3})(?:-server)?(?:-open)?\b"
    r"|\bnvidia-open(?:-dkms|-lts|-beta|-\d{3})?\b|\bakmod-nvidia-open\b|\bnvidia-dkms\b|\bnvidia-driver\b"
)
_FLAVOUR = Pattern(
    r"(?i)\b(?:open(?:[- ]source)? (?:gpu )?(?:kernel )?(?:modules?|flavou?r|variant|driver)|proprietary"
    r"|closed[- ]?(?:source)?)\b"
    r"|\bopen\s*$|\(open\)|\bopen\b(?= kernel)"
)


_LIBCUDA = Pattern(r"\blibcuda\.so\.(\d{3}\.\d+(?:\.\d+)?)\b")


def _libcuda_facts(label: Label, source: str) -> Answers:
    """libs.libcuda and its kind from a path, driver.library_version from its name; or libs.libcuda as missing only."""
    missing_value = missing_fact(label.value, source)
    if missing_value:
        yield "libs.libcuda", missing_value
        return
    path = label.value.split()[0]
    if (release := _LIBCUDA.search(label.value)) and "compat" not in label.value:
        yield "driver.library_version", Known(release.group(1), source)
    yield "libs.libcuda", Known(path, source)
    yield "libs.libcuda_kind", Known(libcuda_kind(path), source)


_MANAGER_STATES = tuple(
    table(
        """
not installed: not installed | never installed | not found | missing | absent | false
failed: failed | error | crash
stopped: not running | not active | inactive | stopped | dead | disabled | not started | down
running: running | active | started
"""
    )
)
"""The fabric manager's state and the words for it; of several the first holds."""


def _fabric_manager_facts(label: Label, source: str) -> Answers:
    """Version and state (not installed, failed, stopped, running) of the fabric manager; nothing of other words."""
    low = label.value.lower()
    if version := driver_version(label.value):
        yield "driver.fabric_manager_version", Known(version, source)
    named = (state for state, words in _MANAGER_STATES if any(word in low for word in words))
    if state := "not installed" if low in ("no", "none") else next(named, ""):
        yield "driver.fabric_manager", Known(state, source)


def _module_kind_facts(label: Label, source: str) -> Answers:
    """driver.module_kind (open, proprietary), else driver.module_version, else nouveau or nova as the loaded driver."""
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


def _driver_facts(label: Label, source: str) -> Answers:
    """Version, module kind and whether installed of the driver, from a version, package name or yes/no.

    A value such as ``not installed`` makes the version `Absent`, ``N/A`` `Unread`; the version in a label of a package
    is driver.module_disk_version.
    """
    value = label.value
    missing_value = missing_fact(value, source)
    is_package_label = "package" in label.name
    if missing_value:
        if not is_package_label:
            yield "driver.version", missing_value
        if value.lower().startswith(("not installed", "missing", "uninstalled", "absent")):
            yield "driver.installed", Known(False, source)
        return
    version = FORMS["driver"](value)
    package = _PACKAGE.search(value)
    if version and not is_package_label:
        yield "driver.version", Known(version, source)
    elif version:
        yield "driver.module_disk_version", Known(version, source)
    if (is_installed := FORMS["bool"](value)) is not None:
        yield "driver.installed", Known(is_installed, source)
    elif package or version:
        yield "driver.installed", Known(True, source)
    if kind := _module_flavour(value, package):
        yield "driver.module_kind", Known(kind, source)


def _module_flavour(value: str, package: re.Match[str] | None) -> str:
    """``open`` or ``proprietary`` by words in `value`, else by the driver package's name; empty where neither tells."""
    if flavour := _FLAVOUR.search(value):
        return "open" if "open" in flavour.group().lower() else "proprietary"
    if package:
        return "open" if "open" in package.group().lower() else "proprietary" if package.group("branch") else ""
    return ""


def _nvidia_smi(label: Label, source: str) -> Answers:
    """Yields driver.version where the value is a driver's version alone: ``nvidia-smi: 535.104``; else nothing.
    `source` says where the label stands.
    """
    if label.value[:1].isdecimal() and " " not in label.value and (version := driver_version(label.value)):
        yield "driver.version", Known(version, source)


_BUILT = Pattern(r"(?i)\bcu(\d{2,3})\b|\bCUDA[ -]?(\d+\.\d+)")
_CPU = Pattern(r"(?i)\bcpu\b")
_UNNAMED = Pattern(r"NVIDIA Corporation Device ([0-9a-f]{4})\b")
_UNAME = Pattern(r"release='([^']+)'")


def _gpu_names(label: Label, source: str) -> Answers:
    """Rows of ``gpu`` from a list of names, NVIDIA's count, other makers; count 0 for "none", nothing for "unknown".

    With rows, gpu.count is `Unread`: the names are not the driver's own list.
    """
    if missing_fact(label.value, source):
        if label.value.lower() in ("none", "no", "absent", "missing"):
            yield "pci.nvidia_count", Known(0, source)
        return
    listed = label.value.removeprefix("only ").removeprefix("Only ")
    for name, entry in gpu_facts(listed.removesuffix(" only"), source):
        yield name, entry
        if name == "gpu" and isinstance(entry, tuple):
            yield "pci.nvidia_count", Known(len(entry), source)
            yield "gpu.count", Unread(f"the report names the GPUs, and does not show the driver's list ({source})")


def named_system(label: Label, source: str) -> Answers:
    """Facts of the system in `platform.platform`, `platform.uname` or a name; nothing of a WSL's host or no system."""
    if missing_fact(label.value, source) or (label.name == "host os" and "windows" in label.value.lower()):
        return
    if _UNAME.search(label.value):
        yield from _kernel_facts(label, source)
        return
    facts = list(platform_facts(label.value, source)) or list(system_facts(label.value, source))
    if len(facts) > 1:
        yield from facts


def _kernel_facts(label: Label, source: str) -> Answers:
    """Facts of the kernel release in the value; nothing for another value."""
    if release := _UNAME.search(label.value):
        yield from kernel_facts(release.group(1), source)
        return
    if label.value[:1].isdecimal() and not label.value.startswith(("10.0.1", "10.0.2")):
        yield from kernel_facts(label.value.split()[0], source)
    elif label.value.startswith("Linux "):
        yield from kernel_facts(label.value.split()[1], source)


def _wsl_facts(label: Label, source: str) -> Answers:
    """host.wsl: 1 or 2, 2 for yes, absent for no, nothing for other words."""
    low = label.value.lower()
    if low[:1] in ("1", "2"):
        yield "host.wsl", Known(int(low[0]), source)
    elif low in ("yes", "true"):
        yield "host.wsl", Known(2, source)
    elif low in ("no", "false", "none"):
        yield "host.wsl", Absent(f"the report says {label.value} ({source})")


def _container_facts(label: Label, source: str) -> Answers:
    """host.container: the engine named, else "container" for yes, absent for no; nothing for other words."""
    low = label.value.lower()
    kinds = ("kubernetes", "podman", "apptainer", "singularity", "docker", "lxc")
    kind = next((kind for kind in kinds if kind in low), None)
    if kind or low in ("yes", "true"):
        yield "host.container", Known("apptainer" if kind == "singularity" else kind or "container", source)
    elif low in ("no", "none", "false", "bare metal"):
        yield "host.container", Absent(f"the report says {label.value} ({source})")


def _cuda_and_cudnn(label: Label, source: str) -> Answers:
    """cuda.toolkit_version and a ``lib`` row of cuDNN from TensorFlow's ``CUDA/cuDNN version: 11.8 / 8.6``."""
    parts = [FORMS["version"](part) for part in label.value.replace(",", "/").split("/")]
    if parts and parts[0]:
        yield "cuda.toolkit_version", Known(FORMS["release"](str(parts[0])), source)
    if len(parts) > 1 and parts[1]:
        yield "lib", ({"name": Known("libcudnn", source), "version": Known(parts[1], source)},)


def _library_reader(name: str) -> Callable[[Label, str], Answers]:
    """A reader of labels that gives a row of ``lib`` for the library `name` with the value's version."""

    def answers(label: Label, source: str) -> Answers:
        """One row of ``lib``: the enclosing reader's name, the value's version; nothing without a version."""
        if version := FORMS["version"](label.value) or FORMS["number"](label.value):
            yield "lib", ({"name": Known(name, source), "version": Known(version, source)},)

    return answers


def _torch_facts(label: Label, source: str) -> Answers:
    """torch's version, CUDA or CPU build, and CUDA availability: ``2.1.0+cu121 (True)``, ``2.5 CPU build``.

    Only torch.version, `Absent` or `Unread`, for values such as ``not installed`` or ``N/A``. A version behind a
    further label is another's: torch's CMake prints ``PyTorch: Header version is: 11.8`` of CUDA.
    """
    value = label.value
    missing_value = missing_fact(value, source)
    if missing_value:
        yield "torch.version", missing_value
        return
    built = _BUILT.search(value)
    if (version := FORMS["version"](value.partition("CUDA")[0].partition(": ")[0])) and "build" not in label.name:
        yield "torch.version", Known(version, source)
    if built:
        digits = built.group(1)
        yield "torch.cuda", Known(f"{digits[:-1]}.{digits[-1]}" if digits else built.group(2), source)
    elif _CPU.search(value):
        yield "torch.flavor", Known("cpu", source)
    if "(True)" in value or "(False)" in value:
        yield "live.cuda_available", Known("(True)" in value, source)


_MACHINE = Pattern(r"(?i)\b(?:(aarch64|arm64)|(x86[_-]64|amd64))\b")


_AMD_GPU = Pattern(r"(?i)\b(?:radeon|instinct|gfx\d+|rx ?\d{4})")


def _machine_facts(label: Label, source: str) -> Answers:
    """host.arch and, but for a CPU's label, GPUs from ``machine: aarch64, NVIDIA GB200``."""
    if match := _MACHINE.search(label.value):
        yield "host.arch", Known("aarch64" if match.group(1) else "x86_64", source)
    short_names = [name for name in split_gpu_names(label.value) if len(name) < 50]
    gpus = [name for name in short_names if gpu_vendor(name) == "nvidia" or _AMD_GPU.search(name)]
    if gpus and label.name not in ("cpu", "processor"):
        yield from _gpu_names(Label(label.index, "gpus", ", ".join(gpus)), source)


def _lspci_facts(label: Label, source: str) -> Answers:
    """Facts from an ``lspci:`` label: ``no NVIDIA device`` gives a count of 0, ``Intel UHD only`` that other vendor's
    GPU, an NVIDIA device id that one device; none for other text.
    """
    if unnamed := _UNNAMED.search(label.value):
        yield "pci", ({"vendor": Known("nvidia", source), "device_id": Known(f"10de:{unnamed.group(1)}", source)},)
        yield "pci.nvidia_count", Known(1, source)
    if label.value.lower().startswith(("no ", "none", "nothing", "empty", "(empty", "(no ")):
        yield "pci.nvidia_count", Known(0, source)
    elif label.value.lower().startswith("only ") or label.value.lower().rstrip(".)").endswith(" only"):
        device = label.value.removeprefix("only ").removeprefix("Only ")
        if gpu_vendor(device) not in (None, "nvidia"):
            yield from gpu_facts_by_vendor([{"name": Known(device, source)}])


def _framework_version(label: Label, source: str) -> Answers:
    """tf.version, torch.version or jax.version from ``TensorFlow 1.15``; nothing for another framework."""
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


def _image_container(label: Label, source: str) -> Answers:
    """host.container is docker where an image is named."""
    if label.value and not missing_fact(label.value, source):
        yield "host.container", Known("docker", source)


def _no_processes(label: Label, _source: str) -> Answers:
    """The group ``gpu_process`` without rows where the value says that none runs; else nothing."""
    if label.value.lower() in ("none", "none listed", "no running processes found", "empty"):
        yield "gpu_process", ()


ANSWERS: Mapping[str, Callable[[Label, str], Answers]] = {
    "gpus": _gpu_names,
    "kernel": _kernel_facts,
    "wsl": _wsl_facts,
    "container": _container_facts,
    "cuda and cudnn": _cuda_and_cudnn,
    "cudnn": _library_reader("libcudnn"),
    "nvjitlink": _library_reader("libnvJitLink"),
    "torch": _torch_facts,
    "lspci": _lspci_facts,
    "machine": _machine_facts,
    "framework": _framework_version,
    "image": _image_container,
    "processes": _no_processes,
    "libcuda": _libcuda_facts,
    "fabric manager": _fabric_manager_facts,
    "module kind": _module_kind_facts,
    "driver": _driver_facts,
    "nvidia smi": _nvidia_smi,
}
