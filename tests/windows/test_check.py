"""A Windows machine is diagnosed over a simulated driver, told what to install, and how it would be mended."""

from __future__ import annotations

import re
import shutil
from importlib.metadata import files, version
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.probes import _binaries, declared
from tests import needs
from tests.app.packaging.shelf import build
from tests.needs import REPOSITORY
from tests.processes import Ran
from tests.sim import scenario
from tests.windows.machines import RTX_4090, Card, registry
from tests.windows.rig import Windows, wheel

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
    system = {**SOUND.cuda["system"], "cuDeviceGetCount": gpus}
    return {**SOUND.cuda, "system": system, "gpus": SOUND.cuda["gpus"][:gpus]}


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
        kernels = {row["kernel"]["value"]: row["right"]["value"] for row in ran.document["facts"]["measured"]}
        assert kernels == {"driver.add": True, "driver.memory": True, "driver.reduction": True}
    reasons = [entry["because"] for entry in ran.document["unjudged"]]
    assert not [why for why in reasons if "/proc" in why or "/sys" in why or " died: " in why]


def test_an_installed_gpudoctor_does_not_import_what_windows_lacks(windows: Windows, tmp_path: Path) -> None:
    """It finds what one finds that imports all probes."""
    windows.registry(registry(RTX_4090))
    windows.driver(nvml(), cuda())
    build(REPOSITORY, tmp_path, "wheel")
    folder = windows.new_folder()
    wheel(str(next(tmp_path.glob("*.whl"))), folder)
    words = ["-v", "-m", "gpudoctor", "check", "--level", "quick", "--json"]
    ran = windows.python(*words, env={"PYTHONPATH": f"D:\\{folder.name}"})
    imported = set(re.findall(r"^import 'gpudoctor\.probes\.(\w+)'", ran.err, re.MULTILINE))
    not_run = [probe for probe in declared() if probe.only == "linux" or probe.not_yet == "windows"]
    assert {probe.name for probe in not_run} & imported == set()
    assert "windows" in imported
    installed, checkout = ran.document["facts"], checked(windows).document["facts"]
    unanswered = {name for probe in not_run for name in probe.answers if isinstance(checkout[name], dict)}
    unanswered = {name for name in unanswered if "value" not in checkout[name]}
    assert len(unanswered) > 100
    assert {name: installed[name] for name in unanswered} == {name: checkout[name] for name in unanswered}


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


@pytest.fixture
def machine(windows: Windows) -> Windows:
    """An RTX 4090 and, for its Python, torch's build for the CPU."""
    windows.registry(registry(RTX_4090))
    windows.driver(nvml(), cuda())
    windows.with_torch()
    return windows


def test_the_stack_for_this_machine(machine: Windows) -> None:
    ran = machine.gpudoctor("setup", "torch", "--python", "D:\\patient\\python.exe")
    assert ran.code == 0
    assert "for NVIDIA GeForce RTX 4090, driver 581.29, Python 3.11.9, windows x86_64" in ran.out
    assert "$ D:\\patient\\python.exe -m pip install torch==" in ran.out
    assert "NCCL" not in ran.out, "which torch for Windows does not have"


def test_a_dry_run_installs_the_build_for_cuda(machine: Windows) -> None:
    before = sorted(path.name for path in (machine.folder / "patient/Lib/site-packages").iterdir())
    ran = machine.gpudoctor("fix", "--dry-run", "--python", "D:\\patient\\python.exe", env={"KMP_AFFINITY": "disabled"})
    assert ran.code == 0
    assert "$ D:\\patient\\python.exe -m pip install torch==2.9.0+cu" in ran.out
    assert "no longer found: torch.cpu-build" in ran.out
    assert "nvidia-" not in ran.out, "the wheel for Windows has CUDA's libraries in it"
    assert before == sorted(path.name for path in (machine.folder / "patient/Lib/site-packages").iterdir())


def test_kernels_on_the_processor(machine: Windows) -> None:
    """By the real torch for Windows; without Visual C++, and what Windows has not is no failure."""
    kernels = {
        "elementwise": "ran",
        "readiness.clipping": "ran",
        "compile.function": "not-run",
        "readiness.dataloader": "not-run",
        "readiness.parallel": "not-run",
    }
    words = ["bench", "--device", "cpu", "--json", "--python", "D:\\patient\\python.exe"]
    words += [word for name in kernels for word in ("--kernel", name)]
    ran = machine.gpudoctor(*words, env={"KMP_AFFINITY": "disabled"})
    found = {run["kernel"]: run for run in ran.document["runs"]}
    assert {name: run["status"] for name, run in found.items()} == kernels, ran.out + ran.err
    assert [name for name, run in found.items() if run.get("right") is True] == ["elementwise", "readiness.clipping"]
    assert list((machine.folder / "prefix/drive_c/users").rglob("Temp/gpudoctor-*")) == []


NVJPEG = "nvidia-nvjpeg-cu12"


def test_a_dll_holds_what_its_library_for_linux_holds(tmp_path: Path) -> None:
    linux = [file for file in files(NVJPEG) or () if file.name.startswith("libnvjpeg.so")]
    if not linux:
        needs.missing(NVJPEG)
    wheel(f"{NVJPEG}=={version(NVJPEG)}", tmp_path)
    with _binaries.opened_pe(next(tmp_path.rglob("nvjpeg64_12.dll"))) as library:
        found = _binaries.architectures_in(library, library.sections())
    assert found == _binaries.architectures(Path(str(linux[0].locate())))
    assert found.containers > 5


@pytest.mark.parametrize("head", [b"", b"MZ", b"MZ" + bytes(58) + b"\xff\xff\xff\x7f", b"MZ" + bytes(62)])
def test_what_is_no_pe_file_is_refused(head: bytes, tmp_path: Path) -> None:
    place = tmp_path / "torch_cuda.dll"
    place.write_bytes(head)
    with _binaries.opened_pe(place) as library, pytest.raises(_binaries.MalformedError):
        library.sections()
