"""What is shown goes to a file, in the form that is chosen, or the reason why not is said."""

import json
import os
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from gpudoctor.app.redaction import Redactor
from gpudoctor.core.diagnosis import from_json
from gpudoctor.views import html, markdown, text
from gpudoctor.views.tui.screens.diagnosis import DiagnosisScreen
from gpudoctor.views.tui.screens.dialogs import SaveScreen
from gpudoctor.views.tui.widgets.prose import Prose
from tests.views.tui.conftest import NARROW, WIDE, Opened, app_of, shown, until
from tests.views.tui.machines import told_of


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def closed(pilot: Pilot[None]) -> None:
    """Wait until the file is written and the dialog is gone."""
    await until(pilot, lambda: isinstance(pilot.app.screen, DiagnosisScreen))


async def said(pilot: Pilot[None], words: str) -> None:
    """Wait until the dialog says these words."""
    await until(pilot, lambda: words in pilot.app.screen.query_one("#said", Prose).text)


@pytest.mark.parametrize("size", [(40, 12), pytest.param(WIDE, marks=pytest.mark.full)], ids=str)
async def test_each_form_is_written_whole_and_y_copies_the_text(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(told_of("too-old-b200"), size) as pilot:
        app = app_of(pilot)
        assert app.diagnosis
        for downs, ending in enumerate(["txt", "md", "html", "json", "svg"]):
            await pilot.press("s", *["down"] * downs, "enter")
            await closed(pilot)
            path = Path.cwd() / f"gpudoctor-node.{ending}"
            assert app.message == f"written to {path}"
            written = path.read_text("utf-8").removesuffix("\n")
            if ending == "json":
                assert from_json(json.loads(written)).findings[0].id == "driver.too-old-for-gpu"
            elif ending == "svg":
                assert ElementTree.fromstring(written).tag.endswith("svg")
                assert "BROKEN" in written
            else:
                form = {"txt": text, "md": markdown, "html": html}[ending]
                assert written == form.render(app.diagnosis)
        await pilot.press("y")
        assert app.clipboard == text.render(app.diagnosis)
        await pilot.pause()
        assert "copied the report" in shown(pilot)[1]


async def test_what_is_to_be_shared_has_nothing_personal(opened: Opened) -> None:
    async with opened(told_of("too-old-b200"), NARROW) as pilot:
        app = app_of(pilot)
        await pilot.press("s", "down", "tab")
        assert app.screen.query_one(Input).value == "gpudoctor-report.md"
        await pilot.press("tab", "tab", "enter")
        await closed(pilot)
        path = Path.cwd() / "gpudoctor-report.md"
        assert app.message.startswith(f"written to {path}; hidden: ")
        assert app.diagnosis
        hide = Redactor()
        assert path.read_text("utf-8").removesuffix("\n") == markdown.render(hide(app.diagnosis))
        assert app.message.endswith(hide.summary)
        await pilot.press("s", *["down"] * 4, "tab", "enter")
        await said(pilot, "a picture shows what the screen showed")


async def test_a_file_that_is_there_is_replaced_only_when_asked_twice(opened: Opened) -> None:
    Path("gpudoctor-node.txt").write_text("mine", "utf-8")
    async with opened(told_of("too-old-b200")) as pilot:
        await pilot.press("s", "enter")
        await said(pilot, "gpudoctor-node.txt is there already: enter again replaces it")
        assert Path("gpudoctor-node.txt").read_text("utf-8") == "mine"
        await pilot.press("enter")
        await closed(pilot)
        assert Path("gpudoctor-node.txt").read_text("utf-8").startswith("gpudoctor ")


async def test_what_cannot_be_written_is_refused_in_words(opened: Opened) -> None:
    async with opened(told_of("too-old-b200"), WIDE) as pilot:
        await pilot.press("s")
        for name, words in (
            ("", "give the file a name"),
            ("no/such/folder/x.txt", "No such file or directory"),
            (".", "Is a directory"),
            ("x" * 300, "File name too long"),
            ("~nobody-of-that-name/x.txt", "nobody-of-that-name"),
        ):
            pilot.app.screen.query_one(Input).value = name
            await pilot.press("enter")
            await said(pilot, words)
            assert isinstance(pilot.app.screen, SaveScreen)
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, DiagnosisScreen)


async def test_in_a_folder_that_is_gone_it_says_so(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    async with opened(told_of("too-old-b200")) as pilot:
        await pilot.press("s")
        await said(pilot, "No such file or directory")
        await pilot.press("enter")
        await said(pilot, "No such file or directory")


async def test_a_dash_is_a_file_here_and_never_the_terminal(opened: Opened, capsys: pytest.CaptureFixture[str]) -> None:
    async with opened(told_of("too-old-b200")) as pilot:
        await pilot.press("s")
        pilot.app.screen.query_one(Input).value = "-"
        await pilot.press("enter")
        await closed(pilot)
        assert Path("-").read_text("utf-8").startswith("gpudoctor ")
    assert "too-old-for-gpu" not in capsys.readouterr().out


async def test_the_ending_follows_the_form_unless_it_is_the_users_own(opened: Opened) -> None:
    async with opened(told_of("too-old-b200")) as pilot:
        await pilot.press("s", "down", "down")
        file = pilot.app.screen.query_one(Input)
        assert file.value == "gpudoctor-node.html"
        file.value = "of.monday"
        await pilot.press("down")
        assert file.value == "of.monday"


async def test_where_nothing_can_be_written_it_says_so(opened: Opened) -> None:
    async with opened(replace(told_of("too-old-b200"), save=None)) as pilot:
        await pilot.press("s", "enter")
        await said(pilot, "nothing can be written from here")
