"""The keys of the screen that is open, those of every screen, and what the marks mean: one page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widget import Widget

from gpudoctor.views.tui import hints, marks
from gpudoctor.views.tui.widgets.frame import NARROW
from gpudoctor.views.tui.widgets.prose import GAP, Block, Prose

if TYPE_CHECKING:
    from textual.app import ComposeResult

_HANG = 7
"""Columns of the keys; what does not fit there stands behind the words, in brackets."""


class KeysScreen(ModalScreen[None]):
    """Lies over the screen whose keys it lists."""

    SCOPED_CSS = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (NARROW, "-wide")]  # noqa: RUF012 - an instance variable of Textual's
    CSS = """
    KeysScreen { background: $background; }
    #key-page { layout: horizontal; height: auto; max-height: 100%; }
    #key-page Prose { margin: 0 2 0 0; }
    #key-page > Container { width: 2fr; height: auto; layout: horizontal; }
    .-narrow #key-page > Container { width: 1fr; layout: vertical; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "dismiss", "back", show=False),
    ]

    def __init__(self, of: Screen[Any], title: str) -> None:
        super().__init__()
        self._hints = hints.of(of)
        self._title = title

    def compose(self) -> ComposeResult:
        """Three columns, or two where it is narrow."""
        page = VerticalScroll(self._here(), Container(*self._everywhere()), id="key-page", classes="pane")
        page.border_title = Content(f"Keys · {self._title}")
        page.border_subtitle = Content("esc back")
        yield page

    def on_mount(self) -> None:
        """The arrows scroll it."""
        self.query_one("#key-page").focus()

    def _here(self) -> Widget:
        return _prose(_listed("On this screen", [hint for hint in self._hints if not hint.everywhere]))

    def _everywhere(self) -> Iterable[Widget]:
        yield _prose(_listed("Everywhere", [hint for hint in self._hints if hint.everywhere]))
        yield _prose(_marks())


def _prose(blocks: Iterable[Block]) -> Prose:
    prose = Prose()
    prose.put(list(blocks))
    return prose


def _listed(title: str, of: Sequence[hints.Hint]) -> Iterator[Block]:
    yield Block(Content.styled(title, "bold underline"))
    screens = [hint.keys[0] for hint in of if hint.action.startswith("open(")]
    if screens:
        yield Block(Content("the screens"), Content.styled(" ".join(screens), "bold $primary"), 2 * len(screens) + 1)
    others = [hint for hint in of if not hint.action.startswith("open(")]
    for hint in sorted(others, key=lambda hint: hint.moves):
        before = 2 if len(" ".join(hint.keys[:2])) < _HANG else 1
        also = f" ({' '.join(hint.keys[before:])})" if hint.keys[before:] else ""
        keys = Content.styled(" ".join(hint.keys[:before]), "bold $primary")
        yield Block(Content(f"{hint.words}{also}"), keys, _HANG)
    yield GAP


def _marks() -> Iterator[Block]:
    yield Block(Content.styled("What the marks mean", "bold underline"))
    for glyph, words, colour in marks.MEANINGS:
        yield Block(Content(words), Content.styled(glyph, f"bold {colour}" if colour else "bold"), 4)
