"""Windows machines, sick and sound: the verdict and the first cause are right, and no child is left.

Registry, driver and event log of each are laid out, then one process of gpudoctor diagnoses it with its real children.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from tests.processes import left
from tests.sim import scenario
from tests.windows.doctor import Doctor, event
from tests.windows.machines import RTX_4090, Card, patient, registry
from tests.windows.rig import Windows
from tests.windows.rig import windows as rig

pytestmark = pytest.mark.full

_CONTROL = r"HKEY_LOCAL_MACHINE\SYSTEM\CurrentControlSet\Control"
_LXSS = r"HKEY_CURRENT_USER\Software\Microsoft\Windows\CurrentVersion\Lxss"
_STORE = "C:\\users\\tester\\AppData\\Local\\Microsoft\\WindowsApps"
WDDM, TCC, MCDM = 0, 1, 2
CUDA, CPU, OLD_CUDA = "2.9.0+cu128", "2.9.0+cpu", "2.9.0+cu126"
RTX_5090 = Card("NVIDIA GeForce RTX 5090", device="2B85")
GTX_1080 = Card("NVIDIA GeForce GTX 1080 Ti", device="1B06")
LAPTOP = Card("NVIDIA GeForce RTX 4070 Laptop GPU", device="2860")
T4 = Card("Tesla T4", device="1EB8")
INTEL = Card("Intel(R) UHD Graphics 770", "8086", "4680", "31.0.101.4502")
AMD = Card("AMD Radeon(TM) Graphics", "1002", "164E", "31.0.21029.1006")
PROFILES = {RTX_4090: "rtx4090", RTX_5090: "rtx5090", GTX_1080: "gtx1080ti", LAPTOP: "laptop-4070", T4: "t4"}

_RELEASES = {"581.29": 13000, "537.58": 12020, "516.94": 11070}
"""The CUDA that each driver serves, as NVML and CUDA count it."""


class Machine(NamedTuple):
    """A Windows machine, and the findings that are worse than information, the first cause first; none: it is sound."""

    finds: tuple[str, ...] = ()
    cards: tuple[Card, ...] = (RTX_4090,)
    models: tuple[int, int] = (WDDM, WDDM)
    driver: str = "581.29"
    faults: tuple[dict[str, Any], ...] = ()
    cuda_faults: tuple[dict[str, Any], ...] = ()
    libraries: tuple[str, ...] = ("nvml", "nvcuda")
    keys: Mapping[str, str] = {}
    """Keys of the registry, and the lines below each."""
    events: tuple[str, ...] | None = ()
    environ: Mapping[str, str] = {}
    python: Mapping[str, str] = {}
    """The patient's torch and other distributions; none: gpudoctor's own Python."""
    python_name: str = "patient"
    store: tuple[str, ...] = ()
    """Names in the Store's folder of aliases, which is on PATH."""
    without: tuple[str, ...] = ()
    """DLLs that System32 lacks."""
    level: str = "quick"
    says: str = ""
    """What the first finding's title, or an information, holds."""
    unjudged: str = ""
    """A page that must not be judged."""


def _wsl(version: int) -> dict[str, str]:
    name = "{11111111-2222-3333-4444-555555555555}"
    return {_LXSS: f'"DefaultDistribution"="{name}"', f"{_LXSS}\\{name}": f'"Version"=dword:0000000{version}'}


