"""A recorded machine gives the diagnosis it gave at home; the healthy profiles agree with the tables."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from gpudoctor.diagnosis.knowledge import drivers, gpus
from gpudoctor.diagnosis.knowledge._tables import table
from tests.conftest import Program
from tests.sim import machine, scenario, software
from tests.sim.documents import Documents, sampled
from tests.sim.root import Machine

_SICK = ["driver-missing-hgx", "secure-boot-laptop", "nouveau-beside-driver"]
"""One machine each without driver, with one that is refused, and with one that another displaced."""

_MACHINES = [scenario.PROFILES / f"{name}.json" for name in scenario.names(scenario.PROFILES)]
_MACHINES += [scenario.SICK / f"{name}.json" for name in _SICK]


@pytest.mark.parametrize("path", sampled(_MACHINES))
def test_a_record_read_elsewhere_says_the_same(
    path: Path, documents: Documents, called: Program, tmp_path: Path
) -> None:
    record, at_home = documents.of(path)
    root = tmp_path / "root"
    root.mkdir()
    made = Machine(record, root).gpudoctor("record", "-o", "/record.json")
    assert made.code == 0, made.err
    elsewhere = called("read", "--json", str(root / "record.json")).document
    assert [one["id"] for one in elsewhere["findings"]] == [one["id"] for one in at_home.document["findings"]]
    assert elsewhere["verdict"] == at_home.document["verdict"]
    assert _changed(elsewhere["facts"], at_home.document["facts"]) == set()


def _changed(elsewhere: dict[str, Any], at_home: dict[str, Any]) -> set[str]:
    """Facts whose kind of answer (known, absent, unread; so many rows) is not the same."""
    return {name for name, state in at_home.items() if _kind(elsewhere.get(name)) != _kind(state)}


def _kind(state: Any) -> object:
    return sorted(state) if isinstance(state, dict) else len(state or ())


@pytest.mark.parametrize(
    "name",
    [
        "docker",
        *(pytest.param(name, marks=pytest.mark.full) for name in ("hgx-h100", "l40s", "wsl2-4080", "dgx-spark")),
    ],
)
def test_a_record_is_a_scenario(name: str, documents: Documents, tmp_path: Path) -> None:
    """Laid out again, over our driver libraries, it answers the unmodified program as the machine did."""
    record, at_home = documents.of(scenario.PROFILES / f"{name}.json")
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    assert Machine(record, first).gpudoctor("record", "-o", "/record.json").code == 0
    again = Machine(scenario.load(first / "record.json"), second).gpudoctor("--json")
    assert again.code == 0, again.err
    assert [one["id"] for one in again.document["findings"]] == [one["id"] for one in at_home.document["findings"]]
    assert _changed(again.document["facts"], at_home.document["facts"]) == set()


def test_this_very_machine_becomes_a_scenario(gpudoctor: Program, tmp_path: Path) -> None:
    made = gpudoctor("record", "-o", str(tmp_path / "record.json"), "--level", "quick")
    assert made.code == 0, made.err
    here = gpudoctor("--json", "--level", "quick").document
    root = tmp_path / "root"
    root.mkdir()
    there = Machine(scenario.load(tmp_path / "record.json"), root).gpudoctor("--json", "--level", "quick")
    assert [one["id"] for one in there.document["findings"]] == [one["id"] for one in here["findings"]]


NAMES = scenario.names(scenario.PROFILES)
SMALLER = {"vgpu-guest"}
"""A part of a GPU goes by a name of its own and has a part of its memory."""


def told(name: str) -> dict[str, Any]:
    """The profile with what it is laid over; ``machine`` with every word."""
    raw = scenario.based({"profile": name})[0]
    return {**raw, "machine": {**machine.DEFAULTS, **raw["machine"]}}


def cards(name: str) -> list[dict[str, Any]]:
    nvml = told(name)["nvml"]
    return [{**nvml["every"], **own} for own in nvml["gpus"]]


def product(name: str) -> Mapping[str, Any]:
    """The table's row of the profile's GPUs."""
    plain = cards(name)[0]["nvmlDeviceGetName"].removeprefix("NVIDIA ")
    rows: list[Mapping[str, Any]] = [row for row in table("gpus")["gpu"] if row["name"] == plain]
    assert len(rows) == 1, plain
    return rows[0]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SMALLER])
def test_name_ids_capability_and_link_are_those_of_one_product(name: str) -> None:
    row = product(name)
    generation, lanes = (int(number) for number in re.findall(r"\d+", row.get("pcie", "5 x16")))
    for card in cards(name):
        pci = card["nvmlDeviceGetPciInfo"]
        assert f"{pci['pciDeviceId'] >> 16:04x}" in row["pci"].split()
        assert pci["pciDeviceId"] & 0xFFFF == 0x10DE
        assert ".".join(map(str, card["nvmlDeviceGetCudaComputeCapability"])) == row["cc"]
        now, most = card["nvmlDeviceGetCurrPcieLinkGeneration"], card["nvmlDeviceGetMaxPcieLinkGeneration"]
        assert now <= most <= card.get("nvmlDeviceGetGpuMaxPcieLinkGeneration", most) <= generation
        total = card.get("nvmlDeviceGetMemoryInfo", {}).get(
            "total"
        )  # none where it is shared or not a container's to see
        assert total is None or 0.9 * row["memory_gib"] <= total / 2**30 <= 1.02 * row["memory_gib"]
        assert card["nvmlDeviceGetCurrPcieLinkWidth"] <= card["nvmlDeviceGetMaxPcieLinkWidth"] <= lanes


@pytest.mark.parametrize("name", NAMES)
def test_the_driver_serves_these_gpus_and_this_torch(name: str) -> None:
    whole = told(name)
    system, words = whole["nvml"]["system"], whole["machine"]
    version, capability = words["driver"], cards(name)[0]["nvmlDeviceGetCudaComputeCapability"]
    assert system["nvmlSystemGetDriverVersion"] == version
    number = system["nvmlSystemGetCudaDriverVersion"]
    newest = f"{number // 1000}.{number % 1000 // 10}"
    assert Version(newest) == Version(str(drivers.driver_cuda(version)))
    assert drivers.driver_serves(version, words["torch"]["cuda"])
    dotted = ".".join(map(str, capability))
    assert Version(version) >= Version(str(gpus.gpu_floor(dotted)))
    kind = gpus.open_module(dotted)
    assert kind == "either" or words["wsl"] or words["open"] == (kind == "required")
    cubins, _ = software.BUILDS[words["torch"]["cuda"]]
    assert any(arch // 10 == capability[0] and arch % 10 <= capability[1] for arch in cubins)
    recovery = "nvmlDeviceGetFieldValues(230)" in cards(name)[0]
    assert not recovery or Version(version) >= Version("570")
