"""Programs that print that they see no GPU: Ollama, llama.cpp, Ultralytics, torch for R, TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 1
_LONGEST = 1000
_WORDS = (
    "gpu",
    "cuda not",
    "cuda is not",
    "cuda device not",
    "nvidia devices",
    "no_device",
    "cuda-capable",
    "nodevice",
)
_NO_GPU = Pattern(
    r"no compatible GPUs were discovered|msg=\"no nvidia devices detected\"|no usable GPU found, --gpu-layers option"
    r"|\b(?:CUDA|GPU)(?: support)?(?: device)? (?:is )?not (?:available|found|detected)\b(?! (?:in|on|for) )"
    r"|\bNo (?:CUDA |NVIDIA )?GPUs? (?:(?:is |are )?(?:found|detected|available|visible))\b|\bFound 0 GPUs?\b"
    r"|cuda_is_available\(\)\W+FALSE|\bCUDA_ERROR_NO_DEVICE\b|\bno CUDA-capable device\b|\bcudaErrorNoDevice\b",
    2,
)


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """``live.cuda_available`` is false where some line says so."""
    for index, line in paste.having(*_WORDS):
        if len(line) < _LONGEST and _NO_GPU.search(line):
            yield "live.cuda_available", Known(False, f"line {paste.numbers[index]}")
            return
