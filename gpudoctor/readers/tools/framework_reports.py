"""What frameworks print of themselves: transformers, accelerate, diffusers, xformers, bitsandbytes, JAX; conda info."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, known_facts
from gpudoctor.readers._paste import Label, Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import size_mib

EXACT = 8
FACTS = (
    fact("jax.gpus", "int", "GPUs of this machine that JAX lists; 0 where it lists its processors"),
    fact("bitsandbytes.library_missing", "text", "native library that bitsandbytes asks for and has not"),
)

Answers = Iterator[tuple[str, "Fact | Rows"]]

_TORCH = Pattern(r"(?P<version>\d+\.\d+\S*) \((?P<accelerator>CUDA|XPU|NPU|HPU|MLU|MUSA|NA|N/A|True|False)\)$")
_VERSION = Pattern(r"\d+\.\d+\.\d+[\w.+]*")
_TAG = Pattern(r"\+(?:cu(?P<major>\d{2})(?P<minor>\d)|(?P<cpu>cpu))(?:\.|$)")
_CARD = Pattern(r"(?P<name>[^,]{2,80}), (?P<memory>\d{1,7} MiB)(?: VRAM)?$")
_XFORMERS = Pattern(r"\s*xFormers (?P<version>\d+\.\d+\S{0,40})\s*$")
_FEATURE = Pattern(
    r"\s*(?P<name>pytorch\.version|pytorch\.cuda|gpu\.compute_capability|gpu\.name|build\.torch_version"
    r"|build\.cuda_version):\s+(?P<value>\S.*?)\s*$"
)
_DEVICES = Pattern(r"\s*jax\.devices \(\d{1,5} total, (?P<count>\d{1,5}) local\): \[(?P<kind>\w+)\(id=\d")
_INFO = Pattern(r"\s*device info: (?P<kind>.{1,80})-\d{1,5}, (?P<count>\d{1,5}) local devices\"?\s*$")
_VIRTUAL = Pattern(r"\s*(?:virtual packages : )?__cuda=(?P<cuda>\d+\.\d+)=\w+\s*$")
_NO_LIBRARY = Pattern(
    r"\s*Library not found: \S{0,300}\b(?P<name>libbitsandbytes_(?:cuda|rocm)\d{2,4}\w{0,20}\.(?:so|dll))\b"
)
_NO_GPU = ("cpu", "tpu")
"""Kinds of JAX's devices that are no GPU, in lower case, as they begin."""


def read(paste: Paste) -> Answers:
    """Facts of torch's build, CUDA's availability, GPUs, JAX's devices, bitsandbytes' library and conda's __cuda.

    From the environment reports of Hugging Face's libraries, xFormers, JAX, bitsandbytes and conda.
    """
    if "pytorch" in paste.lower:
        for label in paste.labels:
            if parse := _LABELS.get(label.name):
                yield from parse(paste, label)
    if "xformers" in paste.lower:
        yield from _xformers_info(paste)
    listing = paste.matches(lambda line: _DEVICES.match(line) or _INFO.match(line), "device info: ", "jax.devices (")
    for devices, source in listing:
        gpus = 0 if devices["kind"].lower().startswith(_NO_GPU) else int(devices["count"])
        yield "jax.gpus", Known(gpus, source)
    for index, line in paste.having("library not found: "):
        if (match := _NO_LIBRARY.match(line)) and "SUCCESS!" not in paste.bare[index:]:
            source = paste.use(index)
            yield "bitsandbytes.has_build", Known(False, source)
            yield "bitsandbytes.library_missing", Known(match["name"], source)
    for match, source in paste.matches(_VIRTUAL.match, "__cuda="):
        yield "cuda_driver.version", Known(match["cuda"], source)
        yield "cuda_driver.init_code", Known(0, source)  # conda asks for the version once cuInit has succeeded


