"""Sound machines draw nothing, in the formats of many tools and as projects publish real ones; a fault in them does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudoctor.app.pipeline import diagnose
from gpudoctor.core.fact import Known, listed
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis import rulebook
from gpudoctor.readers import decode, read_text
from tests.needs import REPOSITORY

BOOK = rulebook.load()
OUTPUTS = REPOSITORY / "tests/readers/outputs"
"""What sound machines print, by name: written for this test after the formats of the tools."""
XML = (OUTPUTS / "xml-with-mig.xml").read_text()
DRESSED: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "quoted": lambda text: "\n".join(f"> {line}" for line in text.split("\n")),
    "fenced": lambda text: f"```\n{text}```\n",
    "twice": lambda text: f"{text}\n{text}",
    "watched": lambda text: f"Every 2.0s: nvidia-smi        node1: Mon Apr  1 10:00:00 2024\n\n{text}",
    "coloured": lambda text: "\n".join(f"\x1b[1m{line}\x1b[0m" for line in text.split("\n")),
    "without its end": lambda text: text[: len(text) * 2 // 3],
}
"""Ways in which an output comes into a paste."""


def _found(text: str) -> set[str]:
    findings = diagnose(read_text(text), BOOK).findings
    return {finding.id for finding in findings if finding.severity != "info" or finding.confidence == "possible"}


def _gpus(text: str, *columns: str) -> list[tuple[object, ...]]:
    rows = listed(read_text(text).rows("gpu"))
    return [tuple(f.value if isinstance(f := row.get(name), Known) else None for name in columns) for row in rows]


@pytest.mark.parametrize(("number", "path"), enumerate(sorted(OUTPUTS.iterdir())))
def test_a_sound_output_draws_nothing(number: int, path: Path) -> None:
    """As it is, and dressed in the ways that its number tells: each way has several outputs."""
    ways = list(DRESSED)
    for way in ("as it is", ways[number % len(ways)], ways[(number + 3) % len(ways)]):
        assert _found(DRESSED[way](path.read_text())) == set(), (path.name, way)


def test_a_log_in_xml_is_read_like_one_of_q() -> None:
    columns = ("index", "address", "name", "memory_mib", "mig", "mig_instances", "power_w", "ecc_uncorrected")
    assert _gpus(XML, *columns) == [
        (0, "0000:1a:00.0", "NVIDIA A100-SXM4-80GB", 81920, True, 1, 66, None),
        (1, "0000:1b:00.0", "NVIDIA A100-SXM4-80GB", 81920, None, None, None, 0),
    ]


@pytest.mark.parametrize(
    ("sound", "sick"),
    [
        ("<remapped_row_pending>No<", "<remapped_row_pending>Yes<"),
        ("<remapped_row_failure>No<", "<remapped_row_failure>Yes<"),
        ("<dram_uncorrectable>0<", "<dram_uncorrectable>2<"),
    ],
)
def test_bad_memory_in_an_xml_log_is_found(sound: str, sick: str) -> None:
    assert _found(XML.replace(sound, sick)) == {"gpu.ecc"}


def test_of_a_log_without_its_beginning_what_is_there_is_read() -> None:
    cut = XML[XML.index("<uuid>") :]
    assert _gpus(cut, "uuid", "memory_mib") == [("GPU-aaaaaaaa-1111-2222-3333-444444444444", 81920), (None, 81920)]


def test_no_entity_of_a_hostile_log_is_expanded() -> None:
    bomb = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa"><!ENTITY b SYSTEM "file:///etc/passwd">]>\n'
    log = '<nvidia_smi_log>\n<gpu id="00000000:01:00.0">\n<product_name>&a;&b;</product_name>\n'
    assert _gpus(bomb + log + "<x>\n" * 10000, "name") == [("&a;&b;",)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [("GPU is lost.  Reboot the system to recover this GPU", {"gpu.fell-off-bus"}), ("Not Found", {"nvml.failed"})],
)
def test_only_gpu_is_lost_says_that_a_gpu_is_lost(words: str, expected: set[str]) -> None:
    text = f"Unable to determine the device handle for GPU 0000:1A:00.0: {words}"
    findings = diagnose(read_text(text), BOOK).findings
    assert {finding.id for finding in findings if finding.confidence == "certain"} >= expected
    assert ("gpu.fell-off-bus" in {finding.id for finding in findings}) == ("lost" in words)


def test_a_process_table_counts_no_gpus() -> None:
    text = """\
gpu_name, gpu_uuid, pid, process_name, used_gpu_memory [MiB]
NVIDIA L40S, GPU-aaaaaaaa-1111-2222-3333-444444444444, 100, python, 300 MiB
NVIDIA L40S, GPU-aaaaaaaa-1111-2222-3333-444444444444, 101, python, 300 MiB
"""
    assert _gpus(text, "name") == []
    assert _found(text) == set()


REAL = REPOSITORY.parent / "shared" / "real"
FILES = sorted(REAL.glob("*/*"))
SICK = {"gpud.nvidia-smi-query.535.129.03.out.0.valid.a10": {"gpu.ecc"}}
"""Files of a machine that is not sound, with what is found: here a row remap waits for a reset."""

printed = pytest.mark.skipif(not FILES, reason=f"needs printed outputs of real machines ({REAL})")


def _parts(text: str) -> list[str]:
    """The text, and each section of a capture: a comment ``# idle :: query (-q)`` begins one."""
    return [text, *(part for part in re.split(r"(?m)^(?=# [\w ]+ :: )", text)[1:] if part.strip())]


def _values(snapshot: Snapshot, column: str) -> list[object]:
    return [
        state.value if isinstance(state := row.get(column), Known) else None for row in listed(snapshot.rows("gpu"))
    ]


@printed
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_sound_output_draws_no_finding_whole_or_in_parts(path: Path) -> None:
    parts = _parts(decode(path.read_bytes(), path.name))
    found = {part[:60]: ids for part in parts if (ids := _found(part) - SICK.get(path.name, set()))}
    assert found == {}


@printed
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


@printed
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


@printed
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


@printed
def test_a_mig_instances_memory_is_not_the_gpus() -> None:
    for path in FILES:
        if "mig" in path.name:
            snapshot = read_text(path.read_text())
            assert min(size for size in _values(snapshot, "memory_mib") if isinstance(size, int)) >= 40960
