"""Which torch other packages ask for by their own versions: a pinned torchvision, xformers or vllm decides it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.knowledge import builds
from gpudoctor.knowledge._tables import table
from gpudoctor.knowledge.manifests.pip_takes import Place, fits, pinned, spec_of
from gpudoctor.model.values import CannotJudge, Nothing

BESIDE = ("torchvision", "torchaudio")
_STRICT = (*BESIDE, "xformers", "vllm")
_BRING = """
    accelerate peft lightning pytorch-lightning bitsandbytes timm sentence-transformers torchmetrics ultralytics
    openai-whisper fastai trl torchvision torchaudio xformers vllm
"""
BRING = frozenset(_BRING.split())
"""Packages that depend on torch (their METADATA, 2026-11): it comes with them, whether a line names it or not."""


def torch_of(name: str, spec: str) -> str:
    """The one torch that goes with that package at that version; empty where it leaves a choice or nobody knows."""
    version = pinned(spec).partition("+")[0]
    if name not in _STRICT or not version:
        return ""
    try:
        owner = builds.torch_for(name, version)
    except CannotJudge:
        return ""
    return "" if isinstance(owner, Nothing) else str(owner)


def misfits(torch: str, others: Sequence[tuple[str, str]]) -> Iterator[str]:
    """What of `others` (name, specifier) cannot be installed beside that torch, in words."""
    for name, spec in others:
        version = pinned(spec)
        if not version:
            continue
        if name in BESIDE:
            if wrong := builds.misfit(name, version, torch):
                yield wrong
        elif (owner := torch_of(name, spec)) and builds.base(torch) and owner != builds.base(torch):
            yield f"{name} {version} is for torch {owner}"


def taken(name: str, spec: str, torch: str, place: Place) -> str:
    """The torchvision or torchaudio that pip takes beside that torch; empty where nobody knows."""
    if version := pinned(spec):
        return version
    local = torch.partition("+")[2]
    row = builds.releases().get(builds.base(torch) or "", {})
    version = row.get(name, "")
    if not version or not spec_of(spec).contains(version) or not fits(row, place):
        return ""
    return f"{version}+{local}" if local else version


def newest_vllm_torch(spec: str) -> str:
    """The torch of the newest vllm that the specifier takes."""
    rows = [row for row in table("companions")["vllm"] if spec_of(spec).contains(row["version"])]
    return str(rows[-1]["torch"]) if rows else ""
