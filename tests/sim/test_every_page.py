"""No page is theory: each one fires in the unmodified program, on a simulated machine or on what machines print."""

from __future__ import annotations

import json
from pathlib import Path

from gpudoctor import rulebook
from tests.conftest import Program
from tests.corpus import blocks
from tests.needs import REPOSITORY
from tests.sim.documents import Documents
from tests.sim.test_scenarios import HEALTHY, SICK


def test_every_page_fires_end_to_end(gpudoctor: Program, documents: Documents, tmp_path: Path) -> None:
    pages = {rule.id for rule in rulebook.load().rules}
    fired = set(_read(gpudoctor, tmp_path))
    fired |= {one["id"] for path in HEALTHY + SICK for one in documents.of(path)[1].document["findings"]}
    assert pages - fired == set()


def _read(gpudoctor: Program, folder: Path) -> list[str]:
    """The findings of ``gpudoctor read`` on every paste of the corpus."""
    names = []
    for file in sorted((REPOSITORY / "tests" / "messages").glob("*.txt")):
        for number, (_, paste) in enumerate(blocks(file.stem)):
            place = folder / f"{file.stem}-{number}.txt"
            place.write_text(paste, "utf-8")
            names.append(str(place))
    ran = gpudoctor("read", "--json", *names, timeout=300)
    assert ran.err == ""
    told = [json.loads(line) for line in ran.out.splitlines()]
    assert len(told) == len(names)
    return [one["id"] for document in told for one in document["findings"]]
