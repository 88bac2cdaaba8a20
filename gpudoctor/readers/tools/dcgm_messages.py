"""DCGM's verdicts: the messages of dcgmi diag and health, in tables, boxes, JSON or a log; dcgmi nvlink and discovery.

The messages are those of dcgmlib/dcgm_errors.h (DCGM 4.4): each is one sentence with the number of the GPU in it. The
cells of dcgmi's tables break them, also in the middle of a word.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.fact import Fact, Known, Row, Rows, Value
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import normalized_pci_address

EXACT = 8
FACTS = ()

_SPACE = r"\s+"
_FLAGS = {
    r"GPU (?P<gpu>\d+) had uncorrectable memory errors and row remapping failed": "remap_failed",
    r"GPU (?P<gpu>\d+) had memory errors and row remappings are pending": "remap_pending",
    r"A pending retired page has been detected in GPU (?P<gpu>\d+)": "retired_pending",
    r"SRAM Threshold Count exceeded on GPU (?P<gpu>\d+)": "sram_threshold_exceeded",
}
_COUNTS = {
    r"Detected (?P<value>[1-9]\d{0,8}) volatile double-bit ECC error\(s\) in GPU (?P<gpu>\d+)": "ecc_uncorrected",
    r"GPU (?P<gpu>\d+) had uncorrectable memory errors and (?P<value>\d{1,8}) rows were": "remapped_uncorrected",
    r"GPU (?P<gpu>\d+) exceeded uncorrectable row remap limit with (?P<value>\d{1,8}) remapped": "remapped_uncorrected",
}
_WORDS = {
    r"Detected clocks event due to (?P<value>thermal) violation in GPU (?P<gpu>\d+)": "throttle_reasons",
    r"GPU (?P<gpu>\d+) [a-zA-Z -]{20,90}\. Recovery action: \d+ \((?P<value>[A-Z0-9_]+)\)": "recovery_action",
}
_ACTIONS = {
    "GPU_RESET": "reset",
    "NODE_REBOOT": "reboot",
    "DRAIN_P2P": "drain p2p",
    "DRAIN_AND_RESET": "drain and reset",
}
_MESSAGES = tuple(
    (Pattern(sentence.replace(" ", _SPACE)), column)
    for table in (_FLAGS, _COUNTS, _WORDS)
    for sentence, column in table.items()
)
_BANDWIDTH = Pattern(
    (
        r"Bandwidth of GPU (?P<gpu>\d+) in direction (?P<way>\S+) of (?P<value>[\d.]+) did not exceed"
        r" minimum required bandwidth of (?P<least>[\d.]*\d)"
    ).replace(" ", _SPACE)
)
_CELLS = Pattern(r"\s*\|(.{27,29}?)\| (.*?)\|?\s*$")
_MARKS = (
    "memory errors and row",
    "pending retired page",
    "sram threshold count",
    "volatile double-bit ecc",
    "row remap limit",
    "clocks event due to",
    "recovery action:",
    "bandwidth of gpu",
)
"""Words of which each message has one; in cells they may be cut."""
_GPU = Pattern(r"\s*gpuId (\d{1,3}):\s*$")
_STATES = Pattern(r"\s+[UDX_](?: [UDX_]){0,63}\s*$")
_IDENTITY = Pattern(
    r"\s*\| (?P<id>\d{1,3}|) +\| (?P<label>Status|Name|PCI Bus ID|Device UUID): (?P<value>\S.*?)"
    r"(?: \(last known\))?\s*\|\s*$"
)
_COLUMNS = {"Name": "name", "PCI Bus ID": "address", "Device UUID": "uuid"}
_WIDTH = 45
"""Characters of a message in one cell of dcgmi diag's table: it is cut there, also within a word."""


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``gpu`` with what the messages say of it, of ``rate`` for copies too slow, of ``nvlink`` for links."""
    if "------+" in paste.text or any(mark in paste.lower for mark in _MARKS):
        yield from _told(paste)
    if "nvlink link status" in paste.lower:
        yield from _links(paste)
    if "| gpu id | device information" in paste.lower:
        yield from _discovered(paste)


def _told(paste: Paste) -> Iterator[tuple[str, Rows]]:
    """Rows of ``gpu`` and of ``rate`` by DCGM's messages."""
    gpus: dict[int, dict[str, Fact]] = {}
    rates: list[Row] = []
    for first, last, text in _sentences(paste):
        for pattern, column in _MESSAGES:
            if match := pattern.search(text):
                source = paste.use(first, last)
                value = _value(column, match.groupdict().get("value") or "")
                row = gpus.setdefault(int(match["gpu"]), {"index": Known(int(match["gpu"]), source)})
                row.setdefault(column, Known(value, source))
        if match := _BANDWIDTH.search(text):
            rates.append(_rate_row(match.groupdict(), paste.use(first, last)))
    if gpus:
        yield "gpu", tuple(gpus.values())
    if rates:
        yield "rate", tuple(rates)


