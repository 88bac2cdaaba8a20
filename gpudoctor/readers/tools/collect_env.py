"""``python -m torch.utils.collect_env`` of every torch, whole or shortened by hand, and vLLM's wider form of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.readers._gpus import named, sorted_by_vendor
from gpudoctor.readers._labels import Label
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._system import GLIBC, platform_string, system
from gpudoctor.readers._values import dotted, driver_version, missing, release, truth

EXACT = 8
Answers = Iterator[tuple[str, "Fact | Rows"]]

_GPU = Pattern(r"\s*GPU\s*(\d+)\s*:\s*(.+)")
_LIBRARY = Pattern(r".*?((?:lib)?cudnn\w{0,60}?)(?:64_\d+)?\.(?:so|dll|dylib)(?:\.(\d+(?:\.\d+)*))?")


def read(paste: Paste) -> Answers:
    """Its labels, wherever they stand."""
    if not any(word in paste.lower for word in _WORDS):
        return
    for label in paste.labels:
        parse = _LABELS.get(label.name)
        if parse:
            yield from parse(paste, label, f"line {paste.numbers[label.index]}")
            paste.use(label.index)


def _torch(paste: Paste, label: Label, source: str) -> Answers:
    if (version := dotted(label.value)) is not None:
        yield "torch.version", Known(version, source)
        yield "live.import_outcome", Known("ok", source)
        return
    gone = missing(label.value, source)
    if label.value.strip().upper() != "N/A":
        yield "torch.version", gone or Unread(f"not a version: {label.value[:60]!r} ({source})")
    elif "[pip3] torch==" in paste.text or "[pip] torch==" in paste.text:
        yield "live.import_outcome", Known("error", source)
        yield "live.cuda_available", Unread(f"torch could not be imported ({source})")
    else:
        yield "torch.version", Absent(f"collect_env could not import torch ({source})")
        yield "live.import_outcome", Known("error", source)


def _built_with(paste: Paste, label: Label, source: str) -> Answers:
    """torch.version.cuda. A build without CUDA has None there, printed as ``None`` or as ``Could not collect``."""
    value = label.value.lower()
    if value in ("none", "could not collect", "no cuda"):
        yield "torch.cuda", Absent(f"torch was built without CUDA: it says {label.value} ({source})")
        if not _is_rocm(paste):
            yield "torch.flavor", Known("cpu", source)
    elif (cuda := release(label.value)) is not None:
        yield "torch.cuda", Known(cuda, source)
        yield "torch.flavor", Known("cuda", source)
    elif _is_rocm(paste):
        yield "torch.cuda", Absent(f"torch was built for ROCm ({source})")


def _is_rocm(paste: Paste) -> bool:
    return any(label.name == "rocm used to build pytorch" and release(label.value) for label in paste.labels)


def _rocm(paste: Paste, label: Label, source: str) -> Answers:
    if hip := dotted(label.value):
        yield "torch.hip", Known(hip, source)
        yield "torch.flavor", Known("rocm", source)
    elif label.value.upper() == "N/A" and not any(
        one.name == "pytorch version" and one.value == "N/A" for one in paste.labels
    ):
        yield "torch.hip", Absent(f"torch was not built for ROCm ({source})")


def _available(_paste: Paste, label: Label, source: str) -> Answers:
    answer = truth(label.value)
    if answer is None:
        yield "live.cuda_available", Unread(f"the report says {label.value or 'nothing'} ({source})")
    else:
        yield "live.cuda_available", Known(answer, source)
        yield "live.import_outcome", Known("ok", source)


def _toolkit(_paste: Paste, label: Label, source: str) -> Answers:
    version = release(label.value)
    for name in ("cuda.nvcc_version", "cuda.toolkit_version"):
        yield name, Known(version, source) if version else Unread(f"nvcc did not answer ({source})")


def _driver(_paste: Paste, label: Label, source: str) -> Answers:
    version = driver_version(label.value)
    if version:
        yield "driver.version", Known(version, source)
    else:
        yield "driver.version", Unread(f"the report says {label.value or 'nothing'} ({source})")


def _gpus(paste: Paste, label: Label, source: str) -> Answers:
    if missing(label.value, source) and label.value:
        yield "gpu", Unread(f"the report says {label.value} ({source})")
        return
    if label.value and not _GPU.match(label.value):
        yield from named(label.value, source)
        return
    rows: list[Row] = []
    if first := _GPU.match(label.value):
        rows.append(_row(first.group(1), first.group(2), source))
    index = label.index + 1
    while index < len(paste.bare) and (match := _GPU.match(paste.bare[index])):
        rows.append(_row(match.group(1), match.group(2), paste.use(index)))
        index += 1
    yield from sorted_by_vendor(rows)


def _row(index: str, name: str, source: str) -> Row:
    return {"index": Known(int(index), source), "name": Known(name.partition(" (UUID")[0].strip(), source)}


def _cudnn(paste: Paste, label: Label, source: str) -> Answers:
    """Copies of cuDNN: one path, or a list below; a person may give the version alone."""
    rows: list[Row] = []
    version = dotted(label.value)
    if version and "/" not in label.value and "\\" not in label.value:
        rows.append({"name": Known("libcudnn", source), "version": Known(version, source)})
    for index in range(label.index, min(label.index + 40, len(paste.bare))):
        path = label.value if index == label.index else paste.bare[index].strip()
        if match := _LIBRARY.fullmatch(path):
            rows.append(_copy(path, match.group(1), match.group(2), paste.use(index)))
        elif index > label.index:
            break
    if rows:
        yield "lib", tuple(rows)


def _copy(path: str, name: str, version: str | None, source: str) -> Row:
    row: dict[str, Fact] = {"name": Known(name, source), "path": Known(path, source), "origin": Known("system", source)}
    if version:
        row["version"] = Known(version, source)
    return row


def _os(_paste: Paste, label: Label, source: str) -> Answers:
    if label.value and not missing(label.value, source):
        told = list(platform_string(label.value, source))
        yield from told or system(label.value, source)


def _python(_paste: Paste, label: Label, source: str) -> Answers:
    if version := dotted(label.value):
        yield "python.version", Known(version, source)


def _platform(_paste: Paste, label: Label, source: str) -> Answers:
    yield from platform_string(label.value, source)


def _gcc(_paste: Paste, label: Label, source: str) -> Answers:
    """gcc as `gcc --version` says; the line of /proc/driver/nvidia/version, which begins ``gcc version``, is not it."""
    version = dotted(label.value.rpartition(")")[2]) or dotted(label.value)
    if version and not label.value.startswith("gcc version"):
        yield "cuda.host_compiler_version", Known(version, source)
        yield "cuda.host_compiler_kind", Known("gcc", source)


def _libc(_paste: Paste, label: Label, source: str) -> Answers:
    if glibc := GLIBC.search(label.value):
        yield "host.glibc", Known(glibc.group(1), source)


_LABELS: Mapping[str, Callable[[Paste, Label, str], Answers]] = {
    "pytorch version": _torch,
    "cuda used to build pytorch": _built_with,
    "rocm used to build pytorch": _rocm,
    "is cuda available": _available,
    "cuda runtime version": _toolkit,
    "nvidia driver version": _driver,
    "gpu models and configuration": _gpus,
    "cudnn version": _cudnn,
    "os": _os,
    "python version": _python,
    "python platform": _platform,
    "gcc version": _gcc,
    "libc version": _libc,
}
_WORDS = (
    "pytorch version",
    "cuda used to build",
    "is cuda available",
    "gpu models and",
    "cuda runtime version",
    "cudnn version",
    "nvidia driver version",
    "python version",
    "python platform",
    "os:",
    "os :",
    "os  ",
    "gcc version",
    "libc version",
)
