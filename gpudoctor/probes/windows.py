"""Windows: its display devices and their driver, memory and page file, run-times, and settings that steer CUDA.

A child asks Windows' own calls (``children/ask_windows.py``). What has the same meaning elsewhere is told by the name
that it has there: ``host.kernel`` is Windows' build, ``driver.version`` the driver's number as NVIDIA counts it.
"""

from __future__ import annotations

import re
import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Reason, Row, Rows, Unread, Value, known_facts
from gpudoctor.probes._pci_bus import VENDORS
from gpudoctor.probes.children import script
from gpudoctor.target import Target, system_paths
from gpudoctor.target.protocol import answers, printable

ONLY = "windows"
WAITS = True
FACTS = (
    fact("windows.commit_limit_mib", "int", "memory and page files together: what all programs may commit", "MiB"),
    fact("windows.commit_left_mib", "int", "what of it is left", "MiB"),
    fact("windows.page_file_mib", "int", "size of all page files now", "MiB"),
    fact("windows.long_paths", "bool", "whether programs may use paths longer than 260 characters"),
    fact("windows.tdr_delay_s", "int", "seconds after which Windows resets a GPU that does not answer (TdrDelay)", "s"),
    fact(
        "windows.tdr_ddi_delay_s",
        "int",
        "seconds that a driver may take to stop, else Windows halts (TdrDdiDelay)",
        "s",
    ),
    fact("windows.tdr_off", "bool", "whether that is switched off (TdrLevel 0)"),
    fact("windows.gpu_scheduling", "bool", "whether the GPU schedules its work itself (HwSchMode); absent: not set"),
    fact(
        "windows.gpu_preference", "text", "GPU that the user chose for the interpreter: power saving, high performance"
    ),
    fact("windows.app_control", "text", "Smart App Control: off, on, evaluation; absent where Windows has none"),
    fact("windows.controlled_folders", "text", "Defender's controlled folder access: off, on, audit"),
    fact("windows.remote_session", "bool", "whether this is a session of Remote Desktop"),
    fact("windows.hyper_v", "bool", "whether Hyper-V's management service is installed and enabled"),
    fact("windows.wsl_installed", "bool", "whether this user has a distribution of WSL"),
    fact("windows.wsl_version", "int", "version of WSL that the user's default distribution runs in: 1 or 2"),
    fact(
        "windows.store_python", "bool", "whether python on PATH is the Microsoft Store's alias, which may be no Python"
    ),
    fact("windows.nvml_dll", "text", "version of System32\\nvml.dll; absent where there is none"),
    fact("windows.nvcuda_dll", "text", "version of System32\\nvcuda.dll; absent where there is none"),
    fact("windows.runtimes_missing", "list", "DLLs of the Visual C++ run-time that System32 lacks and torch needs"),
    fact("windows.python_machine", "text", "what the interpreter was compiled for: x86, x86_64 or aarch64"),
    column("path_dll.name", "text", "a CUDA or cuDNN DLL in a folder of PATH: cudart64_12.dll"),
    column("path_dll.path", "text", "where it is"),
    column("path_dll.first", "bool", "whether it is the first of its name, which a program that searches PATH loads"),
    column("driver_event.id", "int", "event of the last day about the GPU's driver in Windows' log, such as 153"),
    column("driver_event.provider", "text", "who logged it: nvlddmkm (the driver), Display (Windows, for any driver)"),
    column("driver_event.is_reset", "bool", "whether it says that a GPU that did not answer in time was reset (TDR)"),
    column("driver_event.text", "text", "what it says"),
    column("driver_event.time", "text", "when it was logged, in UTC, such as 2026-11-21T13:05:11Z"),
    column("driver_event.age_s", "int", "time since then", "s"),
    column("display.name", "text", "a display or 3D device of the PCI bus, as Windows calls it"),
    column("display.vendor", "text", "nvidia, amd, intel or other"),
    column("display.device_id", "text", "vendor and device id, 10de:2684"),
    column("display.driver", "text", "service that drives it, such as nvlddmkm; absent without one"),
    column("display.driver_version", "version", "version of its driver as Windows counts, such as 32.0.15.8129"),
    column("display.driver_date", "text", "date of its driver, such as 7-25-2026"),
    column("display.problem", "int", "code that the device manager shows; 0 where it works properly"),
    column("display.memory_mib", "int", "its own memory, as the driver has entered it", "MiB"),
)

