"""A second paste read with the first gets further, and says where the two do not agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Program

COMPLAINT = "PyTorch version: 2.5.1+cu124\n>>> torch.cuda.is_available()\nFalse\n"
SMI_ERROR = "$ nvidia-smi\nFailed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.107\n"
REFUSED = "$ sudo modprobe nvidia\nmodprobe: ERROR: could not insert 'nvidia': Key was rejected by service\n"


def _save(folder: Path, *texts: str) -> list[str]:
    names = []
    for number, text in enumerate(texts, 1):
        (folder / f"{number}.txt").write_text(text)
        names.append(str(folder / f"{number}.txt"))
    return names


@pytest.mark.parametrize(
    ("first", "second", "alone", "cause"),
    [
        (COMPLAINT, SMI_ERROR, "torch.cuda-unavailable", "driver.version-mismatch"),
        (COMPLAINT, REFUSED, "torch.cuda-unavailable", "driver.secure-boot"),
    ],
)
def test_the_second_paste_names_the_cause_that_the_first_left_open(
    called: Program, tmp_path: Path, first: str, second: str, alone: str, cause: str
) -> None:
    names = _save(tmp_path, first, second)
    assert called("read", "--json", names[0]).document["findings"][0]["id"] == alone
    document = called("read", "--together", "--json", *names).document
    assert document["findings"][0]["id"] == cause
    assert alone in document["findings"][0]["explains"]
    assert document["target"]["name"] == " + ".join(names)
    sources = [item["source"] for item in document["findings"][0]["evidence"]]
    assert any(source.startswith(f"{names[1]}, line ") for source in sources)


def test_lines_of_both_are_counted(called: Program, tmp_path: Path) -> None:
    facts = called("read", "--together", "--json", *_save(tmp_path, COMPLAINT, SMI_ERROR)).document["facts"]
    assert facts["report.lines"]["value"] == 6


def test_where_the_files_do_not_agree_the_later_is_believed_and_the_report_says_so(
    called: Program, tmp_path: Path
) -> None:
    names = _save(tmp_path, "PyTorch version: 2.5.1\nDriver Version: 535.54.03\n", "PyTorch version: 2.6.0+cu124\n")
    document = called("read", "--together", "--json", *names).document
    assert document["facts"]["torch.version"] == {"value": "2.6.0+cu124", "source": f"{names[1]}, line 1"}
    [note] = document["notes"]
    assert "torch.version: 2.5.1 and then 2.6.0+cu124; 2.6.0+cu124 is taken" in note["text"]
    assert "driver.version" not in note["text"]


def test_a_fuller_answer_is_no_clash(called: Program, tmp_path: Path) -> None:
    names = _save(tmp_path, "PyTorch version: 2.5.1+cu124\n", "PyTorch version: 2.5.1\n")
    document = called("read", "--together", "--json", *names).document
    assert document["facts"]["torch.version"]["value"] == "2.5.1+cu124"
    assert document["notes"] == []


def test_rows_of_one_gpu_become_one(called: Program, tmp_path: Path) -> None:
    names = _save(tmp_path, "GPU 0: NVIDIA H100 80GB HBM3\n", "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5c3a)\n")
    [gpu] = called("read", "--together", "--json", *names).document["facts"]["gpu"]
    assert gpu["name"]["value"] == "NVIDIA H100 80GB HBM3"
    assert gpu["uuid"]["value"] == "GPU-5c3a"


def test_a_saved_snapshot_is_read_with_the_log_of_a_job(called: Program, tmp_path: Path) -> None:
    saved = tmp_path / "node.json"
    saved.write_text(called("snapshot", "--level", "quick").out)
    [log] = _save(tmp_path, "RuntimeError: Address already in use: bind failed, EADDRINUSE, port: 29500\n")
    document = called("read", "--together", "--json", str(saved), log).document
    assert document["target"]["kind"] == "snapshot"
    assert "host.kernel" in document["facts"]
    assert "nccl.port-in-use" in [finding["id"] for finding in document["findings"]]
