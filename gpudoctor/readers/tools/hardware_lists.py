"""Graphics adapters as inventories list them: inxi, lshw, hwinfo, ubuntu-drivers, system_profiler, fastfetch."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows
from gpudoctor.readers._gpus import vendor
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
    """The adapters as rows of ``pci``, with whose they are and which kernel driver has them."""
    low = paste.lower
    rows: list[dict[str, Fact]] = []
    if "driver:" in low and ("device-1" in low or "card-1" in low):
        rows += _inxi(paste)
    if any(mark in low for mark in _MARKS):
        rows += _blocks(paste)
    if "chipset model:" in low:
        rows += _chipsets(paste)
    if not rows:
        return
    found: tuple[Row, ...] = tuple(rows)
    yield "pci", found
    makers = [str(fact.value) for row in rows if isinstance(fact := row["vendor"], Known)]
    source = next(fact.source for row in rows if isinstance(fact := row["vendor"], Known))
    yield "pci.gpu_vendors", Known(tuple(dict.fromkeys(makers)), source)
    yield "pci.nvidia_count", Known(makers.count("nvidia"), source)
    drivers = [
        str(fact.value).removesuffix("_core")
        for row, maker in zip(rows, makers, strict=True)
        if maker == "nvidia" and isinstance(fact := row.get("driver", Absent("")), Known)
    ]
    if drivers:
        yield "pci.nvidia_drivers", Known(tuple(dict.fromkeys(drivers)), source)


def _row(name: str, source: str, driver: str = "", maker: str = "") -> dict[str, Fact]:
    row: dict[str, Fact] = {
        "name": Known(name, source),
        "vendor": Known(vendor(maker) or vendor(name) or "other", source),
    }
    if driver and driver.lower() not in ("n", "none", "na"):
        row["driver"] = Known(driver, source)
    return row


def _inxi(paste: Paste) -> Iterator[dict[str, Fact]]:
    graphics = False
    for index, line in enumerate(paste.bare):
        head = line.strip().partition(":")[0]
        if head in ("Graphics", "Audio", "Network", "System", "Drives", "Machine", "CPU", "Info"):
            graphics = head == "Graphics"
        if graphics and (match := _INXI.match(line)):
            yield _row(match["name"], paste.use(index), match["driver"].split("/")[0])


def _blocks(paste: Paste) -> Iterator[dict[str, Fact]]:
    """lshw's, hwinfo's and ubuntu-drivers' blocks of one adapter."""
    told: dict[str, str] = {}
    inside = False
    source = ""
    for index, line in enumerate([*paste.bare, "*-end"]):
        low = line.strip().lower()
        if low.startswith(_HEADINGS):
            if inside and (told.get("name") or told.get("vendor")):
                yield _row(told.get("name") or told["vendor"], source, told.get("driver", ""), told.get("vendor", ""))
            told = {}
            inside = low.startswith(("*-display", "*-3d", "hardware class: graphics card", "== /sys/"))
            continue
        if not inside:
            continue
        for pattern in (_PRODUCT, _VENDOR, _LSHW_DRIVER, _HWINFO_DRIVER):
            if match := pattern.match(line):
                source = paste.use(index)
                for name, value in match.groupdict().items():
                    told.setdefault(name, value)
                break


def _chipsets(paste: Paste) -> Iterator[dict[str, Fact]]:
    """macOS's system_profiler."""
    for index, line in enumerate(paste.bare):
        if match := _CHIPSET.match(line):
            yield _row(match["name"], paste.use(index))
