"""What the tables' sections and columns are called when a person reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Section(NamedTuple):
    """One list of a table: its heading, and for its rows the key, the title and the label of each column.

    `key` and `title` are templates over the row. A column that has no label is told by its own name, one whose label is
    empty is left out.
    """

    heading: str
    key: str
    title: str
    labels: Mapping[str, str]


_DRIVERS = {"linux": "on Linux", "windows": "on Windows"}
_GPU = {
    "name": "",
    "match": "",
    "cc": "compute capability",
    "kind": "kind",
    "memory_gib": "memory, GiB",
    "bandwidth": "memory bandwidth, GB/s",
    "pcie": "PCIe generation and width",
    "watts": "board power, W",
    "tflops": "dense TFLOPS",
    "pci": "PCI ids",
    "nvlink": "NVLink, GB/s",
    "nvswitch": "sold on NVSwitch boards",
    "first": "first driver that lists it",
    "module": "open kernel modules",
    "rare": "",
}

_HARDWARE: Mapping[tuple[str, str], Section] = {
    ("compilers", "nvcc"): Section(
        "nvcc releases",
        "{cuda}",
        "nvcc {cuda}",
        {
            "cuda": "",
            "gcc_max": "newest GCC",
            "gcc_min": "oldest GCC",
            "clang_max": "newest clang",
            "msvc_max": "newest MSVC (_MSC_VER)",
            "targets": "compiles for",
        },
    ),
    ("drivers", "family"): Section(
        "CUDA majors",
        "{major}",
        "Oldest driver for programs built with any CUDA {major} (not for their PTX)",
        {**_DRIVERS, "major": ""},
    ),
    ("drivers", "toolkit"): Section(
        "CUDA releases", "{cuda}", "Driver that came with CUDA {cuda}", {**_DRIVERS, "cuda": ""}
    ),
    ("drivers", "shipped"): Section(
        "What distributions ship",
        "{distribution} {release}",
        "Drivers for {distribution} {release}",
        {"distribution": "", "release": "", "branches": "branches, the one to prefer first", "from": "from"},
    ),
    ("drivers", "branch"): Section(
        "Driver branches",
        "{branch}",
        "Driver branch {branch}",
        {
            "branch": "",
            "cuda": "newest CUDA served in full",
            "kind": "kind",
            "ends": "support ends",
            "ended": "support has ended",
            "last_for": "last branch for",
            "unsure": "not settled",
        },
    ),
    ("gpus", "gpu"): Section("GPUs", "{name}", "{name}", _GPU),
    ("gpus", "family"): Section(
        "Names by pattern", "{match}", "Names that begin like {match}", {**_GPU, "nvlink": "NVLink"}
    ),
    ("gpus", "generation"): Section(
        "Compute capabilities",
        "{cc}",
        "Compute capability {cc}: {arch}",
        {
            "cc": "",
            "arch": "",
            "floor": "first driver branch",
            "ceiling": "last driver branch",
            "module": "open kernel modules",
            "soc": "system on chip, with drivers of its own",
            "names": "GPUs",
        },
    ),
    ("gpus", "device"): Section(
        "PCI device ids by chip",
        "10de:{from}-{to}",
        "PCI ids 10de:{from} to 10de:{to}",
        {"from": "", "to": "", "chip": "chip"},
    ),
    ("rates", "product"): Section(
        "Operations per clock and multiprocessor",
        "{cc}",
        "Compute capability {cc}: dense operations per clock and multiprocessor",
        {"cc": "", "name": "where the name has"},
    ),
    ("rates", "reached"): Section(
        "What sound GPUs reach",
        "{kernels}",
        "{kernels}: at least {share} of the limit",
        {"kernels": "", "share": "", "cc": "compute capability", "name": "where the name has"},
    ),
    ("rates", "lane"): Section(
        "PCIe lanes",
        "PCIe {generation}",
        "One lane of PCIe {generation}",
        {"generation": "", "transfers": "GT/s", "rate": "GB/s each way"},
    ),
    ("rates", "nvlink"): Section(
        "NVLinks", "NVLink {version}", "One link of NVLink {version}", {"version": "", "rate": "GB/s each way"}
    ),
}


_COMPANION = {
    "torch": "built for torch",
    "needs": "needs torch",
    "python": "Python",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
    "cuda_major": "CUDA",
    "requires_python": "Python",
}
_BESIDE = {
    **_COMPANION,
    "version": "",
    "builds": "wheels on torch's index for",
    "glibc": "requires glibc",
    "machines": "wheels for",
}
_RELEASED = {**_BESIDE, "needs": "needs"}

_SOFTWARE: Mapping[tuple[str, str], Section] = {
    ("companions", "xformers"): Section("xformers", "xformers {version}", "xformers {version}", _RELEASED),
    ("companions", "vllm"): Section("vLLM", "vllm {version}", "vLLM {version}", _RELEASED),
    ("companions", "tensorflow"): Section("TensorFlow", "tensorflow {version}", "TensorFlow {version}", _RELEASED),
    ("companions", "jax"): Section("JAX's CUDA plugin", "jax {version}", "JAX {version}", _RELEASED),
    ("companions", "flash_attn"): Section(
        "flash-attn's wheels",
        "flash-attn {version}",
        "Wheels of flash-attn {version} for {wheel}",
        {**_BESIDE, "wheel": "", "torch": "for torch", "pythons": "for", "abis": "for C++11 ABI", "archs": "GPU code"},
    ),
    ("companions", "source_builds"): Section(
        "Compiled from source", "{name}", "{name}, compiled", {**_BESIDE, "name": "", "torch": "needs torch"}
    ),
    ("companions", "sdists"): Section(
        "Compiled on the machine",
        "{name}",
        "{name}, which the package index has as source only",
        {
            "name": "",
            "own_wheels": "its build looks for a wheel of the project first",
            "on_first_use": "compiled when it is first used",
        },
    ),
    ("companions", "support"): Section(
        "What packages ask of a machine",
        "{name}",
        "What {name} asks of a machine",
        {
            "name": "",
            "cc": "compute capability from",
            "cc_13": "compute capability from, with CUDA 13",
            "systems": "GPU wheels for",
            "windows_last": "last release for Windows",
            "free_threaded": "for Python without the global lock",
        },
    ),
    ("companions", "bitsandbytes"): Section(
        "bitsandbytes",
        "bitsandbytes {first}",
        "bitsandbytes {first} to {last}",
        {"first": "", "last": "", "cuda": "libraries for CUDA"},
    ),
    ("images", "distribution"): Section(
        "Distributions",
        "{image}:{release}",
        "{image}:{release}",
        {"image": "", "release": "", "tags": "in other tags", "python": "its own Python", "glibc": "glibc"},
    ),
    ("images", "ngc"): Section(
        "NVIDIA's images of PyTorch",
        "{release}",
        "nvcr.io/nvidia/pytorch:{release}-py3",
        {"release": "", "cuda": "CUDA", "torch": "torch", "python": "Python"},
    ),
    ("images", "made_for_gpus"): Section(
        "Images that are made for GPUs", "{image}", "{image}", {"image": "", "tag": "with this in their tags"}
    ),
    ("symbols", "symbol"): Section(
        "Symbols, as patterns", "{match}", "Symbols like {match}", {"match": "", "says": "says", "library": "library"}
    ),
    ("torch", "early"): Section(
        "Early releases",
        "{version}",
        "torch {version}",
        {
            "version": "",
            "released": "released",
            "linux": "pip gives, Linux x86_64",
            "newest": "newest CUDA of its builds",
            "pythons": "wheels for",
            "loose": "companions that take other torches too",
        },
    ),
    ("torch", "release"): Section(
        "Releases",
        "{version}",
        "torch {version}",
        {
            "version": "",
            "released": "released",
            "linux": "pip gives, Linux x86_64",
            "aarch64": "pip gives, Linux aarch64",
            "pythons": "wheels for",
            "aarch64_pythons": "wheels for, Linux aarch64",
            "windows_pythons": "wheels for, Windows",
            "requires_python": "requires Python",
            "glibc": "requires glibc",
            "cxx11": "C++11 ABI",
            "loose": "companions that take other torches too",
        },
    ),
    ("torch", "build"): Section(
        "Builds",
        "{torch}+{build}",
        "torch {torch}+{build}",
        {
            "torch": "",
            "build": "",
            "cuda": "CUDA",
            "toolkit": "built with toolkit",
            "archs": "GPU code, Linux x86_64",
            "windows": "GPU code, Windows",
            "aarch64": "GPU code, Linux aarch64",
            "cudnn": "cuDNN",
            "nccl": "NCCL",
            "cxx11": "C++11 ABI",
            "windows_wheel": "wheel for Windows",
        },
    ),
    ("torch", "glibc"): Section(
        "The C library of distributions", "glibc {glibc}", "glibc {glibc}", {"glibc": "", "distributions": "in"}
    ),
    ("torch", "toolkit"): Section("Toolkits", "toolkit {cuda}", "Wheels of CUDA toolkit {cuda}", {"cuda": ""}),
}

PAIRED: Mapping[str, Section] = {
    package: Section(
        package,
        f"{package} {{version}}",
        f"{package} {{version}}",
        {"package": "", "version": "", "torch": "belongs to torch", "loose": "takes other torches too"},
    )
    for package in ("torchvision", "torchaudio", "triton")
}
"""Companions that stand on the row of the torch release that they belong to."""


_CODE = {"means": "means", "code": "", "name": ""}
_XID = {
    "code": "",
    "name": "NVIDIA's name",
    "symbol": "NVIDIA's name",
    "meaning": "",
    "class": "about",
    "action": "do at once",
    "then": "then",
    "fatal": "fatal",
    "note": "note",
}

_NAMED: Mapping[tuple[str, str], Section] = {
    ("codes", "nvml"): Section("NVML return codes", "nvml {code}", "NVML {code}: {name}", _CODE),
    ("codes", "cuda"): Section("CUDA errors", "cuda {code}", "CUDA {code}: {name}", _CODE),
    ("codes", "nccl"): Section("NCCL results", "nccl {code}", "NCCL {code}: {name}", _CODE),
    ("codes", "clock_event"): Section(
        "Clock event reasons, bits", "{bit}", "Clock event {bit}: {name}", {"bit": "", "name": ""}
    ),
    ("nccl", "path"): Section("How far apart GPUs are", "{name}", "Path {name}", {"name": "", "meaning": "means"}),
    ("nccl", "ib_status"): Section(
        "InfiniBand completion status", "status {code}", "InfiniBand status {code}: {name}", _CODE
    ),
    ("nccl", "variable"): Section(
        "Variables",
        "{name}",
        "{name}",
        {"name": "", "values": "values", "effect": "effect", "risk": "risk", "since": "since NCCL"},
    ),
    ("nccl", "renamed"): Section(
        "Variables of torch that were renamed", "{name}", "{name}", {"name": "", "now": "is now"}
    ),
    ("nccl", "risk"): Section(
        "What follows from a variable's value",
        "{name}",
        "{name} = {match}",
        {"name": "", "match": "", "says": "what follows"},
    ),
    ("nccl", "factor"): Section(
        "Bus bandwidth over algorithm bandwidth",
        "{collective}",
        "busbw of {collective}",
        {"collective": "", "factor": "factor"},
    ),
    ("nccl", "busbw"): Section(
        "Bus bandwidth that sound machines reach",
        "{platform} {collective}",
        "{platform}: {collective}",
        {
            "platform": "",
            "collective": "",
            "least": "at least, GB/s",
            "typical": "typical, GB/s",
            "size": "message size",
        },
    ),
    ("nccl", "line_rate"): Section("Line rates", "{link}", "{link}", {"link": "", "rate": "GB/s each way"}),
    ("xid", "xid"): Section("Xid", "{code}", "Xid {code}: {meaning}", _XID),
    ("xid", "sxid"): Section("SXid", "SXid {code}", "SXid {code}: {name}", {**_XID, "name": ""}),
    ("xid", "action"): Section("Actions", "{name}", "{name}", {"name": "", "text": "do"}),
}


__all__ = ["PAIRED", "SECTIONS", "TABLES", "Section"]


class About(NamedTuple):
    """What a table is about, and keys to try."""

    says: str
    tries: tuple[str, ...]


TABLES: Mapping[str, About] = {
    "codes": About("return codes of NVML, CUDA and NCCL", ("802", "nvml 15", "ncclRemoteError")),
    "companions": About("what stands beside torch", ("torchvision 0.24", "flash-attn 2.8.3", "bitsandbytes")),
    "compilers": About("what each nvcc takes: host compilers, GPUs", ("12.4", "sm_120")),
    "drivers": About("which driver serves which CUDA", ("12.8", "570.124.06", "ubuntu 24.04")),
    "gpus": About("GPUs by the names that tools print", ("RTX 5090", "10de:2b85", "GRID A100-10C", "8.9", "Hopper")),
    "images": About("what container images bring, by their names", ("nvcr.io/nvidia/pytorch:24.12-py3", "bookworm")),
    "nccl": About(
        "NCCL's transports, variables and the bandwidth that sound machines reach", ("NCCL_P2P_LEVEL", "PIX")
    ),
    "rates": About("what a GPU can at most, and what sound ones reach", ("9.0", "matmul.bf16", "PCIe 5", "NVLink 4.0")),
    "symbols": About("what a missing symbol says", ("_ZN3c104cuda9SetDeviceEab", "ncclCommSplit")),
    "torch": About("torch releases and their CUDA builds", ("2.9.0+cu128", "2.9", "cu128")),
    "xid": About("Xid and SXid, the numbers of NVIDIA's kernel log lines", ("79", "SXid 22013", "RESET_GPU")),
}

SECTIONS: Mapping[tuple[str, str], Section] = {**_HARDWARE, **_SOFTWARE, **_NAMED}
