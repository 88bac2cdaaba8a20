"""Text in blocks, each wrapped to the width there is under its own hanging indent; what is shown is never markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.reactive import reactive
from textual.widget import Widget

from gpudoctor.core.language import say
from gpudoctor.views._terminal import fold_wide, has_wide, safe
from gpudoctor.views.tui import marks

_NOTHING = Content("")


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph: `lead` at the start of its first line (``Do 1``), the other lines indented by `hang` columns."""

    text: Content
    lead: Content = _NOTHING
    hang: int = 0


def plain(text: str, style: str = "") -> Content:
    """Foreign text as `Content` in that style, never read as markup: control characters escaped, tabs as blanks."""
    clean = safe(text).replace("\t", "    ")
    return Content.styled(clean, style) if style else Content(clean)


GAP = Block(Content(""))


def badge(text: str, word: str, look: str, style: str = "bold") -> Block:
    """A paragraph in that style behind a word on a coloured ground (the colour `look`): `` ✗ ERROR `` and the text."""
    lead = Content.assemble((f" {marks.translated(word)} ", f"bold reverse {look}"), " ")
    return Block(plain(text, style), lead, lead.cell_length)


def labelled(label: str, text: Content | str, hang: int, style: str = "bold") -> Block:
    """A paragraph behind a label in `style`, its lines indented by `hang` columns; neither is ever read as markup."""
    return Block(plain(text) if isinstance(text, str) else text, plain(say(label), style), hang)


def lines(blocks: Iterable[Block], width: int) -> list[Content]:
    """The blocks wrapped to lines of at most `width` columns; the text has at least 8 columns beside its indent."""
    out: list[Content] = []
    for block in blocks:
        room = max(width - block.hang, 8)
        wrapped = _wrapped(block.text, room) or [Content("")]
        lead = block.lead.pad_right(max(block.hang - block.lead.cell_length, 0))
        out.append(Content.assemble(lead, wrapped[0]))
        out += [Content.assemble(" " * block.hang, line) for line in wrapped[1:]]
    return out


def _wrapped(text: Content, room: int) -> list[Content]:
    """The text in lines of at most `room` columns; Chinese may end a line at any character, not at blanks alone."""
    if not has_wide(text.plain):
        return text.wrap(room)
    out: list[Content] = []
    for line in text.split("\n"):
        end = 0
        for piece in fold_wide(line.plain, room, "", ""):
            start = len(line.plain) - len(line.plain[end:].lstrip())
            end = start + len(piece)
            out += line[start:end].wrap(room)  # a longer word is whole
        if not end:
            out.append(line)
    return out


class Prose(Widget):
    """A widget of text blocks, as high as its wrapped text."""

    DEFAULT_CSS = "Prose { height: auto; width: 1fr; }"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._blocks: tuple[Block, ...] = ()
        self._wrapped: tuple[int, list[Content]] = (0, [])
        """The lines of the blocks at the width that was asked for last."""

    @property
    def text(self) -> str:
        """The whole text, each block on one line of its own."""
        return "\n".join(line.plain for line in lines(self._blocks, 10_000))

    def put(self, blocks: Sequence[Block]) -> None:
        """Show these blocks; nothing is redrawn if they are unchanged."""
        if tuple(blocks) != self._blocks:
            self._blocks = tuple(blocks)
            self._wrapped = (0, [])
            self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - Textual's signature
        """Number of lines of the wrapped text at that width."""
        return len(self._wrapped_lines(width))

    def render(self) -> Content:
        """The blocks wrapped to the widget's width."""
        return Content("\n").join(self._wrapped_lines(self.content_size.width))

    def _wrapped_lines(self, width: int) -> list[Content]:
        """The blocks wrapped to lines of that width; cached until blocks or width change."""
        if self._wrapped[0] != width:
            self._wrapped = (width, lines(self._blocks, width))
        return self._wrapped[1]


class Pane(VerticalScroll, can_focus=True):
    """A bordered, scrolling pane of text blocks that says how many lines are left below."""

    DEFAULT_CSS = """
    Pane { height: 1fr; }
    Pane Prose { padding: 0 1 0 0; max-width: 120; }
    """
    below: reactive[int] = reactive(0)

    def __init__(self, title: str, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes="pane")
        self.border_title = plain(say(title))
        self.prose = Prose()

    def compose(self) -> Iterable[Widget]:
        """The one widget of the pane, which shows its text."""
        yield self.prose

    def put(self, title: str, blocks: Sequence[Block], keep: bool = False) -> None:
        """Show these blocks under that title, from the start; `keep` keeps the scroll position."""
        self.border_title = plain(say(title))
        self.prose.put(blocks)
        if not keep:
            self.scroll_home(animate=False, immediate=True)  # not after a key that is pressed next
        self.call_after_refresh(self._update_below)

    def watch_scroll_y(self, old: float, new: float) -> None:
        """Scroll, and update the number of lines left below."""
        super().watch_scroll_y(old, new)
        self._update_below()

    def on_resize(self) -> None:
        """Update the number of lines left below, after the layout."""
        self.call_after_refresh(self._update_below)

    def watch_show_vertical_scrollbar(self) -> None:
        """Update the number of lines left below: from now on keys scroll, or no longer."""
        self.call_after_refresh(self._update_below)

    def _update_below(self) -> None:
        """Set `below` to the number of lines left below the visible ones; 0 if the pane has no scrollbar."""
        self.below = max(0, round(self.max_scroll_y - self.scroll_y)) if self.show_vertical_scrollbar else 0

    def watch_below(self, below: int) -> None:
        """Show the number at the pane's lower edge: ``↓ 4 more``; nothing for 0."""
        self.border_subtitle = Content(say("↓ {below} more", below=below) if below else "")
