"""Text in blocks, each wrapped to the width there is under its own hanging indent; what is shown is never markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.reactive import reactive
from textual.widget import Widget

from gpudoctor.views._terminal import safe

_NOTHING = Content("")


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph: `lead` at its first line (``Do 1``), the other lines indented by `hang` columns."""

    text: Content
    lead: Content = _NOTHING
    hang: int = 0


def plain(text: str, style: str = "") -> Content:
    """Foreign text as it is: control characters spelt out, brackets left alone."""
    clean = safe(text).replace("\t", "    ")
    return Content.styled(clean, style) if style else Content(clean)


GAP = Block(Content(""))


def lines(blocks: Iterable[Block], width: int) -> list[Content]:
    """The blocks as lines of at most that width."""
    out: list[Content] = []
    for block in blocks:
        room = max(width - block.hang, 8)
        wrapped = block.text.wrap(room) or [Content("")]
        lead = block.lead.pad_right(max(block.hang - block.lead.cell_length, 0))
        out.append(Content.assemble(lead, wrapped[0]))
        out += [Content.assemble(" " * block.hang, line) for line in wrapped[1:]]
    return out


class Prose(Widget):
    """Blocks of text, as high as they need to be."""

    DEFAULT_CSS = "Prose { height: auto; width: 1fr; }"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._blocks: tuple[Block, ...] = ()
        self._wrapped: tuple[int, list[Content]] = (0, [])
        """The lines of the blocks at the width that was asked for last."""

    @property
    def text(self) -> str:
        """All of it, as if there were room for every line."""
        return "\n".join(line.plain for line in lines(self._blocks, 10_000))

    def put(self, blocks: Sequence[Block]) -> None:
        """Show these; nothing is drawn where they are those shown already."""
        if tuple(blocks) != self._blocks:
            self._blocks = tuple(blocks)
            self._wrapped = (0, [])
            self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - Textual's signature
        """Lines at that width."""
        return len(self._lines(width))

    def render(self) -> Content:
        """The blocks, wrapped."""
        return Content("\n").join(self._lines(self.content_size.width))

    def _lines(self, width: int) -> list[Content]:
        if self._wrapped[0] != width:
            self._wrapped = (width, lines(self._blocks, width))
        return self._wrapped[1]


class Pane(VerticalScroll, can_focus=True):
    """A bordered, scrolling pane of prose that says how much is left below."""

    DEFAULT_CSS = """
    Pane { height: 1fr; }
    Pane Prose { padding: 0 1 0 0; max-width: 120; }
    """
    below: reactive[int] = reactive(0)

    def __init__(self, title: str, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes="pane")
        self.border_title = Content(title)
        self.prose = Prose()

    def compose(self) -> Iterable[Widget]:
        """The prose."""
        yield self.prose

    def put(self, title: str, blocks: Sequence[Block], keep: bool = False) -> None:
        """Show these from their start on, or where they were where `keep`."""
        self.border_title = plain(title)
        self.prose.put(blocks)
        if not keep:
            self.scroll_home(animate=False)
        self.call_after_refresh(self._count)

    def watch_scroll_y(self, old: float, new: float) -> None:
        """Count what is left."""
        super().watch_scroll_y(old, new)
        self._count()

    def on_resize(self) -> None:
        """Count what is left."""
        self.call_after_refresh(self._count)

    def _count(self) -> None:
        self.below = max(0, round(self.max_scroll_y - self.scroll_y))

    def watch_below(self, below: int) -> None:
        """``↓ 4 more``."""
        self.border_subtitle = Content(f"↓ {below} more" if below else "")
