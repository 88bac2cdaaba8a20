"""What can be done now, read from the bindings themselves: the page of keys and the commands both list it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen

_SCROLL = ("scroll_up", "scroll_down", "page_up", "page_down", "scroll_home", "scroll_end")
_TEXTUALS: Mapping[str, str] = {
    **dict.fromkeys(_SCROLL, "scroll"),
    **dict.fromkeys(("scroll_left", "scroll_right", "page_left", "page_right"), ""),  # no pane scrolls sideways
    **dict.fromkeys(("app.focus_next", "app.focus_previous"), "next, previous pane"),
    "command_palette": "all commands, by name",
    "quit": "quit",
    "screen.copy_text": "",
    "screen.minimize": "",
}
"""Our words for Textual's own actions; empty, where a user need not know."""
MOVES = Binding.Group("move")
"""The bindings that move a cursor: one line on the page of keys, and no commands."""


@dataclass(frozen=True, slots=True)
class Hint:
    """An action that is possible now: its keys as shown, its words, and the node whose action it is."""

    keys: tuple[str, ...]
    words: str
    action: str
    node: DOMNode
    moves: bool = False
    """It moves a cursor or scrolls."""
    everywhere: bool = False
    """It is the application's, not that of one screen."""


def hints_of(screen: Screen[Any]) -> list[Hint]:
    """Every action that is possible now: of the screen, its focused widget and the application."""
    hints: dict[tuple[bool, str], Hint] = {}
    for node, binding, enabled, tooltip in screen.active_bindings.values():
        moves = binding.group is MOVES or binding.action in _SCROLL
        own = MOVES.description if moves else binding.description
        words = _TEXTUALS.get(binding.action, own if moves else _lowercased(tooltip or own))
        if not enabled or not words:
            continue
        everywhere = node is screen.app or binding.action.startswith("app.")
        slot = (everywhere, words if moves or binding.action in _TEXTUALS else binding.action)
        known = hints.get(slot) or Hint((), words, binding.action, node, moves, everywhere)
        key = screen.app.get_key_display(binding).replace("ctrl+", "^")
        hints[slot] = known if key in known.keys else replace(known, keys=(*known.keys, key))
    return [replace(hint, keys=_ordered_keys(hint)) for hint in hints.values()]


def _lowercased(words: str) -> str:
    """The words with a small first letter, unless they begin with an acronym (``P2P``)."""
    return words if words[:2].isupper() or words[1:2].isdigit() else words[:1].lower() + words[1:]


def _ordered_keys(hint: Hint) -> tuple[str, ...]:
    """The hint's keys, the simplest first; of movement keys, arrows before letters."""
    if hint.moves:
        return tuple(sorted(hint.keys, key=lambda key: len(key) == 1 and key.isalpha()))
    return tuple(sorted(hint.keys, key=len))
