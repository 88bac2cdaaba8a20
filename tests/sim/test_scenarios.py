"""Every simulated machine under the unmodified program: what it finds, how it ends, how it differs from a sound one."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from gpudoctor.app import cli
from gpudoctor.core.about import __version__
from gpudoctor.core.rule import Rule
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.rulebook.expressions import facts_read
from gpudoctor.views import document, schema
from tests import rates
from tests.conftest import Program
from tests.corpus import blocks, pairs, sick_texts
from tests.needs import REPOSITORY
from tests.sim import scenario
from tests.sim.documents import Documents, sampled

HEALTHY = [scenario.PROFILES / f"{name}.json" for name in scenario.names(scenario.PROFILES)]
SICK = [scenario.SICK / f"{name}.json" for name in scenario.names(scenario.SICK)]


def test_there_are_enough_of_them() -> None:
    assert len(HEALTHY) >= 20
    assert len(HEALTHY) + len(SICK) >= 90


@pytest.mark.parametrize("path", sampled(HEALTHY + SICK))
def test_scenario(path: Path, documents: Documents) -> None:
    record, ran = documents.of(path)
    assert ran.err == ""
    loud = [one["id"] for one in ran.document["findings"] if one["severity"] != "info"]
    assert loud == record.expect["ids"], ran.out
    assert ran.code == record.expect["exit"]
    for text in record.expect.get("says", ()):
        assert text in ran.out


@pytest.mark.parametrize("path", sampled(HEALTHY))
def test_a_healthy_machine_is_sound_and_the_document_valid(path: Path, documents: Documents) -> None:
    import jsonschema

    record, ran = documents.of(path)
    assert record.expect["ids"] == []
    assert ran.document["verdict"] == "sound"
    jsonschema.validate(ran.document, json.loads(schema.text()))


@pytest.mark.full
def test_every_cause_of_the_lower_layers_is_found_on_some_machine(documents: Documents) -> None:
    """Each page of these folders fires through the real program; see `expect.ids` for the machines.

    Those over what kernels measured have machines of their own, in tests/rates.py; those over files, examples of these
    in tests/readers/files; those over what only a cluster or a program prints, what it prints in
    tests/readers/messages.
    """
    printed = {"container.kubernetes-gpus", "env.libc-too-old", "host.disk-full", "host.slurm-gpus"}
    of_history = {"gpu.below-own-best"}  # tests/diagnosis/history
    of_windows = {  # tests/windows
        *("driver.device-problem", "driver.model-pending", "env.dll-blocked", "env.path-length", "env.python-32-bit"),
        *("env.store-python", "env.vc-runtime", "gpu.reset-by-windows", "host.page-file", "host.wsl-no-gpu"),
    }
    layers = ("host", "driver", "gpu", "env", "container", "wsl")
    book = rulebook.load()
    pages = {rule.id for rule in book.rules if rule.layer in layers and "manifest.kind" not in facts_read(rule)}
    found = {one["id"] for path in SICK for one in documents.of(path)[1].document["findings"]}
    assert pages - found - {page for _, page, _ in rates.sick().values()} == printed | of_windows | of_history


_RUNNING = {"run", "run_gpu", "run_process", "job", "rank", "rank_group", "best"}
"""Topics of facts that a running command shows, or what is kept of earlier ones."""
_BY_ITS_CASES = {"nccl.port-errors", "nccl.sockets", "workload.rank-ended"}
"""Pages of what two looks tell apart, or a machine beside a log, or an information of a log: their cases fire them."""
A_MACHINE = "gpu=RTX 4090,driver=580,python=3.12,os=linux,arch=x86_64"
"""For which files are judged."""


@pytest.mark.full
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


_LEAST = 0.9
"""Share of the scenarios whose cause must be named there."""


@pytest.mark.full
def test_the_cause_leads(documents: Documents, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missed = {}
    pairs = 0
    for name in scenario.names(scenario.SICK)[::4]:
        path = scenario.SICK / f"{name}.json"
        raw = json.loads(path.read_text("utf-8"))
        if "profile" not in raw or "words" in raw.get("expect", {}) or not raw["expect"]["ids"]:
            continue
        record, sick = documents.of(path)
        _, healthy = documents.of(scenario.PROFILES / f"{raw['profile']}.json")
        for side, ran in (("healthy", healthy), ("sick", sick)):
            (tmp_path / f"{side}.json").write_text(ran.out, "utf-8")
        pairs += 1
        said = _diff(tmp_path, capsys)
        if record.expect["ids"][0] not in "\n".join(said[:3]):
            missed[name] = said[:3]
    assert pairs >= 15
    assert len(missed) <= (1 - _LEAST) * pairs, missed


def _diff(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert cli.run(["diff", str(folder / "healthy.json"), str(folder / "sick.json")]) == 1
    return [line for line in capsys.readouterr().out.splitlines() if line.strip()]