def _value(column: str, text: str) -> Value:
    """What the column holds where the message says `text`: True for a flag, which has none."""
    if column == "throttle_reasons":
        return (f"{text}_violation",)
    if column == "recovery_action":
        return _ACTIONS.get(text, text.lower().replace("_", " "))
    return int(text) if text else True


def _rate_row(parts: dict[str, str], source: str) -> Row:
    """A row of ``rate`` for copies between host and GPU that are slower than dcgmi diag asks for."""
    value, least = float(parts["value"].rstrip(".")), float(parts["least"])
    return {
        "gpu": Known(int(parts["gpu"]), source),
        "kernel": Known(f"dcgmi diag, {parts['way']}", source),
        "of": Known("host link", source),
        "against": Known("expected", source),
        "value": Known(value, source),
        "others": Known(least, source),
        "unit": Known("GB/s", source),
        "share": Known(round(value / least, 3) if least else 1.0, source),
        "spread": Known(0.0, source),
    }


def _sentences(paste: Paste) -> Iterator[tuple[int, int, str]]:
    """First and last line and text of each line, and of the cells below one another that one message fills."""
    first, parts = 0, [""]
    for index, line in enumerate([*paste.lines, ""]):
        cells = _CELLS.match(line) if line.lstrip()[:1] == "|" else None
        if cells and len(parts) > 1 and not cells[1].strip(" |"):
            parts.append(cells[2])
            continue
        if len(parts) > 2:
            yield first, index - 1, _joined(parts[1:])
        first, parts = index, ["", cells[2]] if cells else [""]
        if line and any(mark in line.lower() for mark in _MARKS):
            yield index, index, line[:2000]


def _joined(cells: list[str]) -> str:
    """The message in the cells: joined as it was cut in dcgmi diag's table, word by word in dcgmi health's box."""
    if all(len(cell.rstrip()) <= _WIDTH for cell in cells):
        return "".join(cell[:_WIDTH].ljust(_WIDTH) for cell in cells) + "  " + " ".join(cell.strip() for cell in cells)
    return " ".join(cell.strip() for cell in cells)


def _links(paste: Paste) -> Iterator[tuple[str, Rows]]:
    """Rows of ``nvlink`` for every link of ``dcgmi nvlink -s``, and of ``gpu`` for the GPUs that it lists."""
    gpus: list[Row] = []
    links: list[Row] = []
    for index, line in enumerate(paste.bare):
        if gpu := _GPU.match(line):
            gpus.append({"index": Known(int(gpu[1]), paste.use(index))})
        elif gpus and _STATES.match(line) and "gpuId" in paste.bare[index - 1]:
            source = paste.use(index)
            links += [
                {"gpu": gpus[-1]["index"], "link": Known(number, source), "active": Known(state == "U", source)}
                for number, state in enumerate(line.split())
                if state in "UD"
            ]
    if links:
        yield "gpu", tuple(gpus)
        yield "nvlink", tuple(links)


def _discovered(paste: Paste) -> Iterator[tuple[str, Rows]]:
    """Rows of ``gpu`` for the GPUs of ``dcgmi discovery -l``; with -a also those that are lost."""
    gpus: list[dict[str, Fact]] = []
    for index, line in enumerate(paste.bare):
        if not (cell := _IDENTITY.match(line)):
            continue
        source = paste.use(index)
        if cell["id"]:
            gpus.append({"index": Known(int(cell["id"]), source)})
        if not gpus:
            continue
        value = cell["value"]
        if cell["label"] == "Status":
            if value == "LOST":
                gpus[-1]["error"] = Known("GPU is lost, says DCGM", source)
        elif text := normalized_pci_address(value) if cell["label"] == "PCI Bus ID" else value:
            gpus[-1][_COLUMNS[cell["label"]]] = Known(text, source)
    if gpus:
        yield "gpu", tuple(gpus)
