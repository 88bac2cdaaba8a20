"""Windows: its display devices and their driver, memory and page file, run-times, and settings that steer CUDA.

A child asks Windows' own calls (``children/ask_windows.py``). What has the same meaning elsewhere is told by the name
that it has there: ``host.kernel`` is Windows' build, ``driver.version`` the driver's number as NVIDIA counts it.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Reason, Row, Rows, Unread
from gpudoctor.probes.children import script
from gpudoctor.target import Target
from gpudoctor.target.protocol import answers, printable

ONLY = "windows"
WAITS = True
FACTS = (
    fact("windows.commit_limit_mib", "int", "memory and page files together: what all programs may commit", "MiB"),
    fact("windows.commit_left_mib", "int", "what of it is left", "MiB"),
    fact("windows.page_file_mib", "int", "size of all page files now", "MiB"),
    fact("windows.long_paths", "bool", "whether programs may use paths longer than 260 characters"),
    fact("windows.tdr_delay_s", "int", "seconds after which Windows resets a GPU that does not answer (TdrDelay)", "s"),
    fact("windows.tdr_off", "bool", "whether that is switched off (TdrLevel 0)"),
    fact("windows.remote_session", "bool", "whether this is a session of Remote Desktop"),
    fact("windows.wsl_installed", "bool", "whether this user has a distribution of WSL"),
    fact("windows.nvml_dll", "text", "version of System32\\nvml.dll; absent where there is none"),
    fact("windows.nvcuda_dll", "text", "version of System32\\nvcuda.dll; absent where there is none"),
    fact("windows.runtimes_missing", "list", "DLLs of the Visual C++ run-time that System32 lacks and torch needs"),
    fact("windows.python_machine", "text", "what the interpreter was compiled for: x86, x86_64 or aarch64"),
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
_SECONDS = 15.0
_MIB = 1 << 20
_VENDORS = {"10de": "nvidia", "1002": "amd", "8086": "intel"}
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
_NEEDED = ("vcruntime140.dll", "vcruntime140_1.dll", "msvcp140.dll")
Answers = Mapping[str, Any]


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the ``windows`` facts, the group ``display``, and the facts of host, bus and driver that they give."""
    yield "host.platform", Known("windows", "the platform of the Python that runs this")
    yield "windows.python_machine", _python_machine(target)
    replies, why = _ask(target)
    yield from _system_facts(_part(replies, "system", why))
    yield from _memory_facts(_part(replies, "memory", why))
    yield from _setting_facts(_part(replies, "settings", why))
    yield from _file_facts(_part(replies, "files", why))
    yield from _device_facts(_part(replies, "devices", why), _part(replies, "files", why))


def _ask(target: Target) -> tuple[Answers, Unread]:
    """What the child answered by question, and why the rest is not known."""
    argv = [sys.executable, "-I", "-S", *script("ask_windows.py")]
    try:
        answer = target.run(argv, _SECONDS)
    except OSError as error:
        return {}, Unread(f"the child that asks Windows could not be started: {error.strerror or error}")
    replies: dict[str, Any] = {}
    asked = ""
    for entry in answers(answer.out):
        asked = str(entry.get("ask", asked))
        if "call" in entry:
            failed = Unread(f"Windows: {printable(entry.get('text'))}", reason=Reason.FAILED)
            replies[str(entry["call"])] = entry.get("is", failed)
    reason = Reason.TIMED_OUT if answer.status is None else Reason.CRASHED
    return replies, Unread(f"the child that asks Windows ended at {asked or 'its start'}: {answer.how}", reason=reason)


def _part(replies: Answers, name: str, why: Unread) -> Any:
    """The answer to a question; an `Unread` where there is none."""
    return replies.get(name, why)


def _fact(part: Any, name: str, source: str, missing: str = "") -> Fact:
    """A value of an answer; absent (or unread, without words for that) where Windows has none."""
    if isinstance(part, Unread):
        return part
    value = part.get(name)
    if value in (None, ""):
        return Absent(missing) if missing else Unread(f"{source} does not say")
    return Known(value, source)


# ---- The system ----


def _system_facts(part: Any) -> Iterator[tuple[str, Fact]]:
    """Facts of the group ``host``."""
    version = "RtlGetVersion"
    yield "host.kernel", _fact(part, "version", version)
    yield "host.os", part if isinstance(part, Unread) else Known(_product(part), version)
    yield "host.arch", _fact(part, "machine", "IsWow64Process2")
    yield "host.cpu_vendor", _fact(part, "processor", "registry: CentralProcessor")
    yield "host.uptime_s", _fact(part, "uptime", "GetTickCount64")
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
    """Name, release and build: ``Windows 11 Pro 23H2 (22631.4317)``. The registry goes on calling 11 Windows 10."""
    name, build = str(part.get("product") or "Windows"), str(part["version"]).rpartition(".")[2]
    if int(build) >= 22000:
        name = name.replace("Windows 10", "Windows 11")
    revision = f".{part['revision']}" if part.get("revision") else ""
    return " ".join(filter(None, (name, part.get("release"), f"({build}{revision})")))


