"""Lines that name things whatever is wrong: their words say nothing of what a text is about."""

from __future__ import annotations

import re

from gpudoctor.model.pattern import pattern

_BEGINNINGS = (
    *("|", "+", "  File "),
    *("PyTorch version:", "Is debug build:", "CUDA used to build", "ROCM used to build", "OS:", "GCC version:"),
    *("Clang version:", "CMake version:", "Libc version:", "Python version:", "Python platform:", "Is CUDA available:"),
    *("CUDA runtime version:", "CUDA_MODULE_LOADING", "GPU models and", "Nvidia driver version:", "cuDNN version:"),
    *("HIP runtime version:", "MIOpen runtime", "Is XNNPACK", "Versions of relevant", "Collecting environment"),
    *("[pip", "[conda", "CPU:", "[GCC ", "[Clang ", "[MSC v", 'Type "help", "copyright"'),
)
"""nvidia-smi's table with its headings, a traceback's frames, what collect_env asks, the greeting of a prompt."""
_SECTION = pattern(
    r"(?:GPU |GPU Memory |Module )?Power (?:Readings|Samples)|(?:(?:Default )?Applications |Deferred )?Clocks"
    r"|Max (?:Customer Boost )?Clocks|Clock Policy|Clocks (?:Throttle|Event) Reasons|ECC (?:Mode|Errors)"
    r"|(?:FB|BAR1|Conf Compute Protected) Memory Usage|Retired Pages|Remapped Rows|MIG (?:Mode|Devices)"
    r"|GPU (?:Operation|Virtualization) Mode|GPU Link Info|PCIe Generation|Link Width|(?:Encoder|FBC) Stats"
    r"|Inforom Version|Driver Model|Temperature|Voltage|Fabric|Utilization|Volatile|Aggregate|Processes|PCI"
)
"""The headings of nvidia-smi -q: what stands below them is a fact, and they stand there on every machine."""
_LISTED = pattern(
    r"""
    [\w.-]+ (== | \ {2,}) \d[\w.+!-]* (\ +\S+){0,2}           # a package of pip's or conda's lists
    | (llm_load_\w+|load_tensors|print_info|llama_\w+):\     # what llama.cpp logs on every start
      (?!(?i:.*(error|fail|unable|out\ of|cannot))).*
    | .{0,120}NCCL\ INFO\                                     # what NCCL logs on every start
      (?!(?i:.*(error|fail|unable|could\ not|cannot|timed?\ ?out|abort|mismatch|clos|lost|refus|unreach|invalid))).*
    | NCCL\ version\ \d[\w.+]*
    | GPU\ \d+:\ (NVIDIA|Tesla|GeForce|Quadro)\b .*           # a GPU of nvidia-smi -L
    | (?!(?i:.*(error|fail|warn|messag|reason)))              # a field of lscpu or nvidia-smi -q
      [A-Z][\w\ ()/.-]{0,40}? (:\ {2,}|\ {2,}:\ ) \S .*
    """,
    re.VERBOSE,
)


def is_furniture(line: str) -> bool:
    """Whether the line is one of a form or a list, which stands there on sound machines as well."""
    return line.startswith(_BEGINNINGS) or any(form.fullmatch(line.strip()) for form in (_LISTED, _SECTION))
