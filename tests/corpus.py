"""Messages and outputs as machines print them: ``tests/readers/messages/*.txt`` and ``tests/readers/pairs/*.toml``.

In messages a line ``== cause`` (or ``== sound``) starts a block; the lines below are the paste.
"""

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.app.pipeline import diagnose
from gpudoctor.core.diagnosis import Finding
from gpudoctor.core.document import parse_toml
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


def pairs() -> list[dict[str, Any]]:
    """Each sound output, with what makes it a sick one.

    A file has `name`, `source` (where the format is from), `sound` (the text) and `sick`, each with `change` (old and
    new text), `finds` (the rule) and `says` (words of the finding's title).
    """
    return [
        {**pair, "name": f"{path.stem}: {pair['name']}"}
        for path in sorted((REPOSITORY / "tests/readers/pairs").glob("*.toml"))
        for pair in parse_toml(path.read_text("utf-8"))["pair"]
    ]


def sick_texts(pair: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each sick output of a pair, and what is to be found in it."""
    for sick in pair.get("sick", ()):
        text = pair["sound"]
        for old, new in sick["change"]:
            assert old in text, (old, "is not in the text")
            text = text.replace(old, new)
        yield text, sick
