"""The report for an issue tracker: readable as it is, and nothing in it is markup that we did not write."""

from __future__ import annotations

import pytest

from gpudoctor.views import markdown
from tests.views.tui.machines import diagnosis_of


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


def test_a_sound_machine_says_so_and_what_was_not_judged() -> None:
    diagnosis = diagnosis_of("hgx-h100")
    said = markdown.render(diagnosis)
    assert said.startswith("## gpudoctor: Sound\n")
    assert f"{len(diagnosis.unjudged)} rules were not judged" in said
