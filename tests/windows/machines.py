"""What a Windows machine holds: its registry (text for `Windows.registry`), and environments with a torch."""

from __future__ import annotations

import os
import shutil
import struct
from typing import NamedTuple

from tests.environments import CUBIN, PTX, container, entry
from tests.sim import software
from tests.windows.rig import Windows

_CLASS = r"HKEY_LOCAL_MACHINE\SYSTEM\CurrentControlSet\Control\Class\{4d36e968-e325-11ce-bfc1-08002be10318}"
_BUS = r"HKEY_LOCAL_MACHINE\SYSTEM\CurrentControlSet\Enum\PCI"
_SETTINGS = r"""[HKEY_LOCAL_MACHINE\SYSTEM\CurrentControlSet\Control\GraphicsDrivers]
"HwSchMode"=dword:00000002
"TdrDelay"=dword:00000008"""
_PROBLEM = "{4340A6C5-93FA-4706-972C-7B648008A5A7}"
"""Of DEVPKEY_Device_ProblemCode; Wine's SetupAPI reads properties from the registry, as Windows' own does."""


class Card(NamedTuple):
    """A display device: its name, ids, driver as Windows counts it (empty: none) and the device manager's code."""

    name: str = "NVIDIA GeForce RTX 4090"
    vendor: str = "10DE"
    device: str = "2684"
    driver: str = "32.0.15.8129"
    problem: int = 0
    service: str = ""
    """Empty: that of the vendor's own driver."""


RTX_4090 = Card()


def registry(*cards: Card) -> str:
    """The registry of a machine with these cards and no other."""
    keys = [f"[-{_BUS}]", *(f"[-{_CLASS}\\{number:04}]" for number in range(1, 9)), _SETTINGS]
    return "\n\n".join([*keys, *(_card(number, card) for number, card in enumerate(cards, 1))])


def _card(number: int, card: Card) -> str:
    name = f"VEN_{card.vendor}&DEV_{card.device}&SUBSYS_889D1043&REV_A1"
    instance = f"{_BUS}\\{name}\\4&1A2B3C4D&0&{number:04}"
    ids = _list(f"PCI\\{name}", f"PCI\\VEN_{card.vendor}&CC_030000")
    # Windows gives a device without a driver no class; Wine's SetupAPI lists none without.
    lines = [f"[{instance}]", '"ClassGUID"="{4d36e968-e325-11ce-bfc1-08002be10318}"', '"Class"="Display"']
    lines += [f'"DeviceDesc"="@oem12.inf,%x%;{card.name}"', f'"HardwareID"={ids}']
    if card.driver:
        provider = {"10DE": "NVIDIA", "8086": "Intel Corporation"}.get(card.vendor, "Advanced Micro Devices, Inc.")
        service = {"10DE": "nvlddmkm", "8086": "igfxn"}.get(card.vendor, "amdkmdag")
        key = f"{_CLASS}\\{number:04}"
        lines += [
            f'"Driver"="{{4d36e968-e325-11ce-bfc1-08002be10318}}\\\\{number:04}"',
            f'"Service"="{card.service or service}"',
            "",
            f"[{key}]",
            f'"DriverDesc"="{card.name}"',
            f'"DriverVersion"="{card.driver}"',
            '"DriverDate"="7-25-2026"',
            f'"ProviderName"="{provider}"',
            '"HardwareInformation.qwMemorySize"=hex(b):00,00,00,fd,05,00,00,00',
        ]
    code = ",".join(f"{byte:02x}" for byte in card.problem.to_bytes(4, "little"))
    return "\n".join([*lines, "", f"[{instance}\\Properties\\{_PROBLEM}\\0003]", f"@=hex(ffff0007):{code}"])


def _list(*texts: str) -> str:
    """A list of texts as a .reg file has it (REG_MULTI_SZ)."""
    raw = "".join(f"{text}\0" for text in (*texts, "")).encode("utf-16-le")
    return "hex(7):" + ",".join(f"{byte:02x}" for byte in raw)


# ---- Environments ----


def patient(windows: Windows, name: str, torch: str = "", **others: str) -> str:
    """Path of a Python beside which a torch of that release lies as its wheel for Windows lays it out, DLLs included.

    `others` are more distributions, each with its version and what it requires: ``0.24.0 torch==2.9.0``. Nothing of it
    can be imported: level quick reads files.
    """
    folder = windows.folder / "patients" / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(windows.folder / "py", folder, copy_function=os.link, ignore=shutil.ignore_patterns("*.pth"))
    site = folder / "Lib/site-packages"
    if torch:
        cuda = torch.partition("+cu")[2]
        release = f"{cuda[:-1]}.{cuda[-1]}" if cuda else ""
        package = site / "torch"
        (package / "lib").mkdir(parents=True)
        (package / "__init__.py").touch()
        version = f"__version__ = '{torch}'\ndebug = False\ncuda = {release or None!r}\nhip = None\n"
        (package / "version.py").write_text(version, "utf-8")
        (package / "lib/torch_cpu.dll").write_bytes(portable_executable({".text": bytes(64)}))
        if cuda:
            cubins, ptx = software.BUILDS[release]
            entries = [entry(CUBIN, arch) for arch in cubins] + [entry(PTX, arch) for arch in ptx]
            library = portable_executable({".text": bytes(64), ".nv_fatb": container(*entries) * 40})
            (package / "lib/torch_cuda.dll").write_bytes(library)
    for distribution, words in {**({"torch": torch} if torch else {}), **others}.items():
        release, _, requirement = words.partition(" ")
        info = site / f"{distribution}-{release}.dist-info"
        info.mkdir(parents=True)
        requires = f"Requires-Dist: {requirement}\n" if requirement else ""
        metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {release}\n{requires}"
        (info / "METADATA").write_text(metadata, "utf-8")
        (info / "INSTALLER").write_text("pip\n", "utf-8")
    return f"D:\\patients\\{name}\\python.exe"


def portable_executable(sections: dict[str, bytes], machine: int = 0x8664) -> bytes:
    """A PE file of these sections, without an optional header: what is read of a DLL (Microsoft's PE specification)."""
    head = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x40)
    head += b"PE\0\0" + struct.pack("<HHIIIHH", machine, len(sections), 0, 0, 0, 0, 0x2022)
    offset = len(head) + 40 * len(sections)
    table, body = b"", b""
    for name, data in sections.items():
        table += struct.pack(
            "<8sIIIIIIHHI", name.encode(), len(data), 0x1000, len(data), offset + len(body), 0, 0, 0, 0, 0
        )
        body += data
    return head + table + body
