"""The documentation shows the interface as it is: every screen has its picture, and every picture is shown."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from tests import screenshots
from tests.needs import REPOSITORY
from tests.screenshots import SHOTS, Shot

PAGE = (REPOSITORY / "gpudoctor/app/docs" / "interface.md").read_text("utf-8")
NAMES = [shot.name for shot in SHOTS]


def test_every_screen_has_a_picture_and_the_page_on_the_interface_shows_each() -> None:
    assert {shot.screen for shot in SHOTS} >= screenshots.screens()
    shown = set(re.findall(r"\(\.\./\.\./\.\./tests/views/tui/screenshots/([\w.-]+)\)", PAGE))
    taken = {f"{name}.svg" for name in NAMES} | {"browser.png", "browser-small.png"}
    assert shown == taken == {path.name for path in screenshots.HOME.iterdir()} - {"tour.svg"}, (
        "python -m tests.screenshots --write; python -m tests.readme --write"
    )


@pytest.mark.parametrize("shot", SHOTS, ids=NAMES)
def test_a_picture_is_an_svg_of_the_screen_it_is_of(shot: Shot) -> None:
    picture = ElementTree.parse(screenshots.HOME / f"{shot.name}.svg")
    text = "".join(picture.getroot().itertext()).replace("\u00a0", " ")
    assert shot.command in text
    assert ("recording" in text) == bool(shot.demo) or shot.screen in {"kernels", "cluster", "demos"}


async def test_the_recording_goes_from_the_cause_to_its_cure() -> None:
    pictures = await screenshots.recorded()
    titles = ["BROKEN", "plan: 4 steps for 1 cause", "Sure? (a recording)", "FIXED"]
    assert [title in picture.replace("&#160;", " ") for title, picture in zip(titles, pictures, strict=True)] == [
        True
    ] * 4
    shown = ElementTree.parse(screenshots.HOME / "tour.svg").getroot()
    assert len(shown.findall("{*}g[@class='next']")) == len(pictures) - 1
    assert "screenshots/tour.svg" in (REPOSITORY / "README.md").read_text("utf-8").partition("## ")[0]


@pytest.mark.full
async def test_a_picture_is_taken_of_a_screen_with_all_its_numbers() -> None:
    text = (await screenshots.taken(next(shot for shot in SHOTS if shot.name == "gpus"))).replace("&#160;", " ")
    assert "1110/1980" in text
    assert "heat" in text
