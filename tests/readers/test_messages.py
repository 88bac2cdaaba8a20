"""What machines print is read through the whole path: its cause comes first, and sound texts give no error."""

from __future__ import annotations

import pytest

from tests.corpus import blocks, findings
from tests.needs import REPOSITORY
from tests.sim.documents import sampled

ALL = [block for file in sorted((REPOSITORY / "tests/readers/messages").glob("*.txt")) for block in blocks(file.stem)]


@pytest.mark.parametrize("block", sampled([block for block in ALL if block[0] != "sound"], lambda block: block[0], 3))
def test_a_message_names_its_cause(block: tuple[str, str]) -> None:
    cause, text = block
    assert [finding.id for finding in findings(text)][:1] == [cause]


@pytest.mark.parametrize("text", [text for head, text in ALL if head == "sound"])
def test_a_sound_text_gives_no_error(text: str) -> None:
    assert [finding.id for finding in findings(text) if finding.severity == "error"] == []
