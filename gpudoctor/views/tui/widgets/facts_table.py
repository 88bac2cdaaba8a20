"""The table of facts: mark, fact, value, source and what rests on it; only what is visible is made and drawn."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.content import Content

from gpudoctor.core.fact import Absent, Unread, known
from gpudoctor.core.language import phrase, say
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.frame import NARROW
from gpudoctor.views.tui.widgets.rows import Cell, Rows, fit
from gpudoctor.views.tui.words.facts import NO_FACTS, Compared, Facts, Item, Listing, value_and_source

_LONGEST = 300
"""Characters of a value or a source that are looked at for one line of the screen."""
_LOOKED_AT = 500
"""Rows that the widths of the columns go by."""
_GAP = "  "


class FactsTable(Rows):
    """Some or all facts of a listing as rows; the cursor stays on its fact, whatever is shown around it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "its rule"),
        Binding("n", "next(1)", "Next fact that a finding rests on, or that is unread", show=False),
        Binding("N", "next(-1)", "The one before", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="facts", classes="pane")
        self.listing: Listing = NO_FACTS
        self.view: Sequence[int] = ()
        self.title = "Facts"
        self.uses: Callable[[Item], str] = lambda _: ""
        """The column "used by"."""
        self.words: Sequence[str] = ()
        """What was searched, in small letters: it is lit where it is seen."""
        self._widths: dict[str, int] = {}
        self._basis: Sequence[int] = ()
        self._names = ("value", "other")

    @property
    def item(self) -> Item | None:
        """The fact under the cursor; None without rows."""
        return self.listing[self.view[self.cursor]] if self.view else None

    def put(self, listing: Listing, view: Sequence[int], basis: Sequence[int], names: tuple[str, str]) -> None:
        """Show the facts at these positions (`view`) of the listing; the cursor stays on its fact. Posts `Moved`.

        Column widths are computed from the positions `basis`, so that they stay while the user searches; `names` head
        the columns of two compared machines.
        """
        here = self.item
        self.listing, self.view, self._basis, self._names = listing, view, basis, names
        self._update_widths()
        self.fill(len(view))
        self.cursor = self._place_of(here)
        self._update_title()
        self.post_message(self.Moved(self))

    def _place_of(self, item: Item | None) -> int:
        """The row that shows that fact, else the row at which it would stand; 0 if that is not known."""
        if item is None or not self.view:
            return 0
        if isinstance(self.listing, Facts) and not item.compared:
            place = self.listing.position_of(item.fact, item.index)
            return min(bisect_left(self.view, place), len(self.view) - 1) if place is not None else 0
        names = (self.listing[place].name for place in self.view)
        return next((row for row, name in enumerate(names) if name == item.name), 0)

    # drawing

    def row(self, index: int) -> Iterable[Cell]:
        """The cells of that row: mark, name, value, source and use, each as wide as its column, searched words lit."""
        item = self.listing[self.view[index]]
        glyph, look = _mark_cell(item)
        yield f"{glyph} ", look
        for column, width in self._widths.items():
            text, look = self._column_cell(item, column)
            fitted = fit(text, width, from_end=column == "source" and text.startswith("/"))
            yield from highlighted(fitted, look, () if column == "used by" else self.words)
            yield _GAP, ""

    def _column_cell(self, item: Item, column: str) -> Cell:
        """Text and style of a fact in the column ``fact``, ``value``, ``other``, ``source`` or ``used by``."""
        if column == "fact":
            return one_line(item.name[:_LONGEST]), "bold" if item.findings else ""
        if column == "used by":
            return self.uses(item), "dim"
        value, source = value_and_source(item.other if column == "other" else item.state)
        if column == "source":
            return one_line(phrase(source[:_LONGEST])), "dim"
        state = item.other if column == "other" else item.state
        return one_line(value[:_LONGEST]), "" if known(state) else "dim"

    def _update_widths(self) -> None:
        """Compute the column widths for the content and the room there is; set the heading."""
        room = self.scrollable_content_region.width or self.size.width
        compared = isinstance(self.listing, Compared)
        columns = ["fact", "value", *(["other"] if compared else [])]
        if self.app.size.width >= NARROW:
            columns += ["source"] if compared else ["source", "used by"]
        step = max(1, len(self._basis) // _LOOKED_AT)
        looked_at = [self.listing[place] for place in self._basis[::step]]
        heads = dict(zip(("value", "other"), map(one_line, self._names), strict=True)) if compared else {}
        wanted = {
            column: max(
                map(
                    cell_len,
                    [heads.get(column, say(column)), *(self._column_cell(item, column)[0] for item in looked_at)],
                )
            )
            for column in columns
        }
        self._widths = _column_widths(wanted, max(room - 3 - len(_GAP) * len(columns), len(columns)))
        heading: list[Cell] = [("   ", "")]
        for column, width in self._widths.items():
            heading += [(fit(heads.get(column, say(column)), width), "head"), (_GAP, "")]
        self.heading = heading

    # where it is

    def watch_scroll_y(self, old: float, new: float) -> None:
        """Scroll, and show in the title which rows are visible."""
        super().watch_scroll_y(old, new)
        self._update_title()

    def on_resize(self) -> None:
        """Compute the column widths and the title anew."""
        self._update_widths()
        self._update_title()

    def _update_title(self) -> None:
        """Show in the title which rows are visible: ``Facts 1-13 of 214``."""
        seen = max(self.scrollable_content_region.height - 1, 0)
        first = round(self.scroll_y)
        last = min(first + seen, self.count)
        where = (
            say("{first}-{last} of {count:,}", first=first + 1, last=last, count=self.count)
            if last > first
            else f"{self.count:,}"
        )
        of_all = "" if self.count == len(self.listing) else say(" ({count:,} in all)", count=len(self.listing))
        self.border_title = Content(f"{say(self.title)} {where}{of_all}" if self.count else say(self.title))

    def action_next(self, by: int) -> None:
        """Move to the next fact of a finding (without any, to the next unread), wrapping round; `by` -1: previous."""
        wanted = set(self.listing.proof) or set(self.listing.unread)
        self.move_to_next([row for row, place in enumerate(self.view) if place in wanted], by)


def _mark_cell(item: Item) -> Cell:
    """The mark of a fact: that of the worst finding that rests on it, else ``?`` unread, ``-`` absent, or blank."""
    if item.findings:
        finding = item.findings[0]
        return marks.SEVERITY[finding.severity][0], finding.severity
    if isinstance(item.state, Unread):
        return marks.UNREAD, "accent"
    return (marks.ABSENT, "dim") if isinstance(item.state, Absent) else (" ", "")


def _column_widths(wanted_widths: dict[str, int], room: int) -> dict[str, int]:
    """Width of each column: what it wants, at most its share of `room`, plus what others leave over."""
    parts = {"fact": 30, "value": 30, "other": 30, "source": 26, "used by": 16}
    total = sum(parts[column] for column in wanted_widths)
    widths = {
        column: min(wanted_width, max(room * parts[column] // total, 1))
        for column, wanted_width in wanted_widths.items()
    }
    for column in ("fact", "value", "other", "used by", "source"):
        if column in wanted_widths:
            widths[column] += min(wanted_widths[column] - widths[column], max(room - sum(widths.values()), 0))
    return widths


def highlighted(text: str, look: str, words: Sequence[str]) -> Iterator[Cell]:
    """The text as cells in the style `look`, the searched words in it (any case) in the accent style."""
    if not words:
        yield text, look
        return
    pattern = re.compile("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)), re.IGNORECASE)
    end = 0
    for match in pattern.finditer(text):
        yield text[end : match.start()], look
        yield match.group(), "accent"
        end = match.end()
    yield text[end:], look
