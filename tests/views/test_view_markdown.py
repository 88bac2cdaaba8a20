"""The report for an issue tracker: readable as it is, and nothing in it is markup that we did not write."""

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


def test_it_has_a_headline_the_evidence_as_a_table_and_commands_in_fences() -> None:
    diagnosis = diagnosis_of("too-old-b200")
    said = markdown.render(diagnosis)
    unjudged, passed = len(diagnosis.unjudged), len(diagnosis.passed)
    assert said.startswith("## gpudoctor: Broken: the finding below is why\n\nnode, level standard, ")
    assert "### Error: The driver is older than the B200: 550.163.01 is installed" in said
    assert "The same of gpu 1, gpu 2, gpu 3, gpu 4, gpu 5, gpu 6, gpu 7." in said
    assert "| `gpu[0].name` | `B200` | table gpus: PCI id 10de:2901 |" in said
    assert "**What to do: Install a newer driver (NVIDIA's repository for Ubuntu and Debian)**" in said
    assert "\n\n```sh\napt-get install --yes nvidia-open\n```\n\n" in said
    assert f"<summary>{unjudged} rules were not judged</summary>\n\n- " in said
    assert f"1 found, {unjudged} not judged, {passed} passed" in said


def test_several_causes_are_put_in_order() -> None:
    said = markdown.render(diagnosis_of("torch-arch-dropped-and-driver-too-old"))
    order = said.split("### To act on, in this order\n\n")[1].splitlines()[:2]
    assert [line[:3] for line in order] == ["1. ", "2. "]
    assert order[0].endswith("`torch.arch-dropped`")
    one = order[0].removeprefix("1. ").removesuffix(" `torch.arch-dropped`")
    assert order[1] == f"2. {one}, as in 1 `torch.driver-too-old`"  # its first cure would take the other torch away


@pytest.mark.parametrize("text", ["a", "``", "a ``` b", "````"])
def test_no_run_of_back_ticks_ends_a_fence(text: str) -> None:
    fence, *body, end = markdown.fenced(text).splitlines()
    assert end == fence
    assert set(fence) == {"`"}
    assert fence not in "\n".join(body)


def test_a_sound_machine_says_so_and_what_was_not_judged() -> None:
    diagnosis = diagnosis_of("hgx-h100")
    said = markdown.render(diagnosis)
    assert said.startswith("## gpudoctor: Sound\n")
    assert f"{len(diagnosis.unjudged)} rules were not judged" in said


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
    vast = replace(whole.findings[0], evidence=(Evidence("a.b", Known("x", "source " * 600)),) * 20)
    said = markdown.render(replace(whole, findings=(vast, replace(whole.findings[0], id="site.small"))))
    assert "parts are left out" in said
    assert "`site.small`" in said
