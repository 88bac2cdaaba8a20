"""The frame around every screen: verdict, counts or message, tabs above; keys below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from gpudoctor.views._terminal import drawable
from gpudoctor.views.tui.places import DOORS

if TYPE_CHECKING:
    from textual.visual import VisualType

NARROW = 96
"""Columns from which there is room for whole words and panes side by side."""


def both_ends(left: Content, rights: Sequence[Content], width: int) -> Content:
    """One line with `left` at its start and, at its end, the first of `rights` that there is room for."""
    for right in rights:
        room = width - left.cell_length - right.cell_length
        if room >= 2:
            return Content.assemble(left, " " * room, right)
    return left.truncate(width, ellipsis=True)


class Line(Widget):
    """One line of text; what is set is never markup."""

    DEFAULT_CSS = "Line { height: 1; padding: 0 1; }"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._left = Content("")
        self._rights: tuple[Content, ...] = ()

    def say(self, left: Content | str, *rights: Content | str) -> None:
        """Show `left`, and of `rights`, the longest first, the one that there is room for."""
        self._left = Content(drawable(left)) if isinstance(left, str) else left
        self._rights = tuple(Content(drawable(right)) if isinstance(right, str) else right for right in rights)
        self.refresh()

    def render(self) -> VisualType:
        """Both, as far as the width allows."""
        return both_ends(self._left, self._rights, self.content_size.width)


class Tabs(Widget):
    """The screens; a click opens one."""

    DEFAULT_CSS = "Tabs { height: 1; padding: 0 1; }"

    def __init__(self, here: str) -> None:
        super().__init__(id="tabs")
        self.here = here

    def render(self) -> VisualType:
        """Their numbers and titles, the one that is open in brackets."""
        short = self.app.size.width < NARROW
        parts: list[Content] = []
        for number, door in enumerate(DOORS, 1):
            title = f"{number} {door.short if short else door.title}"
            here = door.name == self.here
            look = Style.parse("bold $primary" if here else "$foreground 70%")
            open_it = Style.from_meta({"@click": f"app.open('{door.name}')"})
            parts.append(Content.styled(f"[{title}]" if here else f" {title} ", look + open_it))
        return Content("").join(parts)


class Keys(Widget):
    """The keys of what is in focus, as many as there is room for; those that work everywhere are never cut."""

    DEFAULT_CSS = "Keys { height: 1; dock: bottom; padding: 0 1; background: $panel; }"
    EVERYWHERE = (("?", "keys", "app.keys"), ("^p", "commands", "app.command_palette"), ("q", "quit", "app.quit"))
    MOST = 6

    def on_mount(self) -> None:
        """Follow the focus and what can be done."""
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.refresh())

    def render(self) -> VisualType:
        """Hints of this place at the left, those of every place at the right."""
        width = self.content_size.width
        short = width < NARROW
        everywhere = [(key, "" if short and key != "?" else word, action) for key, word, action in self.EVERYWHERE]
        everywhere = [*self._own(), *everywhere]
        right = _hints(everywhere)
        room = width - right.cell_length - 2
        shown: list[tuple[str, str, str]] = []
        for hint in self._here():
            if len(shown) == self.MOST or _hints([*shown, hint]).cell_length > room:
                break
            shown.append(hint)
        left = _hints(shown)
        return Content.assemble(left, " " * max(2, width - left.cell_length - right.cell_length), right)

    def _own(self) -> Iterable[tuple[str, str, str]]:
        """What the application has beyond the keys of every one, where it can be done."""
        for hint in getattr(self.app, "OWN_KEYS", ()):
            if self.app.check_action(hint[2].partition(".")[2], ()):
                yield hint

    def _here(self) -> Iterable[tuple[str, str, str]]:
        seen = set()
        for _, binding, enabled, _ in self.screen.active_bindings.values():
            if binding.show and enabled and binding.description and binding.action not in seen:
                seen.add(binding.action)
                yield binding.key_display or self.app.get_key_display(binding), binding.description, binding.action


def _hints(hints: Iterable[tuple[str, str, str]]) -> Content:
    parts = []
    for key, word, action in hints:
        click = Style.from_meta({"@click": action if "." in action else f"screen.{action}"})
        text = Content.assemble((key, Style.parse("bold $primary")), f" {word}" if word else "")
        parts.append(text.stylize(click))
    return Content("  ").join(parts)
