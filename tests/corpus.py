"""Messages as machines print them, by the cause they name: ``tests/readers/messages/*.txt``.

A line ``== cause`` (or ``== sound``) starts a block; the lines below are the paste.
"""

from __future__ import annotations

import re

from gpudoctor.app.pipeline import diagnose
from gpudoctor.core.diagnosis import Finding
from gpudoctor.diagnosis import rulebook
from gpudoctor.readers import read_text
from tests.needs import REPOSITORY

BOOK = rulebook.load()
_HEAD = re.compile(r"^== (?=[a-z.0-9-]+$)", re.MULTILINE)


def blocks(name: str) -> list[tuple[str, str]]:
    """Cause and paste, for each block of ``tests/readers/messages/<name>.txt``."""
    text = (REPOSITORY / "tests/readers/messages" / f"{name}.txt").read_text("utf-8")
    parts = (block.partition("\n") for block in _HEAD.split(text)[1:])
    return [(head.strip(), body) for head, _, body in parts]


def findings(text: str) -> list[Finding]:
    """What the whole path says of a paste, errors and warnings."""
    return [finding for finding in diagnose(read_text(text), BOOK).findings if finding.severity != "info"]
