"""An NVML that hangs, crashes or crawls costs what was asked of it, and no more: the rest is told, in time."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from gpudoctor.model.fact import Absent, Known, Unread
from gpudoctor.probes import nvml
from gpudoctor.probes._nvml import talk
from tests.processes import left, unhindered
from tests.unit.nvml_machine import Ask, asker, faulty, h100, known, rows, why

TIMEOUT = 5.0
QUIET = "2.5 s"
"""What a busy machine may take to start a child, and more; what hangs in it never returns."""


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    return asker(tmp_path, monkeypatch, TIMEOUT)


def left_behind() -> list[str]:
    """Children of this process that ask NVML, zombies left out."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            if parent == str(os.getpid()) and "ask_nvml" in (entry / "cmdline").read_text():
                found.append(entry.name)
        except (OSError, IndexError):
            continue
    return found


def test_the_whole_ends_before_the_deadline_and_within_eight_seconds() -> None:
    killing = 2 * 0.5
    assert talk.total(nvml.TIMEOUT) + killing <= nvml.DEADLINE <= 7.5


def test_hanging_init_is_ended_in_time_and_named(ask: Ask) -> None:
    started = unhindered()
    facts = ask(faulty("nvmlInit", "hang"), smi="sleep 60")
    assert unhindered() - started < TIMEOUT + 2
    assert known(facts["nvml.state"]) == "hung"
    assert known(facts["nvml.message"]) == "nvmlInit did not return within 5 s"
    assert isinstance(facts["gpu"], Unread)
    assert left(left_behind) == []


def test_init_may_take_longer_than_another_call(ask: Ask) -> None:
    facts = ask(faulty("nvmlInit", "sleep:3000"))
    assert known(facts["nvml.state"]) == "ok"
    assert len(rows(facts)) == 2


def test_crashing_init_is_named_with_its_signal(ask: Ask) -> None:
    facts = ask(faulty("nvmlInit", "crash"))
    assert known(facts["nvml.state"]) == "crashed"
    assert str(known(facts["nvml.message"])).startswith("nvmlInit crashed: killed by SIG")


@pytest.mark.parametrize("do", ["hang", "dstate"])
def test_a_hang_on_one_gpu_costs_the_rest_of_that_gpu(ask: Ask, do: str) -> None:
    facts = ask(faulty("nvmlDeviceGetTemperature", do, gpu=1, gpus=3))
    assert known(facts["nvml.state"]) == "hung"
    message = f"nvmlDeviceGetTemperature of GPU 1 did not return within {QUIET}"
    assert known(facts["nvml.message"]) == message
    first, second, third = rows(facts)
    assert known(first["cpu_affinity"]) == known(third["cpu_affinity"])
    assert known(second["error"]) == message
    assert known(second["ecc"]) is True
    assert why(second["temperature_c"]) == why(second["serial"]) == message
    assert why(second["retired_pending"]) == "this GPU does not report it", "it had been asked before"
    assert isinstance(first["error"], Absent)
    peers = {(row["gpu"], row["peer"]): row for row in rows(facts, "p2p")}
    assert len(peers) == 6
    source = "NVML"
    assert known(peers[Known(0, source), Known(2, source)]["read"]) == "ok"
    assert why(peers[Known(0, source), Known(1, source)]["read"]) == message
    assert known(facts["topology.pairs"]) == ("GPU0-GPU2 NV18",)
    assert left(left_behind) == []


def test_a_call_that_hangs_on_every_gpu_costs_no_gpu(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "TIMEOUT", 8.0)
    facts = ask(faulty("nvmlDeviceGetTemperature", "hang", gpus=3))
    one, other = (f"nvmlDeviceGetTemperature of GPU {gpu} did not return within 4 s" for gpu in (0, 1))
    assert known(facts["nvml.message"]) == f"{one}; then {other}"
    for row in rows(facts):
        assert why(row["temperature_c"]) == one or why(row["temperature_c"]) == other
        assert known(row["cpu_affinity"])


def test_a_crash_costs_one_answer(ask: Ask) -> None:
    facts = ask(faulty("nvmlDeviceGetSerial", "crash", gpu=1))
    assert known(facts["nvml.state"]) == "crashed"
    message = str(known(facts["nvml.message"]))
    assert message.startswith("nvmlDeviceGetSerial of GPU 1 crashed: killed by SIG")
    first, second = rows(facts)
    assert isinstance(first["error"], Absent)
    assert known(second["error"]) == why(second["serial"]) == message
    assert [name for name, state in second.items() if isinstance(state, Unread)] == ["serial"]


def test_a_call_that_crashes_on_every_gpu_costs_that_call(ask: Ask) -> None:
    facts = ask(faulty("nvmlDeviceGetFieldValues", "crash", gpus=4))
    assert "; then nvmlDeviceGetFieldValues of GPU 1 crashed" in str(known(facts["nvml.message"]))
    for row in rows(facts):
        assert "nvmlDeviceGetFieldValues" in why(row["recovery_action"])
        assert known(row["serial"])
    assert isinstance(facts["nvlink"], Unread)


def test_a_crash_in_a_question_about_the_machine_costs_that_answer(ask: Ask) -> None:
    facts = ask(faulty("nvmlSystemGetDriverVersion", "crash"))
    assert "nvmlSystemGetDriverVersion crashed" in why(facts["driver.version"])
    assert known(facts["nvml.library_version"]) == "13.580.95.05"
    assert known(rows(facts)[1]["serial"])


def test_a_slow_nvml_is_not_called_hung(ask: Ask) -> None:
    started = unhindered()
    facts = ask(faulty("*", "sleep:1800"))
    assert unhindered() - started < TIMEOUT + 1.5
    assert known(facts["nvml.state"]) == "slow"
    message = str(known(facts["nvml.message"]))
    assert message.startswith("NVML is slow: ")
    assert re.search(
        r"nvmlInit alone (1\.[89]|2\.\d) s; the time was up at nvmlDeviceGetHandleByIndex of GPU 0", message
    )
    assert known(facts["gpu.count"]) == 2
    assert isinstance(rows(facts)[0]["name"], Unread)


def test_what_matters_most_is_asked_first(ask: Ask) -> None:
    facts = ask(faulty("*", "sleep:100", gpus=2))
    first, second = rows(facts)
    assert known(facts["nvml.state"]) == "slow"
    assert known(first["name"]) == known(second["name"]) == "NVIDIA H100 80GB HBM3"
    assert isinstance(facts["p2p"], Unread) or isinstance(rows(facts, "p2p")[0]["read"], Unread)


def test_an_init_that_fails_the_second_time_takes_nothing_back(ask: Ask) -> None:
    section = faulty("nvmlDeviceGetSerial", "hang", gpu=0)
    facts = ask(section)
    assert known(facts["nvml.code"]) == 0
    assert known(rows(facts)[0]["name"]) == "NVIDIA H100 80GB HBM3"


def test_nvidia_smi_is_left_alone_where_nvml_hangs(ask: Ask, tmp_path: Path) -> None:
    ask(faulty("nvmlDeviceGetName", "hang", gpu=0), smi=f": > {tmp_path}/asked")
    assert not (tmp_path / "asked").exists()


def test_a_healthy_machine_is_asked_once(ask: Ask, tmp_path: Path) -> None:
    ask(h100(), smi=f": > {tmp_path}/asked")
    assert not (tmp_path / "asked").exists()
