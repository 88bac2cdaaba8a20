"""No page is theory: each one fires in the unmodified program, on a simulated machine or on what machines print."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from gpudoctor.core.about import __version__
from gpudoctor.core.rule import Rule
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.rulebook.expressions import facts_read
from gpudoctor.views import document
from tests import rates
from tests.conftest import Program
from tests.corpus import blocks, pairs, sick_texts
from tests.needs import REPOSITORY
from tests.sim.documents import Documents
from tests.sim.test_scenarios import HEALTHY, SICK

pytestmark = pytest.mark.full

_RUNNING = {"run", "run_gpu", "run_process", "job", "rank", "rank_group", "best"}
"""Topics of facts that a running command shows, or what is kept of earlier ones."""
_BY_ITS_CASES = {"nccl.port-errors", "nccl.sockets", "workload.rank-ended"}
"""Pages of what two looks tell apart, or a machine beside a log, or an information of a log: their cases fire them."""
A_MACHINE = "gpu=RTX 4090,driver=580,python=3.12,os=linux,arch=x86_64"
"""For which files are judged."""


def test_every_page_fires_end_to_end(gpudoctor: Program, documents: Documents, tmp_path: Path) -> None:
    pages = {rule.id for rule in rulebook.load().rules if not _is_shown_elsewhere(rule)}
    fired = {*_read(gpudoctor, _pastes(tmp_path)), *_read(gpudoctor, _measured(tmp_path))}
    fired |= set(_read(gpudoctor, map(str, (REPOSITORY / "tests/readers/files").iterdir()), "--for", A_MACHINE))
    fired |= {one["id"] for path in HEALTHY + SICK for one in documents.of(path)[1].document["findings"]}
    assert pages - fired == set()


def _is_shown_elsewhere(rule: Rule) -> bool:
    """Whether only a running command shows it, or Windows: tests of ``gpudoctor run`` and ``job``, on real processes,
    and tests/windows fire it.
    """
    if rule.id in _BY_ITS_CASES:
        return True
    topics = {name.partition(".")[0] for name in facts_read(rule)}
    of_windows = topics & {"display", "windows"} or "gpu.driver_model" in facts_read(rule)
    return (bool(topics & _RUNNING) and topics <= {*_RUNNING, "failure", "oom"}) or bool(of_windows)


def _pastes(folder: Path) -> Iterator[str]:
    """The pastes of the corpus, each in a file."""
    texts = [text for pair in pairs() for text, _ in sick_texts(pair)]
    for number, text in enumerate(texts):
        (place := folder / f"pair-{number}.txt").write_text(text, "utf-8")
        yield str(place)
    for file in sorted((REPOSITORY / "tests/readers/messages").glob("*.txt")):
        for number, (_, paste) in enumerate(blocks(file.stem)):
            place = folder / f"{file.stem}-{number}.txt"
            place.write_text(paste, "utf-8")
            yield str(place)


def _measured(folder: Path) -> Iterator[str]:
    """Machines that were measured, each a saved snapshot."""
    for number, (snapshot, _, _) in enumerate(rates.sick().values()):
        place = folder / f"measured-{number}.json"
        place.write_text(document.facts(snapshot, __version__), "utf-8")
        yield str(place)


def _read(gpudoctor: Program, names: Iterable[str], *options: str) -> list[str]:
    """The findings of ``gpudoctor read`` on these files."""
    files = list(names)
    ran = gpudoctor("read", "--json", *options, *files, timeout=300)
    assert ran.err == ""
    told = [json.loads(line) for line in ran.out.splitlines()]
    assert len(told) == len(files)
    return [one["id"] for read in told for one in read["findings"]]
