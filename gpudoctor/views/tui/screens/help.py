"""Help over a screen: its keys with what the marks mean, and the page of a rule or a fact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widget import Widget

from gpudoctor.views.tui import marks
from gpudoctor.views.tui.base import BaseApp
from gpudoctor.views.tui.widgets import frame
from gpudoctor.views.tui.widgets.frame import NARROW, Keys, Line
from gpudoctor.views.tui.widgets.prose import GAP, Block, Pane, Prose, plain
from gpudoctor.views.tui.work import error_text, run_in_thread

if TYPE_CHECKING:
    from textual.app import ComposeResult


_HANG = 7
"""Columns of the keys; what does not fit there stands behind the words, in brackets."""


class KeysScreen(ModalScreen[None]):
    """The keys of the screen below it, and what the marks mean."""

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

    def __init__(self, screen: Screen[Any], title: str) -> None:
        super().__init__()
        self._hints = frame.hints_of(screen)
        self._title = title

    def compose(self) -> ComposeResult:
        """Keys in columns: two or three, by the width."""
        page = VerticalScroll(self._screen_keys(), Container(*self._general_keys()), id="key-page", classes="pane")
        page.border_title = Content(f"Keys · {self._title}")
        page.border_subtitle = Content("esc back")
        yield page

    def on_mount(self) -> None:
        """Focus the page, so that the arrows scroll it."""
        self.query_one("#key-page").focus()

    def _screen_keys(self) -> Widget:
        """The keys of the screen."""
        return _prose(_hint_blocks("On this screen", [hint for hint in self._hints if not hint.everywhere]))

    def _general_keys(self) -> Iterable[Widget]:
        """The keys that work everywhere, and the marks."""
        yield _prose(_hint_blocks("Everywhere", [hint for hint in self._hints if hint.everywhere]))
        yield _prose(_mark_blocks())


def _prose(blocks: Iterable[Block]) -> Prose:
    """A widget that shows these blocks."""
    prose = Prose()
    prose.put(list(blocks))
    return prose


def _hint_blocks(title: str, hints_: Sequence[frame.Hint]) -> Iterator[Block]:
    """A heading and a line for each key; those that open screens are one line, those that move come last."""
    yield Block(Content.styled(title, "bold underline"))
    screens = [hint.keys[0] for hint in hints_ if hint.action.startswith("open(")]
    if screens:
        yield Block(Content("the screens"), Content.styled(" ".join(screens), "bold $primary"), 2 * len(screens) + 1)
    others = [hint for hint in hints_ if not hint.action.startswith("open(")]
    for hint in sorted(others, key=lambda hint: hint.moves):
        before = 2 if len(" ".join(hint.keys[:2])) < _HANG else 1
        also = f" ({' '.join(hint.keys[before:])})" if hint.keys[before:] else ""
        keys = Content.styled(" ".join(hint.keys[:before]), "bold $primary")
        yield Block(Content(f"{hint.words}{also}"), keys, _HANG)
    yield GAP


def _mark_blocks() -> Iterator[Block]:
    """A heading and a line for each mark."""
    yield Block(Content.styled("What the marks mean", "bold underline"))
    for glyph, words, colour in marks.MEANINGS:
        yield Block(Content(words), Content.styled(glyph, f"bold {colour}" if colour else "bold"), 4)


# ---- The page of a rule or a fact: what it looks for, why, how it is cured, what it will not catch ----


class ExplainScreen(Screen[None]):
    """The page of a rule or a fact, over the screen that asked for it, until Esc."""

    AUTO_FOCUS = "#page"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,e", "close", "back", key_display="esc"),
        Binding("c", "copy", "copy page"),
    ]

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name_ = name
        self._page = ""

    def compose(self) -> ComposeResult:
        """The page between status line and keys."""
        yield Line(id="status")
        yield Pane(self._name_, id="page")
        yield Keys()

    def on_mount(self) -> None:
        """Load the page in a thread."""
        app = cast(BaseApp, self.app)
        self.query_one(Pane).put(self._name_, [Block(plain("Looking it up ..."))])
        self.watch(app, "message", self._update_status)
        run_in_thread(app, "explain", lambda: app.work.explain(self._name_), self._show_page)

    def _update_status(self, message: str) -> None:
        """Show the message, or what page this is."""
        about = f"gpudoctor explain {self._name_}"
        self.query_one("#status", Line).say(Content.styled(message, "bold") if message else plain(about))

    def _show_page(self, answer: str | BaseException) -> None:
        """Show the page, or why there is none."""
        if not self.is_attached:
            return
        if isinstance(answer, BaseException):
            self.query_one(Pane).put(
                self._name_, [Block(plain(error_text(answer)), Content.styled("? ", "bold $primary"), 2)]
            )
            return
        self._page = answer
        self.query_one(Pane).put(self._name_, list(page_blocks(answer)))

    def action_close(self) -> None:
        """Go back to the screen below."""
        self.dismiss()

    def action_copy(self) -> None:
        """Copy the page to the clipboard."""
        app = cast(BaseApp, self.app)
        if self._page:
            app.copy_to_clipboard(self._page)
            app.say(f"copied the page: {len(self._page.splitlines())} lines")
        else:
            app.say("there is no page to copy")


def page_blocks(text: str) -> Iterator[Block]:
    """The page's lines, each wrapped under its own indent: title and headings bold, commands coloured."""
    for number, line in enumerate(text.splitlines()):
        hang = len(line) - len(line.lstrip())
        lead = Content(" " * hang)
        if line.lstrip().startswith("$ "):
            dollar = Content.styled(f"{' ' * hang}$ ", "dim")
            yield Block(plain(line.lstrip()[2:], "$primary"), dollar, hang + 2)
        else:
            heading = number == 0 or (not hang and (line.endswith(":") or line.startswith("Cure: ")))
            yield Block(plain(line.lstrip(), "bold" if heading else ""), lead, hang)
