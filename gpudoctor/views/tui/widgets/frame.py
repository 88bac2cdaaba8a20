"""The frame around every screen: verdict, counts or message, tabs of all screens, keys below; a line to search."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.dom import DOMNode
from textual.screen import Screen
from textual.style import Style
from textual.visual import VisualType
from textual.widget import Widget
from textual.widgets import Input

from gpudoctor.core.language import say
from gpudoctor.views._terminal import drawable


@dataclass(frozen=True, slots=True)
class ScreenEntry:
    """A screen's name and titles; its class is imported when opened: ``gpus`` is `GPUs...` in ``screens/gpus.py``."""

    name: str
    title: str
    short: str
    """The title where 80 columns are all there is."""
    screen: str

    def open(self) -> Screen[Any]:
        """A new instance of the screen, whose module is imported now."""
        module = importlib.import_module(f"gpudoctor.views.tui.screens.{self.name}")
        screen: Screen[Any] = getattr(module, self.screen)()
        return screen


SCREEN_ENTRIES = (
    ScreenEntry("diagnosis", "Diagnosis", "Diag", "DiagnosisScreen"),
    ScreenEntry("gpus", "GPUs", "GPU", "GPUsScreen"),
    ScreenEntry("facts", "Facts", "Facts", "FactsScreen"),
    ScreenEntry("kernels", "Kernels", "Kern", "KernelsScreen"),
    ScreenEntry("cluster", "Cluster", "Clus", "ClusterScreen"),
    ScreenEntry("setup", "Setup", "Setup", "SetupScreen"),
    ScreenEntry("job", "Job", "Job", "JobScreen"),
)
FIX_SCREEN = ScreenEntry("fix", "Fix", "Fix", "FixScreen")
"""The one screen without a tab: `f` opens it from all the others."""


# ---- The frame ----

NARROW = 96
"""Columns from which there is room for whole words and panes side by side."""


class Line(Widget):
    """A widget of one line of text; the text is never read as markup."""

    DEFAULT_CSS = "Line { height: 1; padding: 0 1; }"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._left = Content("")
        self._rights: tuple[Content, ...] = ()

    def say(self, left: Content | str, *rights: Content | str) -> None:
        """Set the left text, and versions of the right one, the longest first: the first that fits is shown."""
        self._left = Content(drawable(left)) if isinstance(left, str) else left
        self._rights = tuple(Content(drawable(right)) if isinstance(right, str) else right for right in rights)
        self.refresh()

    def render(self) -> VisualType:
        """The left text, and the first right text that fits beside it; without one the left alone, cut if needed."""
        for right in self._rights:
            room = self.content_size.width - self._left.cell_length - right.cell_length
            if room >= 2:
                return Content.assemble(self._left, " " * room, right)
        return self._left.truncate(self.content_size.width, ellipsis=True)


class Tabs(Widget):
    """The line of screen titles; a click opens one."""

    DEFAULT_CSS = "Tabs { height: 1; padding: 0 1; }"

    def __init__(self, here: str) -> None:
        super().__init__(id="tabs")
        self.here = here

    def render(self) -> VisualType:
        """Numbers and titles of all screens on one line, the open one in brackets; each is clickable."""
        short = self.app.size.width < NARROW
        parts: list[Content] = []
        for number, entry in enumerate(SCREEN_ENTRIES, 1):
            title = f"{number} {say(entry.short if short else entry.title)}"
            here = entry.name == self.here
            look = Style.parse("bold $primary" if here else "$foreground 70%")
            open_it = Style.from_meta({"@click": f"app.open('{entry.name}')"})
            parts.append(Content.styled(f"[{title}]" if here else f" {title} ", look + open_it))
        return Content("").join(parts)


