"""GPUs in words: ``the server has two A100``, ``only one GPU here``, ``no compatible GPUs were discovered``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 1
_MOST = 500
"""Lines that are looked at: who writes words writes few of them."""

_NUMBERS = {"one": 1, "single": 1, "two": 2, "three": 3, "four": 4, "six": 6, "eight": 8}
_NUMBER = rf"(?P<n>{'|'.join(_NUMBERS)}|[1-9]\d?)"
_CARD = (
    r"(?:[ -]|[x×] ?| ?[x×] )(?:(?:nvidia|geforce|physical|identical|cuda|tesla|quadro|local|visible) )*"
    r"(?:gpus?|graphics cards?|cards?|(?:rtx|gtx|a|h|l|v|p|t)[ -]?\d{1,4}\w*)\b"
)
_MACHINE = (
    r"(?:machine|server|host|box|workstation|system|computer|node|laptop|pc|instance|vm|desktop|container|pod|job)"
)
_WORDS = (
    Pattern(
        rf"\b{_MACHINE}\b(?: only| just)? (?:has|with|have|got|offers|sees|shows)(?: only| just)?(?: an?| the)?"
        rf" {_NUMBER}{_CARD}",
        2,
    ),
    Pattern(rf"^\W*(?:(?:the|this|my|our) )?{_MACHINE}(?: hardware)?\s*:\s*(?:an? )?{_NUMBER}{_CARD}", 2),
    Pattern(rf"\b(?:only|just|there is|there are|i have|we have)(?: an?| the)? {_NUMBER}{_CARD}", 2),
    Pattern(rf"\b{_NUMBER}[ -]gpu {_MACHINE}\b", 2),
)
_NOT_HERE = Pattern(
    r"\b(?:works?|worked|other|another|different|expected|should|need\w*|requires?|want\w*|used?|using)\b", 2
)
_NO_GPU = Pattern(
    r"no compatible GPUs were discovered|msg=\"no nvidia devices detected\"|no usable GPU found, --gpu-layers option"
    r"|\b(?:CUDA|GPU)(?: support)?(?: device)? (?:is )?not (?:available|found|detected)\b(?! (?:in|on|for) )"
    r"|\bNo (?:CUDA |NVIDIA )?GPUs? (?:(?:is |are )?(?:found|detected|available|visible))\b|\bFound 0 GPUs?\b"
    r"|cuda_is_available\(\)\W+FALSE|\bCUDA_ERROR_NO_DEVICE\b|\bno CUDA-capable device\b|\bcudaErrorNoDevice\b",
    2,
)
"""How programs on top say that they see none: Ollama, llama.cpp, Ultralytics, torch for R, and many a script."""
_LISTED = Pattern(r"\bGPU \d{1,2}:\s?\S")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """That programs see no GPU, and how many there are."""
    for index, line in paste.having(
        "gpu", "cuda not", "cuda is not", "cuda device not", "nvidia devices", "no_device", "cuda-capable", "nodevice"
    ):
        if len(line) < 1000 and _NO_GPU.search(line):
            yield "live.cuda_available", Known(False, f"line {paste.numbers[index]}")
            break
    yield from _counted(paste)


def _counted(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """``gpu.count``, from the first line that speaks of this machine's GPUs."""
    for label in paste.labels:
        if label.name.startswith("nvidia smi l") and (found := _LISTED.compiled.findall(label.value)):
            yield "gpu.count", Known(len(found), f"line {paste.numbers[label.index]}")
            return
    for index, _ in islice(paste.having("gpu", "card", "rtx", "gtx", "a100", "h100", "v100", "l40", " t4"), _MOST):
        line = paste.bare[index]
        if not line or len(line) > 200 or line[0] in "|+" or _NOT_HERE.search(line):
            continue
        for pattern in _WORDS:
            if match := pattern.search(line):
                said = match["n"].lower()
                yield "gpu.count", Known(_NUMBERS.get(said) or int(said), f"line {paste.numbers[index]}")
                return
