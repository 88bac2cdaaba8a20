"""The page of a rule or a fact: what it looks for, why, how it is cured, what it will not catch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen

from gpudoctor.model.errors import DoctorError
from gpudoctor.views.tui import background
from gpudoctor.views.tui.widgets.frame import Keys, Line
from gpudoctor.views.tui.widgets.prose import Block, Pane, plain

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from gpudoctor.views.tui.app import DoctorApp


class ExplainScreen(Screen[None]):
    """Lies over the screen that asked for it, until Esc."""

    AUTO_FOCUS = "#page"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,e", "close", "back", key_display="esc"),
        Binding("c", "copy", "copy page"),
    ]

    def __init__(self, name: str) -> None:
        super().__init__()
        self._named = name
        self._page = ""

    def compose(self) -> ComposeResult:
        """The page, between a line that says what it is and the keys."""
        yield Line(id="status")
        yield Pane(self._named, id="page")
        yield Keys()

    def on_mount(self) -> None:
        """Have the page made."""
        app = cast("DoctorApp", self.app)
        self.query_one(Pane).put(self._named, [Block(plain("Looking it up ..."))])
        self.watch(app, "message", self._say)
        background.start(app, "explain", lambda: app.work.explain(self._named), self._explained)

    def _say(self, message: str) -> None:
        about = f"gpudoctor explain {self._named}"
        self.query_one("#status", Line).say(Content.styled(message, "bold") if message else plain(about))

    def _explained(self, answer: str | BaseException) -> None:
        if not self.is_attached:
            return
        if isinstance(answer, BaseException):
            said = str(answer) if isinstance(answer, DoctorError) else f"{type(answer).__name__}: {answer}"
            self.query_one(Pane).put(self._named, [Block(plain(said), Content.styled("? ", "bold $primary"), 2)])
            return
        self._page = answer
        self.query_one(Pane).put(self._named, list(page(answer)))

    def action_close(self) -> None:
        """Back to the screen below."""
        self.dismiss()

    def action_copy(self) -> None:
        """The page to the clipboard."""
        app = cast("DoctorApp", self.app)
        if self._page:
            app.copy_to_clipboard(self._page)
            app.say(f"copied the page: {len(self._page.splitlines())} lines")
        else:
            app.say("there is no page to copy")


def page(text: str) -> Iterator[Block]:
    """The page's lines, each wrapped under its own indent: its title and headings bold, its commands in colour."""
    for number, line in enumerate(text.splitlines()):
        hang = len(line) - len(line.lstrip())
        lead = Content(" " * hang)
        if line.lstrip().startswith("$ "):
            dollar = Content.styled(f"{' ' * hang}$ ", "dim")
            yield Block(plain(line.lstrip()[2:], "$primary"), dollar, hang + 2)
        else:
            heading = number == 0 or (not hang and (line.endswith(":") or line.startswith("Cure: ")))
            yield Block(plain(line.lstrip(), "bold" if heading else ""), lead, hang)
