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
_LISTED = pattern(
    r"""
    [\w.-]+ (== | \ {2,}) \d[\w.+!-]* (\ +\S+){0,2}           # a package of pip's or conda's lists
    | GPU\ \d+:\ (NVIDIA|Tesla|GeForce|Quadro)\b .*           # a GPU of nvidia-smi -L
    | (?!(?i:.*(error|fail|warn|messag|reason)))              # a field of lscpu or nvidia-smi -q
      [A-Z][\w\ ()/.-]{0,40}? (:\ {2,}|\ {2,}:\ ) \S .*
    """,
    re.VERBOSE,
)


def is_furniture(line: str) -> bool:
    """Whether the line is one of a form or a list, which stands there on sound machines as well."""
    return line.startswith(_BEGINNINGS) or _LISTED.fullmatch(line.strip()) is not None
