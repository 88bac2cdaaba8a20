"""Whether torch's own operations run on the GPU, as people say it and as a prompt shows it."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.catalog import fact
from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 2
FACTS = (fact("live.computes", "bool", "whether torch's own operations run on the GPU, as the report says"),)

_SUBJECT = (
    r"\b(?:(?:plain|pure|basic|simple|bare|vanilla|stock|native|other|normal|standard|ordinary)\s+){0,4}(?:py)?torch\b"
    r"(?!\.(?:compile|version|distributed|utils|_\w+)\b)(?:\.\w+)*(?:\([^)\n]{0,40}\)\S*)?(?:\s+(?:itself|alone|only|code|ops?|operations?|tensors?|matmul\w*|test|kernels?"
    r"|computations?|smoke test|convolutions?|gemm|sdpa|attention|script|training|programs?|cuda|gpu|in the same"
    r" (?:env\w*|container|notebook)|on (?:the |this )?(?:cuda|gpu|same \w+|\w{0,12}\d{2,4}\w{0,4})|same env\w*))*"
)
_GOOD = (
    r"(?:works?|working|worked|fine|ok(?:ay)?|runs?|running|passe[sd]|succeeds?|succeeded|correct|good"
    r"|no (?:error|problem|issue)s?)\b"
)
_LABELLED = Pattern(
    r"^\W{0,4}" + _SUBJECT + r"\s*[:：=]\s*(?:\w+,\s+){0,2}" + _GOOD + r"|"
    r"^\W{0,4}" + _SUBJECT + r"\s*[:：=]\s[^\n]*\b(?:uses?|using|runs? on|works? (?:on|with)) (?:the )?(?:cuda|gpu)\b",
    2,
)
_SAID = Pattern(
    _SUBJECT + r"\s+(?:works?|runs?|is working|is fine|works? fine|computes?)\s+(?:\w+\s+){0,2}"
    r"(?:on|with|using) (?:the |this |that )?(?:cuda|gpu)\b|"
    r"\b(?:matmul|gemm|torch\.(?:ones|zeros|rand\w*|tensor)\([^)\n]*\)\S*)\s+"
    r"(?:on (?:the )?(?:cuda|gpu)\s*)?(?:[:=]\s*)?" + _GOOD,
    2,
)
_DENIED = Pattern(
    r"\b(?:not|n't|never|nothing|fails?|failed|raise[sd]?|throws?|crash\w*|cudaError\w+|error(?!s?\b.{0,3}$)"
    r"|only on (?:the )?cpu|on (?:the )?cpu|cpu only)\b",
    2,
)
_REBUILT = Pattern(
    r"\b(?:TORCH_CUDA_ARCH_LIST|NVCC_APPEND_FLAGS|NVCC_PREPEND_FLAGS)\b[^\n]*?"
    r"(?::|->|=>|,|;|then|and|it)\s*(?:(?:now|then|it|all|everything) )*" + _GOOD,
    2,
)
"""An extension that works once it is compiled for the GPU: torch itself had its kernels all along."""
_OF_TORCH = Pattern(r"\b(?:py)?torch\b", 2)
_TENSOR = Pattern(r"\btensor\(\s*[\[\-\d.][^\n]*device='cuda(?::\d+)?'")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """One answer at most; a line that denies anything is not taken."""
    if "torch" not in paste.lower and "nvcc_" not in paste.lower and "device='cuda" not in paste.lower:
        return
    for index, line in enumerate(paste.bare):
        if len(line) > 300:
            continue
        if "torch" in line.lower() or "matmul" in line.lower():
            said = line.replace("no error", "fine").replace("no problem", "fine").replace("no issue", "fine")
            if (_LABELLED.search(said) or _SAID.search(said)) and not _DENIED.search(said):
                yield "live.computes", Known(True, f"line {paste.numbers[index]}")
                return
        if _REBUILT.search(line) and not _OF_TORCH.search(line):
            yield "live.computes", Known(True, f"line {paste.numbers[index]}")
            return
        if _TENSOR.search(line):
            yield "live.computes", Known(True, f"line {paste.numbers[index]}")
            return
