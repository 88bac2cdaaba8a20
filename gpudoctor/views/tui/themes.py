"""Our themes. Each keeps error, warning, passed and accent four different colours, with 16 colours, too."""

from __future__ import annotations

from dataclasses import replace

from textual.theme import BUILTIN_THEMES, Theme

DEFAULTS = {"on-state": "#000000"}
"""Variables that a theme may set: the colour of text on a band or badge of error, warning, success or primary."""

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
    success="#007a1f",
    warning="#8a5a00",
    error="#c00000",
    foreground="#121212",
    background="#ffffff",
    surface="#f4f4f4",
    panel="#eaeaea",
    dark=False,
    variables={"on-state": "#ffffff"},
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
ANSI_NIGHT = replace(
    BUILTIN_THEMES["ansi-dark"],
    primary="ansi_bright_cyan",
    accent="ansi_bright_cyan",
    success="ansi_bright_green",
    warning="ansi_bright_yellow",
    error="ansi_bright_red",
)
"""The terminal's own colours, the bright ones: its dark blue is hardly seen on black."""
ANSI_DAY = replace(
    BUILTIN_THEMES["ansi-light"],
    accent="ansi_blue",
    warning="ansi_magenta",
    variables={**BUILTIN_THEMES["ansi-light"].variables, "on-state": "ansi_bright_white"},
)
"""Warnings are magenta: yellow is not seen on white, and bright red is another error."""
OURS = (NIGHT, DAY, CONTRAST, ANSI_NIGHT, ANSI_DAY)
NAMES = {
    NIGHT.name: "dark",
    DAY.name: "light",
    CONTRAST.name: "high contrast",
    ANSI_NIGHT.name: "the terminal's colours, dark",
    ANSI_DAY.name: "the terminal's colours, light",
}
"""Each of them in words, in the order to choose from."""
