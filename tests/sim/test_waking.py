"""GPUs that wake when they are opened, calls that take time, and processes that wait for each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.processes import Ran
from tests.sim import answers, clients, scenario
from tests.sim.root import Machine


def sleepy(folder: Path, wake_ms: int, **parts: Any) -> dict[str, str]:
    """The environment of a client of four GPUs that sleep, with a trace in that folder."""
    nvml = clients.hgx(4, wake_ms=wake_ms, every={"nvmlDeviceGetPersistenceMode": 0}, **parts)
    return {**clients.environ(folder, nvml, answers.cuda_of(nvml)), "GPUDOCTOR_SIM_TRACE": str(folder / "trace")}


def woken(folder: Path) -> list[str]:
    """The GPUs that woke, in order."""
    lines = (folder / "trace").read_text().splitlines()
    return [line.partition("\t")[2] for line in lines if line.startswith("wake\t")]


def test_a_gpu_without_persistence_wakes_when_it_is_opened_and_not_before(tmp_path: Path) -> None:
    env = sleepy(tmp_path, 1)
    start = "import pynvml as n; n.nvmlInit(); n.nvmlDeviceGetCount()"
    opening = f"{start}; h = n.nvmlDeviceGetHandleByIndex(2); n.nvmlDeviceGetName(h); n.nvmlDeviceGetTemperature(h, 0)"
    for script, gpus in (
        (start, []),
        (opening, ["2"]),
        (opening, ["2", "2"]),
    ):  # the process that had it open has ended
        assert clients.run(["-c", script], env).returncode == 0
        assert woken(tmp_path) == gpus


# ---- the program ----


def diagnosis(root: Path, profile: str, nvml: dict[str, Any], *words: str) -> Ran:
    """The program on a healthy machine whose GPUs sleep, with `nvml` laid over its answers."""
    own = {"every": {"nvmlDeviceGetPersistenceMode": 0}, **nvml}
    return Machine(scenario.expanded({"profile": profile, "nvml": own}), root).gpudoctor("--json", *words, timeout=300)


def loud(ran: Ran) -> list[tuple[str, str]]:
    return [(one["id"], one["severity"]) for one in ran.document["findings"] if one["severity"] != "info"]


def read(ran: Ran) -> list[int]:
    """The GPUs whose temperature was read."""
    return [gpu["index"]["value"] for gpu in ran.document["facts"]["gpu"] if "value" in gpu["temperature_c"]]


@pytest.mark.parametrize(
    ("profile", "times"),
    [
        pytest.param("gtx1080ti", {"wake_ms": 500}, id="1x0.5s"),
        pytest.param("gtx1080ti", {"call_ms": 3}, id="1x3ms"),
        *(
            pytest.param(profile, {word: ms}, id=f"{count}x{ms}{word[4:]}", marks=pytest.mark.full)
            for count, profile in ((1, "gtx1080ti"), (8, "hgx-h100"))
            for word, ms in (("wake_ms", 500), ("wake_ms", 1200), ("wake_ms", 2600), ("wake_ms", 3200), ("call_ms", 10))
            if (count, ms) != (1, 500)
        ),
        pytest.param("hgx-h100", {"call_ms": 3}, id="8x3ms", marks=pytest.mark.full),
        pytest.param("hgx-h100", {"wake_ms": 2600, "call_ms": 3}, id="8x2.6s-3ms", marks=pytest.mark.full),
    ],
)
def test_a_machine_that_takes_its_time_is_sound(tmp_path: Path, profile: str, times: dict[str, int]) -> None:
    """Eight GPUs are given longer than the 30 s that they have at level quick: the machine of the test may be busy."""
    ran = diagnosis(tmp_path, profile, times, *(["--wait", "240"] if profile == "hgx-h100" else []))
    assert ran.err == ""
    assert loud(ran) == [], ran.out
    facts = ran.document["facts"]
    assert ran.code == 0, {
        name: fact for name, fact in facts.items() if name.startswith(("nvml.", "live.", "cuda_driver."))
    }
    assert facts["nvml.state"]["value"] == "ok"
    assert read(ran) == list(range(8 if profile == "hgx-h100" else 1))


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        pytest.param({"do": "hang"}, 3, id="hangs"),
        pytest.param({"do": 999}, 1, id="unknown-error"),
        pytest.param({"do": 15}, 1, id="lost"),
        pytest.param({"do": 3}, 1, id="not-supported"),
    ],
)
def test_one_of_eight_that_does_not_wake_is_named_and_the_others_are_judged(
    tmp_path: Path, fault: dict[str, Any], code: int
) -> None:
    faults = [{"call": "nvmlDeviceGetHandleByIndex", "gpu": 3, **fault}]
    ran = diagnosis(tmp_path, "hgx-h100", {"wake_ms": 500, "faults": faults})
    assert ran.code == code
    assert ran.err == ""
    assert "GPU 3" in ran.out
    assert read(ran) == [0, 1, 2, 4, 5, 6, 7]
