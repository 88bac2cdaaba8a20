"""README.md and the pages that it leads to show what the program really says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from gpudoctor.app.arguments import parse
from gpudoctor.app.cli import run
from gpudoctor.diagnosis import rulebook
from tests.needs import REPOSITORY
from tests.readme import DOCS, README, SITE, generated, pages


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_the_generated_parts_are_up_to_date(page: Path) -> None:
    current = page.read_text("utf-8")
    assert generated(current) == current, "run: python -m tests.readme --write"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_what_a_page_leads_to_is_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_the_readme_leads_to_every_page() -> None:
    text = README.read_text("utf-8")
    assert [page.name for page in pages() if page != README and f"({page.relative_to(REPOSITORY)})" not in text] == []


def test_pages_named_beside_other_checkers_are_ours() -> None:
    table = [line for line in (DOCS / "comparison.md").read_text("utf-8").splitlines() if line.startswith("| ")]
    named = set(re.findall(r"`([a-z]+\.[a-z-]+)`", "\n".join(table)))
    assert len(named) > 40
    rules = rulebook.load()
    assert [name for name in named if not rules.find(name)] == []


def test_each_question_ends_in_a_command_and_names_pages_that_there_are() -> None:
    _, *questions = (DOCS / "questions.md").read_text("utf-8").split("\n## ")
    rules = rulebook.load()
    for question in questions:
        command = re.search(r"```console\n\$ gpudoctor ([^\n]+)\n```\s*\Z", question)
        assert command, question
        parse(shlex.split(command[1]))
        assert [name for name in re.findall(r"`([a-z]+\.[a-z]+-[a-z-]+)`", question) if not rules.find(name)] == []


def test_the_readme_is_read_in_five_minutes() -> None:
    """At 240 words a minute, without what the program prints and what is folded away."""
    text = re.sub(r"<details>.*?</details>|```.*?```", "", README.read_text("utf-8"), flags=re.DOTALL)
    assert len(text.split()) <= 5 * 240


def test_the_page_that_is_shown_proves_itself(capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(SITE.parent.parent)
    assert run(["rules", "test", folder]) == 0
    assert "3 cases passed, 0 failed" in capsys.readouterr().out
