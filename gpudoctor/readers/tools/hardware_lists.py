"""Graphics adapters as inventories list them: inxi, lshw, hwinfo, ubuntu-drivers, fastfetch, rocm-smi, wmic."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.fact import Fact, Known, Row, Rows, known_facts
from gpudoctor.readers._machine import adapter_facts, gpu_facts_by_vendor, gpu_vendor
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 4

_INXI = Pattern(
    r"\s*(?:Graphics:\s*)?(?:Device|Card)-\d+:\s*(?P<name>\S.{2,90}?)(?:\s+vendor:.*?)?\s+driver:\s*(?P<driver>[\w/-]+)"
)
_PRODUCT = Pattern(r"\s*(?:product|model|Model|Device)\s*:\s*\"?(?P<name>\S.{2,90}?)\"?\s*$")
_VENDOR = Pattern(r"\s*(?:vendor|Vendor|manufacturer)\s*:\s*(?:pci 0x\w+ )?\"?(?P<vendor>\S.*?)\"?\s*$")
_LSHW_DRIVER = Pattern(r"\s*configuration:.*\bdriver=(?P<driver>[\w-]+)")
_HWINFO_DRIVER = Pattern(r"\s*Driver:\s*\"(?P<driver>[\w-]+)\"")
_CHIPSET = Pattern(r"\s*Chipset Model:\s*(?P<name>\S(?:.*\S)?)\s*$")
_MARKS = ("*-display", "*-3d", "hardware class: graphics card", "ubuntu-drivers devices", "modalias")
_HEADINGS = ("*-", "hardware class:", "== /sys/")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``pci`` for the adapters that inxi, lshw, hwinfo and their like list, and the facts that follow.

    These are pci.nvidia_count, pci.gpu_vendors and pci.nvidia_drivers. GPUs that are only named give rows of ``gpu`` if
    they are NVIDIA's, and of other makers pci.gpu_vendors alone, with an NVIDIA count of 0 where all are theirs.
    """
    low = paste.lower
    rows: list[dict[str, Fact]] = []
    if "driver:" in low and ("device-1" in low or "card-1" in low):
        rows += _inxi_adapters(paste)
    if any(mark in low for mark in _MARKS):
        rows += _adapter_blocks(paste)
    for chipset, source in paste.matches(_CHIPSET.match, "chipset model:"):  # macOS's system_profiler
        rows.append(_adapter_row(chipset["name"], source))
    if rows:
        yield "pci", tuple(rows)
        yield from adapter_facts(rows)
    yield from _named_gpus(paste)


def _adapter_row(name: str, source: str, driver: str = "", maker: str = "") -> dict[str, Fact]:
    """A row of ``pci`` with name, vendor (by `maker`, else by name, else ``other``) and driver.

    Without ``driver`` if that is empty, ``n``, ``none`` or ``na``.
    """
    row = known_facts(source, name=name, vendor=gpu_vendor(maker) or gpu_vendor(name) or "other")
    if driver and driver.lower() not in ("n", "none", "na"):
        row["driver"] = Known(driver, source)
    return row


def _inxi_adapters(paste: Paste) -> Iterator[dict[str, Fact]]:
    """Rows of ``pci`` for the adapters in the Graphics section of inxi."""
    graphics = False
    for index, line in enumerate(paste.bare):
        head = line.strip().partition(":")[0]
        if head in ("Graphics", "Audio", "Network", "System", "Drives", "Machine", "CPU", "Info"):
            graphics = head == "Graphics"
        if graphics and (match := _INXI.match(line)):
            yield _adapter_row(match["name"], paste.use(index), match["driver"].split("/")[0])


def _adapter_blocks(paste: Paste) -> Iterator[dict[str, Fact]]:
    """Rows of ``pci`` for the adapters in the blocks of lshw, hwinfo and ubuntu-drivers, one per block."""
    properties: dict[str, str] = {}
    inside = False
    source = ""
    for index, line in enumerate([*paste.bare, "*-end"]):
        low = line.strip().lower()
        if low.startswith(_HEADINGS):
            if inside and (properties.get("name") or properties.get("vendor")):
                yield _adapter_row(
                    properties.get("name") or properties["vendor"],
                    source,
                    properties.get("driver", ""),
                    properties.get("vendor", ""),
                )
            properties = {}
            inside = low.startswith(("*-display", "*-3d", "hardware class: graphics card", "== /sys/"))
            continue
        if not inside:
            continue
        for pattern in (_PRODUCT, _VENDOR, _LSHW_DRIVER, _HWINFO_DRIVER):
            if match := pattern.match(line):
                source = paste.use(index)
                for name, value in match.groupdict().items():
                    properties.setdefault(name, value)
                break


_MARKETING = Pattern(r"\s*Marketing Name:\s+(\S(?:.*\S)?)\s*$")
_SERIES = Pattern(r"\s*GPU\[\d+\]\s*:\s*Card (?:Series|series|model|Model):\s+(\S(?:.*\S)?)\s*$")
_ALONE = Pattern(
    r"\s*((?:AMD (?:Radeon|Instinct)|Radeon RX|Intel\(R\) (?:UHD|HD|Iris|Arc)|NVIDIA (?:GeForce|RTX|Quadro|Tesla))"
    r"[\w() .+-]{0,50}?)\s*$"
)


def _named_gpus(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``gpu`` for NVIDIA's GPUs that rocminfo, rocm-smi, wmic or Get-CimInstance names; where other makers' are
    among them, pci.gpu_vendors with all makers.

    pci.nvidia_count is 0 where none is NVIDIA's.
    """
    low = paste.lower
    if not any(word in low for word in ("radeon", "instinct", "intel(r)", "marketing name", "card series")):
        return
    rows: list[Row] = []
    for index, line in enumerate(paste.lines):
        match = _MARKETING.match(line) or _SERIES.match(line) or _ALONE.match(line)
        if match and gpu_vendor(match.group(1)) and " CPU" not in line and "Processor" not in line:
            rows.append({"name": Known(match.group(1), paste.use(index))})
    if rows:
        yield from gpu_facts_by_vendor(rows)
