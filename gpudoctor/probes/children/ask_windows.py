"""Ask Windows for its display devices, their driver, its memory and its settings, saying each question before it.

Run as ``python -I -S ask_windows.py``. Each line is ``@gpudoctor`` and a JSON object: ``{"ask": name}`` before a
question, then ``{"call": name, "is": answer}``, or ``"text"`` where it failed. ``{"done": true}`` is the last line.
Reads only; needs no rights. Standard library only; Python 3.8.

Sources: RtlGetVersion, GlobalMemoryStatusEx, SetupDiGetClassDevs and its properties (setupapi.h, devpkey.h), the driver
key of the display class, VS_FIXEDFILEINFO of files, EvtQuery and EvtRender (winevt.h), and the registry keys that each
function names.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from ctypes import wintypes

assert sys.platform == "win32"  # what follows is Windows' alone

import winreg  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional

MARK = "@gpudoctor "
CONTROL = r"SYSTEM\CurrentControlSet\Control"
NT = r"SOFTWARE\Microsoft\Windows NT\CurrentVersion"
MACHINES = {0x8664: "x86_64", 0xAA64: "aarch64", 0x14C: "x86", 0x1C4: "arm"}
DRIVER_FILES = ("nvml.dll", "nvcuda.dll")
RUN_TIMES = ("vcruntime140.dll", "vcruntime140_1.dll", "msvcp140.dll")


READ = winreg.KEY_READ | winreg.KEY_WOW64_64KEY
"""Access to the registry's 64-bit view."""


def key_value(path: str, name: str, root: Any = winreg.HKEY_LOCAL_MACHINE) -> Any:
    """A value of the registry; None where it is not there, ``{"refused": why}`` where it may not be read."""
    try:
        with winreg.OpenKey(root, path, 0, READ) as key:
            return winreg.QueryValueEx(key, name)[0]
    except FileNotFoundError:
        return None
    except OSError as error:
        return {"refused": "%s: %s" % (path, error.strerror or error)}


def readable(path: str, name: str) -> Any:
    """A value of the registry; None where it is not there or may not be read."""
    value = key_value(path, name)
    return None if isinstance(value, dict) else value


def key_values(path: str, root: Any) -> Dict[str, Any]:
    """All values of a key of the registry by name; empty where there is no such key. Raises `OSError` where it may not
    be read.
    """
    values: Dict[str, Any] = {}
    try:
        with winreg.OpenKey(root, path, 0, READ) as key:
            for index in range(winreg.QueryInfoKey(key)[1]):
                name, value, _ = winreg.EnumValue(key, index)
                values[name] = value
    except FileNotFoundError:
        pass
    return values


# ---- The system ----


def system() -> Dict[str, Any]:
    """version, revision, product and release of Windows, machine, maker, model, processor, and uptime in seconds.

    None where Windows does not say.
    """
    words = (wintypes.DWORD * 71)(284)  # RTL_OSVERSIONINFOEXW
    ctypes.WinDLL("ntdll").RtlGetVersion(words)
    bios = r"HARDWARE\DESCRIPTION\System\BIOS"
    kernel = ctypes.WinDLL("kernel32")
    kernel.GetTickCount64.restype = ctypes.c_uint64
    return {
        "version": ".".join(map(str, words[1:4])),
        "revision": readable(NT, "UBR"),
        "product": readable(NT, "ProductName"),
        "release": readable(NT, "DisplayVersion") or readable(NT, "ReleaseId"),
        "machine": native_machine(kernel),
        "maker": readable(bios, "SystemManufacturer"),
        "model": readable(bios, "SystemProductName"),
        "processor": readable(r"HARDWARE\DESCRIPTION\System\CentralProcessor\0", "VendorIdentifier"),
        "uptime": kernel.GetTickCount64() // 1000,
    }


def native_machine(kernel: Any) -> Optional[str]:
    """The machine's own architecture, also where this program is emulated; None where Windows does not say."""
    process, native = wintypes.USHORT(), wintypes.USHORT()
    if not kernel.IsWow64Process2(wintypes.HANDLE(-1), ctypes.byref(process), ctypes.byref(native)):
        return None
    return MACHINES.get(native.value)


