"""The long tests of ``gpudoctor soak`` on a real torch: faults planted in its memory are found where they are."""

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.app import pipeline, soak
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.measurement import Measurements
from gpudoctor.kernels.specs import program
from gpudoctor.target.protocol import answers
from tests import needs
from tests.kernels.on_torch.test_kernels_eager import liar

FAULTY = Path(__file__).with_name("faulty_memory.py")
PLANTED = "planted "


def march(fault: str) -> tuple[Any, list[str]]:
    """What the march test says of a memory with that fault, and the addresses at which it was planted."""
    ask = {"family": "eager", "device": "cpu", "kernels": ["soak.memory"], "work": 600}
    argv = [needs.torch_python(), "-W", "ignore", str(FAULTY), fault, program(), json.dumps(ask)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=600)
    outcomes = [entry for line in done.stdout.splitlines() for entry in answers(line) if "kernel" in entry]
    assert len(outcomes) == 1, done.stderr
    planted = [line for line in done.stderr.splitlines() if line.startswith(PLANTED)]
    return outcomes[0], json.loads(planted[0].removeprefix(PLANTED))


def test_sound_memory_holds_all_that_is_written() -> None:
    outcome, _ = march("sound")
    assert (outcome["status"], outcome["right"], outcome["differ"]) == ("ran", True, 0)
    assert outcome["details"] == {"bytes": 8 * 4096 * 16, "patterns": outcome["details"]["patterns"]}
    assert outcome["compared"] > 40 * 4096 * 16


@pytest.mark.parametrize(
    ("fault", "bits", "words"),
    [
        ("stuck", ["{0} bit 17", "{1} bit 0"], 2),
        ("leaking", ["{0} bit 63"], 1),
        ("disturbed", ["{0} bit 3 by {1}"], 1),
        ("disturbed twice", ["{0} bit 3"], 1),
    ],
)
def test_faulty_words_are_named_with_their_kind_address_and_bits(fault: str, bits: list[str], words: int) -> None:
    outcome, planted = march(fault)
    assert (outcome["right"], outcome["details"]["wrong_words"]) == (False, words)
    kind = fault.split()[0]
    assert outcome["details"][kind] == [text.format(*planted) for text in bits]
    assert {"stuck", "leaking", "disturbed", "once"} & set(outcome["details"]) == {kind}


def soaked(python: str, monkeypatch: pytest.MonkeyPatch) -> Diagnosis:
    """What a soak by that interpreter finds, ended as soon as both kernels have run."""
    stop = threading.Event()
    monkeypatch.setattr(soak, "_LONGEST_KERNEL_SECONDS", 1.0)

    def hear(measurements: Measurements) -> None:
        if all(run.status not in ("waiting", "running") for run in measurements.runs):
            stop.set()

    return pipeline.soak(36000, "cpu", python, on_results=hear, stop=stop)


def faulty(folder: Path, fault: str) -> str:
    """The path of an interpreter whose torch has that fault in its memory."""
    python = folder / "python"
    lie = f'case "$1" in *__main__.py) set -- "{FAULTY}" {fault} "$@";; esac'
    python.write_text(f'#!/bin/sh\n{lie}\nexec "{needs.torch_python()}" "$@"\n', "utf-8")
    python.chmod(0o755)
    return str(python)


@pytest.mark.parametrize("fault", ["sound", "stuck"])
def test_a_page_names_the_memory_that_is_faulty_and_no_other(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    diagnosis = soaked(faulty(tmp_path, fault), monkeypatch)
    titles = {finding.id: finding.title for finding in diagnosis.findings}
    if fault == "sound":
        assert (titles, diagnosis.verdict) == ({}, "sound"), diagnosis.snapshot.rows("measured")
        assert "gpu.memory-cells" in diagnosis.passed
    else:
        assert (set(titles), diagnosis.verdict) == ({"gpu.memory-cells"}, "broken")
        assert "words of its memory with bits that are stuck: 2, the first at 0x" in titles["gpu.memory-cells"]


def test_products_that_change_under_heat_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    diagnosis = soaked(liar(tmp_path, stuck=False), monkeypatch)
    rows = diagnosis.snapshot.rows("measured")
    assert isinstance(rows, tuple)
    product = next(row for row in rows if row["kernel"].value == "soak.matmul")  # type: ignore[union-attr]
    assert product["right"].value is False  # type: ignore[union-attr]
    assert "equal products under heat have wrong values" in product["words"].value  # type: ignore[union-attr,operator]
