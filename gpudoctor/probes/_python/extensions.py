"""Extensions built against torch: what their names, METADATA and files say they were built for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from gpudoctor.model.fact import Absent, Fact, Known, Row, Unread
from gpudoctor.model.frozen import frozen
from gpudoctor.model.pattern import pattern
from gpudoctor.probes._libraries.native import Native
from gpudoctor.probes._python.dists import Dist, Environment
from gpudoctor.probes._python.requires import exact, requirements
from gpudoctor.probes._python.site import Site
from gpudoctor.probes._python.torch_files import Torch
from gpudoctor.target import Target

_NAMES = frozenset(
    {
        *(
            "apex",
            "auto-gptq",
            "autoawq",
            "autoawq-kernels",
            "bitsandbytes",
            "causal-conv1d",
            "deepspeed",
            "detectron2",
        ),
        *(
            "exllamav2",
            "flash-attn",
            "flash-attn-3",
            "flashinfer-python",
            "gptqmodel",
            "mamba-ssm",
            "mmcv",
            "mmcv-full",
        ),
        *("natten", "nvdiffrast", "pyg-lib", "pytorch3d", "sageattention", "sgl-kernel", "spconv", "torch-cluster"),
        *("torch-scatter", "torch-sparse", "torch-spline-conv", "torchao", "transformer-engine"),
        *("transformer-engine-torch", "vllm", "xformers"),
    }
)
_BITSANDBYTES = pattern(r"libbitsandbytes_cuda(\d{2})(\d)(?:_nocublaslt)?\.so")


def extensions(target: Target, site: Site, environment: Environment, torch: Torch | Absent | Unread) -> Iterator[Row]:
    """One row for each that is installed."""
    seen: set[str] = set()
    for dist in environment.dists:
        if dist.name in _NAMES and dist.name not in seen:
            seen.add(dist.name)
            yield {**_row(target, site, dist), **_compiled(target, torch, dist)}


def bitsandbytes_builds(target: Target, environment: Environment) -> Fact:
    """The CUDA releases that it has native libraries for: ``12.4`` for ``libbitsandbytes_cuda124.so``."""
    dist = environment.first("bitsandbytes")
    if dist is None:
        return Absent("bitsandbytes is not installed")
    folder = f"{dist.folder}/bitsandbytes"
    try:
        names = target.listing(folder)
    except OSError as error:
        return Unread(f"{folder} could not be listed: {error.strerror or error}")
    builds = {(int(match[1]), int(match[2])) for name in names if (match := _BITSANDBYTES.fullmatch(name))}
    return Known(tuple(f"{major}.{minor}" for major, minor in sorted(builds)), folder)


def _row(target: Target, site: Site, dist: Dist) -> Row:
    tag, source = _tag(target, dist)
    return {
        "name": Known(dist.name, dist.path),
        "version": Known(dist.version, dist.path),
        "torch": Known(tag.torch, source) if tag.torch else _pinned_torch(target, site, dist),
        "cuda": Known(tag.cuda, source) if tag.cuda else Absent("neither its version nor its wheel's name says it"),
        "abi": Known(tag.abi, source) if tag.abi else Absent("neither its version nor its wheel's name says it"),
    }


def _compiled(target: Target, torch: Torch | Absent | Unread, dist: Dist) -> Row:
    """What its libraries say. Without a torch there is nothing to hold them against."""
    if isinstance(torch, Torch) and torch.path:
        return dict(Native(target, torch, dist).facts())
    why = torch if not isinstance(torch, Torch) else Unread("torch has no package folder")
    return dict.fromkeys(("missing_symbols", "missing_libraries", "archs"), why)


def _tag(target: Target, dist: Dist) -> tuple[Tag, str]:
    """Of its version, else of the wheel that it was installed from by URL or path."""
    tag = tag_of(dist.version)
    if tag != Tag():
        return tag, dist.path
    source = f"{dist.path}/direct_url.json"
    try:
        url = json.loads(target.read(source, 1 << 16)).get("url", "")
    except (OSError, ValueError, AttributeError):
        return tag, dist.path
    return tag_of(str(url).rpartition("/")[2]), source


def _pinned_torch(target: Target, site: Site, dist: Dist) -> Fact:
    try:
        found = list(requirements(target, site, dist, lambda name: name == "torch"))
    except OSError as error:
        return Unread(f"its METADATA could not be read: {error}")
    pins = [version for need in found for version in exact(need)]
    return Known(pins[0], f"{dist.path}/METADATA") if pins else Absent("it pins no torch")


# ---- What an extension's version or wheel name says it was built for ----
# ``+cu122torch2.3cxx11abiFALSE``, ``+pt24cu121``.

_CUDA = pattern(r"cu(?:da)?-?(\d{2})\.?(\d?)(?!\d)", re.IGNORECASE)
_TORCH = pattern(r"torch-?(\d+\.\d+(?:\.\d+)?)", re.IGNORECASE)
_PT = pattern(r"pt(\d)\.?(\d{1,2})(?!\d)", re.IGNORECASE)
_ABI = pattern(r"cxx11abi(true|false|1|0)", re.IGNORECASE)


@frozen
class Tag:
    """Each part empty where the name does not say it; `cuda` is ``12.2``, or ``12`` where only the major is named."""

    torch: str = ""
    cuda: str = ""
    abi: str = ""


def tag_of(text: str) -> Tag:
    """Read the part after the ``+`` of a version, or of a wheel's file name."""
    local = text.replace("%2B", "+").replace("%2b", "+").partition("+")[2].partition("-cp")[0]
    torch = _TORCH.search(local)
    short = _PT.search(local)
    cuda = _CUDA.search(local)
    abi = _ABI.search(local)
    return Tag(
        torch=torch[1] if torch else f"{short[1]}.{short[2]}" if short else "",
        cuda=".".join(part for part in cuda.groups() if part) if cuda else "",
        abi="" if not abi else "cxx11" if abi[1].lower() in ("true", "1") else "pre-cxx11",
    )
