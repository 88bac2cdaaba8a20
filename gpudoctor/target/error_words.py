"""What NVIDIA's libraries call their error codes, read from them by ``python -m tests.sim.words``."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gpudoctor.core import shipped

_WORDS = json.loads(shipped.text("target/error_words.json"))
NVML: Mapping[int, str] = {int(code): words for code, words in _WORDS["nvml"].items()}
"""nvmlErrorString; what it does not know it calls as it calls 999."""
CUDA: Mapping[int, tuple[str, str]] = {int(code): (name, words) for code, (name, words) in _WORDS["cuda"].items()}
"""cuGetErrorName and cuGetErrorString."""
