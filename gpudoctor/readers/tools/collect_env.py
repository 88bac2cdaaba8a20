"""``python -m torch.utils.collect_env`` of every torch, whole or shortened by hand, and vLLM's wider form of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.readers._machine import GLIBC, gpu_facts, gpu_facts_by_vendor, platform_facts, system_facts
from gpudoctor.readers._paste import Label, Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import driver_version, first_version, major_minor, missing_fact, yes_or_no
from gpudoctor.readers.tools.compilers import host_compiler

EXACT = 8
Answers = Iterator[tuple[str, "Fact | Rows"]]

_GPU = Pattern(r"\s*GPU\s*(\d+)\s*:\s*(.+)")
_LIBRARY = Pattern(r".*?((?:lib)?cudnn\w{0,60}?)(?:64_\d+)?\.(?:so|dll|dylib)(?:\.(\d+(?:\.\d+)*))?")


def read(paste: Paste) -> Answers:
    """Facts of each label that PyTorch's collect_env prints, in any order; marks these lines as placed."""
    for label in paste.labels:
        if parse := _LABELS.get(label.name):
            yield from parse(paste, label, f"line {paste.numbers[label.index]}")
            paste.use(label.index)


def _torch_version(paste: Paste, label: Label, source: str) -> Answers:
    """torch.version and live.import_outcome (ok, error) from ``PyTorch version``.

    Of ``N/A`` the version is `Absent`, or left out where pip lists torch, which then is installed but cannot be
    imported. Of other words it is `Absent` (``not installed``) or `Unread`.
    """
    if (version := first_version(label.value)) is not None:
        yield "torch.version", Known(version, source)
        yield "live.import_outcome", Known("ok", source)
        return
    missing = missing_fact(label.value, source)
    if label.value.strip().upper() != "N/A":
        yield "torch.version", missing or Unread(f"not a version: {label.value[:60]!r} ({source})")
    elif "[pip3] torch==" in paste.text or "[pip] torch==" in paste.text:
        yield "live.import_outcome", Known("error", source)
        yield "live.cuda_available", Unread(f"torch could not be imported ({source})")
    else:
        yield "torch.version", Absent(f"collect_env could not import torch ({source})")
        yield "live.import_outcome", Known("error", source)


def _torch_cuda(paste: Paste, label: Label, source: str) -> Answers:
    """torch.cuda, absent for a build without CUDA, and torch.flavor, from ``CUDA used to build PyTorch``.

    A build without CUDA has ``None`` or ``Could not collect`` there.
    """
    value = label.value.lower()
    if value in ("none", "could not collect", "no cuda"):
        yield "torch.cuda", Absent(f"torch was built without CUDA: it says {label.value} ({source})")
        if not _is_rocm_build(paste):
            yield "torch.flavor", Known("cpu", source)
    elif (cuda := major_minor(label.value)) is not None:
        yield "torch.cuda", Known(cuda, source)
        yield "torch.flavor", Known("cuda", source)
    elif _is_rocm_build(paste):
        yield "torch.cuda", Absent(f"torch was built for ROCm ({source})")


def _is_rocm_build(paste: Paste) -> bool:
    """Whether ``ROCM used to build PyTorch`` gives a version."""
    return any(label.name == "rocm used to build pytorch" and major_minor(label.value) for label in paste.labels)


def _rocm_version(paste: Paste, label: Label, source: str) -> Answers:
    """torch.hip and flavour from ``ROCM used to build PyTorch``; absent for ``N/A``, unless torch itself is ``N/A``."""
    if hip := first_version(label.value):
        yield "torch.hip", Known(hip, source)
        yield "torch.flavor", Known("rocm", source)
    elif label.value.upper() == "N/A" and not any(
        other_label.name == "pytorch version" and other_label.value == "N/A" for other_label in paste.labels
    ):
        yield "torch.hip", Absent(f"torch was not built for ROCm ({source})")


def _cuda_available(_paste: Paste, label: Label, source: str) -> Answers:
    """live.cuda_available, and that torch's import worked, from ``Is CUDA available``; unread if neither yes nor no."""
    if (answer := yes_or_no(label.value)) is None:
        yield "live.cuda_available", Unread(f"the report says {label.value or 'nothing'} ({source})")
    else:
        yield "live.cuda_available", Known(answer, source)
        yield "live.import_outcome", Known("ok", source)


def _cuda_toolkit(_paste: Paste, label: Label, source: str) -> Answers:
    """nvcc's and the toolkit's version from ``CUDA runtime version``; unread where there is none.

    Nothing of a bare number: 12060 is what a program's own runtime answers, as nvbandwidth prints it.
    """
    version = major_minor(label.value)
    if label.value.strip().isdecimal():
        return
    for name in ("cuda.nvcc_version", "cuda.toolkit_version"):
        yield name, Known(version, source) if version else Unread(f"nvcc did not answer ({source})")


