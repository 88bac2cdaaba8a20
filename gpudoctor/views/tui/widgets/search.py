"""A line to type what is searched: open while there is something to search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input

from gpudoctor.views.tui.widgets.frame import Line


class Typed(Input):
    """What is typed. Its keys are the screen's actions ``to_list`` and ``leave``."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,down", "screen.to_list", "to the list", key_display="⏎"),
        Binding("escape", "screen.leave", "all facts"),
    ]


class Search(Horizontal):
    """``/`` and what is typed; the screen hears it as ``Input.Changed``."""

    DEFAULT_CSS = """
    Search { display: none; height: 1; background: $panel; }
    Search.-open { display: block; }
    Search Line { width: 3; padding: 0 1; color: $primary; text-style: bold; }
    Search Typed, Search Typed:focus { width: 1fr; padding: 0; background: $panel; }
    """

    def __init__(self, placeholder: str) -> None:
        super().__init__()
        self.field = Typed(placeholder=placeholder, select_on_focus=False, compact=True)

    def compose(self) -> Iterable[Widget]:
        """The sign and the field."""
        sign = Line()
        sign.say("/")
        yield sign
        yield self.field

    @property
    def opened(self) -> bool:
        """Whether it is on the screen."""
        return self.has_class("-open")

    def open(self) -> None:
        """Type on."""
        self.add_class("-open")
        self.field.focus()

    def close(self) -> None:
        """Search nothing."""
        self.field.value = ""
        self.remove_class("-open")
