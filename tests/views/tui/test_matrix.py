"""The heat map: what it shows, where the keys and the mouse go, and how little is drawn again."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from gpudoctor.views.tui.themes import DEFAULTS, NIGHT
from gpudoctor.views.tui.widgets.matrix import ITSELF, Mark, Matrix, headings, no_link, share, unread, wrong
from tests.views.tui.conftest import shown


class One(App[None]):
    """A heat map and nothing else, with the border that screens give it."""

    CSS = "Matrix { border: round $primary; padding: 0 1; }"

    def __init__(self, wide: bool = False) -> None:
        super().__init__()
        self.register_theme(NIGHT)
        self.theme = NIGHT.name
        self.matrix = Matrix()
        self.matrix.wide = wide
        self.moves: list[tuple[int, int]] = []
        self.chosen: list[tuple[int, int]] = []
        self.pilot: Pilot[None] = Pilot(self)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return DEFAULTS

    def compose(self) -> ComposeResult:
        yield self.matrix

    def on_matrix_moved(self, event: Matrix.Moved) -> None:
        self.moves.append(event.matrix.at)

    def on_matrix_chosen(self, event: Matrix.Chosen) -> None:
        self.chosen.append(event.matrix.at)


def square(size: int, bad: Sequence[tuple[int, int]] = ()) -> tuple[list[str], list[str], list[list[Mark]]]:
    names = [f"GPU {number}" for number in range(size)]
    cells = [[ITSELF if row == col else Mark() for col in range(size)] for row in range(size)]
    for row, col in bad:
        cells[row][col] = share(0.41, "184 of 450 GB/s")
    return names, headings(names), cells


@asynccontextmanager
async def grid(size: int, bad: Sequence[tuple[int, int]] = (), room: tuple[int, int] = (40, 14)) -> AsyncIterator[One]:
    app = One()
    async with app.run_test(size=room) as pilot:
        app.matrix.put(*square(size, bad))
        await pilot.pause()
        yield app


def lines(app: One) -> list[str]:
    return shown(app.pilot)


@pytest.mark.parametrize(
    ("mark", "glyph", "level"),
    [
        (share(1.02), "·", "good"),
        (share(0.9), "·", "good"),
        (share(0.89), "8", "low"),
        (share(0.7), "7", "low"),
        (share(0.41), "4", "bad"),
        (share(0.0), "0", "bad"),
        (share(-1.0), "0", "bad"),
        (share(float("nan")), "?", "unread"),
        (wrong("3 bytes differ"), "x", "bad"),
        (unread("timed out"), "?", "unread"),
        (no_link(), "-", "none"),
    ],
)
def test_a_glyph_alone_tells_the_cells_apart(mark: Mark, glyph: str, level: str) -> None:
    assert (mark.glyph, mark.level) == (glyph, level)


def test_headings_leave_out_what_all_names_share() -> None:
    assert headings([f"node{number:02}" for number in range(1, 9)]) == list("12345678")
    assert headings(["GPU 9", "GPU 10"]) == ["9", "10"]
    assert headings(["node11", "node12"]) == ["11", "12"]  # not "1", "2": a number is not cut in two
    assert headings(["a", "ab"]) == ["a", "ab"]
    assert headings(["alone"]) == ["alone"]
    assert headings([]) == []


async def test_arrows_stay_inside() -> None:
    async with grid(3) as app:
        await app.pilot.press("up", "left")
        assert app.matrix.at == (0, 0)
        await app.pilot.press("down", "down", "down", "right", "right", "right")
        assert app.matrix.at == (2, 2)
        await app.pilot.press("g")
        assert app.matrix.at == (0, 0)
        await app.pilot.press("G", "k", "h")
        assert app.matrix.at == (1, 1)


async def test_n_finds_what_was_not_read_where_nothing_is_bad() -> None:
    async with grid(3) as app:
        names, heads, cells = square(3)
        cells[1][2] = unread("timed out")
        app.matrix.put(names, heads, cells)
        await app.pilot.press("n")
        assert app.matrix.at == (1, 2)


@pytest.mark.parametrize("wide", [False, True])
async def test_a_click_hits_the_cell_under_it(wide: bool) -> None:
    app = One(wide)
    async with app.run_test(size=(70, 24)) as pilot:
        names, heads, cells = square(12)
        app.matrix.put(names, ["drv", *heads[1:]] if wide else heads, cells)
        await pilot.pause()
        pitch = 4 if wide else 2
        top = 1 + (1 if wide else 2)
        left = 2 + len("GPU 11") + 2
        gap = 0 if wide else 1
        for row, col in [(0, 11), (0, 0), (11, 0), (11, 11), (5, 7), (5, 8)]:
            await pilot.click(Matrix, offset=(left + col * pitch + (gap if col >= 8 else 0), top + row))
            assert app.matrix.at == (row, col)
        assert app.chosen == []
        await pilot.click(Matrix, offset=(left + 8 * pitch + gap, top + 5))
        assert app.chosen == [(5, 8)]  # the second click opens
        await pilot.click(Matrix, offset=(3, top + 2))
        assert app.matrix.at == (2, 8)  # on a name: along the column
        await pilot.click(Matrix, offset=(0, 0))
        assert app.matrix.at == (2, 8)  # the border is no cell


async def test_128_by_128_scrolls_with_its_names_and_headings() -> None:
    async with grid(128, [(120, 100)], (60, 20)) as app:
        text = lines(app)
        row = next(line for line in text if "▸GPU 120" in line)
        assert "4" in row[11:]
        at = row.index("4", 12)
        assert "".join(line[at] for line in text[1:4]) == "100"  # the heading above it, written downwards
        await app.pilot.press("g")
        assert "▸GPU 0" in lines(app)[4]
        await app.pilot.press("G")
        assert any("▸GPU 127" in line for line in lines(app))


async def test_a_click_counts_what_was_scrolled_away() -> None:
    async with grid(128, [(120, 100)], (60, 20)) as app:
        text = lines(app)
        y = next(y for y, line in enumerate(text) if "▸GPU 120" in line)
        await app.pilot.click(Matrix, offset=(text[y].index("4", 12), y))
        assert app.chosen == [(120, 100)]


async def test_the_word_for_nothing_is_said() -> None:
    app = One()
    app.matrix.empty = "No two hosts were measured."
    async with app.run_test(size=(40, 8)) as pilot:
        await pilot.press("n", "enter", "down", "G")
        assert "No two hosts were measured." in lines(app)[1]
        assert app.matrix.mark is None
        assert app.chosen == []