def _torch_build(version: str, source: str) -> Iterator[tuple[str, Fact]]:
    """torch.version, and flavor and CUDA (absent for ``+cpu``) where its tag tells: ``2.7.1+cpu``, ``2.7.1+cu126``."""
    yield "torch.version", Known(version, source)
    tag = _TAG.search(version)
    if tag and tag["cpu"]:
        yield "torch.flavor", Known("cpu", source)
        yield "torch.cuda", Absent(f"torch {version} is built for the CPU ({source})")
    elif tag:
        yield "torch.flavor", Known("cuda", source)
        yield "torch.cuda", Known(f"{tag['major']}.{tag['minor']}", source)


def _torch_and_accelerator(paste: Paste, label: Label) -> Answers:
    """torch's build and live.cuda_available from ``2.7.1+cu126 (CUDA)``, ``2.7.1+cpu (NA)``, ``2.5.1 (True)``."""
    if match := _TORCH.fullmatch(label.value):
        source = paste.use(label.index)
        yield from _torch_build(match["version"], source)
        yield "live.cuda_available", Known(match["accelerator"] in {"CUDA", "True"}, source)


def _torch_alone(paste: Paste, label: Label) -> Answers:
    """torch.version, and what its tag tells, from a label with a version only; nothing for another value."""
    if _VERSION.fullmatch(label.value):
        yield from _torch_build(label.value, f"line {paste.numbers[label.index]}")


def _accelerator(paste: Paste, label: Label) -> Answers:
    """live.cuda_available, True only for ``CUDA``, by the accelerator that accelerate names; else nothing."""
    if label.value in {"CUDA", "XPU", "NPU", "HPU", "MLU", "SDAA", "MUSA", "N/A", "NA"}:
        yield "live.cuda_available", Known(label.value == "CUDA", paste.use(label.index))


def _cards(paste: Paste, label: Label) -> Answers:
    """Rows of ``gpu`` from the answer of nvidia-smi that diffusers puts behind ``Accelerator``, one a line."""
    rows: list[Row] = []
    for index in range(label.index, len(paste.bare)):
        match = _CARD.fullmatch(label.value if index == label.index else paste.bare[index].strip())
        if not match:
            break
        source = paste.use(index)
        memory = size_mib(match["memory"]) or 0
        rows.append(known_facts(source, index=len(rows), name=match["name"], memory_mib=memory))
    if rows:
        yield "gpu", tuple(rows)


_LABELS: Mapping[str, Callable[[Paste, Label], Answers]] = {
    "pytorch version accelerator": _torch_and_accelerator,
    "pytorch version gpu": _torch_and_accelerator,
    "pytorch version": _torch_alone,
    "pytorch accelerator": _accelerator,
    "accelerator": _cards,
}


def _xformers_info(paste: Paste) -> Answers:
    """From ``python -m xformers.info``: torch's build, live.cuda_available, a row of ``gpu``, xFormers' ``extension``.

    The extension has the torch and CUDA that xFormers was built with; left out if neither is shown.
    """
    extension: dict[str, Fact] = {}
    gpu: dict[str, Fact] = {}
    for index, line in paste.having("xformers ", "pytorch.", "gpu.", "build.torch_version", "build.cuda_version"):
        source = f"line {paste.numbers[index]}"
        if match := _XFORMERS.match(line):
            extension = {"name": Known("xformers", source), "version": Known(match["version"], source)}
        elif extension and (match := _FEATURE.match(line)):
            paste.use(index)
            name, value = match["name"], match["value"]
            if name == "pytorch.version":
                yield from _torch_build(value, source)
            elif name == "pytorch.cuda" and value in {"available", "not available"}:
                yield "live.cuda_available", Known(value == "available", source)
            elif name in {"gpu.name", "gpu.compute_capability"}:
                gpu[name.removeprefix("gpu.")] = Known(value, source)
            elif name == "build.torch_version" and value[:1].isdecimal():
                extension["torch"] = Known(value, source)
            elif name == "build.cuda_version" and value.isdecimal() and len(value) in {3, 4}:
                extension["cuda"] = Known(f"{int(value[:-2])}.{int(value[-2:])}", source)
    if len(extension) > 2:
        yield "extension", (extension,)
    if gpu:
        yield "gpu", (gpu,)
