"""The marks: a glyph and a word say it, the colour only repeats it."""

from __future__ import annotations

from gpudoctor.model.diagnosis import Verdict
from gpudoctor.model.rule import Severity

SEVERITY: dict[Severity, tuple[str, str, str]] = {
    "error": ("✗", "ERROR", "$error"),
    "warning": ("!", "WARNING", "$warning"),
    "info": ("i", "INFO", "$primary"),
}
"""Glyph, word and colour of each severity."""
VERDICT: dict[Verdict, tuple[str, str]] = {
    "sound": ("✓", "SOUND"),
    "impaired": ("!", "IMPAIRED"),
    "broken": ("✗", "BROKEN"),
    "unknown": ("?", "UNKNOWN"),
}
"""Glyph and word of each verdict; the band's colour goes by its CSS class of that name."""
PASSED, UNREAD, ABSENT, QUIET = "✓", "?", "-", "·"
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
NEEDS = {
    "root": "▲ needs root",
    "reboot": "▲ needs a reboot",
    "downtime": "▲ interrupts jobs",
    "network": "● needs the network",
}
TOUCHES = {
    "environment": "● changes this environment",
    "system": "● changes the system",
    "hardware": "▲ hands on the machine",
}
