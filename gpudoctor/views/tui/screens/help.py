"""Help over a screen: its keys with what the marks mean, and the page of a rule or a fact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen

from gpudoctor.core.language import say
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.base import BaseApp
from gpudoctor.views.tui.widgets import frame
from gpudoctor.views.tui.widgets.frame import NARROW, Keys, Line
from gpudoctor.views.tui.widgets.prose import GAP, Block, Pane, Prose, plain
from gpudoctor.views.tui.work import Work, error_text, run_in_thread

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
        """The page of the screen's keys, those that work everywhere, and the marks, in columns."""
        own = _prose(_hint_blocks(say("On this screen"), [hint for hint in self._hints if not hint.everywhere]))
        general = _prose(_hint_blocks(say("Everywhere"), [hint for hint in self._hints if hint.everywhere]))
        page = VerticalScroll(own, Container(general, _prose(_mark_blocks())), id="key-page", classes="pane")
        page.border_title = Content(say("Keys · {screen}", screen=say(self._title)))
        page.border_subtitle = Content(say("esc back"))
        yield page

    def on_mount(self) -> None:
        """Focus the page, so that the arrows scroll it."""
        self.query_one("#key-page").focus()


def _prose(blocks: Iterable[Block]) -> Prose:
    """A widget that shows these blocks."""
    prose = Prose()
    prose.put(list(blocks))
    return prose


def _hint_blocks(title: str, hints_: Sequence[frame.Hint]) -> Iterator[Block]:
    """A heading and a line for each action with its keys; one line for those that open screens, movements last."""
    yield Block(Content.styled(title, "bold underline"))
    screens = [hint.keys[0] for hint in hints_ if hint.action.startswith("open(")]
    if screens:
        yield Block(
            Content(say("the screens")), Content.styled(" ".join(screens), "bold $primary"), 2 * len(screens) + 1
        )
    others = [hint for hint in hints_ if not hint.action.startswith("open(")]
    for hint in sorted(others, key=lambda hint: hint.moves):
        before = 2 if len(" ".join(hint.keys[:2])) < _HANG else 1
        also = f" ({' '.join(hint.keys[before:])})" if hint.keys[before:] else ""
        keys = Content.styled(" ".join(hint.keys[:before]), "bold $primary")
        yield Block(Content(f"{hint.words}{also}"), keys, _HANG)
    yield GAP


def _mark_blocks() -> Iterator[Block]:
    """A heading and a line for each mark with its meaning."""
    yield Block(Content.styled(say("What the marks mean"), "bold underline"))
    for glyph, words, colour in marks.MEANINGS:
        yield Block(Content(say(words)), Content.styled(glyph, f"bold {colour}" if colour else "bold"), 4)


# ---- The page of a rule or a fact: what it looks for, why, how it is cured, what it will not catch ----


class PageScreen(Screen[None]):
    """A page of text over the screen that asked for it, read in a thread when it is opened, until Esc."""

    AUTO_FOCUS = "#page"
    WAITING = "Looking it up ..."
    COPIED, NOTHING_TO_COPY = "copied the page: {lines} lines", "there is no page to copy"

    def __init__(self, title: str, about: str) -> None:
        super().__init__()
        self._title, self._about = title, about
        self._text = ""
        """What is copied: the whole page."""

    @property
    def doctor(self) -> BaseApp:
        """The app, typed as `BaseApp`."""
        return cast(BaseApp, self.app)

    def read(self, work: Work) -> tuple[str, Iterable[Block]]:
        """The page as text to copy, and as blocks to show; called in a thread.

        Raises NotImplementedError unless a subclass defines it.
        """
        raise NotImplementedError

    def trouble(self, error: BaseException) -> Block:
        """The block shown in place of the page if reading it raised this error."""
        return Block(plain(error_text(error)), Content.styled("? ", "bold $primary"), 2)

    def compose(self) -> ComposeResult:
        """Status line, page and keys."""
        yield Line(id="status")
        yield Pane(self._title, id="page")
        yield Keys()

    def on_mount(self) -> None:
        """Read the page in a thread, and show the app's messages."""
        self.watch(self.app, "message", self._update_status)
        self.action_read()

    def _update_status(self, message: str) -> None:
        """Show the message, or if empty what page this is, in the status line."""
        self.query_one("#status", Line).say(Content.styled(message, "bold") if message else plain(self._about))

    def action_read(self) -> None:
        """Read the page in a thread, and show it; until then that it is being looked up."""
        work = self.doctor.work
        self.query_one(Pane).put(self._title, [Block(plain(say(self.WAITING)))])
        run_in_thread(self.app, "page", lambda: self.read(work), self._show)

    def _show(self, answer: tuple[str, Iterable[Block]] | BaseException) -> None:
        """Show the page that was read, or why there is none; ignored once the screen is closed."""
        if not self.is_attached:
            return
        if isinstance(answer, BaseException):
            self.query_one(Pane).put(self._title, [self.trouble(answer)])
            return
        self._text, blocks = answer
        self.query_one(Pane).put(self._title, list(blocks))

    def action_copy(self) -> None:
        """Copy the page's text to the clipboard; a message says how many lines, or that there is none."""
        if self._text:
            self.app.copy_to_clipboard(self._text)
        message = self.COPIED if self._text else self.NOTHING_TO_COPY
        self.doctor.say(message, lines=len(self._text.splitlines()))


class ExplainScreen(PageScreen):
    """The page of a rule or a fact."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,e", "dismiss", "back", key_display="esc"),
        Binding("c", "copy", "copy page"),
    ]

    def __init__(self, name: str) -> None:
        super().__init__(name, f"gpudoctor explain {name}")

    def read(self, work: Work) -> tuple[str, Iterable[Block]]:
        """The page that ``gpudoctor explain`` prints, as text and as blocks."""
        page = work.explain(self._title)
        return page, page_blocks(page)


def page_blocks(text: str) -> Iterator[Block]:
    """The lines of an explain page, each wrapped under its own indent: title and headings bold, commands coloured."""
    for number, line in enumerate(text.splitlines()):
        hang = len(line) - len(line.lstrip())
        lead = Content(" " * hang)
        if line.lstrip().startswith("$ "):
            dollar = Content.styled(f"{' ' * hang}$ ", "dim")
            yield Block(plain(line.lstrip()[2:], "$primary"), dollar, hang + 2)
        else:
            heading = number == 0 or (not hang and (line.endswith(":") or line.startswith("Cure: ")))
            yield Block(plain(line.lstrip(), "bold" if heading else ""), lead, hang)
