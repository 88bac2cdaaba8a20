"""Lines of a log, live or pasted: Xids as NVIDIA's kernel driver prints them, PCIe errors, notes that deny.

krcReportXid in kernel_rc.c of the open kernel modules (595.45) prints ``Xid (WHERE): CODE, MESSAGE``; where a process
is known, ``pid=P, name=N,`` comes before the message. WHERE is ``PCI:0000:01:00``, followed by `` GPU-I:05`` for an
error of a MIG GPU instance and then by `` GPU-CI:00`` for one of its compute instances. Older drivers leave out
``PCI:`` or the domain. Xid 45 may end in ``caused by previous Xid 31``. From NVLink 5 on, the message of Xid 144 to 150
begins with the unit and the severity: ``NETIR_LINK_EVT  Fatal   XC0 i0 Link 09``.
"""

from __future__ import annotations

import re

from gpudoctor.core.fact import Absent, Known, Row, Value, known_facts
from gpudoctor.core.frozen import frozen
from gpudoctor.core.pattern import pattern

_PLACE = r"\((?:PCI:)?[0-9a-fA-F:.]{5,20}(?: GPU-I:\d{1,5})?(?: GPU-CI:\d{1,5})?\)"
_SEVERE = r"[A-Z][A-Z0-9_/]+ {1,4}(?:Non-?)?[Ff]atal\b"
LINE = pattern(rf"Xid {_PLACE}: \d{{1,4}}(?!\d)(?:, ?(?:pid=[^,\n]{{0,40}}, ?name=[^,\n]{{0,80}}, ?)?{_SEVERE})?")
"""What tells one Xid from another: all of its line up to the severity, without it up to the code."""

_PARTS = pattern(
    r"\((?:PCI:)?(?P<where>[^ )]+)(?: GPU-I:(?P<gpu>\d+))?(?: GPU-CI:(?P<compute>\d+))?\): (?P<code>\d+)"
    r"(?:,.*?(?P<unit>[A-Z][A-Z0-9_/]+) +(?P<severity>\S+))?$"
)
_LINK = pattern(r"\bLink (\d{1,3})\b")


@frozen
class Xid:
    """One Xid; `instance` is MIG's GPU instance, ``5``, or that and its compute instance, ``1/0``, else empty."""

    code: int
    address: str
    instance: str = ""
    unit: str = ""
    fatal: bool | None = None

    def row(self, line: str, source: str) -> Row:
        """Columns of a row of the group ``xid`` from its log line: code, address, instance, unit, fatal and link.

        Each is `Known`, or `Absent` where the line does not say.
        """
        link = _LINK.search(line) if self.unit else None
        values: dict[str, Value] = {
            "code": self.code,
            "address": self.address,
            "instance": self.instance or None,
            "unit": self.unit or None,
            "fatal": self.fatal,
            "link": int(link[1]) if link else None,
        }
        silent = Absent(f"the line does not say ({source})")
        return {name: silent if value is None else Known(value, source) for name, value in values.items()}


def parse_xid(matched: str) -> Xid | None:
    """The `Xid` (code, address, MIG instance, unit, fatal) in text that `LINE` matched; None where it is no Xid."""
    match = _PARTS.search(matched)
    if match is None:
        return None
    severity = match["severity"]
    return Xid(
        code=int(match["code"]),
        address=pci_address(match["where"]),
        instance="/".join(str(int(part)) for part in (match["gpu"], match["compute"]) if part),
        unit=match["unit"] or "",
        fatal=severity.lower() == "fatal" if severity else None,
    )


BUS_ERROR = pattern(
    r"[^ ;\]]+ [0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]: (?:AER: )?"
    r"PCIe Bus Error: severity=\w+(?: \([\w-]+\))?, type=[A-Za-z ]+"
)
"""A PCIe error as aer_print_error in drivers/pci/pcie/aer.c of Linux prints it."""
_BUS_ERROR_PARTS = pattern(
    r"(\S+) (\S+): (?:AER: )?PCIe Bus Error: severity=(\w+)(?: \(([\w-]+)\))?, type=([A-Za-z ]+)"
)


def bus_error_row(matched: str, source: str) -> Row:
    """Known columns of a row of the group ``aer``: address, driver, severity (corrected, fatal, non-fatal), kind.

    `matched` is text that `BUS_ERROR` matched:
    ``nvidia 0000:1a:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)``; Linux 6.16
    and later print ``Correctable`` and ``Uncorrectable (Fatal)``.
    """
    match = _BUS_ERROR_PARTS.search(matched)
    assert match, "the parts of `BUS_ERROR`"
    severity = "corrected" if match[3].startswith("Correct") else (match[4] or "fatal").lower()
    return known_facts(source, address=match[2], driver=match[1], severity=severity, kind=match[5].strip())


def pci_address(printed: str) -> str:
    """The address as sysfs writes it (``0000:2a:00.0``) from shorter, longer or upper-case forms; else lower-cased."""
    *domain, bus, device = printed.lower().split(":")
    if not re.fullmatch(r"(?:[0-9a-f]+:)?[0-9a-f]+:[0-9a-f]+(?:\.[0-7])?", printed.lower()):
        return printed.lower()
    device = device if "." in device else f"{device}.0"
    return f"{int(domain[0], 16) if domain else 0:04x}:{bus[-2:]}:{device}"


# ---- Notes that deny what they name ----
# Such words are no sign of it.

_AFTER = pattern(
    r"(?:, ?\d{1,3})*[ \w()-]{0,40}[:=]\s*"
    r"(?:(?:no|none|never|nothing|nil|false|zero|clean|gone|-)(?=\s*(?:$|[,;.(]))|0(?=\s*(?:$|[,;(]))"
    r"|(?:not|never|none) (?:in|seen|observed|any ?more|reported|there|logged|asserted)\b)",
    re.IGNORECASE,
)
"""The rest of a label that is denied. ``not found`` and ``no such file`` are what programs print, and deny nothing."""
_VALUE = pattern(r"\w ?[:=] ?-?\d+$")
"""A value within brackets, ``(exitcode: -7) local_rank: 0``: the label behind them is another."""
_BEFORE = pattern(
    r"\b(?:no|no more|never an?|without|nothing about|nothing of)"
    r"(?: (?:an?|the|any|more|nvrm|gpu|cuda|sign of|errors? like))* ?$",
    re.IGNORECASE,
)

_OVER = pattern(
    r"\b(?:nothing|none|never|not (?:seen|once)|no more|no further|quiet|clean|fine"
    r"|stable) (?:again )?(?:ever )?since\b"
    r"|\bsince(?: then| the \w+)?\W{1,3}(?:none|nothing|never|clean|quiet|stable|no (?:more|further))\b"
    r"|\b(?:has|have) not (?:come back|happened again|re-?occurred|re-?appeared)\b",
    re.IGNORECASE,
)
"""``Xid 79 last year with the old power supply, nothing since``"""


def denied(line: str, start: int, end: int) -> bool:
    """Whether the line denies what stands in it from `start` to `end`: ``Xid 79: none``, ``no Xid 79 in dmesg``."""
    other_label = line[end : end + 1] == ")" and _VALUE.search(line[max(0, end - 40) : end])
    return bool(
        (not other_label and _AFTER.match(line, end))
        or _BEFORE.search(line[max(0, start - 40) : start])
        or _OVER.search(line, end, end + 200)
    )