DEADLINE = 20.0
_CHILD_SECONDS = 15.0
_MIB = 1 << 20
_BASIC = ("basicdisplay", "basicrender", "vga")
"""Services of Microsoft's own drivers, which serve any card."""
_HYPERVISORS = (
    ("hyper-v", r"microsoft corporation virtual"),
    ("vmware", r"vmware"),
    ("amazon", r"amazon ec2"),
    ("google", r"google"),
    ("virtualbox", r"virtualbox|innotek"),
    ("kvm", r"kvm|qemu|openstack|proxmox|nutanix"),
    ("xen", r"\bxen\b|hvm domu"),
    ("parallels", r"parallels"),
)
_MACHINES = {0x14C: "x86", 0x8664: "x86_64", 0xAA64: "aarch64"}
"""Field Machine of a PE file."""
_APP_CONTROL = {0: "off", 1: "on", 2: "evaluation"}
_CONTROLLED = {0: "off", 1: "on", 2: "audit", 3: "on", 4: "audit"}
"""1 and 3 block, 2 and 4 audit: 3 and 4 are about disk sectors alone."""
_PREFERENCES = {"1": "power saving", "2": "high performance"}
_EVENT = {"": "http://schemas.microsoft.com/win/2004/08/events/event"}
_RESET = re.compile(r"TDR occurred|stopped responding and has (?:successfully )?recovered")
_NEEDED = ("vcruntime140.dll", "vcruntime140_1.dll", "msvcp140.dll")
Answers = Mapping[str, Any]


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields ``windows`` facts, the groups display, pci, path_dll and driver_event, and facts of host and driver."""
    yield "host.platform", Known("windows", "the platform of the Python that runs this")
    yield "windows.python_machine", _python_machine(target)
    replies, why = _ask(target)
    yield from _system_facts(replies.get("system", why))
    yield from _memory_facts(replies.get("memory", why))
    yield from _setting_facts(replies.get("settings", why), target)
    yield from _file_facts(replies.get("files", why))
    yield from _device_facts(replies.get("devices", why), replies.get("files", why))
    yield "windows.store_python", _store_python(target)
    yield "path_dll", _path_dlls(replies.get("path_dlls", why))
    events, now = replies.get("events", why), time.time()
    yield (
        "driver_event",
        events if isinstance(events, Unread) else tuple(filter(None, (_driver_event(e, now) for e in events))),
    )


def _ask(target: Target) -> tuple[Answers, Unread]:
    """Run ask_windows.py.

    (its answers by question, an `Unread` with how it ended, for questions that it did not answer). The answer to a
    question that failed is an `Unread`.
    """
    argv = [sys.executable, "-I", "-S", *script("ask_windows.py")]
    try:
        answer = target.run(argv, _CHILD_SECONDS)
    except OSError as error:
        return {}, Unread(f"the child that asks Windows could not be started: {error.strerror or error}")
    replies: dict[str, Any] = {}
    asked = ""
    for entry in answers(answer.out):
        asked = str(entry.get("ask", asked))
        if "call" in entry:
            failed = Unread(f"Windows: {printable(entry.get('text'))}", reason=Reason.FAILED)
            replies[str(entry["call"])] = entry.get("is", failed)
    why = f"the child that asks Windows ended at {asked or 'its start'}: {answer.how}"
    return replies, Unread(why, reason=answer.reason)


def _answer_fact(part: Any, name: str, source: str) -> Fact:
    """The value `name` of the child's answer `part` as a fact; unread if it is missing or empty, or as `part` is."""
    if isinstance(part, Unread):
        return part
    value = part.get(name)
    return Unread(f"{source} does not say") if value in (None, "") else Known(value, source)


