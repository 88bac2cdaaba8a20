"""Markdown as a tracker reads it: a reader of CommonMark and tables gives back the words, and no markup of others."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gpudoctor.core.diagnosis import Evidence, Note, Unjudged
from gpudoctor.core.fact import Known
from gpudoctor.views import markdown
from gpudoctor.views._terminal import one_line
from tests.views.tui.machines import diagnosis_of

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
ALLOWED = {"h2", "h3", "p", "ul", "ol", "li", "code", "pre", "table", "thead", "tbody", "tr", "th", "td", "strong"}
ALLOWED |= {"blockquote", "details", "summary"}
JOINER = "\u2060"
TRICKS = r"""
@octocat #12 !7 GH-9 :de: ` `` | \ <b> &lt; [a](b) ![x](y) ~~s~~ > # --- |a| $x$ [^1] 0000:de:00.0 <!-- **b** _i_ - 1.
http://e.org
"""
HOSTILE = st.lists(st.one_of(st.sampled_from([*TRICKS.split(), " ", "\t", "\n"]), st.text(max_size=6)), max_size=8).map(
    "".join
)


def read(said: str) -> tuple[set[str], str]:
    """The tags that a reader makes of it, and the words between them."""
    page = READER.render(said)
    return set(re.findall(r"</?([a-z0-9]+)", page)), unescape(re.sub(r"<[^>]*>", "", page))


@settings(max_examples=50)
@given(HOSTILE)
@example("---")
@example("-- -")
@example("1) one")
@example("===")
def test_foreign_text_reads_as_it_is(evil: str) -> None:
    tags, words = read(markdown.text(evil))
    assert tags <= {"p", "code"}
    assert words.replace(JOINER, "").split() == one_line(evil).replace(JOINER, "").split()


@settings(max_examples=50)
@given(HOSTILE)
def test_code_reads_as_it_is(evil: str) -> None:
    tags, words = read(f"a {markdown.code(evil)} b")
    assert tags <= {"p", "code"}
    assert words.split() == ["a", *one_line(evil).split(), "b"]


@settings(max_examples=40)
@given(HOSTILE)
def test_a_report_full_of_it_keeps_its_form(evil: str) -> None:
    whole = diagnosis_of("too-old-b200")
    finding = replace(
        whole.findings[0], title=evil, why=evil, explains=(evil,), evidence=(Evidence("a.b", Known(evil, evil)),) * 2
    )
    plain = replace(whole, findings=(replace(whole.findings[0], evidence=finding.evidence),))
    odd = replace(
        whole, findings=(finding,), notes=(Note((), evil),), unjudged=(Unjudged("x.y", evil),), tool_version=evil
    )
    said = markdown.render(odd)
    assert read(said)[0] <= ALLOWED
    assert READER.render(said).count("<tr>") == READER.render(markdown.render(plain)).count("<tr>") == 3


@pytest.mark.parametrize("said", ["@octocat", "see #12", "!12", "GH-7", "a :de: b", ":100:", ":+1:"])
def test_nobody_is_called_and_nothing_is_linked(said: str) -> None:
    assert JOINER in markdown.text(said)


def test_nobody_is_called_from_a_whole_report() -> None:
    whole = diagnosis_of("too-old-b200")
    finding = replace(whole.findings[0], title="@octocat", why="@octocat", evidence=(), fixes=())
    notes, unjudged = (Note((), "@octocat"),), (Unjudged("x.y", "@octocat"),)
    said = markdown.render(replace(whole, findings=(finding,), notes=notes, unjudged=unjudged))
    assert "@octocat" not in said
    assert said.count(f"@{JOINER}octocat") >= 4


def test_a_pci_address_can_be_copied_and_shows_no_flag() -> None:
    assert markdown.text("GPU 5 at 0000:de:00.0: hot") == "GPU 5 at `0000:de:00.0`: hot"
    assert markdown.text("gpu: 3, 12:34:56, driver: 580") == "gpu: 3, 12:34:56, driver: 580"


def test_a_tracker_has_room_for_it_however_much_was_found() -> None:
    whole = diagnosis_of("too-old-b200")
    findings = tuple(
        replace(whole.findings[0], id=f"site.page-{number}", title=f"cause {number}", why="why " * 2000)
        for number in range(60)
    )
    said = markdown.render(replace(whole, findings=findings))
    assert len(said) <= 65_536
    assert "cause 0" in said
    assert "parts are left out, for a tracker takes no more" in said
    assert f"60 found, {len(whole.unjudged)} not judged" in said.splitlines()[-1]
    assert "left out" not in markdown.render(whole)
