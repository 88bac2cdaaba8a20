"""Sound machines in the formats of many tools and drivers draw nothing; the same formats with a fault in them do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpudoctor.app.pipeline import diagnose
from gpudoctor.core.fact import Known, listed
from gpudoctor.diagnosis import rulebook
from gpudoctor.readers import read_text
from tests.needs import REPOSITORY

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
    findings = diagnose(read_text(text), rulebook.load()).findings
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
    findings = diagnose(read_text(text), rulebook.load()).findings
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
