"""A Windows machine is diagnosed: by SetupAPI, the registry, NVML and nvcuda, over a simulated driver."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.processes import Ran
from tests.sim import scenario
from tests.windows.machines import RTX_4090, Card, registry
from tests.windows.rig import Windows

pytestmark = pytest.mark.full

SOUND = scenario.load(scenario.PROFILES / "rtx4090.json")


def nvml(driver: str = "581.29", *faults: dict[str, Any], gpus: int = 1) -> dict[str, Any]:
    """NVML of an RTX 4090 in Windows' display mode, under that driver."""
    assert SOUND.nvml
    system = {**SOUND.nvml["system"], "nvmlSystemGetDriverVersion": driver, "nvmlDeviceGetCount": gpus}
    own = [{**gpu, "nvmlDeviceGetDriverModel": [0, 0]} for gpu in SOUND.nvml["gpus"][:gpus]]
    return {**SOUND.nvml, "system": system, "gpus": own, "faults": list(faults)}


def cuda(gpus: int = 1) -> dict[str, Any]:
    """The CUDA driver library beside it."""
    assert SOUND.cuda
    return {**SOUND.cuda, "gpus": SOUND.cuda["gpus"][:gpus]}


def checked(windows: Windows, level: str = "quick", python: str = "", **options: Any) -> Ran:
    """What ``gpudoctor check`` says there, of that interpreter."""
    patient = ["--python", python] if python else []
    ran = windows.gpudoctor("check", "--level", level, "--json", *patient, **options)
    assert not ran.err, ran.err
    return ran


def value(ran: Ran, name: str) -> Any:
    """A fact's value; raises `KeyError` where it is not known."""
    return ran.document["facts"][name]["value"]


@pytest.mark.parametrize("level", ["quick", "standard"])
def test_a_sound_machine(level: str, windows: Windows) -> None:
    windows.registry(registry(RTX_4090, Card("AMD Radeon(TM) Graphics", "1002", "164E", "31.0.21029.1006")))
    windows.driver(nvml(), cuda())
    ran = checked(windows, level)
    assert ran.ids == set()
    assert (value(ran, "host.platform"), value(ran, "driver.version")) == ("windows", "581.29")
    assert (value(ran, "pci.nvidia_count"), sorted(value(ran, "pci.gpu_vendors"))) == (1, ["amd", "nvidia"])
    assert value(ran, "nvml.state") == "ok"
    assert value(ran, "cuda_driver.library").lower() == "c:\\windows\\system32\\nvcuda.dll"
    (gpu,) = ran.document["facts"]["gpu"]
    assert (gpu["name"]["value"], gpu["driver_model"]["value"]) == ("NVIDIA GeForce RTX 4090", "WDDM")
    (nvidia,) = [row for row in ran.document["facts"]["display"] if row["vendor"]["value"] == "nvidia"]
    assert nvidia["device_id"]["value"] == "10de:2684"
    assert nvidia["driver_version"]["value"] == "32.0.15.8129"
    if level == "standard":
        assert value(ran, "cuda_driver.state") == "ok"
    reasons = [entry["because"] for entry in ran.document["unjudged"]]
    assert not [why for why in reasons if "/proc" in why or "/sys" in why or " died: " in why]


@pytest.mark.parametrize(
    ("cards", "finding"),
    [((), "host.no-gpu"), ((Card("Intel(R) UHD Graphics 770", "8086", "4680", "31.0.101.4502"),), "host.other-vendor")],
)
def test_no_nvidia_gpu(cards: tuple[Card, ...], finding: str, windows: Windows) -> None:
    windows.registry(registry(*cards))
    windows.driver(None, None)
    ran = checked(windows, "standard")
    assert ran.document["findings"][0]["id"] == finding
    assert value(ran, "nvml.state") == value(ran, "cuda_driver.state") == "library not found"


def test_a_gpu_without_a_driver(windows: Windows) -> None:
    windows.registry(registry(Card("3D Video Controller", driver="", problem=28)))
    windows.driver(None, None)
    ran = checked(windows)
    assert ran.document["findings"][0]["id"] == "driver.missing"
    assert "driver.device-problem" not in ran.ids


