"""What torch prints when it is imported and when CUDA starts: warnings, errors, answers at a prompt."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, known_facts
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import major_minor

EXACT = 6
FACTS = (fact("torch.cudnn_built", "version", "cuDNN that torch says it was compiled against"),)

_NOT_COMPATIBLE = Pattern(
    r"(\S.{0,160}?) with CUDA capability sm_(\d+)(\d)a? is not compatible with the current PyTorch"
)
_TO_USE = Pattern(r"If you want to use the (\S.*?) GPU with PyTorch")
_INSTALL = Pattern(r"PyTorch install supports CUDA capabilities ([\w ]+)")
_ARCH = Pattern(r"\b(?:sm|compute)_\d{2,3}[af]?\b")
_FOUND_GPU = Pattern(r"Found GPU(\d+) (.+?) which is of (?:cuda|compute) capability (\d+\.\d+)")
_TOO_OLD = Pattern(r"too old \(found version (\d+)\)")
_CUDNN = Pattern(
    r"PyTorch was compiled\s+against \((\d+), (\d+), (\d+)\)"
    r" but (?:found runtime version|linked against) \((\d+), (\d+), (\d+)\)"
)
_COMPANION = Pattern(r"(?i)PyTorch has CUDA Version=([\d.]+) and (torchvision|torchaudio) has CUDA Version=([\d.]+)")
_REQUIRES = Pattern(
    r"(?i)torch \S+ (?:requires|has requirement) ([\w-]+)==([\w.]+)(?![\w.]);?.*?"
    r"but you have \1 (\w[\w.]*\w)\.?(?: which is incompatible|\s*$)"
)
_COMPILED = Pattern(r"^\s*- CUDA Runtime (\d+\.\d+)\s*$")
_INIT = Pattern(r"CUDA initialization: (.+)")
_NO_DEVICE = Pattern(
    r"(?:RuntimeError: |AssertionError: |^)(No CUDA GPUs are available|Found no NVIDIA driver on your system.*)"
)
_UNKNOWN = Pattern(r"(CUDA unknown error - this may be due.*)")
_INIT_FAILED = Pattern(r"(failed call to cuInit: (?:UNKNOWN ERROR \(303\)|CUDA_ERROR_NO_DEVICE).*)")
_RETURNED = Pattern(r"(cudaGetDeviceCount returned (?:35|100|999)\b.*)")
_UNEXPECTED = Pattern(r"(Unexpected error from cudaGetDeviceCount\(\).*)")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Facts of torch, its requirements, the driver and GPUs from torch's and pip's warnings and errors."""
    yield from _unsupported_gpus(paste)
    yield from _cuda_start_errors(paste)
    for match, source in paste.matches(_COMPILED.search, "- cuda runtime "):
        yield "torch.cuda", Known(match.group(1), source)
    for match, source in paste.matches(_CUDNN.search, "pytorch was compiled"):
        numbers = match.groups()
        yield "torch.cudnn_built", Known(".".join(numbers[:3]), source)
        yield "live.cudnn", Known(".".join(numbers[3:]), source)
    yield from _companion_mismatch(paste)
    yield from _unmet_requirements(paste)


def _unsupported_gpus(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``gpu``, and torch.archs, from warnings that torch's build does not support the GPU."""
    rows: list[Row] = []
    for warning, source in paste.matches(_NOT_COMPATIBLE.search, "with cuda capability sm_"):
        name = warning[1].rpartition("UserWarning: ")[2].strip(" -*")
        rows.append(known_facts(source, name=name, compute_capability=f"{warning[2]}.{warning[3]}"))
    for warning, source in paste.matches(_FOUND_GPU.search, "cuda capability", "compute capability"):
        number, name, capability = warning.groups()
        rows.append(known_facts(source, index=int(number), name=name, compute_capability=capability))
    for index, line in paste.having("if you want to use the "):
        if not rows and (match := _TO_USE.search(line)):
            rows.append({"name": Known(match.group(1), paste.use(index))})
    if rows:
        yield "gpu", tuple(rows)
    for index, line in paste.having("supports cuda capabilities"):
        if (match := _INSTALL.search(line)) and (archs := _ARCH.compiled.findall(match.group(1))):
            yield "torch.archs", Known(tuple(archs), paste.use(index))


def _cuda_start_errors(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """live.cuda_error and live.cuda_available (False) from errors when CUDA starts.

    Also driver.cuda_version where the driver is too old, and torch.cuda, absent, where torch is built without CUDA.
    """
    for index, _ in paste.having("torch not compiled with cuda enabled"):
        source = paste.use(index)
        yield "live.cuda_error", Known("Torch not compiled with CUDA enabled", source)
        yield "live.cuda_available", Known(False, source)
        yield "torch.cuda", Absent(f"Torch not compiled with CUDA enabled ({source})")
    for words, pattern in (
        ("cuda initialization:", _INIT),
        ("no cuda gpus are available", _NO_DEVICE),
        ("found no nvidia driver", _NO_DEVICE),
        ("cudagetdevicecount()", _UNEXPECTED),
        ("cuda unknown error", _UNKNOWN),
        ("cuinit", _INIT_FAILED),
        ("cudagetdevicecount returned", _RETURNED),
    ):
        for failure, source in paste.matches(pattern.search, words):
            yield "live.cuda_error", Known(failure.group(1).strip()[:500], source)
            yield "live.cuda_available", Known(False, source)
    for index, _ in paste.having("torch is not able to use gpu", "torch is not able to use the gpu"):
        yield "live.cuda_available", Known(False, paste.use(index))
    for match, source in paste.matches(_TOO_OLD.search, "too old (found version"):
        number = int(match.group(1)[:6])
        yield "driver.cuda_version", Known(f"{number // 1000}.{number % 1000 // 10}", source)
        yield "live.cuda_error", Known(match.string.strip()[:500], source)
        yield "live.cuda_available", Known(False, source)


def _companion_mismatch(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """torch.cuda and torch.companions_unmet where torchvision or torchaudio is built for another CUDA."""
    for match, source in paste.matches(_COMPANION.search, "cuda version="):
        torch_cuda, companion, companion_cuda = (part.rstrip(".") for part in match.groups())
        if cuda := major_minor(torch_cuda):
            yield "torch.cuda", Known(cuda, source)
        mismatch = f"{companion} is for CUDA {companion_cuda}, torch is for CUDA {torch_cuda}"
        yield "torch.companions_unmet", Known((mismatch,), source)


def _unmet_requirements(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``pin``, torch.pins_unmet and torch.companions_unmet, from pip's messages of incompatible versions."""
    unmet: list[str] = []
    pins: list[Row] = []
    companions: list[str] = []
    source = ""
    for index, line in paste.having("which is incompatible", "has requirement"):
        if match := _REQUIRES.search(line):
            source = paste.use(index)
            name, required, installed = match.groups()
            unmet.append(f"{name} wants {required}, has {installed}")
            pins.append(known_facts(source, name=name, wants=required, has=installed))
        elif line.strip().startswith(("torchvision ", "torchaudio ", "torchtext ")) and "torch==" in line:
            source = paste.use(index)
            companions.append(line.strip()[:200])
    if unmet:
        yield "torch.pins_unmet", Known(tuple(unmet), source)
        yield "pin", tuple(pins)
    if companions:
        yield "torch.companions_unmet", Known(tuple(companions), source)
