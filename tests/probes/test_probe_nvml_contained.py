"""The child that asks NVML: what it asks; where that hangs, crashes or crawls, it costs what was asked, and no more."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeAlias

import pynvml
import pytest

from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.probes import nvml
from gpudoctor.probes._nvml.client import limits
from gpudoctor.target import Answer
from gpudoctor.target.local import Local
from tests.probes.nvml_machine import Ask, Section, asker, faulty, h100, known, rows, simulated, why
from tests.processes import left

Patch: TypeAlias = pytest.MonkeyPatch


@pytest.fixture
def heard() -> list[str]:
    """What is shown while NVML is waited for."""
    return []


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: Patch, heard: list[str]) -> Ask:
    """Where a call that does not return is given up after 3 s: what hangs in these tests never returns."""
    return asker(tmp_path, monkeypatch, 20.0, 100.0, 3.0, lambda _, detail: heard.append(detail))


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


def test_the_budget_grows_with_the_gpus_and_the_wait_is_the_callers() -> None:
    standard, quick, patient = Local(environ={}), Local("quick", environ={}), Local("quick", environ={}, wait=120.0)
    assert [limits(standard, gpus, 5.0).opening for gpus in (1, 8, 16)] == [30.0, 45.0, 85.0]
    assert [limits(standard, gpus, 5.0).asking for gpus in (1, 8, 16)] == [25.0, 60.0, 100.0]
    assert [limits(quick, gpus, 5.0).opening for gpus in (1, 8)] == [30.0, 30.0]
    assert limits(patient, 8, 5.0).opening == 120.0
    assert nvml.deadline(patient) > limits(patient, 0).whole


def test_init_that_never_returns_is_unjudged_with_the_time_it_got(tmp_path: Path, monkeypatch: Patch) -> None:
    facts = asker(tmp_path, monkeypatch, opening=2.0)(faulty("nvmlInit", "hang"), smi=f": > {tmp_path}/asked")
    assert re.fullmatch(r"nvmlInit did not return within \d+ s", why(facts["nvml.state"]))
    assert known(facts["nvml.unanswered"]) == why(facts["nvml.state"])
    assert isinstance(facts["gpu"], Unread)
    assert left(left_behind) == []
    assert not (tmp_path / "asked").exists(), "nvidia-smi would hang in the same driver"


def test_gpus_that_wake_slowly_are_waited_for_and_sound(ask: Ask, heard: list[str]) -> None:
    """Nothing is killed, asked again or called slow: a call may take 3 s here, and both GPUs together take 8."""
    facts = ask(faulty("nvmlDeviceGetHandleByIndex", "sleep:4000"))
    assert known(facts["nvml.state"]) == "ok"
    assert isinstance(facts["nvml.unanswered"], Absent)
    assert [isinstance(row["error"], Absent) for row in rows(facts)] == [True, True]
    assert not [state for row in rows(facts) for state in row.values() if isinstance(state, Unread)]
    assert any(re.fullmatch(r"GPU 0 of 2 is waking, [1-3] s", words) for words in heard)
    assert any(re.fullmatch(r"GPU 1 of 2 is waking, [1-3] s", words) for words in heard)
    assert heard[-1] == ""


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount"])
def test_what_comes_before_the_first_gpu_may_take_longer_than_another_call(
    ask: Ask, heard: list[str], call: str
) -> None:
    """The driver answers neither as long as another process starts GPUs, one after the other."""
    facts = ask(faulty(call, "sleep:4000"))
    assert known(facts["nvml.state"]) == "ok"
    assert len(rows(facts)) == 2
    assert "NVML is starting, 1 s" in heard


def test_a_gpu_that_never_wakes_is_named_and_the_others_are_read(tmp_path: Path, monkeypatch: Patch) -> None:
    ask = asker(tmp_path, monkeypatch, opening=3.0)
    facts = ask(faulty("nvmlDeviceGetHandleByIndex", "hang", gpu=1, gpus=3), smi=f": > {tmp_path}/asked")
    first, second, third = rows(facts)
    assert why(second["error"]) == "GPU 1 had not woken after 3 s (--wait waits longer)"
    assert why(second["temperature_c"]) == why(second["error"]) == known(facts["nvml.unanswered"])
    assert known(facts["nvml.state"]) == "ok"
    assert known(facts["gpu.count"]) == 3
    assert known(first["name"]) == known(third["name"]) == "NVIDIA H100 80GB HBM3"
    assert isinstance(third["error"], Absent)
    assert known(facts["topology.pairs"]) == ("GPU0-GPU2 NV18",)
    assert left(left_behind) == []
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("do", ["hang", "dstate"])
def test_a_hang_on_one_gpu_costs_the_rest_of_that_gpu(ask: Ask, do: str) -> None:
    facts = ask(faulty("nvmlDeviceGetTemperature", do, gpu=1, gpus=3))
    assert known(facts["nvml.state"]) == "ok"
    message = "nvmlDeviceGetTemperature of GPU 1 did not return within 3 s"
    assert known(facts["nvml.unanswered"]) == message
    first, second, third = rows(facts)
    assert known(first["cpu_affinity"]) == known(third["cpu_affinity"])
    assert why(second["error"]) == message
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


def test_a_call_that_hangs_on_every_gpu_costs_no_gpu(ask: Ask) -> None:
    facts = ask(faulty("nvmlDeviceGetTemperature", "hang", gpus=3))
    one, other = (f"nvmlDeviceGetTemperature of GPU {gpu} did not return within 3 s" for gpu in (0, 1))
    assert known(facts["nvml.unanswered"]) == f"{one}; {other}"
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


def test_a_crash_in_a_question_about_the_machine_costs_that_answer(ask: Ask) -> None:
    facts = ask(faulty("nvmlSystemGetDriverVersion", "crash"))
    assert "nvmlSystemGetDriverVersion crashed" in why(facts["driver.version"])
    assert known(facts["nvml.library_version"]) == "13.580.95.05"
    assert known(rows(facts)[1]["serial"])


def test_a_slow_nvml_leaves_the_rest_unread_and_is_no_failure(tmp_path: Path, monkeypatch: Patch) -> None:
    facts = asker(tmp_path, monkeypatch, opening=1.0, asking=2.0)(faulty("*", "sleep:100"))
    first, second = rows(facts)
    assert known(facts["nvml.state"]) == "ok"
    assert str(known(facts["nvml.unanswered"])).startswith("NVML is slow: ")
    assert known(first["name"]) == known(second["name"]) == "NVIDIA H100 80GB HBM3", "what matters most comes first"
    assert why(rows(facts, "p2p")[0]["read"]).startswith("NVML is slow: ")


def test_a_child_that_the_kernel_does_not_end_is_a_sign_of_its_own(monkeypatch: Patch) -> None:
    out = '@gpudoctor {"gpu": null, "call": "library", "is": "l"}\n@gpudoctor {"ask": "nvmlInit", "gpu": null}\n'
    answer = Answer(("python",), None, out, "", 45.2, stuck=4242)
    monkeypatch.setattr(Local, "run", lambda *_, **__: answer)
    facts = dict(nvml.probe(Local(environ={})))
    assert known(facts["nvml.state"]) == "hung"
    why = "nvmlInit did not return within 45 s (pid 4242 cannot be stopped and is left behind)"
    assert known(facts["nvml.unanswered"]) == why


@pytest.mark.parametrize(("code", "state"), [(9, "driver not loaded"), (18, "version mismatch")])
def test_a_driver_that_goes_between_two_calls_is_no_driver(ask: Ask, code: int, state: str) -> None:
    """Unloaded by an administrator, or its library replaced by an upgrade: what was read by then stays."""
    facts = ask(faulty("*", code, start=60))
    assert known(facts["nvml.state"]) == state
    assert known(facts["nvml.code"]) == code
    assert known(rows(facts)[0]["name"]) == "NVIDIA H100 80GB HBM3"
    assert f"(code {code})" in why(rows(facts)[1]["serial"])


CHILDREN = Path(nvml.__file__).with_name("children")


def asked(section: Section, tmp_path: Path, binding: Path, *left_out: tuple[int | None, str]) -> list[dict[str, Any]]:
    """What the child says, line by line."""
    argv = [sys.executable, "-I", "-S", str(CHILDREN / "ask_nvml.py"), str(CHILDREN), str(binding)]
    environ = simulated(section, tmp_path / "answers")
    done = subprocess.run(
        [*argv, json.dumps({"left_out": left_out})], env=environ, capture_output=True, text=True, check=True
    )
    return [json.loads(line.partition(" ")[2]) for line in done.stdout.splitlines()]


def test_every_call_is_announced_and_none_that_was_left_out(tmp_path: Path) -> None:
    left_out = ((0, "*"), (1, "nvmlDeviceGetSerial"), (None, "nvmlDeviceGetBrand"))
    entries = asked(h100(3), tmp_path, Path(pynvml.__file__).parent, *left_out)
    said: set[tuple[int | None, str]] = set()
    for entry in entries:
        if "ask" in entry:
            said.add((entry["gpu"], entry["ask"]))
        elif "call" in entry:
            call = str(entry["call"])
            assert (entry["gpu"], call) in said or (entry["gpu"], call.partition("(")[0]) in said
    assert not [gpu for gpu, _ in said if gpu == 0]
    assert (1, "nvmlDeviceGetSerial") not in said
    assert (2, "nvmlDeviceGetSerial") in said
    assert not [call for _, call in said if call == "nvmlDeviceGetBrand"]
    assert not [call for _, call in said if call.startswith("nvmlDeviceGetP2PStatus(0,")]


def test_what_holds_for_several_links_or_both_of_a_pair_is_asked_once(tmp_path: Path) -> None:
    entries = asked(h100(3), tmp_path, Path(pynvml.__file__).parent)
    calls = [(entry["gpu"], entry["ask"].removeprefix("nvmlDeviceGet")) for entry in entries if "ask" in entry]
    of_links = [call for gpu, call in calls if gpu == 0 and call.startswith("NvLink")]
    addresses = {e["is"]["busId"] for e in entries if "NvLinkRemotePciInfo" in e.get("call", "") and e["gpu"] == 0}
    assert [call for call in of_links if not call.startswith("NvLinkRemote")] == ["NvLinkVersion(0)"]
    assert sum(call.startswith("NvLinkRemoteDeviceType") for call in of_links) == len(addresses) == 4
    assert {(gpu, int(call[10])) for gpu, call in calls if call.startswith("P2PStatus(")} == {(0, 1), (0, 2), (1, 2)}
    assert not [call for _, call in calls if call.startswith(("TopologyCommonAncestor", "RetiredPages"))]


@pytest.mark.parametrize("child", sorted(CHILDREN.glob("*.py")), ids=lambda p: p.name)
def test_children_need_python_38_and_no_package_and_never_bear_a_packages_name(child: Path) -> None:
    tree = ast.parse(child.read_text("utf-8"), feature_version=(3, 8))
    assert ast.get_docstring(tree)
    assert "_" in child.stem, "a bare word may be the name of a package that it would shadow"
    imported = {
        name.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }
    own = {place.stem for place in CHILDREN.glob("*.py")}
    assert imported <= sys.stdlib_module_names | own | {"pynvml", "torch"}, "what is asked about may be imported"


def test_an_older_binding_costs_only_what_it_lacks(tmp_path: Path) -> None:
    """The binding of Ubuntu 20.04 knows neither the newer structs nor half of the calls."""
    source = Path(pynvml.__file__).read_text("utf-8")
    gone = ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlEccSramErrorStatus_v1_t", "nvmlMemory_v2", "nvmlDeviceGetArchitecture")
    (tmp_path / "pynvml.py").write_text(f"{source}\ndel {', '.join(gone)}\n")
    entries = asked(h100(1), tmp_path, tmp_path)
    told = {entry["call"]: entry for entry in entries if "call" in entry}
    assert entries[-1] == {"done": True}
    assert told["nvmlDeviceGetMemoryInfo"]["is"]["total"] == 85520809984
    assert told["nvmlDeviceGetGpuFabricInfoV"]["is"]["state"] == 3
    assert "nvmlDeviceGetArchitecture" in told["nvmlDeviceGetArchitecture"]["text"]
    assert "c_nvmlEccSramErrorStatus_v1_t" in told["nvmlDeviceGetSramEccErrorStatus"]["text"]