def test_the_driver_is_too_old_for_the_gpu(windows: Windows) -> None:
    windows.registry(registry(Card("NVIDIA GeForce RTX 5090", device="2B85", driver="31.0.15.3758")))
    answers = nvml("537.58")
    answers["gpus"][0].update(nvmlDeviceGetName="NVIDIA GeForce RTX 5090", nvmlDeviceGetCudaComputeCapability=[12, 0])
    windows.driver(answers, cuda())
    ran = checked(windows)
    assert ran.document["findings"][0]["id"] == "driver.too-old-for-gpu"
    steps = [step for fix in ran.document["findings"][0]["fixes"] for step in fix["steps"]]
    assert any("NVIDIA App" in step["text"] for step in steps)
    assert not any("apt" in word for step in steps for word in step["argv"])


@pytest.mark.parametrize("code", [43, 31, 12])
def test_a_problem_code(code: int, windows: Windows) -> None:
    windows.registry(registry(Card(problem=code)))
    windows.driver(nvml(gpus=0), cuda(gpus=0))
    ran = checked(windows)
    assert ran.document["findings"][0]["id"] == "driver.device-problem"
    assert f"code {code} in the device manager" in ran.titles("driver.device-problem")[0]


def test_the_other_cards_problem_is_none_of_ours(windows: Windows) -> None:
    windows.registry(registry(RTX_4090, Card("AMD Radeon(TM) Graphics", "1002", "164E", "31.0.2.6", 43)))
    windows.driver(nvml(), cuda())
    assert checked(windows).ids == set()


@pytest.mark.parametrize(("deed", "state"), [("crash", "crashed"), ("hang", "hung")])
def test_nvml_that_does_not_answer(deed: str, state: str, windows: Windows) -> None:
    windows.registry(registry(RTX_4090))
    windows.driver(nvml("581.29", {"call": "nvmlInit", "do": deed}), cuda())
    ran = checked(windows, env={"GPUDOCTOR_NVML_TIMEOUT": "1"})
    facts = ran.document["facts"]
    if state == "crashed":
        assert value(ran, "nvml.state") == state
        assert "access violation" in value(ran, "nvml.message")
        assert "nvml.failed" in ran.ids
    else:
        assert "did not return within" in facts["nvml.unanswered"]["value"]
    assert value(ran, "driver.version") == "581.29", "the registry knows it all the same"


def test_a_crash_in_cuinit(windows: Windows) -> None:
    windows.registry(registry(RTX_4090))
    windows.driver(nvml(), {**cuda(), "faults": [{"call": "cuInit", "do": "crash"}]})
    ran = checked(windows, "standard")
    assert value(ran, "cuda_driver.state") == "crashed"
    assert "driver.cuda-failed" in ran.ids


def test_torch_for_the_cpu(windows: Windows) -> None:
    """The real build for Windows, which plain ``pip install torch`` brings."""
    windows.registry(registry(RTX_4090))
    windows.driver(nvml(), cuda())
    python = windows.with_torch()
    ran = checked(windows, "standard", python=python, env={"KMP_AFFINITY": "disabled"})
    assert ran.document["findings"][0]["id"] == "torch.cpu-build"
    assert (value(ran, "torch.version"), value(ran, "torch.flavor")) == ("2.9.0+cpu", "cpu")
    assert (value(ran, "live.outcome"), value(ran, "live.cuda_available")) == ("done", False)
    assert ran.document["target"]["python"] == python


def test_a_toolkit_of_nvidias_installer(windows: Windows) -> None:
    """As the installer lays it out; its programs are not run, for files tell the release."""
    folder = windows.folder / "prefix/drive_c/Program Files/NVIDIA GPU Computing Toolkit"
    binaries = folder / "CUDA/v12.8/bin"
    binaries.mkdir(parents=True)
    try:
        (binaries / "nvcc.exe").write_bytes(b"MZ")
        (binaries.parent / "version.json").write_text('{"cuda": {"name": "CUDA SDK", "version": "12.8.1"}}')
        windows.registry(registry(RTX_4090))
        windows.driver(nvml(), cuda())
        place = "C:\\Program Files\\NVIDIA GPU Computing Toolkit\\CUDA\\v12.8"
        ran = checked(windows, env={"CUDA_PATH": place})
    finally:
        shutil.rmtree(folder)
    (toolkit,) = ran.document["facts"]["toolkit"]
    assert (toolkit["path"]["value"], toolkit["version"]["value"], toolkit["nvcc"]["value"]) == (place, "12.8", True)
    assert (value(ran, "cuda.toolkit_version"), value(ran, "cuda.home_has_nvcc")) == ("12.8", True)
    assert "absent" in ran.document["facts"]["cuda.host_compiler"], "there is neither cl.exe nor a Visual Studio"