def settings() -> Dict[str, Any]:
    """Settings of the registry that decide what CUDA programs may do, by name (see `key_value` for the values).

    Not of that form: ``remote`` (in a session of Remote Desktop), ``preferences`` (GPU preference by program's path).
    """
    graphics = CONTROL + r"\GraphicsDrivers"
    return {
        "secure_boot": key_value(CONTROL + r"\SecureBoot\State", "UEFISecureBootEnabled"),
        "long_paths": key_value(CONTROL + r"\FileSystem", "LongPathsEnabled"),
        "tdr_delay": key_value(graphics, "TdrDelay"),
        "tdr_ddi_delay": key_value(graphics, "TdrDdiDelay"),
        "tdr_level": key_value(graphics, "TdrLevel"),
        "gpu_scheduling": key_value(graphics, "HwSchMode"),
        "app_control": key_value(CONTROL + r"\CI\Policy", "VerifiedAndReputablePolicyState"),
        "controlled_folders": controlled_folders(),
        "hyper_v": key_value(r"SYSTEM\CurrentControlSet\Services\vmms", "Start"),
        "remote": bool(ctypes.WinDLL("user32").GetSystemMetrics(0x1000)),
        "preferences": key_values(r"Software\Microsoft\DirectX\UserGpuPreferences", winreg.HKEY_CURRENT_USER),
        "wsl": subsystem(),
    }


def controlled_folders() -> Any:
    """Defender's controlled folder access: 0 off, 1 on, 2 audit; a policy comes before what the user has set.

    None or ``{"refused": why}`` as `key_value`.
    """
    guard = r"Microsoft\Windows Defender\Windows Defender Exploit Guard\Controlled Folder Access"
    values = [
        key_value(place + guard, "EnableControlledFolderAccess") for place in ("SOFTWARE\\Policies\\", "SOFTWARE\\")
    ]
    return values[0] if isinstance(values[0], int) else values[1]


def subsystem() -> Any:
    """The version of WSL that the user's default distribution runs in, 1 or 2; None where there is no distribution.

    ``{"refused": why}`` where the registry may not be read.
    """
    lxss = r"Software\Microsoft\Windows\CurrentVersion\Lxss"
    default = key_value(lxss, "DefaultDistribution", winreg.HKEY_CURRENT_USER)
    if not isinstance(default, str):
        return default
    return key_value(lxss + "\\" + default, "Version", winreg.HKEY_CURRENT_USER) or 1


class MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX."""

    _fields_ = [("length", wintypes.DWORD), ("load", wintypes.DWORD)] + [
        (name, ctypes.c_uint64)
        for name in ("physical", "available", "commit_limit", "commit_left", "virtual", "virtual_left", "extended")
    ]


def memory() -> Dict[str, int]:
    """Bytes of memory (``physical``), and with page files (``commit_limit``, ``commit_left``); raises `OSError`."""
    status = MemoryStatus(length=ctypes.sizeof(MemoryStatus))
    if not ctypes.WinDLL("kernel32", use_last_error=True).GlobalMemoryStatusEx(ctypes.byref(status)):
        raise ctypes.WinError(ctypes.get_last_error())
    return {name: getattr(status, name) for name in ("physical", "commit_limit", "commit_left")}


# ---- Display devices ----


class DeviceInfo(ctypes.Structure):
    """SP_DEVINFO_DATA."""

    _fields_ = [
        ("size", wintypes.DWORD),
        ("guid", ctypes.c_byte * 16),
        ("instance", wintypes.DWORD),
        ("reserved", ctypes.c_void_p),
    ]


class PropertyKey(ctypes.Structure):
    """DEVPROPKEY."""

    _fields_ = [("guid", ctypes.c_byte * 16), ("number", wintypes.DWORD)]


PROBLEM_CODE = PropertyKey((ctypes.c_byte * 16).from_buffer_copy(bytes.fromhex("c5a64043fa930647972c7b648008a5a7")), 3)
"""DEVPKEY_Device_ProblemCode, {4340a6c5-93fa-4706-972c-7b648008a5a7} 3."""
PRESENT, ALL_CLASSES = 2, 4
DESCRIPTION, HARDWARE, COMPATIBLE, SERVICE, CLASS, DRIVER, FRIENDLY = 0, 1, 2, 4, 7, 9, 0xC
"""SPDRP_* numbers of setupapi.h."""


def devices() -> List[Dict[str, Any]]:
    """`describe` of each display or 3D device on the PCI bus now, also without a driver; raises `OSError`."""
    setup = ctypes.WinDLL("setupapi", use_last_error=True)
    setup.SetupDiGetClassDevsW.restype = ctypes.c_void_p
    setup.SetupDiGetClassDevsW.argtypes = (ctypes.c_void_p, wintypes.LPCWSTR, ctypes.c_void_p, wintypes.DWORD)
    found = setup.SetupDiGetClassDevsW(None, "PCI", None, PRESENT | ALL_CLASSES)
    if found in (None, ctypes.c_void_p(-1).value):
        raise ctypes.WinError(ctypes.get_last_error())
    every = ctypes.c_void_p(found)
    listed = []
    info = DeviceInfo(size=ctypes.sizeof(DeviceInfo))
    index = 0
    while setup.SetupDiEnumDeviceInfo(every, index, ctypes.byref(info)):
        index += 1
        device = Device(setup, every, info)
        kinds = device.texts(COMPATIBLE) + device.texts(HARDWARE)
        if device.text(CLASS) == "Display" or any("CC_03" in kind.upper() for kind in kinds):
            listed.append(describe(device))
    setup.SetupDiDestroyDeviceInfoList(every)
    return listed


class Device:
    """One device of the list that SetupAPI gives."""

    def __init__(self, setup: Any, every: Any, info: DeviceInfo) -> None:
        self.setup, self.every, self.info = setup, every, info

    def raw(self, number: int) -> bytes:
        """The bytes of the device's property `number` (SPDRP_*); empty where the device has none."""
        buffer, size = ctypes.create_string_buffer(4096), wintypes.DWORD()
        known = self.setup.SetupDiGetDeviceRegistryPropertyW(
            self.every, ctypes.byref(self.info), number, None, buffer, len(buffer), ctypes.byref(size)
        )
        return buffer.raw[: size.value] if known else b""

    def texts(self, number: int) -> List[str]:
        """The device's property `number` (SPDRP_*) that is a list of texts; empty where it has none."""
        return [part for part in self.raw(number).decode("utf-16-le", "replace").split("\0") if part]

    def text(self, number: int) -> str:
        """The device's property `number` (SPDRP_*) that is a text; empty where it has none."""
        return (self.texts(number) or [""])[0]

    def problem(self) -> Optional[int]:
        """The code that the device manager shows (0: it works properly); None where Windows does not say."""
        value, kind, size = wintypes.DWORD(), wintypes.DWORD(), wintypes.DWORD()
        answer = ctypes.byref(value), ctypes.sizeof(value), ctypes.byref(size), 0
        key = ctypes.byref(PROBLEM_CODE)
        get = self.setup.SetupDiGetDevicePropertyW
        if get(self.every, ctypes.byref(self.info), key, ctypes.byref(kind), *answer):
            return value.value
        status = wintypes.DWORD()
        manager = ctypes.WinDLL("cfgmgr32")
        if manager.CM_Get_DevNode_Status(ctypes.byref(status), ctypes.byref(value), self.info.instance, 0):
            return None
        return value.value


def describe(device: Device) -> Dict[str, Any]:
    """The device's hardware id, name, service, problem code, and its driver's version, date and memory in bytes.

    Keys: hardware, name, service, problem, driver_version, driver_date, memory; empty or None where it has none.
    """
    driver = device.text(DRIVER)
    key = CONTROL + "\\Class\\" + driver
    return {
        "hardware": (device.texts(HARDWARE) or [""])[0],
        "name": device.text(FRIENDLY) or (driver and readable(key, "DriverDesc")) or device.text(DESCRIPTION),
        "service": device.text(SERVICE),
        "problem": device.problem(),
        "driver_version": driver and readable(key, "DriverVersion"),
        "driver_date": driver and readable(key, "DriverDate"),
        "memory": driver and readable(key, "HardwareInformation.qwMemorySize"),
    }


# ---- Files ----


def files() -> Dict[str, Optional[str]]:
    """Version of each of the driver's and the run-time's DLLs in System32; None where the file is not there."""
    folder = os.path.join(os.environ.get("SYSTEMROOT", r"C:\Windows"), "System32")
    return {name: file_version(os.path.join(folder, name)) for name in DRIVER_FILES + RUN_TIMES}


def file_version(path: str) -> Optional[str]:
    """A DLL's version by its resources, empty where it has none; None where the file is not there."""
    if not os.path.isfile(path):
        return None
    version = ctypes.WinDLL("version")
    size = version.GetFileVersionInfoSizeW(path, None)
    data, place, length = ctypes.create_string_buffer(size or 1), ctypes.c_void_p(), wintypes.UINT()
    if not size or not version.GetFileVersionInfoW(path, 0, size, data):
        return ""
    if not version.VerQueryValueW(data, "\\", ctypes.byref(place), ctypes.byref(length)):
        return ""
    words = ctypes.cast(place, ctypes.POINTER(wintypes.DWORD))  # VS_FIXEDFILEINFO
    return ".".join(str(part) for number in words[2:4] for part in (number >> 16, number & 0xFFFF))


