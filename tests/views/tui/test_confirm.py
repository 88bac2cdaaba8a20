"""The question before anything is changed."""

from __future__ import annotations

import pytest
from textual.app import App
from textual.content import Content

from gpudoctor.views.tui.repair import ConfirmScreen
from gpudoctor.views.tui.widgets.prose import Block, plain

BLOCKS = [Block(plain("Run [red]this[/red] \x07 now?"))]


class Asking(App[None]):
    """Asks at once, and keeps the answer."""

    CSS_PATH = "../../../gpudoctor/views/tui/tui.tcss"

    def __init__(self, word: str = "", blocks: list[Block] | None = None) -> None:
        super().__init__()
        self.sure = ConfirmScreen("Sure?", blocks or BLOCKS, word=word)
        self.answer: bool | None = None

    def on_mount(self) -> None:
        self.push_screen(self.sure, self._answered)

    def _answered(self, answer: bool | None) -> None:
        self.answer = answer

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return {"on-state": "black"}


@pytest.mark.parametrize(
    ("keys", "answer"),
    [(["y"], True), (["n"], False), (["escape"], False), (["enter"], None), (["space", "tab", "enter", "Y"], None)],
)
async def test_only_y_is_yes(keys: list[str], answer: bool | None) -> None:
    app = Asking()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*keys)
        assert app.answer is answer
        assert (app.screen is app.sure) == (answer is None)
        assert app.focused is None


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        ([*"node17", "enter"], True),
        ([*"node1", "enter"], None),
        (["enter"], None),
        (["y", "enter"], None),
        ([*"nodes", "backspace", *"17", "enter"], True),
        ([*"node17", "escape"], False),
    ],
)
async def test_a_word_is_typed_whole(keys: list[str], answer: bool | None) -> None:
    app = Asking("node17")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*keys)
        assert app.answer is answer


async def test_foreign_words_are_no_markup_and_a_long_question_scrolls() -> None:
    app = Asking(blocks=[*BLOCKS, *(Block(Content(f"line {number}")) for number in range(60))])
    async with app.run_test(size=(40, 10)) as pilot:
        await pilot.pause()
        strips = app.screen._compositor.render_strips()
        said = "\n".join("".join(segment.text for segment in line) for line in strips)
        assert r"Run [red]this[/red] \x07 now?" in said
        assert "y  run it" in said
        await pilot.press("y")
        assert app.answer is True
