"""Headings, titles and labels of the tables on torch, what stands beside it, images and symbols."""

from __future__ import annotations

from collections.abc import Mapping

from gpudoctor.knowledge.entries.words._section import Section

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

SECTIONS: Mapping[tuple[str, str], Section] = {
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
