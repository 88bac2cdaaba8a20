"""torch named in passing, with the CUDA of its build: ``vllm 0.13, torch 2.9.0+cu130``."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 1
_NAMED = Pattern(
    r"\b(?:py)?torch(?: version)?[ =:v\"'`]{1,4}(\d+\.\d+\.\d+(?:\.dev\d+)?\+(?:cu\d{2,3}|cpu|rocm[\d.]+))\b", 2
)


_TOOLKIT = Pattern(r"\b(?:cudatoolkit|pytorch-cuda)[ =:'\"]{1,4}(\d+\.\d+)", 2)
_WISHED = Pattern(
    r"\b(?:want(?:s|ed)?|requires?|needs?|tried|should|would|instead|upgrade|before|previous(?:ly)?)\b", 2
)
_TORCH_WORDS = ("torch", "you might not have a cuda gpu")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """The one torch that the text names; where it names several, none: one may be what was tried before."""
    if "cudatoolkit" in paste.lower or "pytorch-cuda" in paste.lower:
        yield from _conda_toolkit(paste)
    if "torch" not in paste.lower or "+" not in paste.text:
        return
    found: dict[str, int] = {}
    for index, line in paste.having("torch"):
        if _WISHED.search(line) or "==" in line.partition("torch")[0]:
            continue
        for match in _NAMED.finditer(line[:2000]):
            found.setdefault(match.group(1), index)
    if len(found) == 1:
        version, index = found.popitem()
        yield "torch.version", Known(version, f"line {paste.numbers[index]}")


def _conda_toolkit(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """The CUDA of conda's torch is that of its package cudatoolkit or pytorch-cuda; pip's torch brings its own."""
    if not any(words in paste.lower for words in _TORCH_WORDS) or "[pip3] torch==" in paste.lower:
        return
    found: dict[str, int] = {}
    for index, line in paste.having("cudatoolkit", "pytorch-cuda"):
        if not _WISHED.search(line) and (match := _TOOLKIT.search(line[:2000])):
            found.setdefault(match.group(1), index)
    if len(found) == 1:
        cuda, index = found.popitem()
        yield "torch.cuda", Known(cuda, f"line {paste.numbers[index]}: conda's CUDA libraries")