# ---- DLLs on PATH ----

CUDA_DLL = re.compile(
    r"(?:cudart|cublas|cublaslt|cudnn|cufft|curand|cusolver|cusparse|nvrtc|nvjitlink)(?:_\w+?)?(?:64)?_[\d_]+\.dll",
    re.I,
)


def path_dlls() -> List[Dict[str, str]]:
    """Name in lower case and path of the CUDA and cuDNN DLLs in PATH's folders, in the order of PATH.

    At most 200; folders that cannot be listed are left out.
    """
    listed = []
    for folder in dict.fromkeys(os.environ.get("PATH", "").split(";")):
        try:
            names = sorted(os.listdir(folder)) if os.path.isabs(folder) else []
        except OSError:  # not there, or not ours to list: no DLL is loaded from it either
            continue
        listed += [
            {"name": name.lower(), "path": folder.rstrip("\\/") + "\\" + name}
            for name in names
            if CUDA_DLL.fullmatch(name)
        ]
    return listed[:200]


# ---- The event log ----

EVENTS = (
    "*[System[(Provider[@Name='nvlddmkm'] or (Provider[@Name='Display'] and EventID=4101))"
    " and TimeCreated[timediff(@SystemTime) <= 86400000]]]"
)
"""What NVIDIA's driver logged, and Windows of a display driver that it restarted, in the last day (in milliseconds)."""
CHANNEL_PATH, NEWEST_FIRST, AS_XML, NO_MORE_ITEMS, MOST_EVENTS = 0x1, 0x200, 1, 259, 100


def events() -> List[str]:
    """The newest 100 events of the last day in Windows' System log about the GPU's driver, each as XML.

    Raises `OSError` if the log cannot be read.
    """
    log = ctypes.WinDLL("wevtapi", use_last_error=True)
    log.EvtQuery.restype = ctypes.c_void_p
    log.EvtQuery.argtypes = (ctypes.c_void_p, wintypes.LPCWSTR, wintypes.LPCWSTR, wintypes.DWORD)
    handle, number = ctypes.c_void_p(), wintypes.DWORD()
    query = log.EvtQuery(None, "System", EVENTS, CHANNEL_PATH | NEWEST_FIRST)
    if not query:
        code = ctypes.get_last_error()
        raise OSError("EvtQuery: " + (ctypes.FormatError(code) if code else "no answer, and no reason"))
    found: List[str] = []
    while len(found) < MOST_EVENTS:
        if not log.EvtNext(ctypes.c_void_p(query), 1, ctypes.byref(handle), 2000, 0, ctypes.byref(number)):
            if ctypes.get_last_error() == NO_MORE_ITEMS:
                break
            raise ctypes.WinError(ctypes.get_last_error())
        buffer, used, parts = ctypes.create_unicode_buffer(32768), wintypes.DWORD(), wintypes.DWORD()
        size = ctypes.sizeof(buffer)
        if log.EvtRender(None, handle, AS_XML, size, buffer, ctypes.byref(used), ctypes.byref(parts)):
            found.append(buffer.value)
        log.EvtClose(handle)
    log.EvtClose(ctypes.c_void_p(query))
    return found


QUESTIONS: Dict[str, Callable[[], Any]] = {
    "system": system,
    "memory": memory,
    "settings": settings,
    "files": files,
    "devices": devices,
    "path_dlls": path_dlls,
    "events": events,
}
"""The last ones may wait: for a drive that is not there, for the service that keeps the log."""


def answers() -> Iterator[Dict[str, Any]]:
    """Yields the child's entries: ``{"ask": name}``, then ``{"call": name, "is": answer}``, or ``"text"`` if it failed.

    Last comes ``{"done": True}``.
    """
    for name, question in QUESTIONS.items():
        yield {"ask": name}
        try:
            yield {"call": name, "is": question()}
        except Exception as error:  # whatever it is, the others are asked all the same
            yield {"call": name, "text": "%s: %s" % (type(error).__name__, error)}
    yield {"done": True}


def main() -> None:
    """Print each entry of `answers` as a line of `MARK` and JSON."""
    for entry in answers():
        sys.stdout.write(MARK + json.dumps(entry) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