def _driver_version(_paste: Paste, label: Label, source: str) -> Answers:
    """driver.version from ``Nvidia driver version``; unread where there is none."""
    version = driver_version(label.value)
    unread = Unread(f"the report says {label.value or 'nothing'} ({source})")
    yield "driver.version", Known(version, source) if version else unread


def _gpu_rows(paste: Paste, label: Label, source: str) -> Answers:
    """Rows of ``gpu`` from ``GPU models and configuration``: the lines ``GPU 0: NAME``, or a list on one line.

    The group is `Unread` for ``Could not collect``; other makers than NVIDIA give pci.gpu_vendors.
    """
    if missing_fact(label.value, source) and label.value:
        yield "gpu", Unread(f"the report says {label.value} ({source})")
        return
    if label.value and not _GPU.match(label.value):
        yield from gpu_facts(label.value, source)
        return
    rows: list[Row] = []
    if first := _GPU.match(label.value):
        rows.append(_gpu_row(first.group(1), first.group(2), source))
    index = label.index + 1
    while index < len(paste.bare) and (match := _GPU.match(paste.bare[index])):
        rows.append(_gpu_row(match.group(1), match.group(2), paste.use(index)))
        index += 1
    yield from gpu_facts_by_vendor(rows)


def _gpu_row(index: str, name: str, source: str) -> Row:
    """A row of ``gpu`` with index and name; the UUID behind the name is dropped."""
    return {"index": Known(int(index), source), "name": Known(name.partition(" (UUID")[0].strip(), source)}


def _cudnn_libraries(paste: Paste, label: Label, source: str) -> Answers:
    """Rows of ``lib`` from ``cuDNN version``: one path, a list of paths below, or a version alone."""
    rows: list[Row] = []
    version = first_version(label.value)
    if version and "/" not in label.value and "\\" not in label.value:
        rows.append({"name": Known("libcudnn", source), "version": Known(version, source)})
    for index in range(label.index, min(label.index + 40, len(paste.bare))):
        path = label.value if index == label.index else paste.bare[index].strip()
        if match := _LIBRARY.fullmatch(path):
            rows.append(_library_row(path, match.group(1), match.group(2), paste.use(index)))
        elif index > label.index:
            break
    if rows:
        yield "lib", tuple(rows)


def _library_row(path: str, name: str, version: str | None, source: str) -> Row:
    """A row of ``lib`` for a system library; without `version` where it is None."""
    row: dict[str, Fact] = {"name": Known(name, source), "path": Known(path, source), "origin": Known("system", source)}
    if version:
        row["version"] = Known(version, source)
    return row


def _operating_system(_paste: Paste, label: Label, source: str) -> Answers:
    """Facts of the system behind ``OS``, by `platform_facts`, else by `system_facts`; none if the value is missing."""
    if label.value and not missing_fact(label.value, source):
        facts = list(platform_facts(label.value, source))
        yield from facts or system_facts(label.value, source)


def _python_version(_paste: Paste, label: Label, source: str) -> Answers:
    """python.version from ``Python version``."""
    if version := first_version(label.value):
        yield "python.version", Known(version, source)


def _python_platform(_paste: Paste, label: Label, source: str) -> Answers:
    """Facts in the text of `platform.platform` behind ``Python platform``."""
    yield from platform_facts(label.value, source)


def _gcc_version(_paste: Paste, label: Label, source: str) -> Answers:
    """The host compiler from ``GCC version``, as `gcc --version` prints it.

    Not the line of /proc/driver/nvidia/version, which also begins ``gcc version``.
    """
    version = first_version(label.value.rpartition(")")[2]) or first_version(label.value)
    if version and not label.value.startswith("gcc version"):
        yield from host_compiler("gcc", version, source)


def _libc_version(_paste: Paste, label: Label, source: str) -> Answers:
    """host.glibc from ``Libc version``."""
    if glibc := GLIBC.search(label.value):
        yield "host.glibc", Known(glibc.group(1), source)


_LABELS: Mapping[str, Callable[[Paste, Label, str], Answers]] = {
    "pytorch version": _torch_version,
    "cuda used to build pytorch": _torch_cuda,
    "rocm used to build pytorch": _rocm_version,
    "is cuda available": _cuda_available,
    "cuda runtime version": _cuda_toolkit,
    "nvidia driver version": _driver_version,
    "gpu models and configuration": _gpu_rows,
    "cudnn version": _cudnn_libraries,
    "os": _operating_system,
    "python version": _python_version,
    "python platform": _python_platform,
    "gcc version": _gcc_version,
    "libc version": _libc_version,
}
