"""Pairs of outputs: what a sound machine prints draws nothing, and the same with a fault in it is named by its value.

``tests/readers/pairs/*.toml``: `name`, `source` (where the format is from), `sound` (the text) and `sick`, each with
`change` (old and new text), `finds` (the rule) and `says` (words of the finding's title).
"""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.app.pipeline import diagnose
from gpudoctor.core.diagnosis import Finding
from gpudoctor.diagnosis import rulebook
from gpudoctor.readers import read_text
from tests.corpus import pairs, sick_texts

BOOK = rulebook.load()
PAIRS = pairs()
DRESSED = (
    lambda text: text.replace("\n", "\r\n"),
    lambda text: f"{text}\n{text}",
    lambda text: f"(base) user@node1:~$ cat output.txt\n{text}",
    lambda text: "\n".join(f"> {line}" for line in text.split("\n")),
    lambda text: f"\x1b[32m{text}\x1b[0m\nA line of a newer version  : 7\n",
    lambda text: "\n".join(text.split("\n")[: text.count("\n") // 2]),
    lambda text: "\n".join(text.split("\n")[text.count("\n") // 3 :]),
)
"""Ways in which an output comes into a paste."""


def _findings(text: str) -> list[Finding]:
    """What is found, but for what is certain and for information only."""
    snapshot = read_text(text)
    assert "report.trouble" not in snapshot.facts, snapshot.facts["report.trouble"]
    found = diagnose(snapshot, BOOK).findings
    return [finding for finding in found if finding.severity != "info" or finding.confidence == "possible"]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair["name"])
def test_a_pair(pair: dict[str, Any]) -> None:
    assert [(finding.id, finding.title) for finding in _findings(pair["sound"])] == []
    for text, sick in sick_texts(pair):
        first = next(iter(_findings(text)), None)
        assert first, (sick["change"], "draws no finding")
        assert (first.id, first.confidence in ("certain", "likely")) == (sick["finds"], True), first
        assert sick["says"] in first.title, first.title


@pytest.mark.parametrize(("number", "pair"), enumerate(PAIRS), ids=[pair["name"] for pair in PAIRS])
def test_a_dressed_sound_output(number: int, pair: dict[str, Any]) -> None:
    """In one of the ways: each way has several outputs."""
    assert [finding.title for finding in _findings(DRESSED[number % len(DRESSED)](pair["sound"]))] == []
