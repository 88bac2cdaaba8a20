"""The question before anything is changed. Nothing has the focus, and enter does nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen

from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui.widgets.prose import Block, Prose, plain

if TYPE_CHECKING:
    from textual.app import ComposeResult


class Sure(ModalScreen[bool]):
    """True for `y`, and for nothing else. With `word`, true only where that word was typed and then enter."""

    AUTO_FOCUS = ""
    SCOPED_CSS = False
    CSS = """
    Sure { align: center middle; background: $background 60%; }
    #sure { width: 76; max-width: 96%; height: auto; max-height: 90%; border: round $warning; padding: 1 2;
            background: $surface; border-title-style: bold; scrollbar-size-vertical: 1; }
    #answer { dock: bottom; background: $surface; padding: 1 0 0 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n,escape", "dismiss(False)", "go back"),
        Binding("y", "yes", "do it"),
    ]

    def __init__(self, title: str, blocks: Sequence[Block], yes: str = "run it", word: str = "") -> None:
        super().__init__()
        self._title, self._blocks, self._yes, self._word = title, blocks, yes, word
        self.typed = ""

    def compose(self) -> ComposeResult:
        """The question, which may scroll, and the keys below it, which stay."""
        with VerticalScroll(id="sure", can_focus=False) as frame:
            frame.border_title = Content(one_line(self._title))
            yield Prose(id="question")
            yield Prose(id="answer")

    def on_mount(self) -> None:
        """Say it."""
        self.query_one("#question", Prose).put(self._blocks)
        self._show()

    def _show(self) -> None:
        self.query_one("#answer", Prose).put([self._answer()])

    def _answer(self) -> Block:
        key = "bold $primary"
        if not self._word:
            return Block(Content.assemble(("y", key), f"  {self._yes}            ", ("n", key), "  go back"))
        typed = Content.assemble(plain(self.typed, "bold"), ("▏", "$primary"))
        asks = Content.assemble(
            "to go on, type ", plain(self._word, "bold $warning"), " and press enter    ", ("esc", key), "  go back"
        )
        return Block(Content.assemble(asks, "\n\n› ", typed))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's
        """While a word is asked for, `y` and `n` are letters of it."""
        return not (self._word and action == "yes")

    def action_yes(self) -> None:
        """The one key that means yes."""
        self.dismiss(True)

    def on_key(self, event: events.Key) -> None:
        """Take the letters of the word; nothing but the whole of it lets enter pass."""
        if not self._word or event.key == "escape":
            return
        event.stop()
        event.prevent_default()
        if event.key == "enter" and self.typed == self._word:
            self.dismiss(True)
        elif event.key in ("backspace", "ctrl+h"):
            self.typed = self.typed[:-1]
        elif event.is_printable and event.character:
            self.typed += event.character
        self._show()
