"""Windows machines, sick and sound: the verdict and the first cause are right, and no child is left.

Registry, driver and event log of each are laid out, then one process of gpudoctor diagnoses it with its real children.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpudoctor.core.document import parse_toml
from tests import needs
from tests.processes import Ran, left
from tests.sim import scenario
from tests.windows.machines import RTX_4090, Card, patient, registry
from tests.windows.rig import COMPILER, NATIVE, Windows
from tests.windows.rig import windows as rig

_CONTROL = r"HKEY_LOCAL_MACHINE\SYSTEM\CurrentControlSet\Control"
_LXSS = r"HKEY_CURRENT_USER\Software\Microsoft\Windows\CurrentVersion\Lxss"
_STORE = "C:\\users\\tester\\AppData\\Local\\Microsoft\\WindowsApps"
WDDM = 0
CARDS = {
    "RTX 4090": RTX_4090,
    "RTX 5090": Card("NVIDIA GeForce RTX 5090", device="2B85"),
    "GTX 1080 Ti": Card("NVIDIA GeForce GTX 1080 Ti", device="1B06"),
    "RTX 4070 Laptop": Card("NVIDIA GeForce RTX 4070 Laptop GPU", device="2860"),
    "T4": Card("Tesla T4", device="1EB8"),
    "Intel": Card("Intel(R) UHD Graphics 770", "8086", "4680", "31.0.101.4502"),
    "AMD": Card("AMD Radeon(TM) Graphics", "1002", "164E", "31.0.21029.1006"),
}
_RECORDS = ("rtx4090", "rtx5090", "gtx1080ti", "laptop-4070", "t4")
PROFILES = dict(zip(CARDS.values(), _RECORDS, strict=False))
"""Of NVIDIA's cards."""

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


def event(number: int, texts: Sequence[str], provider: str = "nvlddmkm") -> str:
    """An event of the system's log as Windows renders one, logged five minutes ago."""
    logged = datetime.now(timezone.utc) - timedelta(minutes=5)
    data = "".join(f"<Data>{text}</Data>" for text in texts)
    return (
        "<Event xmlns='http://schemas.microsoft.com/win/2004/08/events/event'><System>"
        f"<Provider Name='{provider}'/><EventID Qualifiers='49322'>{number}</EventID><Level>2</Level>"
        f"<TimeCreated SystemTime='{logged:%Y-%m-%dT%H:%M:%S}.1234567Z'/><EventRecordID>4711</EventRecordID>"
        f"<Channel>System</Channel><Computer>BOX</Computer><Security/></System><EventData>{data}"
        "<Binary>0000000002003000</Binary></EventData></Event>"
    )


def _card(raw: str | dict[str, Any]) -> Card:
    """That card, or one ``of`` it in which something differs."""
    return CARDS[raw] if isinstance(raw, str) else CARDS[raw.pop("of", "RTX 4090")]._replace(**raw)


def _machine(raw: dict[str, Any]) -> Machine:
    """A table of ``machines.toml``."""
    if "cards" in raw:
        raw["cards"] = [_card(card) for card in raw["cards"]]
    events = (one if isinstance(one, str) else event(**one) for one in raw.get("events", ()))
    keys = {"keys": _wsl(raw.pop("wsl"))} if "wsl" in raw else {}
    lists: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()}
    return Machine(**{**lists, **keys, "events": tuple(events)})


_TABLE = parse_toml(Path(__file__).with_name("machines.toml").read_text("utf-8"))
MACHINES = {name: _machine(raw) for name, raw in _TABLE.items()}


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


@pytest.mark.full
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
        ran = process.run(["check", "--json", *words], environ)
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


_OVERRIDES = "mscoree=d;mshtml=d;winedbg.exe=d;wevtapi=n,b"


class Doctor:
    """gpudoctor in one process of that machine, told by standard input what to do."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        library = windows.folder / "dll/wevtapi.dll"
        source = NATIVE / "wevtapi.c"
        if not library.is_file() or library.stat().st_mtime < source.stat().st_mtime:
            argv = [COMPILER, "-Wall", "-Wextra", "-Werror", "-shared", "-o", str(library), str(source)]
            subprocess.run(argv, check=True)
        shutil.copyfile(library, windows.system / "wevtapi.dll")
        self._process = subprocess.Popen(
            [needs.program("wine"), "D:\\py\\python.exe", "-m", "tests.windows.there.diagnose"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**windows._environ(), "WINEDLLOVERRIDES": _OVERRIDES, "PYTHONUTF8": "1"},
            cwd=windows.folder,
            text=True,
            encoding="utf-8",
        )

    def events(self, events: Sequence[str]) -> None:
        """Have the log hold these events; ``refused`` for one that may not be read."""
        (self._windows.system / "events.xml").write_text("\n".join(events), "utf-8")

    def run(self, words: Sequence[str], environ: Mapping[str, str] | None = None, stdin: str = "") -> Ran:
        """Run ``gpudoctor`` with these words."""
        assert self._process.stdin
        assert self._process.stdout
        asked = {"words": words, "environ": dict(environ or {}), "stdin": stdin}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return Ran(*json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process, and leave the log as Wine has it."""
        self._process.communicate(timeout=600)
        (self._windows.system / "events.xml").unlink(missing_ok=True)

    def left(self) -> list[str]:
        """The command lines of children that still run."""
        return [line for line in _command_lines(self._windows.folder) if "ask_" in line or "nvidia-smi" in line]


def _command_lines(folder: Path) -> list[str]:
    """The command lines of processes that run in that folder's Wine."""
    lines: list[Any] = []
    mark = f"WINEPREFIX={folder}/prefix".encode()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (place / "environ").read_bytes().split(b"\0"):
                lines.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue
    return lines