RESET = event(153, r"\Device\Video3", "Restarting TDR occurred on GPUID:100")
_PROBLEM = "driver.device-problem"
MACHINES: dict[str, Machine] = {
    "a sound desktop": Machine(),
    "sound, with torch for CUDA": Machine(python={"torch": CUDA}),
    "sound, at level standard": Machine(level="standard"),
    "a sound laptop with two GPUs": Machine(cards=(INTEL, LAPTOP)),
    "a sound desktop with AMD's graphics beside it": Machine(cards=(RTX_4090, AMD)),
    "two sound GPUs": Machine(cards=(RTX_4090, RTX_4090)),
    "no GPU": Machine(("host.no-gpu",), cards=(), libraries=()),
    "Intel's graphics alone": Machine(("host.other-vendor",), cards=(INTEL,), libraries=()),
    "AMD's graphics alone": Machine(("host.other-vendor",), cards=(AMD,), libraries=()),
    "no driver": Machine(
        ("driver.missing",), cards=(Card("3D Video Controller", driver="", problem=28),), libraries=()
    ),
    "Windows' basic display driver": Machine(
        ("driver.missing",),
        cards=(Card("Microsoft Basic Display Adapter", driver="10.0.22621.1", service="BasicDisplay"),),
        libraries=(),
        says="Windows",
    ),
    **{
        f"code {code}": Machine((_PROBLEM,), cards=(RTX_4090._replace(problem=code),), says=f"code {code}")
        for code in (10, 12, 22, 31, 37, 43, 52)
    },
    "code 43 on one of two": Machine((_PROBLEM,), cards=(RTX_4090, RTX_4090._replace(problem=43))),
    "a laptop's GPU disabled": Machine((_PROBLEM,), cards=(INTEL, LAPTOP._replace(problem=22)), says="is disabled"),
    "code 43 on AMD's": Machine(cards=(RTX_4090, AMD._replace(problem=43))),
    "a driver too old for the GPU": Machine(
        ("driver.too-old-for-gpu",), cards=(RTX_5090._replace(driver="31.0.15.3758"),), driver="537.58"
    ),
    "the same GPU, a driver that knows it": Machine(cards=(RTX_5090,)),
    "a driver too old for torch": Machine(
        ("torch.driver-too-old",),
        cards=(GTX_1080._replace(driver="31.0.15.1694"),),
        driver="516.94",
        python={"torch": OLD_CUDA},
    ),
    "torch for the CPU": Machine(("torch.cpu-build",), python={"torch": CPU}),
    "torch for the CPU where there is no GPU": Machine(("host.no-gpu",), cards=(), libraries=(), python={"torch": CPU}),
    "torch without kernels for a new GPU": Machine(
        ("torch.arch-too-new",), cards=(RTX_5090,), python={"torch": OLD_CUDA}
    ),
    "torch with kernels for it": Machine(cards=(RTX_5090,), python={"torch": CUDA}),
    "torch without kernels for an old GPU": Machine(("torch.arch-dropped",), cards=(GTX_1080,), python={"torch": CUDA}),
    "torch with kernels for an old GPU": Machine(cards=(GTX_1080,), python={"torch": OLD_CUDA}),
    "torchvision of another torch": Machine(
        ("torch.companion-mismatch",), python={"torch": CUDA, "torchvision": "0.20.1+cu124 torch==2.5.1"}
    ),
    "torchvision that goes with it": Machine(python={"torch": CUDA, "torchvision": "0.24.0+cu128 torch==2.9.0"}),
    "a user whose name is not ASCII": Machine(
        ("torch.cpu-build",), python={"torch": CPU}, python_name="Jürgen Müller 模型"
    ),
    "a GPU that computes alone (TCC)": Machine(cards=(T4,), models=(TCC, TCC)),
    "a GPU that computes alone (MCDM)": Machine(cards=(T4,), models=(MCDM, MCDM)),
    "TCC from the next restart on": Machine(("driver.model-pending",), models=(WDDM, TCC), says="set to be in TCC"),
    "TCC beside WSL": Machine(cards=(T4,), models=(TCC, TCC), keys=_wsl(2), says="in which WSL does not see it"),
    "WSL 2": Machine(keys=_wsl(2)),
    "WSL 1": Machine(keys=_wsl(1), says="runs in WSL 1"),
    "NVML that crashes": Machine(("nvml.failed",), faults=({"call": "nvmlInit", "do": "crash"},)),
    "no nvml.dll": Machine(("nvml.failed",), libraries=("nvcuda",)),
    "cuInit that crashes": Machine(
        ("driver.cuda-failed",), cuda_faults=({"call": "cuInit", "do": "crash"},), level="standard"
    ),
    "no nvcuda.dll": Machine(("driver.cuda-failed",), libraries=("nvml",), level="standard"),
    "a GPU that Windows reset": Machine(("gpu.reset-by-windows",), events=(RESET,), says="within 8 s"),
    "a GPU that Windows reset, by its own event": Machine(
        ("gpu.reset-by-windows",), events=("<no event", event(4101, "nvlddmkm", provider="Display"))
    ),
    "another event of the driver": Machine(events=(event(14, r"\Device\Video3", "a state of its own"),)),
    "AMD's driver was restarted": Machine(events=(event(4101, "amdwddmg", provider="Display"),)),
    "a log that may not be read": Machine(events=("refused",), unjudged="gpu.reset-by-windows"),
    "the Store's alias and no Python": Machine(("env.store-python",), store=("python.exe",)),
    "a Python of the Store": Machine(store=("python.exe", "PythonSoftwareFoundation.Python.3.12_qbz5n2kfra8p0")),
    "no Visual C++ run-time": Machine(("env.vc-runtime",), python={"torch": CUDA}, without=("msvcp140.dll",)),
    "no Visual C++ run-time, and nothing that needs it": Machine(without=("msvcp140.dll",)),
    "no GPU shown to CUDA": Machine(("env.visible-devices",), environ={"CUDA_VISIBLE_DEVICES": "-1"}),
    "one GPU shown to CUDA": Machine(environ={"CUDA_VISIBLE_DEVICES": "0"}),
    "drives and servers on PATH that are not there": Machine(
        environ={"PATH": "Q:\\nothing;\\\\127.0.0.1\\nothing\\bin;C:\\windows;C:\\windows\\system32"}
    ),
    "a time limit that is switched off": Machine(
        keys={f"{_CONTROL}\\GraphicsDrivers": '"TdrLevel"=dword:00000000'}, events=()
    ),
}


