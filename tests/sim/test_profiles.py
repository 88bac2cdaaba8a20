"""The healthy profiles agree with the tables of GPUs and drivers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from packaging.version import Version

from gpudoctor.diagnosis.knowledge import drivers, gpus
from gpudoctor.diagnosis.knowledge._tables import table
from tests.sim import machine, scenario, software

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
