"""NVIDIA's real libraries on machines whose kernel has not loaded the module: what is found, and what is touched."""

import os
from typing import Any

import pytest

from tests import needs
from tests.real.world import World

_CAUSE = {False: "host.no-gpu", True: "driver.module-not-loaded"}
_TORCH = needs.REPOSITORY / ".venv-torch-cuda/bin/python"
_HOMES = ("/root", "/home/user")
_OWN = tuple(f"{home}/{folder}" for home in _HOMES for folder in (".cache", ".local"))
_SORRY = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."


def torch_python() -> str:
    return (
        str(_TORCH) if os.access(_TORCH, os.X_OK) else needs.missing(f"an interpreter with torch for CUDA ({_TORCH})")
    )


def check(world: World, *words: str, user: bool) -> Any:
    """The document of a check that finds the machine broken and leaves no process behind."""
    ran = world.gpudoctor("check", "--json", *words, user=user)
    assert ran.code == 1, ran.err
    assert world.processes() == []
    return ran.document


def ids(document: Any) -> list[str]:
    return [finding["id"] for finding in document["findings"]]


def touched(world: World, *words: str, user: bool) -> tuple[list[str], list[str]]:
    """Paths that a check made or changed, its own cache and state apart, and its calls of modprobe."""
    before, calls = world.files(), len(world.modprobe_calls())
    check(world, *words, user=user)
    after = world.files()
    changed = [path for path in before.keys() | after if before.get(path) != after.get(path)]
    homes = {path for path in changed if path.startswith(_OWN) or path in (*_HOMES, World.CALLS)}
    return sorted(set(changed) - homes), world.modprobe_calls()[calls:]


@pytest.mark.full
def test_at_level_quick_the_first_finding_is_the_cause(world: World, user: bool) -> None:
    document = check(world, "--level", "quick", user=user)
    assert ids(document) == [_CAUSE[world.gpu]]
    assert document["verdict"] == "broken"


def test_quick_changes_nothing(world: World, user: bool) -> None:
    assert touched(world, "--level", "quick", user=user) == ([], [])


def test_quick_with_torch_changes_nothing(unloaded: World, user: bool) -> None:
    python = torch_python()
    assert touched(unloaded, "--level", "quick", "--python", python, user=user) == ([], [])


def test_standard_loads_the_nvidia_module_at_most(world: World, user: bool) -> None:
    changed, calls = touched(world, "--level", "standard", user=user)
    assert changed == []
    assert set(calls) <= ({"nvidia"} if world.gpu else set())


def test_the_world_sees_what_the_libraries_do(unloaded: World, user: bool) -> None:
    calls = len(unloaded.modprobe_calls())
    assert unloaded.run(["nvidia-smi"], user).code == 9
    assert set(unloaded.modprobe_calls()[calls:]) == {"nvidia"}


@pytest.mark.full
def test_packages_without_a_built_module() -> None:
    with World(gpu=True, built=False) as world:
        assert ids(check(world, "--level", "quick", user=True)) == ["driver.module-not-built"]


def test_the_first_finding_is_the_cause_and_rests_on_the_libraries_words(world: World, user: bool) -> None:
    document = check(world, "--level", "standard", user=user)
    assert ids(document) == [_CAUSE[world.gpu]]
    assert document["verdict"] == "broken"
    facts = document["facts"]
    assert facts["nvml.state"]["value"] == "driver not loaded"
    assert facts["driver.module_loaded"]["value"] is False
    assert facts["cuda_driver.init_code"]["value"] == 100
    assert facts["cuda_driver.init_name"]["value"] == "CUDA_ERROR_NO_DEVICE"
    assert facts["cuda_driver.version"]["value"] == "12.2"


def test_what_nvidia_smi_prints_is_read(unloaded: World) -> None:
    smi = unloaded.run(["nvidia-smi"])
    assert (smi.code, smi.out.startswith(_SORRY)) == (9, True)
    document = unloaded.gpudoctor("read", "-", "--json", stdin=f"$ nvidia-smi\n{smi.out}").document
    assert document["facts"]["nvml.state"]["value"] == "driver not loaded"
    assert ids(document)[:1] == ["driver.module-not-loaded"]


@pytest.mark.full
def test_torch_for_cuda(world: World, user: bool) -> None:
    document = check(world, "--level", "standard", "--python", torch_python(), user=user)
    assert ids(document)[0] == _CAUSE[world.gpu]
    assert set(ids(document)[1:]) <= {"torch.driver-too-old"}  # its CUDA 13 needs another driver, loaded or not
    facts = document["facts"]
    assert facts["live.cuda_available"]["value"] is False
    assert "driver on your system is too old" in facts["live.cuda_error"]["value"]


def test_a_torch_that_the_driver_cannot_serve_is_not_its_own_cure(unloaded: World) -> None:
    document = check(unloaded, "--level", "standard", "--python", torch_python(), user=True)
    (finding,) = (one for one in document["findings"] if one["id"] == "torch.driver-too-old")
    commands = [" ".join(step.get("argv") or ()) for fix in finding["fixes"] for step in fix["steps"]]
    assert not [command for command in commands if "+cu13" in command]