# ---- The system ----


def _system_facts(part: Any) -> Iterator[tuple[str, Fact]]:
    """Yields host.kernel, os, arch, cpu_vendor, uptime_s and virtual_machine, by the child's answer ``system``.

    The virtual machine is known by the maker and model in the firmware, absent if these name no hypervisor.
    """
    version = "RtlGetVersion"
    yield "host.kernel", _answer_fact(part, "version", version)
    yield "host.os", part if isinstance(part, Unread) else Known(_product(part), version)
    yield "host.arch", _answer_fact(part, "machine", "IsWow64Process2")
    yield "host.cpu_vendor", _answer_fact(part, "processor", "registry: CentralProcessor")
    yield "host.uptime_s", _answer_fact(part, "uptime", "GetTickCount64")
    if isinstance(part, Unread):
        yield "host.virtual_machine", part
        return
    firmware = f"{part.get('maker') or ''} {part.get('model') or ''}".strip()
    engine = next((name for name, words in _HYPERVISORS if re.search(words, firmware.lower())), "")
    source = f"registry: BIOS: {firmware}"
    if not firmware:
        yield "host.virtual_machine", Unread("the firmware names no maker")
    else:
        yield "host.virtual_machine", Known(engine, source) if engine else Absent(f"{source} names no hypervisor")


def _product(part: Answers) -> str:
    """Windows' name, release and build: ``Windows 11 Pro 23H2 (22631.4317)``. The registry calls 11 Windows 10."""
    name, build = str(part.get("product") or "Windows"), str(part["version"]).rpartition(".")[2]
    if int(build) >= 22000:
        name = name.replace("Windows 10", "Windows 11")
    revision = f".{part['revision']}" if part.get("revision") else ""
    return " ".join(filter(None, (name, part.get("release"), f"({build}{revision})")))


