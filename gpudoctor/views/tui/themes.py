"""Our themes. Each keeps error, warning, passed and accent four different colours, with 16 colours, too."""

from __future__ import annotations

from textual.theme import Theme

NIGHT = Theme(
    "gpudoctor-dark",
    primary="#5fafff",
    secondary="#87afd7",
    accent="#5fafff",
    success="#5fd787",
    warning="#ffd75f",
    error="#ff5f5f",
    foreground="#d7d7d7",
    background="#121212",
    surface="#1c1c1c",
    panel="#262626",
)
DAY = Theme(
    "gpudoctor-light",
    primary="#005faf",
    secondary="#5f5f87",
    accent="#005faf",
    success="#00703c",
    warning="#8a5a00",
    error="#c00000",
    foreground="#1c1c1c",
    background="#fafafa",
    surface="#f0f0f0",
    panel="#e4e4e4",
    dark=False,
)
CONTRAST = Theme(
    "gpudoctor-contrast",
    primary="#00ffff",
    secondary="#ffffff",
    accent="#00ffff",
    success="#00ff00",
    warning="#ffff00",
    error="#ff6060",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#1a1a1a",
)
OURS = (NIGHT, DAY, CONTRAST)
"""Beside them Textual's ``ansi-dark`` and ``ansi-light`` show the terminal's own colours."""
NAMES = (*(theme.name for theme in OURS), "ansi-dark", "ansi-light")
