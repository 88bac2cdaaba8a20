"""nvidia-smi as the second witness, where NVML fails or is not found."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.probes import nvml
from tests.probes.nvml_machine import Ask, asker, faulty, h100, known, rows, why


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    return asker(tmp_path, monkeypatch)


BANNER = """\
Tue Mar  4 11:02:31 2025
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:3B:00.0 Off |                    0 |
| N/A   31C    P0             70W /  700W |       1MiB /  81559MiB |      0%      Default |
|   1  NVIDIA GeForce RTX 3050 ...    Off |   00000000:5E:00.0 Off |                  N/A |
"""
HEADER = (
    "index, name, uuid, pci.bus_id, memory.total [MiB], memory.used [MiB], mig.mode.current, compute_mode,"
    " ecc.errors.uncorrected.volatile.total, temperature.gpu, pcie.link.gen.current, pcie.link.gen.max,"
    " pcie.link.width.current, pcie.link.width.max, utilization.gpu [%]\n"
)
SECOND = (
    "1, NVIDIA GeForce RTX 3050 Laptop GPU, GPU-c7d2, 00000000:5E:00.0, 4096 MiB, 5 MiB, [N/A], Default, [N/A],"
    " [GPU is lost], 1, 4, 8, 16, 0 %\n"
)
CSV = (
    HEADER
    + "0, NVIDIA H100 80GB HBM3, GPU-a5b1, 00000000:3B:00.0, 81559 MiB, 1 MiB, Disabled, Default, 0, 31, 1, 5, 16, 16,"
    " 0 %\n" + SECOND
)


def printing(text: str, status: int = 0) -> str:
    return f"cat <<'END'\n{text}END\nexit {status}\n"


def test_nvidia_smi_answers_where_no_library_is_found(ask: Ask) -> None:
    smi = f'if [ -n "$1" ]; then\n{printing(CSV)}fi\n{printing(BANNER)}'
    facts = ask(None, smi)
    assert known(facts["nvml.state"]) == "library not found"
    assert facts["driver.version"] == Known("570.86.15", "nvidia-smi")
    assert facts["driver.cuda_version"] == Known("12.8", "nvidia-smi")
    assert known(facts["gpu.count"]) == 2
    first, second = rows(facts)
    assert known(first["memory_mib"]) == 81559
    assert known(first["address"]) == "0000:3b:00.0"
    assert known(first["mig"]) is False
    assert known(second["name"]) == "NVIDIA GeForce RTX 3050 Laptop GPU"
    assert isinstance(second["mig"], Absent)
    assert isinstance(second["temperature_c"], Unread)
    assert isinstance(second["remap_failed"], Unread)


def test_the_banners_own_table_serves_where_the_query_fails(ask: Ask, tmp_path: Path) -> None:
    facts = ask(None, f'[ -n "$1" ] && exit 2\n{printing(BANNER)}')
    first, second = rows(facts)
    assert known(first["name"]) == "NVIDIA H100 80GB HBM3"
    assert isinstance(second["name"], Unread), "a name that the table cuts short is not known"
    assert known(second["address"]) == "0000:5e:00.0"


def test_an_error_sentence_of_nvidia_smi_becomes_state_message_and_text(ask: Ask) -> None:
    """Which sentence tells which state is the readers' matter."""
    sentence = "Failed to initialize NVML: Driver/library version mismatch"
    facts = ask(None, printing(f"{sentence}\nNVML library version: 535.129\n", status=9))
    assert facts["nvml.state"] == Known("version mismatch", "nvidia-smi")
    assert known(facts["nvml.message"]) == sentence
    assert isinstance(facts["gpu"], Unread)
    assert [known(row["line"]) for row in rows(facts, "text")] == [sentence, "NVML library version: 535.129"]


def test_nvidia_smi_is_heard_beside_an_nvml_that_fails(ask: Ask) -> None:
    sentence = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.133\n"
    facts = ask({**h100(), "init": 18}, printing(sentence, status=18))
    assert facts["nvml.state"] == Known("version mismatch", "NVML")
    assert facts["nvml.message"] == Known("Driver/library version mismatch", "NVML")
    assert known(rows(facts, "text")[1]["line"]) == "NVML library version: 570.133"


def test_rows_are_matched_by_index_where_nvidia_smi_leaves_a_gpu_out(ask: Ask) -> None:
    smi = f'if [ -n "$1" ]; then\n{printing(HEADER + SECOND)}fi\n{printing(BANNER)}'
    section = faulty("nvmlDeviceGetHandleByIndex", 15, gpu=0)
    section["faults"].append({"call": "nvmlDeviceGetUUID", "gpu": 1, "do": 999})
    facts = ask(section, smi)
    lost, alive = rows(facts)
    assert known(facts["gpu.count"]) == 2
    assert known(lost["error"]) == "nvmlDeviceGetHandleByIndex: GPU is lost (code 15)"
    assert isinstance(lost["name"], Unread)
    assert known(alive["uuid"]) == "GPU-c7d2"


def test_no_devices_were_found_is_knowledge(ask: Ask, tmp_path: Path) -> None:
    facts = ask(None, printing("No devices were found\n", status=6))
    assert known(facts["gpu.count"]) == 0
    assert isinstance(facts["gpu"], Absent)
    assert known(facts["nvml.state"]) == "library not found"


@pytest.mark.parametrize("noise", [printing("hello\n"), "head -c 4096 /dev/urandom\n", "exit 1\n", "exec sleep 60\n"])
def test_a_program_that_is_no_nvidia_smi_is_never_believed(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noise: str
) -> None:
    monkeypatch.setattr(nvml, "_SMI_SECONDS", 1.0)
    facts = ask(None, noise)
    assert known(facts["nvml.state"]) == "library not found"
    assert isinstance(facts["gpu"], Unread)
    assert str(tmp_path / "nvidia-smi") in why(facts["gpu"])
    assert not isinstance(facts["driver.version"], Known)
    assert "text" not in facts


def test_nvidia_smi_completes_what_a_crash_cut_off(ask: Ask) -> None:
    smi = f'if [ -n "$1" ]; then\n{printing(CSV)}fi\n{printing(BANNER)}'
    facts = ask(faulty("nvmlDeviceGetUUID", "crash", gpu=1), smi)
    assert known(facts["nvml.state"]) == "crashed"
    first, second = rows(facts)
    assert first["utilization"] == Known(0, "NVML")
    assert second["uuid"] == Known("GPU-c7d2", "nvidia-smi")