def _memory_facts(part: Any) -> Iterator[tuple[str, Fact]]:
    """Yields host.memory_mib, and the commit limit, what is left of it and the page file (``windows``), in MiB."""
    source = "GlobalMemoryStatusEx"
    if isinstance(part, Unread):
        names = ("host.memory_mib", "windows.commit_limit_mib", "windows.commit_left_mib", "windows.page_file_mib")
        yield from ((name, part) for name in names)
        return
    yield "host.memory_mib", Known(part["physical"] // _MIB, source)
    yield "windows.commit_limit_mib", Known(part["commit_limit"] // _MIB, source)
    yield "windows.commit_left_mib", Known(part["commit_left"] // _MIB, source)
    yield "windows.page_file_mib", Known(max(0, part["commit_limit"] - part["physical"]) // _MIB, source)


def _setting(part: Any, name: str, source: str) -> Fact:
    """A setting's value; unread where the child failed or the key may not be read, absent where it is not set."""
    if isinstance(part, Unread):
        return part
    value = part[name]
    if isinstance(value, Mapping):
        return Unread(f"registry: {printable(value['refused'])}", reason=Reason.DENIED)
    return Absent(f"{source} is not set") if value is None else Known(value, f"registry: {source}")


def _translated(state: Fact, names: Mapping[Any, Value], unset: Fact | None = None) -> Fact:
    """A numeric setting translated by `names`, unread if these lack it; if it is absent, `unset` where given."""
    if isinstance(state, Absent) and unset:
        return unset
    if not isinstance(state, Known):
        return state
    name = names.get(state.value)
    return (
        Unread(f"{state.source} is {state.value}, which has no name here")
        if name is None
        else Known(name, state.source)
    )


def _setting_facts(part: Any, target: Target) -> Iterator[tuple[str, Fact]]:
    """Yields facts on Secure Boot, long paths, TDR, GPU scheduling, Smart App Control and controlled folders.

    Also Hyper-V, Remote Desktop, WSL, GPU preference. A setting that is not set has Windows' default, or is absent.
    """
    off = Known(False, "not set, which means off")
    secure = _translated(_setting(part, "secure_boot", "SecureBoot\\State"), {0: False, 1: True})
    yield (
        "host.secure_boot",
        Absent("booted without UEFI, or it has no Secure Boot") if isinstance(secure, Absent) else secure,
    )
    yield "windows.long_paths", _translated(_setting(part, "long_paths", "LongPathsEnabled"), {0: False, 1: True}, off)
    for name, value, default in (("tdr_delay", "TdrDelay", 2), ("tdr_ddi_delay", "TdrDdiDelay", 5)):
        state = _setting(part, name, f"GraphicsDrivers: {value}")
        yield f"windows.{name}_s", Known(default, f"{state.why}: the default") if isinstance(state, Absent) else state
    level = _setting(part, "tdr_level", "GraphicsDrivers: TdrLevel")
    yield "windows.tdr_off", _translated(level, {0: True, 1: False, 2: False, 3: False}, off)
    yield "windows.gpu_scheduling", _translated(_setting(part, "gpu_scheduling", "HwSchMode"), {1: False, 2: True})
    yield (
        "windows.app_control",
        _translated(_setting(part, "app_control", "VerifiedAndReputablePolicyState"), _APP_CONTROL),
    )
    guard = _setting(part, "controlled_folders", "Controlled Folder Access")
    yield "windows.controlled_folders", _translated(guard, _CONTROLLED, Known("off", "not set, which means off"))
    service = _setting(part, "hyper_v", "Services\\vmms")
    start = {0: True, 1: True, 2: True, 3: True, 4: False}
    yield "windows.hyper_v", _translated(service, start, Known(False, "there is no service vmms"))
    remote = part if isinstance(part, Unread) else Known(part["remote"], "SM_REMOTESESSION")
    yield "windows.remote_session", remote
    version = _setting(part, "wsl", "Lxss")
    none = Absent("this user has no distribution of WSL")
    yield "windows.wsl_version", none if isinstance(version, Absent) else version
    installed = Known(isinstance(version, Known), "registry: Lxss")
    yield "windows.wsl_installed", version if isinstance(version, Unread) else installed
    yield "windows.gpu_preference", part if isinstance(part, Unread) else _gpu_preference(part["preferences"], target)


def _gpu_preference(preferences: Answers, target: Target) -> Fact:
    """The GPU that the user chose for the interpreter: power saving or high performance; absent if Windows chooses.

    CUDA lists NVIDIA's either way; DirectX and OpenGL follow the setting.
    """
    python = (target.python or "").replace("/", "\\").lower()
    chosen = next((str(text) for path, text in preferences.items() if path.lower() == python), "")
    name = _PREFERENCES.get(next(iter(re.findall(r"GpuPreference=(\d)", chosen)), ""))
    return Known(name, "registry: UserGpuPreferences") if name else Absent("Windows chooses: no preference is set")


def _store_python(target: Target) -> Fact:
    """Whether PATH's first ``python`` is the Microsoft Store's alias without a Python that the Store has installed.

    Absent if PATH has no python.
    """
    for folder in system_paths.search_list(target.environ.get("PATH", ""), target.system):
        alias = f"{folder}/python.exe"
        names = target.listing(folder) if system_paths.is_store_alias(alias) else []
        if "python.exe" in names:
            return Known(not any(name.startswith("PythonSoftwareFoundation.") for name in names), alias)
        if any(map(target.exists, system_paths.programs(folder, "python", system=target.system))):
            return Known(False, folder)
    return Absent("PATH has no python")


def _path_dlls(part: Any) -> Rows:
    """Rows of the CUDA DLLs in PATH's order: name, path, and first (of its name); absent without one."""
    if isinstance(part, Unread):
        return part
    rows: list[Row] = []
    names: set[str] = set()
    for dll in part:
        source = "PATH"
        first = Known(dll["name"] not in names, source)
        names.add(dll["name"])
        rows.append({"name": Known(dll["name"], source), "path": Known(dll["path"], source), "first": first})
    return tuple(rows) or Absent("no folder of PATH has a CUDA or cuDNN DLL")


def _driver_event(text: str, now: float) -> Row | None:
    """The row of one event: id, provider, is_reset (TDR), text, time (UTC) and age_s, in seconds before `now`.

    None if it is malformed (EvtRenderEventXml), or Windows' provider Display reports another vendor's driver.
    """
    from xml.etree import ElementTree  # most machines have no such event

    try:
        event = ElementTree.fromstring(text)
        number = int(event.findtext("System/EventID", "", _EVENT))
        provider = next(event.iterfind("System/Provider", _EVENT)).get("Name", "")
        logged = next(event.iterfind("System/TimeCreated", _EVENT)).get("SystemTime", "")
        seconds = datetime.strptime(logged[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
    except (ElementTree.ParseError, ValueError, StopIteration):
        return None
    parts = [data.text.strip() for data in event.iterfind("EventData/Data", _EVENT) if data.text]
    message = printable(" ".join(part for part in parts if part))
    if provider == "Display" and "nvlddmkm" not in message:
        return None  # Windows restarted another vendor's driver
    source = f"event log: System, {provider} {number}"
    is_reset = provider == "Display" or bool(_RESET.search(message))
    return {
        **known_facts(source, id=number, provider=provider, is_reset=is_reset),
        "text": Known(message, source) if message else Absent("the event carries no text of its own"),
        "time": Known(f"{logged[:19]}Z", source),
        "age_s": Known(max(0, int(now - seconds)), source),
    }


def _file_facts(part: Any) -> Iterator[tuple[str, Fact]]:
    """Yields the versions of nvml.dll and nvcuda.dll in System32 (absent without one), and missing Visual C++ DLLs."""
    for name in ("nvml", "nvcuda"):
        if isinstance(part, Unread):
            yield f"windows.{name}_dll", part
        elif part[f"{name}.dll"] is None:
            yield f"windows.{name}_dll", Absent(f"no System32\\{name}.dll", Reason.MISSING)
        else:
            version = part[f"{name}.dll"]
            state = Known(version, f"System32\\{name}.dll") if version else Unread(f"{name}.dll names no version")
            yield f"windows.{name}_dll", state
    if isinstance(part, Unread):
        yield "windows.runtimes_missing", part
        return
    yield "windows.runtimes_missing", Known(tuple(name for name in _NEEDED if part[name] is None), "System32")


def _python_machine(target: Target) -> Fact:
    """The processor that the interpreter was compiled for (x86, x86_64, aarch64), by its PE header.

    Absent without an interpreter; unread if the file cannot be read or is no PE file.
    """
    python = target.python
    if not python:
        return Absent("there is no Python interpreter")
    try:
        head = target.read_bytes(python, 4096)
        (place,) = struct.unpack_from("<I", head, 0x3C)
        signature, machine = struct.unpack_from("<4sH", head, place)
    except OSError as error:
        return Unread(f"{python}: {error.strerror or error}")
    except struct.error:
        return Unread(f"{python} is no PE file")
    name = _MACHINES.get(machine) if signature == b"PE\0\0" else None
    return Known(name, python) if name else Unread(f"{python} is no PE file of a known machine")


# ---- Display devices and their driver ----


def _device_facts(part: Any, files: Any) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the groups ``display`` and ``pci`` (display devices alone) and the facts on bus and driver that follow.

    Those are pci.nvidia_count, gpu_vendors, nvidia_drivers, driver.version and driver.installed. All are unread if the
    child did not list the devices (`part`).
    """
    if isinstance(part, Unread):
        names = ("pci.nvidia_count", "pci.gpu_vendors", "pci.nvidia_drivers", "driver.version", "driver.installed")
        yield from ((name, part) for name in (*names, "display", "pci"))
        return
    rows = tuple(_device_row(device) for device in part)
    none = Absent("Windows lists no display device on the PCI bus")
    yield "display", rows or none
    source = "SetupAPI"
    nvidia = [device for device in part if _ids(device)[0] == "10de"]
    vendors = dict.fromkeys(VENDORS.get(_ids(device)[0], "other") for device in part)
    drivers = dict.fromkeys(device["service"].lower() for device in nvidia if device["service"])
    yield "pci.nvidia_count", Known(len(nvidia), source)
    yield "pci.gpu_vendors", Known(tuple(vendors), source)
    yield "pci.nvidia_drivers", Known(tuple(drivers), source)
    yield "pci.devices", Unread("only display devices are listed")
    columns = ("name", "vendor", "device_id", "driver")
    yield "pci", tuple({name: row[name] for name in columns} for row in rows) or none
    yield from _driver_facts(nvidia, files)


def _driver_facts(nvidia: Sequence[Answers], files: Any) -> Iterator[tuple[str, Fact]]:
    """Yields driver.version as NVIDIA counts (not without an NVIDIA device), and driver.installed.

    Microsoft's basic display driver is none; nvcuda.dll in System32 counts as installed.
    """
    served = [device for device in nvidia if device["service"] and device["service"].lower() not in _BASIC]
    versions = [version for device in served if (version := nvidia_version(str(device["driver_version"] or "")))]
    if versions:
        yield "driver.version", Known(versions[0], "SetupAPI: DriverVersion of the display device")
    elif nvidia:
        yield "driver.version", Unread("no NVIDIA device has a driver of NVIDIA's that names its version")
    library = not isinstance(files, Unread) and files["nvcuda.dll"] is not None
    if served or library:
        yield "driver.installed", Known(True, "SetupAPI" if served else "System32\\nvcuda.dll")
    elif isinstance(files, Unread):
        yield "driver.installed", files
    else:
        yield "driver.installed", Known(False, "SetupAPI, and no nvcuda.dll in System32")


def nvidia_version(version: str) -> str:
    """The version as NVIDIA counts it, ``581.29`` for Windows' ``32.0.15.8129``: its last five digits; else empty."""
    parts = version.split(".")
    if len(parts) != 4 or not all(part.isdigit() for part in parts):
        return ""
    digits = f"{parts[2]}{parts[3].zfill(4)}"[-5:]
    return f"{digits[:3]}.{digits[3:]}" if len(digits) == 5 else ""


def _ids(device: Answers) -> tuple[str, str]:
    """PCI vendor and device id in lower case, four hex digits each; both empty where the hardware id has none."""
    match = re.search(r"VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})", str(device["hardware"]), re.I)
    return (match[1].lower(), match[2].lower()) if match else ("", "")


def _device_row(device: Answers) -> Row:
    """The row of one display device: name, vendor, device_id, driver, driver_version, driver_date, problem, memory_mib.

    Columns of a driver are absent without one; others that Windows does not give are unread.
    """
    source = "SetupAPI"
    vendor, number = _ids(device)
    absent = Absent("no driver is installed for it")
    problem, memory = device["problem"], device["memory"]
    version, date = device["driver_version"], device["driver_date"]
    return {
        "name": Known(device["name"], source) if device["name"] else Unread("it has no name"),
        "vendor": Known(VENDORS.get(vendor, "other"), source),
        "device_id": Known(f"{vendor}:{number}", source) if vendor else Unread("its hardware id names none"),
        "driver": Known(device["service"], source) if device["service"] else absent,
        "driver_version": Known(version, source) if version else absent,
        "driver_date": Known(date, source) if date else absent,
        "problem": Unread("Windows does not say") if problem is None else Known(problem, "the device manager's code"),
        "memory_mib": Known(memory // _MIB, "registry") if isinstance(memory, int) else Unread("not entered"),
    }
