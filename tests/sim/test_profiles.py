"""The healthy profiles agree with the tables of GPUs and drivers, with themselves, and with NVML's own interface."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pynvml
import pytest
from packaging.version import Version

from gpudoctor.knowledge import drivers, gpus
from gpudoctor.knowledge._tables import table
from tests.sim import machine, scenario, software

NAMES = scenario.names(scenario.PROFILES)
SMALLER = {"vgpu-guest"}
"""A part of a GPU goes by a name of its own and has a part of its memory."""
_CALL = re.compile(r"(nvml\w+?)(?:\(([^)]*)\))?")
_LINK = re.compile(r"nvmlDeviceGetNvLinkRemotePciInfo\((\d+)\)")


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


def calls(name: str) -> Iterator[tuple[str, list[str]]]:
    """Every answer's function and its arguments behind the handle."""
    nvml = told(name)["nvml"]
    for part in (nvml["system"], nvml["every"], *nvml["gpus"]):
        for key in part:
            if key != "mig":
                match = _CALL.fullmatch(key)
                assert match, key
                yield match[1], match[2].split(",") if match[2] else []


@pytest.mark.parametrize("name", NAMES)
def test_every_answer_is_of_a_function_that_nvml_has(name: str) -> None:
    sizes = {"cpuSetSize", "nodeSetSize", "version"}  # of buffers: no part of a call's name
    for function, arguments in calls(name):
        own = getattr(pynvml, function, None) or getattr(pynvml, f"{function}_v2", None)
        assert own, function
        wanted = [word for word in inspect.signature(own).parameters if word not in sizes]
        most = len(wanted) - function.startswith("nvmlDevice") + (function == "nvmlDeviceGetFieldValues")
        assert len(arguments) <= max(most, 0), (function, arguments)


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


@pytest.mark.parametrize("name", NAMES)
def test_addresses_uuids_and_minors_are_unique_and_the_bus_shows_the_gpus(name: str) -> None:
    whole, listed = told(name), cards(name)
    assert whole["nvml"]["system"]["nvmlDeviceGetCount"] == len(listed)
    for key in ("nvmlDeviceGetUUID", "nvmlDeviceGetMinorNumber", "nvmlDeviceGetSerial"):
        values = [card[key] for card in listed if card.get(key) is not None]
        assert len(set(values)) == len(values)
    assert [card.get("nvmlDeviceGetMinorNumber") for card in listed].count(None) == whole["machine"]["wsl"]
    addresses = [address(card["nvmlDeviceGetPciInfo"]) for card in listed]
    assert addresses == sorted(set(addresses))
    host = machine.render(whole["machine"], whole["nvml"])
    for card, place in zip(listed, addresses, strict=True):
        pci = card["nvmlDeviceGetPciInfo"]
        assert pci["busId"] == f"{pci['domain']:08X}:{pci['bus']:02X}:{pci['device']:02X}.0"
        if not whole["machine"]["wsl"]:
            folder = host["links"][f"/sys/bus/pci/devices/{place}"]
            assert host["files"][f"{folder}/device"] == f"0x{pci['pciDeviceId'] >> 16:04x}\n"


def address(pci: Mapping[str, Any]) -> str:
    return f"{pci['domain']:04x}:{pci['bus']:02x}:{pci['device']:02x}.0"


@pytest.mark.parametrize("name", NAMES)
def test_nvlinks_lead_to_each_other_or_to_switches_of_the_machine(name: str) -> None:
    whole, listed = told(name), cards(name)
    count = listed[0].get("nvmlDeviceGetFieldValues(91)", 0)
    own = {address(card["nvmlDeviceGetPciInfo"]): card for card in listed}
    switches = whole["machine"]["nvswitches"]
    known = switches if isinstance(switches, list) else [f"0000:{5 + at:02x}:00.0" for at in range(switches)]
    for place, card in own.items():
        goals = [address(card[key]) for key in card if _LINK.fullmatch(key)]
        assert len(goals) in (0, count)
        for goal in set(goals):
            if card["nvmlDeviceGetNvLinkRemoteDeviceType"] == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                assert goal in known
            else:
                back = [address(own[goal][key]) for key in own[goal] if _LINK.fullmatch(key)]
                assert back.count(place) == goals.count(goal)
    if name not in SMALLER:
        assert bool(count) == gpus.has_nvlink(listed[0]["nvmlDeviceGetName"])
