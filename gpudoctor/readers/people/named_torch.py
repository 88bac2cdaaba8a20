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
_PACKAGE = Pattern(r"\W*(?:conda\W+)?(?:cudatoolkit|pytorch-cuda)(?:\s+|\s*:\s*)\d")
"""A line of ``conda list``, or of collect_env's packages."""
_DRIVER_NAMED = Pattern(r"\bdriver(?: version)?\W{1,4}\d{3}\b|NVIDIA-SMI \d{3}", 2)
_NO_CUDA = Pattern(r"is_available\(?\)?[\s=:*`'\")>-]{0,12}(?:(?:returns?|is|gives|says) )?\W{0,3}False")
_WISHED = Pattern(
    r"\b(?:want(?:s|ed)?|requires?|needs?|tried|should|would|instead|upgrade|before|previous(?:ly)?)\b", 2
)
_MOVED = Pattern(
    r"\b(?:up|down)grad(?:e|ed|ing) (?:py)?torch(?:[ =v]{1,3}\d[\w.+]*)?(?: ?\([^()\n]{1,20}\))?"
    r"(?: from [\w.+]+(?: ?\([^()\n]{1,20}\))?)? ?(?:to|->|→) ?(?:py)?(?:torch )?v?"
    r"(?P<to>\d+\.\d+(?:\.\d+)?(?:\+(?:cu\d{2,3}|cpu))?)(?: ?\((?P<cuda>cu\d{2,3})\))?",
    2,
)
_CURED = Pattern(
    r"\b(?:works|worked|fixe[sd]|solve[sd]|helped|resolved|fine|gone|no longer|ok|instead|would|could)\b", 2
)
_LISTED = Pattern(
    r"\bpip3? (?:list|freeze|show)(?: torch)?(?: \| grep \w+)? (?:shows?|says|lists|gives|has|reports|prints)"
    r"(?: me)?:? (?:py)?torch(?:==| )?v?(\d+\.\d+\.\d+(?:\+\w+(?:\.\d+)?)?)(?![\w.])",
    2,
)
_INSTALLED = Pattern(
    r"^\W{0,4}(?:install(?:ed|ation)?(?: with| by| via| using| command| from)?|how (?:was )?(?:it|torch|pytorch) "
    r"(?:was )?installed|torch install(?:ed|ation)?(?: with| by| via)?)\W{1,4}(?:uv )?pip3? install\b[^\n]{0,200}?"
    r"\btorch==(\d+\.\d+\.\d+(?:\+\w+(?:\.\d+)?)?)(?![\w.])",
    2,
)
_TORCH_WORDS = ("torch", "you might not have a cuda gpu")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """The one torch that the text names; where it names several, none: one may be what was tried before."""
    if "cudatoolkit" in paste.lower or "pytorch-cuda" in paste.lower:
        yield from _conda_toolkit(paste)
    if "torch" not in paste.lower:
        return
    yield from _told(paste)
    if "+" not in paste.text:
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


def _told(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """``pip freeze shows torch==2.3.0``, ``installed with: pip install torch==2.4.0``, ``upgraded torch to 2.6``."""
    found: dict[str, tuple[int, str]] = {}
    for index, line in paste.having("torch"):
        if _CURED.search(line) or "no matching" in line.lower():
            continue
        for pattern in (_LISTED, _INSTALLED, _MOVED):
            if match := pattern.search(line[:500]):
                parts = match.groupdict()
                found.setdefault(parts.get("to") or match.group(1), (index, parts.get("cuda") or ""))
    if len(found) == 1:
        version, (index, cuda) = found.popitem()
        source = f"line {paste.numbers[index]}"
        yield "torch.version", Known(version, source)
        if cuda:
            yield "torch.cuda", Known(f"{cuda[2:-1]}.{cuda[-1]}", source)


def _conda_toolkit(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """The CUDA of conda's torch is that of its package cudatoolkit or pytorch-cuda; pip's torch brings its own."""
    if not any(words in paste.lower for words in _TORCH_WORDS) or "[pip3] torch==" in paste.lower:
        return
    found: dict[str, int] = {}
    asked_in_vain = _NO_CUDA.search(paste.text) and not _DRIVER_NAMED.search(paste.text)
    for index, line in paste.having("cudatoolkit", "pytorch-cuda"):
        if asked_in_vain and "pytorch-cuda" not in line and not _PACKAGE.match(line):
            continue  # asked for is not got: beside cudatoolkit the solver takes the CPU build where no other fits
        if not _WISHED.search(line) and (match := _TOOLKIT.search(line[:2000])):
            found.setdefault(match.group(1), index)
    if len(found) == 1:
        cuda, index = found.popitem()
        yield "torch.cuda", Known(cuda, f"line {paste.numbers[index]}: conda's CUDA libraries")
