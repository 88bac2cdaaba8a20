"""A new page: refused while a blank is left, right as soon as all are filled, and it says what to type next."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from gpudoctor.app.arguments import COMMANDS
from gpudoctor.app.commands import rules
from gpudoctor.core.errors import RuleError
from gpudoctor.diagnosis import pages, rulebook
from gpudoctor.diagnosis.rulebook.check import BLANK
from tests.conftest import Program

FILLED = {
    "the problem as a heading, without values": "The driver is a beta",
    "a condition over facts": "driver.version == '999.1'",
    "the sentence to say, with facts in braces": "The driver {driver.version} is a beta",
    "the finding's sentence, word for word": "The driver 999.1 is a beta",
    "a fact": "driver.version",
    "its value where something is wrong": "999.1",
    "the nearest value that is still right": "999.2",
    "the fact's name": "driver.version",
}
BLANKS = re.compile(f'"{BLANK} ([^"]*)"')


def fill(text: str, leave: int | None = None) -> str:
    """The page with its blanks filled in, but for the one at place `leave`."""
    places = iter(range(100))

    def filled(match: re.Match[str]) -> str:
        return match[0] if next(places) == leave else f'"{FILLED.get(match[1], "words of a person")}"'

    return BLANKS.sub(filled, text)


def test_filled_in_it_is_a_page_whose_cases_hold(called: Program, tmp_path: Path) -> None:
    site = tmp_path / "our rules"
    done = called("rules", "new", "driver.beta", str(site))
    path = site / "driver" / "driver.beta.toml"
    assert done.code == 0
    assert f"$ gpudoctor rules test '{site}'" in done.out
    assert f"$ gpudoctor check --rules '{site}'" in done.out
    path.write_text(fill(path.read_text("utf-8")), "utf-8")
    tested = called("rules", "test", str(site))
    assert (tested.code, tested.out) == (0, "3 cases passed, 0 failed, on 1 pages\n")
    found = called("read", "-", "--rules", str(site), stdin="Nvidia driver version: 999.1\n")
    assert "The driver 999.1 is a beta" in found.out


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_the_report_names_the_command_that_shows_a_site_s_page(called: Program, tmp_path: Path, form: str) -> None:
    site = tmp_path / "our rules"
    path = site / "driver" / "driver.beta.toml"
    path.parent.mkdir(parents=True)
    path.write_text(fill(rules.page("driver.beta")), "utf-8")
    paste = "Nvidia driver version: 999.1\n"
    found = called("read", "-", "--rules", str(site), "--format", form, stdin=paste)
    named = re.search(r"gpudoctor (explain driver\.beta [^`\n]+)", found.out)
    assert named is not None
    shown = called(*shlex.split(named[1]))
    assert (shown.code, shown.out.splitlines()[0]) == (0, "driver.beta: The driver is a beta")


@pytest.mark.parametrize("blank", range(len(BLANKS.findall(rules.page("driver.beta")))))
def test_one_blank_left_is_named(tmp_path: Path, blank: int) -> None:
    path = tmp_path / "driver" / "driver.beta.toml"
    path.parent.mkdir()
    text = rules.page("driver.beta")
    path.write_text(fill(text, leave=blank), "utf-8")
    with pytest.raises(RuleError, match=r"driver\.beta\.toml:\d+: .* is still to be filled in: ") as refused:
        rulebook.load([tmp_path])
    assert BLANKS.findall(text)[blank] in str(refused.value)


def test_what_it_teaches_in_comments_is_right_as_it_stands(tmp_path: Path) -> None:
    text = fill(rules.page("gpu.beta"))
    for head in (
        "each = ",
        "confirm = ",
        "[[sign]]",
        "match = ",
        "weight = ",
        'finding = "The words',
        "undo = ",
        "{ argv",
    ):
        assert f"# {head}" in text, head
        text = text.replace(f"# {head}", head)
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "gpu.beta.toml").write_text(text, "utf-8")
    rule = rulebook.load([tmp_path]).find("gpu.beta")
    assert rule is not None
    assert (rule.each, rule.signs[0].conclusive, rule.fixes[0].steps[1].needs) == ("gpu", False, ("root",))


def test_it_names_only_commands_that_there_are() -> None:
    named = re.findall(r"`gpudoctor (\w+)", rules.page("driver.beta"))
    assert named
    assert set(named) <= set(COMMANDS)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("Driver.Beta",), "is no name for a rule"),
        (("driver",), "is no name for a rule"),
        (("driver.beta-",), "is no name for a rule"),
        (("../driver.beta",), "is no name for a rule"),
        (("gpu.ecc",), "gpudoctor explain gpu.ecc shows it"),
        (("site.quota",), "--layer, one of host, driver"),
        (("site.quota", "--layer", "moon"), "invalid choice"),
        (("driver.beta", "/proc/none"), "/proc/none"),
    ],
)
def test_refused(called: Program, words: tuple[str, ...], says: str) -> None:
    done = called("rules", "new", *words)
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_a_page_that_is_there_is_never_written_over(called: Program, tmp_path: Path) -> None:
    site = str(tmp_path)
    assert called("rules", "new", "site.quota", "--layer", "env", site).code == 0
    again = called("rules", "new", "site.quota", "--layer", "host", site)
    assert (again.code, again.out) == (2, "")
    assert "env/site.quota.toml" in again.err


def test_the_layer_is_that_of_the_topic(tmp_path: Path) -> None:
    known = rulebook.load().rules
    assert rules.place("nvml.odd", None, tmp_path, known) == tmp_path / "driver" / "nvml.odd.toml"
    assert rules.place("nvml.odd", "gpu", tmp_path, known) == tmp_path / "gpu" / "nvml.odd.toml"


def test_among_our_own_pages_no_folder_is_to_be_named() -> None:
    said = rules.next_steps(Path("rules/driver/driver.beta.toml"), pages.home())
    assert said.splitlines()[1:] == ["  $ gpudoctor rules test", "  $ gpudoctor check"]