def _memory_facts(part: Any) -> Iterator[tuple[str, Fact]]:
    """Memory, page file and what may be committed."""
    source = "GlobalMemoryStatusEx"
    if isinstance(part, Unread):
        names = ("host.memory_mib", "windows.commit_limit_mib", "windows.commit_left_mib", "windows.page_file_mib")
        yield from ((name, part) for name in names)
        return
    yield "host.memory_mib", Known(part["physical"] // _MIB, source)
    yield "windows.commit_limit_mib", Known(part["commit_limit"] // _MIB, source)
    yield "windows.commit_left_mib", Known(part["commit_left"] // _MIB, source)
    yield "windows.page_file_mib", Known(max(0, part["commit_limit"] - part["physical"]) // _MIB, source)


def _setting_facts(part: Any) -> Iterator[tuple[str, Fact]]:
    """Secure Boot, long paths, the GPU's time limit, Remote Desktop, WSL."""
    if isinstance(part, Unread):
        names = ("long_paths", "tdr_delay_s", "tdr_off", "remote_session", "wsl_installed")
        yield from ((f"windows.{name}", part) for name in names)
        yield "host.secure_boot", part
        return
    secure = part["secure_boot"]
    source = "registry: SecureBoot\\State"
    yield (
        "host.secure_boot",
        Absent("booted without UEFI, or it has no Secure Boot") if secure is None else Known(secure == 1, source),
    )
    yield "windows.long_paths", Known(part["long_paths"] == 1, "registry: LongPathsEnabled")
    graphics = "registry: GraphicsDrivers"
    yield "windows.tdr_delay_s", Known(2 if part["tdr_delay"] is None else part["tdr_delay"], f"{graphics}: TdrDelay")
    yield "windows.tdr_off", Known(part["tdr_level"] == 0, f"{graphics}: TdrLevel")
    yield "windows.remote_session", Known(part["remote"], "SM_REMOTESESSION")
    yield "windows.wsl_installed", Known(bool(part["wsl"]), "registry: Lxss")


def _file_facts(part: Any) -> Iterator[tuple[str, Fact]]:
    """The driver's DLLs and the Visual C++ run-time."""
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
    """What the interpreter was compiled for, from the header of its PE file."""
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
    """The group ``display``, and what it tells of the bus and the driver."""
    if isinstance(part, Unread):
        names = ("pci.nvidia_count", "pci.gpu_vendors", "pci.nvidia_drivers", "driver.version", "driver.installed")
        yield from ((name, part) for name in (*names, "display", "pci"))
        return
    rows = tuple(_device_row(device) for device in part)
    yield "display", rows or Absent("Windows lists no display device on the PCI bus")
    source = "SetupAPI"
    nvidia = [device for device in part if _ids(device)[0] == "10de"]
    vendors = dict.fromkeys(_VENDORS.get(_ids(device)[0], "other") for device in part)
    drivers = dict.fromkeys(device["service"].lower() for device in nvidia if device["service"])
    yield "pci.nvidia_count", Known(len(nvidia), source)
    yield "pci.gpu_vendors", Known(tuple(vendors), source)
    yield "pci.nvidia_drivers", Known(tuple(drivers), source)
    yield "pci.devices", Unread("only display devices are listed")
    yield "pci", tuple(_bus_row(row) for row in rows) or Absent("Windows lists no display device on the PCI bus")
    yield from _driver_facts(nvidia, files)


def _driver_facts(nvidia: Sequence[Answers], files: Any) -> Iterator[tuple[str, Fact]]:
    """The driver's version as NVIDIA counts it, and whether there is one at all."""
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
    """Vendor and device id, four hex digits each; empty where the hardware id has none."""
    match = re.search(r"VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})", str(device["hardware"]), re.I)
    return (match[1].lower(), match[2].lower()) if match else ("", "")


def _device_row(device: Answers) -> Row:
    """The row of one display device."""
    source = "SetupAPI"
    vendor, number = _ids(device)
    absent = Absent("no driver is installed for it")
    problem, memory = device["problem"], device["memory"]
    version, date = device["driver_version"], device["driver_date"]
    return {
        "name": Known(device["name"], source) if device["name"] else Unread("it has no name"),
        "vendor": Known(_VENDORS.get(vendor, "other"), source),
        "device_id": Known(f"{vendor}:{number}", source) if vendor else Unread("its hardware id names none"),
        "driver": Known(device["service"], source) if device["service"] else absent,
        "driver_version": Known(version, source) if version else absent,
        "driver_date": Known(date, source) if date else absent,
        "problem": Unread("Windows does not say") if problem is None else Known(problem, "the device manager's code"),
        "memory_mib": Known(memory // _MIB, "registry") if isinstance(memory, int) else Unread("not entered"),
    }


def _bus_row(row: Row) -> Row:
    """The same device as the bus's row."""
    return {name: row[name] for name in ("name", "vendor", "device_id", "driver")}