@pytest.fixture(scope="module")
def doctor() -> Iterator[tuple[Windows, Doctor]]:
    """The machine, and the process that diagnoses it."""
    windows = rig()
    with windows.taken():
        process = Doctor(windows)
        yield windows, process
        process.close()
        windows.registry(_settings({}))


def _settings(keys: Mapping[str, str]) -> str:
    """Registry text that takes what machines here set away, then sets these keys."""
    graphics = f"{_CONTROL}\\GraphicsDrivers"
    lines = [f"[-{_LXSS}]", f"[-{graphics}]", f'[{graphics}]\n"TdrDelay"=dword:00000008']
    return "\n\n".join([*lines, *(f"[{key}]\n{text}" for key, text in keys.items())])


def _install_driver(windows: Windows, machine: Machine) -> None:
    """Lay out what NVML and CUDA answer."""
    working = [card for card in machine.cards if card.vendor == "10DE" and not card.problem and not card.service]
    listed = [PROFILES[card._replace(driver=RTX_4090.driver)] for card in working]
    records = [scenario.load(scenario.PROFILES / f"{name}.json") for name in listed or ["rtx4090"]]
    nvml = records[0].nvml
    cuda = records[0].cuda
    assert nvml
    assert cuda
    release = _RELEASES[machine.driver]
    system = {
        **nvml["system"],
        "nvmlSystemGetDriverVersion": machine.driver,
        "nvmlSystemGetCudaDriverVersion": release,
        "nvmlDeviceGetCount": len(listed),
    }
    gpus = [
        {**record.nvml["gpus"][0], "nvmlDeviceGetDriverModel": list(machine.models)}
        for record in records
        if record.nvml
    ]
    for number, gpu in enumerate(gpus):
        gpu["nvmlDeviceGetUUID"] = f"GPU-72f7d108-ffd3-52a1-a91f-ebb07ace968{number}"
    windows.driver(
        {**nvml, "system": system, "gpus": gpus[: len(listed)], "faults": list(machine.faults)}
        if "nvml" in machine.libraries
        else None,
        {
            **cuda,
            "system": {**cuda["system"], "cuDriverGetVersion": release},
            "gpus": cuda["gpus"][: len(listed)],
            "faults": list(machine.cuda_faults),
        }
        if "nvcuda" in machine.libraries
        else None,
    )


@contextmanager
def _files(windows: Windows, machine: Machine) -> Iterator[None]:
    """Take DLLs away and lay the Store's folder out, and undo both."""
    store = windows.folder / "prefix/drive_c" / _STORE[3:].replace("\\", "/")
    away = [windows.system / name for name in machine.without]
    try:
        for path in away:
            path.rename(path.with_suffix(".away"))
        for name in machine.store:
            store.mkdir(parents=True, exist_ok=True)
            (store / name).touch()
        yield
    finally:
        shutil.rmtree(store, ignore_errors=True)
        for path in away:
            path.with_suffix(".away").rename(path)


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_is_judged_right(name: str, doctor: tuple[Windows, Doctor]) -> None:
    windows, process = doctor
    machine = MACHINES[name]
    windows.registry(f"{registry(*machine.cards)}\n\n{_settings(machine.keys)}")
    _install_driver(windows, machine)
    process.events(machine.events or ())
    words: Sequence[str] = ("--level", machine.level)
    if machine.python:
        words = (*words, "--python", patient(windows, machine.python_name, **machine.python))
    environ = dict(machine.environ)
    if machine.store:
        environ["PATH"] = f"{_STORE};C:\\windows;C:\\windows\\system32"
    with _files(windows, machine):
        ran = process.check(words, environ)
    assert not ran.err
    document = ran.document
    findings = document["findings"]
    titles = [finding["title"] for finding in findings]
    loud = [finding["id"] for finding in findings if finding["severity"] != "info"]
    folded = {one for finding in findings for one in finding["explains"]}
    assert loud[:1] == list(machine.finds[:1]), titles
    assert set(loud) - folded == set(machine.finds), titles
    assert ran.code == int(any(finding["severity"] == "error" for finding in findings)), ran.err
    assert machine.says in " ".join(titles)
    assert machine.unjudged in {"", *(page["id"] for page in document["unjudged"])}
    assert left(process.left) == []
