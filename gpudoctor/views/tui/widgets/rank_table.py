"""The table of a job's ranks: a row for each, those that stand out first; the columns that fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import Absent, Row, listed, number_of, text_of
from gpudoctor.core.language import say
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.rows import Cell, Rows, fit
from gpudoctor.views.tui.words import job as words
from gpudoctor.views.tui.words.gpu import gib_text
from gpudoctor.views.tui.work import JobLook

_GAP = 2
_LEAD = 4
"""Columns before the first: of the cursor, of the marks, and a blank."""
_MIN_STATE, _MIN_PLACE = 21, 18
_AWAITED = "◂ awaited"


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of fixed width, and how its cell is drawn; texts stand at the left."""

    name: str
    width: int
    draw: Callable[[Row], Cell]
    left: bool = False


def _memory(row: Row) -> Cell:
    """The cell of the GPU memory that a rank holds, in GiB; ``?`` if it could not be read, ``-`` if there is none."""
    held = number_of(row.get("gpu_memory_mib"))
    return (gib_text(held), "") if held is not None else words.cell(row.get("gpu_memory_mib"))


class RankTable(Rows):
    """The ranks of a job; the cursor stays on its rank however they are sorted."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "stacks"),
        Binding("n", "next(1)", "next bad"),
        Binding("N", "next(-1)", "Previous that stands out", show=False),
        Binding("o", "sort", "order"),
    ]

    def __init__(self) -> None:
        super().__init__(id="job-ranks", classes="pane")
        self.by_number = False
        self._look: JobLook | None = None
        self._diagnosis: Diagnosis | None = None
        self._rows: Sequence[Row] = ()
        self._columns: Sequence[_Column] = ()
        self._state_width = self._place_width = 0
        self._chosen: object = None
        self._by_code = False

    @property
    def rank(self) -> Row | None:
        """The row of ``rank`` under the cursor; None without one."""
        return self._rows[self.cursor] if self._rows else None

    def put(self, look: JobLook, diagnosis: Diagnosis) -> None:
        """Show this look at the job; the cursor stays where the user put it, until then on the first row.

        Posts `Moved` if the cursor is on another rank than before.
        """
        before = self.rank and _key(self.rank)
        self._look, self._diagnosis = look, diagnosis
        self._rows = words.in_order(diagnosis.snapshot, self.by_number)
        self._by_code = True
        self._place_columns()
        self.fill(len(self._rows))
        keys = [_key(row) for row in self._rows]
        self.cursor = keys.index(self._chosen) if self._chosen in keys else 0
        self._by_code = False
        if (self.rank and _key(self.rank)) != before:
            self.post_message(self.Moved(self))

    def _place_columns(self) -> None:
        """Choose the columns that fit, and set the heading; "what it does" and "where" share what is left."""
        room = max((self.scrollable_content_region.width or self.size.width) - _LEAD, 0)
        hosts = {text_of(row.get("host")) for row in self._rows}
        columns = [
            _Column("rank", 4, lambda row: words.cell(row.get("rank"))),
            _Column(
                "host",
                min(max(4, *map(len, hosts)), 16) if hosts else 4,
                lambda row: (text_of(row.get("host")), ""),
                True,
            ),
            _Column("pid", 7, lambda row: words.cell(row.get("pid"))),
            _Column("GPU", 3, lambda row: words.cell(row.get("gpu"))),
            _Column("CPU %", 5, lambda row: words.cell(row.get("cpu"))),
            _Column("GPU %", 5, lambda row: words.cell(row.get("gpu_busy"))),
            _Column("GiB", 4, _memory),
        ]
        silent = {"host"} if len(hosts) < 2 and room < 110 else set()
        if all(isinstance(row.get("gpu"), Absent | None) for row in self._rows):
            silent |= {"GPU", "GPU %", "GiB"}
        if all(number_of(row.get("rank")) is None for row in self._rows):
            silent.add("rank")
        for name in ("GiB", "pid", "host", "GPU %", "GPU", "CPU %"):  # the least telling goes first
            taken = sum(column.width + _GAP for column in columns if column.name not in silent)
            if taken + _MIN_STATE + _GAP + _MIN_PLACE <= room:
                break
            silent.add(name)
        self._columns = [column for column in columns if column.name not in silent]
        left = room - sum(column.width + _GAP for column in self._columns) - _GAP
        self._state_width = max(min(left * 5 // 9, max(left - _MIN_PLACE, _MIN_STATE)), 0)
        self._place_width = max(left - self._state_width, 0)
        heads = [
            fit(say(column.name), column.width) if column.left else f"{say(column.name):>{column.width}}"
            for column in self._columns
        ]
        heads.insert(self._leading, fit(say("what it does"), self._state_width))
        self.heading = (
            [(" " * _LEAD + (" " * _GAP).join([*heads, fit(say("where"), self._place_width)]), "head")]
            if self._rows
            else ()
        )

    @property
    def _leading(self) -> int:
        """Number of columns left of the column "what it does"."""
        return sum(column.name in ("rank", "host", "pid", "GPU") for column in self._columns)

    def on_resize(self) -> None:
        """Choose the columns for the new width, and redraw."""
        self._place_columns()
        self.refresh()

    def row(self, index: int) -> Iterable[Cell]:
        """The cells of that rank: mark of its worst finding, mark if awaited, numbers, what it does, where."""
        row = self._rows[index]
        severity = words.severity_of(self._diagnosis, row) if self._diagnosis else None
        yield marks.SEVERITY[severity][0] if severity else " ", severity or ""
        yield f"{_AWAITED[0] if words.is_awaited(row) else ' '} ", severity or "bold"
        for at, column in enumerate(self._columns):
            if at == self._leading:
                yield from self._state(row)
            text, look = column.draw(row)
            yield (
                (fit(text, column.width) if column.left else fit(text, column.width).strip().rjust(column.width)),
                look,
            )
            yield " " * _GAP, ""
        if self._leading == len(self._columns):
            yield from self._state(row)
        place = words.place_text(row)
        yield fit(place, self._place_width), "" if place else "dim"

    def _state(self, row: Row) -> Iterable[Cell]:
        """The cell of what the rank does, with ``◂ awaited`` if it is and there is room; and the gap behind it."""
        text = words.state_text(row, self._look)
        awaited = words.is_awaited(row)
        if awaited and cell_len(text) + cell_len(say(_AWAITED)) + 1 <= self._state_width:
            text = f"{text} {say(_AWAITED)}"
        yield fit(text, self._state_width), "bold" if awaited else "info" if text.startswith(marks.UNREAD) else ""
        yield " " * _GAP, ""

    def watch_cursor(self) -> None:
        """Remember the rank as the user's choice unless code moved the cursor; then scroll and post `Moved`."""
        if not self._by_code and self.rank:
            self._chosen = _key(self.rank)
        super().watch_cursor()

    def action_next(self, by: int) -> None:
        """Move to the next rank that is awaited or has a finding, wrapping round; `by` -1: the previous."""
        diagnosis = self._diagnosis
        bad = [
            at
            for at, row in enumerate(self._rows)
            if words.is_awaited(row) or (diagnosis and words.severity_of(diagnosis, row))
        ]
        self.move_to_next(bad, by)

    def action_sort(self) -> None:
        """Switch between order by rank number and the order in which ranks that stand out come first."""
        self.by_number = not self.by_number
        if self._look and self._diagnosis:
            self.put(self._look, self._diagnosis)


def counts_text(diagnosis: Diagnosis) -> str:
    """How many ranks do what, the three largest groups: ``3 wait in all_reduce, 1 is stopped``."""
    groups: dict[str, list[Row]] = {}
    for row in listed(diagnosis.snapshot.rows("rank")):
        groups.setdefault(words.doing_text(row, False), []).append(row)
    largest = sorted(groups.values(), key=lambda rows: -len(rows))[:3]
    return say(", ").join(
        say("{count} {does}", count=len(rows), does=words.doing_text(rows[0], len(rows) > 1)) for rows in largest
    )


def _key(row: Row) -> tuple[object, ...]:
    """Identity of a rank from look to look: host, rank number, and the process id if it has no number."""
    rank = number_of(row.get("rank"))
    return text_of(row.get("host")), rank, None if rank is not None else number_of(row.get("pid"))
