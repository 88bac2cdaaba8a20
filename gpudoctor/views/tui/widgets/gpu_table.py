"""The table of GPUs: one row each, MIG devices under theirs. With each sample what is seen of it is drawn anew."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from gpudoctor.model.sample import GPU
from gpudoctor.views.tui.widgets.rows import Cell, Rows
from gpudoctor.views.tui.words import gpu_columns
from gpudoctor.views.tui.words.gpu_columns import Placed, Shown

Key = tuple[int, int]
"""A GPU's index, and the place of a MIG device of it or -1."""
_ORDER = ("error", "warning", "info", None)


class GPUTable(Rows):
    """The cursor stays on the GPU that it was put on, however the rows are sorted."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--struck", "rows--curve", "rows--track"}
    DEFAULT_CSS = """
    GPUTable > .rows--struck { text-style: dim strike; }
    GPUTable > .rows--curve { text-style: dim; }
    GPUTable > .rows--track { text-style: dim; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "next(1)", "next bad"),
        Binding("N", "next(-1)", "Previous bad GPU", show=False),
        Binding("s", "sort", "sort"),
    ]

    def __init__(self) -> None:
        super().__init__(id="gpus", classes="pane")
        self.shown = Shown()
        self.found_first = False
        self._keys: list[Key] = []
        self._places: list[Placed] = []
        self._layout: object = None
        self._chosen: Key | None = None
        self._placing = False

    @property
    def gpu(self) -> GPU | None:
        """The one under the cursor."""
        return None if self.gpu_index is None else self.shown.gpus.get(self.gpu_index)

    @property
    def gpu_index(self) -> int | None:
        """The number of the one under the cursor."""
        return self._keys[self.cursor][0] if self._keys else None

    def put(self, shown: Shown) -> None:
        """Show these; the cursor stays where the user put it, until then it is on the worst."""
        self.shown = shown
        self._lay_out()
        keys = [key for index in self._sorted() for key in self._rows_of(index)]
        before = self.gpu_index
        self._placing = True
        if keys != self._keys:
            self._keys = keys
            self.fill(len(keys))
        self.cursor = keys.index(self._chosen) if self._chosen in keys else self._worst()
        self._placing = False
        self.refresh()
        if self.gpu_index != before:
            self.post_message(self.Moved(self))

    def _worst(self) -> int:
        ranks = [_ORDER.index(self.shown.health.severity(index)) for index, _ in self._keys]
        return ranks.index(min(ranks)) if ranks else 0

    def _sorted(self) -> list[int]:
        indices = sorted(self.shown.gpus)
        if self.found_first:
            indices.sort(key=lambda index: (_ORDER.index(self.shown.health.severity(index)), not self._silent(index)))
        return indices

    def _silent(self, index: int) -> bool:
        return index in self.shown.struck or bool(self.shown.gpus[index].error)

    def _rows_of(self, index: int) -> list[Key]:
        return [(index, -1), *((index, place) for place in range(len(self.shown.gpus[index].instances)))]

    def _lay_out(self) -> None:
        width = max((self.scrollable_content_region.width or self.size.width) - 1, 0)
        layout = (width, len(self.shown.gpus), bool(len(self.shown.histories)), len(self.shown.struck))
        if layout != self._layout or not self._places:
            self._layout = layout
            self._places = gpu_columns.placed(self.shown, width)
            self.heading = gpu_columns.heading(self._places) if self.shown.gpus else ()

    def on_resize(self, event: events.Resize) -> None:  # noqa: ARG002 - Textual's signature
        """Other columns fit."""
        self._lay_out()
        self.refresh()

    def row(self, index: int) -> Iterable[Cell]:
        """Numbers, bars and words of a GPU, or the line of a MIG device."""
        gpu_index, place = self._keys[index]
        gpu = self.shown.gpus[gpu_index]
        if place >= 0:
            return gpu_columns.instance(gpu.instances[place], place == len(gpu.instances) - 1)
        return gpu_columns.cells(self._places, self.shown, gpu)

    def watch_cursor(self) -> None:
        """What the user chooses stays chosen."""
        if not self._placing and self._keys:
            self._chosen = self._keys[self.cursor]
        super().watch_cursor()

    def go(self, index: int) -> bool:
        """Put the cursor on that GPU; whether there is one."""
        if (index, -1) not in self._keys:
            return False
        self.cursor = self._keys.index((index, -1))
        return True

    def action_next(self, by: int) -> None:
        """To the next GPU of which something was found, or that does not answer."""
        bad = [
            at
            for at, (index, place) in enumerate(self._keys)
            if place < 0 and (self.shown.health.of(index) or self._silent(index))
        ]
        if bad:
            later = [at for at in bad if (at - self.cursor) * by > 0]
            self.cursor = (later or bad)[0 if by > 0 else -1]

    def action_sort(self) -> None:
        """What was found first, or by number again."""
        self.found_first = not self.found_first
        if self._chosen is None and self._keys:
            self._chosen = self._keys[self.cursor]
        self.put(self.shown)
