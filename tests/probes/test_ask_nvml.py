"""The child that asks NVML, by itself: what it asks, from where it runs, with which binding."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gpudoctor.probes import nvml
from tests.probes.nvml_machine import Section, h100, simulated

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


@pytest.mark.parametrize("child", sorted(CHILDREN.glob("*.py")), ids=lambda p: p.name)
def test_children_keep_to_the_syntax_of_python_38_and_never_bear_a_packages_name(child: Path) -> None:
    tree = ast.parse(child.read_text("utf-8"), feature_version=(3, 8))
    assert ast.get_docstring(tree)
    assert "_" in child.stem, "a bare word may be the name of a package that it would shadow"


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
