"""The report for an issue tracker: readable as it is, and nothing in it is markup that we did not write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpudoctor.model.diagnosis import Evidence, Note, Unjudged
from gpudoctor.model.fact import Absent, Known
from gpudoctor.model.rule import Fix, Step
from gpudoctor.views import markdown
from tests.tui.machines import diagnosis_of

JOINER = "\u2060"


def test_it_has_a_headline_the_evidence_as_a_table_and_commands_in_fences() -> None:
    diagnosis = diagnosis_of("too-old-b200")
    said = markdown.render(diagnosis)
    unjudged, passed = len(diagnosis.unjudged), len(diagnosis.passed)
    assert said.startswith(
        "## gpudoctor: Broken: the first finding is the one to act on first\n\nnode, level standard, "
    )
    assert "### Error: The driver is older than the B200: 550.163.01 is installed" in said
    assert "The same of gpu 1, gpu 2, gpu 3, gpu 4, gpu 5, gpu 6, gpu 7." in said
    assert "| `gpu[0].name` | `B200` | table gpus: PCI id 10de:2901 |" in said
    assert "**What to do: Install a newer driver (NVIDIA's repository for Ubuntu and Debian)**" in said
    assert "\n\n```sh\napt-get install --yes nvidia-open\n```\n\n" in said
    assert f"<summary>{unjudged} rules were not judged</summary>\n\n- " in said
    assert f"8 found, {unjudged} not judged, {passed} passed" in said


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
    code = markdown.code(text)
    longest = max(len(run) for run in "".join(c if c == "`" else " " for c in f"{text} `").split())
    opening = len(code) - len(code.lstrip("`"))
    assert opening == 1 if "`" not in text else opening > longest - 1


def test_foreign_text_is_no_markup_no_mention_and_no_line_of_ours() -> None:
    whole = diagnosis_of("too-old-b200")
    evil = "<img src=x> [a](http://b) **c** # d @octocat #12 | e \x1b[31m\n## forged"
    finding = replace(
        whole.findings[0],
        title=evil,
        why=f"- {evil}",
        evidence=(Evidence("a.b", Known(evil, evil)), Evidence("c.d", Absent(evil))),
        fixes=(Fix(evil, (Step(("echo", "```\n## x"), evil, ("root",)),), undo=evil),),
    )
    said = markdown.render(
        replace(whole, findings=(finding,), notes=(Note((), evil),), unjudged=(Unjudged("x.y", evil),))
    )
    outside = "\n".join(part for at, part in enumerate(said.split("````")) if at % 2 == 0)
    assert "\x1b" not in said
    assert "\n## forged" not in outside
    assert "<img" not in outside.replace("\\<img", "")
    assert "@octocat" not in outside
    assert f"@{JOINER}octocat" in outside
    assert "\n\\- \\<img" in outside
    rows = [line for line in said.splitlines() if line.startswith("| `")]
    assert len(rows) == 2
    for row in rows:
        assert row.replace("\\\\", "").replace("\\|", "").count("|") == 4
    assert "\n````sh\necho $'```\\n## x'\n````\n" in said


def test_a_sound_machine_says_so_and_what_was_not_judged() -> None:
    diagnosis = diagnosis_of("hgx-h100")
    said = markdown.render(diagnosis)
    assert said.startswith("## gpudoctor: Sound\n")
    assert f"{len(diagnosis.unjudged)} rules were not judged" in said
