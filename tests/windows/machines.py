"""What the registry of a Windows machine says of its GPUs: text for `Windows.registry`."""

from __future__ import annotations

from typing import NamedTuple

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
            f'"Service"="{service}"',
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
