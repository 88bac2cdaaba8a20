"""Headings, titles and labels of the tables on compilers, drivers, GPUs and their rates."""

from __future__ import annotations

from collections.abc import Mapping

from gpudoctor.knowledge.entries.words._section import Section

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

SECTIONS: Mapping[tuple[str, str], Section] = {
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
