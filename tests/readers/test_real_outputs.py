"""What real machines print, as open-source projects publish it: sound machines draw nothing, and are read."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import pytest

from gpudoctor.app.pipeline import diagnose
from gpudoctor.core.fact import Known, listed
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.rulebook import Rulebook
from gpudoctor.readers import decode, read_text
from tests.needs import REPOSITORY

REAL = REPOSITORY.parent / "shared" / "real"
FILES = sorted(REAL.glob("*/*"))
SICK = {"gpud.nvidia-smi-query.535.129.03.out.0.valid.a10": {"gpu.ecc"}}
"""Files of a machine that is not sound, with what is found: here a row remap waits for a reset."""

pytestmark = pytest.mark.skipif(not FILES, reason=f"needs printed outputs of real machines ({REAL})")


@lru_cache
def _book() -> Rulebook:
    return rulebook.load()


def _parts(text: str) -> list[str]:
    """The text, and each section of a capture: a comment ``# idle :: query (-q)`` begins one."""
    return [text, *(part for part in re.split(r"(?m)^(?=# [\w ]+ :: )", text)[1:] if part.strip())]


def _found(text: str) -> set[str]:
    findings = diagnose(read_text(text), _book()).findings
    return {finding.id for finding in findings if finding.severity != "info" or finding.confidence == "possible"}


def _values(snapshot: Snapshot, column: str) -> list[object]:
    return [
        state.value if isinstance(state := row.get(column), Known) else None for row in listed(snapshot.rows("gpu"))
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_sound_output_draws_no_finding_whole_or_in_parts(path: Path) -> None:
    parts = _parts(decode(path.read_bytes(), path.name))
    found = {part[:60]: ids for part in parts if (ids := _found(part) - SICK.get(path.name, set()))}
    assert found == {}


@pytest.mark.parametrize("path", [path for path in FILES if "lspci" not in path.name], ids=lambda path: path.name)
def test_a_cut_output_draws_no_finding_either(path: Path) -> None:
    lines = decode(path.read_bytes(), path.name).splitlines()
    third = len(lines) // 3
    allowed = SICK.get(path.name, set())
    assert [_found("\n".join(cut)) - allowed for cut in (lines[third:], lines[:third], lines[third : 2 * third])] == [
        set(),
        set(),
        set(),
    ]


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".xml"], ids=lambda path: path.name)
def test_each_gpu_of_an_xml_log_is_read(path: Path) -> None:
    text = path.read_text()
    snapshot = read_text(text)
    assert _values(snapshot, "name") == re.findall(r"<product_name>(.*?)</product_name>", text)
    assert _values(snapshot, "uuid") == re.findall(r"<uuid>(GPU-.*?)</uuid>", text)
    totals = re.findall(r"(?s)^\s{2,16}<fb_memory_usage>\s*<total>(\d+) MiB", text, re.MULTILINE)
    assert str(_values(snapshot, "memory_mib")[0]) in totals
    assert snapshot.get("gpu.count") == Known(
        len(re.findall("<gpu id=", text)), getattr(snapshot.get("gpu.count"), "source", "")
    )
    if version := re.search(r"<driver_version>(.*?)<", text):
        assert getattr(snapshot.get("driver.version"), "value", None) == version[1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_gpu_of_a_query_and_of_a_table_is_read(path: Path) -> None:
    for part in _parts(decode(path.read_bytes(), path.name)):
        log = part.partition("NVSMI LOG")[2]
        if log and part.count("NVSMI LOG") == 1:
            snapshot = read_text(part)
            assert _values(snapshot, "name") == re.findall(r"Product Name +: (.*?)\s*$", log, re.MULTILINE)
            assert _values(snapshot, "uuid") == re.findall(r"GPU UUID +: (\S+)", log)
            totals = re.findall(r"^ {4}FB Memory Usage\n +Total +: (\d+) MiB", log, re.MULTILINE)
            assert [str(size) for size in _values(snapshot, "memory_mib")] == totals
            version = re.search(r"^(?:Driver|KMD) Version +: ([\d.]+)", log, re.MULTILINE)
            assert version
            assert getattr(snapshot.get("driver.version"), "value", None) == version[1]
        elif "| NVIDIA-SMI" in part and "NVSMI LOG" not in part:
            snapshot = read_text(part)
            first = re.split(r"MIG devices:|Processes:", part)[0]
            assert [str(size) for size in _values(snapshot, "memory_mib")] == re.findall(r"/ +(\d+)MiB \|", first)
            assert isinstance(snapshot.get("driver.version"), Known)


def test_a_mig_instances_memory_is_not_the_gpus() -> None:
    for path in FILES:
        if "mig" in path.name:
            snapshot = read_text(path.read_text())
            assert min(size for size in _values(snapshot, "memory_mib") if isinstance(size, int)) >= 40960
