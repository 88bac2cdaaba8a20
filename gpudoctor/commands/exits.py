"""Exit codes of the contract."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudoctor.model.diagnosis import Diagnosis

SOUND, BROKEN, MISUSE, UNKNOWN = 0, 1, 2, 3
DIFFERENT = 1
INTERRUPTED = 128 + signal.SIGINT
UNHEARD = 128 + signal.SIGPIPE


def exit_code(diagnosis: Diagnosis, strict: bool = False) -> int:
    """0 sound, 1 broken (or, if `strict`, warnings), 3 no error found and no verdict possible."""
    if diagnosis.verdict == "broken":
        return BROKEN
    if strict and any(finding.severity == "warning" for finding in diagnosis.findings):
        return BROKEN
    return UNKNOWN if diagnosis.verdict == "unknown" else SOUND
