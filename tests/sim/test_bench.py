"""``gpudoctor bench`` and level deep on simulated machines: what is left alone or missing, what a record keeps."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpudoctor.target.record import Record
from gpudoctor.views import schema
from tests import needs
from tests.processes import Ran
from tests.sim import scenario
from tests.sim.root import HOST, Machine


def profile(name: str, **changes: Any) -> Record:
    return scenario.expanded({"profile": name, **changes})


def bench(record: Record, root: Path, *words: str) -> Ran:
    """As a document, which must be what its schema says."""
    ran = Machine(record, root).gpudoctor("bench", "--json", *words, timeout=600)
    assert ran.err == ""
    jsonschema.validate(ran.document, json.loads(schema.text("kernels")))
    return ran


def reasons(document: Any, start: str = "") -> set[str]:
    """Why kernels whose ids begin so did not run."""
    runs = [run for run in document["runs"] if run["kernel"].startswith(start)]
    assert {run["status"] for run in runs} == {"not-run"}
    return {run["because"] for run in runs}


@pytest.mark.full
def test_without_torch_the_driver_is_measured_and_the_rest_says_why(tmp_path: Path) -> None:
    ran = bench(profile("rtx3090-bridge", machine={"torch": None}), tmp_path)
    document = ran.document
    assert ran.code == 0
    assert {run["status"] for run in document["runs"] if run["kernel"].startswith("driver.")} == {"ran"}
    assert reasons(document, "matmul") == {"torch is not installed in this interpreter"}
    torch = [run for run in document["runs"] if run["kernel"] == "matmul.fp32" and run["gpu"] == 0]
    assert torch[0]["ladder"] == [
        {"rung": "driver", "held": True},
        {"rung": "torch", "message": "torch is not installed in this interpreter"},
    ]


def test_a_reason_is_told_once(tmp_path: Path) -> None:
    ran = Machine(profile("rtx3090-bridge", machine={"torch": None}), tmp_path).gpudoctor("bench", timeout=600)
    assert " ".join(ran.out.split()).count("torch is not installed in this interpreter") == 1
    assert max(map(len, ran.out.splitlines())) <= 80


def test_a_torch_that_is_built_without_cuda_is_named(tmp_path: Path) -> None:
    """torch of this machine in the simulated one, whose libraries it finds where they are."""
    python = needs.torch_python()
    if "built without" not in _built_for(python):
        needs.missing(f"a torch that is built without CUDA ({python})")
    record = profile("t4", machine={"torch": None})
    libraries = ":".join(f"{HOST}{folder}" for folder in ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"))
    record = replace(record, environ={**record.environ, "LD_LIBRARY_PATH": libraries})
    inside = HOST + str(Path(python).parent.resolve() / Path(python).name)
    ran = bench(record, tmp_path, "--kernel", "driver.add", "--kernel", "matmul", "--python", inside)
    assert ran.code == 0
    (why,) = reasons(ran.document, "matmul")
    assert why.startswith("torch ")
    assert why.endswith(" is built without CUDA")


def _built_for(python: str) -> str:
    asked = "import torch; print(torch.version.cuda or 'built without')"
    return subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True).stdout


_HELD = {
    "machine": {"torch": None, "processes": {"4711": "/opt/venv/bin/python3"}},
    "nvml": {
        "system": {"nvmlSystemGetProcessName(4711)": "/opt/venv/bin/python3"},
        "gpus": {"1": {"nvmlDeviceGetComputeRunningProcesses": [{"pid": 4711, "usedGpuMemory": 3 << 30}]}},
    },
}


def test_a_gpu_in_use_is_left_alone_unless_it_is_named(tmp_path: Path) -> None:
    ran = bench(profile("rtx3090-bridge", **_HELD), tmp_path, "--kernel", "driver.add")
    assert ran.code == 0
    assert [device.get("held") for device in ran.document["devices"]] == [None, "pid 4711, python3"]
    assert [(run["gpu"], run["status"], run.get("because")) for run in ran.document["runs"]] == [
        (0, "ran", None),
        (1, "not-run", "in use by pid 4711, python3"),
    ]
    ran = bench(profile("rtx3090-bridge", **_HELD), tmp_path / "named", "--kernel", "driver.add", "--device", "cuda:1")
    assert [(run["gpu"], run["status"]) for run in ran.document["runs"]] == [(1, "ran")]


def test_without_a_gpu_that_cuda_lists_the_cause_is_named(tmp_path: Path) -> None:
    ran = bench(scenario.load(scenario.SICK / "cuda-library-missing.json"), tmp_path)
    assert (ran.code, ran.document["runs"]) == (3, [])
    assert "gpudoctor explain " in ran.document["because"]
    ran = Machine(scenario.load(scenario.SICK / "cloud-vm-without-gpu.json"), tmp_path / "none").gpudoctor("bench")
    assert ran.code == 3
    assert ran.out.startswith("Nothing was measured: no GPU that CUDA lists")
    assert ran.out.rstrip().endswith("gpudoctor bench --device cpu")


@pytest.mark.full
def test_a_record_of_level_deep_gives_the_same_facts_elsewhere(tmp_path: Path) -> None:
    record = profile("rtx3090-bridge", machine={"torch": None})
    made = Machine(record, tmp_path).gpudoctor("record", "--level", "deep", "-o", "/record.json", timeout=600)
    assert made.code == 0, made.err
    kept = json.loads((tmp_path / "record.json").read_text())
    children = kept["kernels"]["children"]
    assert {child["ask"]["family"] for child in children} >= {"driver", "eager", "training"}
    assert not [path for path in kept["host"]["files"] if "kernels/child" in path]
    twice = [_read(tmp_path / "record.json") for _ in range(2)]
    assert twice[0]["facts"]["measured"] == twice[1]["facts"]["measured"]
    facts = twice[0]["facts"]
    ran = [row for row in facts["measured"] if row["status"]["value"] == "ran"]
    said = {entry["kernel"]: entry for child in children for entry in child["out"] if "kernel" in entry}
    assert {row["kernel"]["value"] for row in ran} == {name for name, entry in said.items() if entry["status"] == "ran"}
    assert [row["held"] for row in facts["rung"] if row["name"]["value"] == "driver"] == [
        {"value": True, "source": "gpudoctor bench"}
    ] * 2


def _read(path: Path) -> Any:
    argv = [sys.executable, "-m", "gpudoctor", "read", "--json", str(path)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=600, env=dict(os.environ))
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_only_level_deep_measures_all(tmp_path: Path) -> None:
    record = profile("t4", machine={"torch": None})
    machine = Machine(record, tmp_path)
    standard = machine.gpudoctor("check", "--json").document["facts"]
    assert {row["kernel"]["value"] for row in standard["measured"]} == {
        "driver.add",
        "driver.memory",
        "driver.reduction",
    }
    deep = machine.gpudoctor("check", "--level", "deep", "--json", timeout=600).document["facts"]
    ran = {row["kernel"]["value"] for row in deep["measured"] if row["status"]["value"] == "ran"}
    assert {"driver.add", "driver.memory.all"} <= ran
    assert {row["rung"]["value"] for row in deep["measured"]} >= {"driver", "torch", "triton", "training"}