class Keys(Widget):
    """The line of keys of what has the focus, as many as fit; those that work everywhere are never cut."""

    DEFAULT_CSS = "Keys { height: 1; dock: bottom; padding: 0 1; background: $panel; }"
    EVERYWHERE = (("?", "keys", "app.keys"), ("^p", "commands", "app.command_palette"), ("q", "quit", "app.quit"))
    MOST = 6

    def on_mount(self) -> None:
        """Redraw when the available keys change."""
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.refresh())

    def render(self) -> VisualType:
        """Keys of this screen at the left, as many as fit and at most `MOST`; those of every screen at the right."""
        width = self.content_size.width
        short = width < NARROW
        everywhere = [(key, "" if short and key != "?" else word, action) for key, word, action in self.EVERYWHERE]
        everywhere = [*self._app_hints(), *everywhere]
        right = _hints_text(everywhere)
        room = width - right.cell_length - 2
        shown: list[tuple[str, str, str]] = []
        for hint in self._screen_hints():
            if len(shown) == self.MOST or _hints_text([*shown, hint]).cell_length > room:
                break
            shown.append(hint)
        left = _hints_text(shown)
        return Content.assemble(left, " " * max(2, width - left.cell_length - right.cell_length), right)

    def _app_hints(self) -> Iterable[tuple[str, str, str]]:
        """Key, word and action of each of the application's `OWN_KEYS` that can be used now."""
        for hint in getattr(self.app, "OWN_KEYS", ()):
            if self.app.check_action(hint[2].partition(".")[2], ()):
                yield hint

    def _screen_hints(self) -> Iterable[tuple[str, str, str]]:
        """Key, word and action of each binding of the screen and its focus that is shown and enabled, each once."""
        seen = set()
        for _, binding, enabled, _ in self.screen.active_bindings.values():
            if binding.show and enabled and binding.description and binding.action not in seen:
                seen.add(binding.action)
                yield binding.key_display or self.app.get_key_display(binding), binding.description, binding.action


def _hints_text(hints: Iterable[tuple[str, str, str]]) -> Content:
    """Keys in bold with their words, on one line; a click on one runs its action."""
    parts = []
    for key, word, action in hints:
        click = Style.from_meta({"@click": action if "." in action else f"screen.{action}"})
        text = Content.assemble((key, Style.parse("bold $primary")), f" {say(word)}" if word else "")
        parts.append(text.stylize(click))
    return Content("  ").join(parts)


# ---- A line to type what is searched: open while there is something to search ----


class SearchInput(Input):
    """The input line of a search; its keys call the screen's actions ``to_list`` and ``leave``."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,down", "screen.to_list", "to the list", key_display="⏎"),
        Binding("escape", "screen.leave", "all facts"),
    ]


class Search(Horizontal):
    """A search line behind ``/``; the screen receives `Input.Changed`."""

    DEFAULT_CSS = """
    Search { display: none; height: 1; background: $panel; }
    Search.-open { display: block; }
    Search Line { width: 3; padding: 0 1; color: $primary; text-style: bold; }
    Search SearchInput, Search SearchInput:focus { width: 1fr; padding: 0; background: $panel; }
    """

    def __init__(self, placeholder: str) -> None:
        super().__init__()
        self.field = SearchInput(placeholder=say(placeholder), select_on_focus=False, compact=True)

    def compose(self) -> Iterable[Widget]:
        """The ``/`` sign and the input field."""
        sign = Line()
        sign.say("/")
        yield sign
        yield self.field

    @property
    def opened(self) -> bool:
        """True if the search line is shown."""
        return self.has_class("-open")

    def open(self) -> None:
        """Show the search line and focus its input."""
        self.add_class("-open")
        self.field.focus()

    def close(self) -> None:
        """Clear the input and hide the search line."""
        self.field.value = ""
        self.remove_class("-open")


# ---- What can be done now, read from the bindings themselves ----

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
    """Every action that is possible now, with all its keys: of the screen, its focused widget and the application.

    Keys that only move a cursor or scroll are one hint; Textual's own actions that a user need not know are left out.
    """
    hints: dict[tuple[bool, str], Hint] = {}
    for node, binding, enabled, tooltip in screen.active_bindings.values():
        moves = binding.group is MOVES or binding.action in _SCROLL
        own = MOVES.description if moves else binding.description
        words = _lowercased(say(_TEXTUALS.get(binding.action, own if moves else tooltip or own)))
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
    """The hint's keys, the shortest first; of keys that move a cursor, single letters last."""
    if hint.moves:
        return tuple(sorted(hint.keys, key=lambda key: len(key) == 1 and key.isalpha()))
    return tuple(sorted(hint.keys, key=len))
