"""The marks: a glyph and a word say it, the colour only repeats it."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoctor.core.diagnosis import Verdict
from gpudoctor.core.language import say
from gpudoctor.core.rule import Severity

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
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
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
MEANINGS = (
    (SEVERITY["error"][0], "error: does not work", "$error"),
    (SEVERITY["warning"][0], "warning: not as it should be", "$warning"),
    (SEVERITY["info"][0], "worth knowing", "$primary"),
    (PASSED, "checked and in order", "$success"),
    (UNREAD, "not read, or not judged", "$primary"),
    (ABSENT, "known not to be there", ""),
    (QUIET, "nothing wrong", ""),
    ("0-9", "tenths of what is expected", "$warning"),
    ("x", "wrong data", "$error"),
    ("▲", "root, reboot, hands or jobs", "$warning"),
    ("●", "changes, or needs the network", ""),
    ("▾ ▸", "unfolded, folded", ""),
)
"""Mark, what it means, and its colour: for the page of keys."""


def step_labels(needs: Sequence[str], touches: str) -> list[str]:
    """What a step needs and touches, each as a mark with words: ``▲ needs root``, ``● changes the system``."""
    labels = [translated(NEEDS[need]) if need in NEEDS else f"▲ {say('needs {what}', what=need)}" for need in needs]
    return [*labels, translated(TOUCHES[touches])] if touches in TOUCHES else labels


def translated(mark: str) -> str:
    """A glyph with words (``✗ ERROR``), the words in the language in use; a glyph alone as it is."""
    glyph, blank, words = mark.partition(" ")
    return f"{glyph}{blank}{say(words) if words else ''}"


def spinner(seconds: float) -> str:
    """The spinner's glyph at that moment, in seconds of any clock; it changes eight times a second."""
    return _SPINNER[int(seconds * 8) % len(_SPINNER)]
