"""DCGM: fields by name (``DCGM_FI_DEV_GPU_TEMP{gpu="0"} 61``); messages of dcgmi diag and health; nvlink, discovery.

The messages are those of dcgmlib/dcgm_errors.h (DCGM 4.4): each is one sentence with the number of the GPU in it. They
come in tables, boxes, JSON or a log. The cells of dcgmi's tables break them, also in the middle of a word.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.fact import Fact, Known, Row, Rows, Value, known_facts
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern, phrases
from gpudoctor.readers._values import normalized_pci_address
from gpudoctor.readers.tools.benchmarks import compared
from gpudoctor.readers.tools.kernel import bare_xid
from gpudoctor.readers.tools.nvidia_smi_list import throttle_reasons

EXACT = 8
FACTS = ()

_FIELD = Pattern(
    r"(?i)\bDCGM_FI_DEV_(?P<name>[A-Z_]{1,80})\s*(?:\{(?P<labels>[^{}\n]*)\}\s*)?(?:[:=]\s*)?(?P<value>\d+(?:\.\d+)?(?:e\+?\d+)?)\s*$"
)
_LABEL = Pattern(r'\b(\w+)="([^"]*)"')
_NUMBERS = {
    "GPU_TEMP": "temperature_c",
    "MEMORY_TEMP": "temperature_memory_c",
    "POWER_USAGE": "power_w",
    "POWER_MGMT_LIMIT": "power_limit_w",
    "POWER_MGMT_LIMIT_DEF": "power_limit_default_w",
    "SM_CLOCK": "clock_mhz",
    "MAX_SM_CLOCK": "clock_max_mhz",
    "GPU_UTIL": "utilization",
    "FB_USED": "memory_used_mib",
    "FB_TOTAL": "memory_mib",
    "ECC_DBE_VOL_TOTAL": "ecc_uncorrected",
    "ECC_DBE_AGG_TOTAL": "ecc_uncorrected_aggregate",
    "UNCORRECTABLE_REMAPPED_ROWS": "remapped_uncorrected",
    "RETIRED_SBE": "retired_single_bit",
    "RETIRED_DBE": "retired_double_bit",
    "PCIE_LINK_GEN": "link_generation",
    "PCIE_MAX_LINK_GEN": "link_generation_max",
    "PCIE_LINK_WIDTH": "link_width",
    "PCIE_MAX_LINK_WIDTH": "link_width_max",
}
_FLAGS = {
    "ROW_REMAP_FAILURE": "remap_failed",
    "ROW_REMAP_PENDING": "remap_pending",
    "RETIRED_PENDING": "retired_pending",
}
_MASKS = ("CLOCK_THROTTLE_REASONS", "CLOCKS_EVENT_REASONS")
_BLANK_VALUE = 1 << 30
"""From here on DCGM means that it has no value."""
_ROW = Pattern(r"\s*\| (.{25}) \| (.{45})[^|\w]{0,4}\|?\s*$")
_MESSAGE = Pattern(r"(?:Warning|Info|Error)(?::? ?GPU ?\d+)?\s*$")
_NEXT = Pattern(r"(?:GPU ?\d+|.{1,20}): (?:Pass|Fail|Skip|Warn)\b|(?:Pass|Fail|Skip|Warn) - ")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``gpu``, ``xid``, ``rate``, ``nvlink`` and ``text`` from DCGM's output: fields, diag, health, lists."""
    yield from _broken_messages(paste)
    yield from _fields(paste)
    if "------+" in paste.text or any(mark in paste.lower for mark in _MARKS):
        yield from _message_rows(paste)
    if "nvlink link status" in paste.lower:
        yield from _links(paste)
    if "| gpu id | device information" in paste.lower:
        yield from _discovered(paste)


def _fields(paste: Paste) -> Iterator[tuple[str, Rows]]:
    """Rows from lines of DCGM_FI_DEV fields: ``gpu``, one per GPU, and ``xid`` for each last Xid that is not 0.

    Blank values are skipped; of a field given twice the first holds.
    """
    gpus: dict[str, dict[str, Fact]] = {}
    for index, line in paste.having("dcgm_fi_dev_"):
        if not (field := _FIELD.search(line.strip())):
            continue
        number = float(field["value"])
        name, labels = field["name"].upper(), dict(_LABEL.compiled.findall(field["labels"] or ""))
        if number >= _BLANK_VALUE:
            continue
        if name == "XID_ERRORS":
            yield from _xid_row(int(number), labels, line, paste.use(index))
        elif column := _NUMBERS.get(name) or _FLAGS.get(name) or ("throttle_reasons" if name in _MASKS else None):
            source = paste.use(index)
            row = gpus.setdefault(labels.get("gpu", ""), _gpu_identity(labels, source))
            reasons = column == "throttle_reasons"
            value = throttle_reasons(hex(int(number))) if reasons else number > 0 if name in _FLAGS else int(number)
            row.setdefault(column, Known(value, source))
    if gpus:
        yield "gpu", tuple(gpus.values())


def _gpu_identity(labels: dict[str, str], source: str) -> dict[str, Fact]:
    """The columns that identify the GPU (index, name, PCI address), as far as the labels give them."""
    row: dict[str, Fact] = {}
    if (number := labels.get("gpu", "")).isdecimal():
        row["index"] = Known(int(number), source)
    if name := labels.get("modelName"):
        row["name"] = Known(name, source)
    if pci_address := normalized_pci_address(labels.get("pci_bus_id", "")):
        row["address"] = Known(pci_address, source)
    return row


def _xid_row(code: int, labels: dict[str, str], line: str, source: str) -> Iterator[tuple[str, Rows]]:
    """A row of ``xid``; nothing for code 0."""
    if code:
        yield "xid", (bare_xid(code, labels.get("pci_bus_id", ""), line, source),)


def _broken_messages(paste: Paste) -> Iterator[tuple[str, Rows]]:
    """A row of ``text`` for each message that the cells of dcgmi diag's table break, also in the middle of a word."""
    if "------+" not in paste.text and "| Warning " not in paste.text:
        return
    rows: list[dict[str, Fact]] = []
    first, parts = 0, [""]
    for index, line in enumerate([*paste.lines, ""]):
        cells = _ROW.match(line.rstrip().ljust(78)) if line.lstrip()[:2] == "| " else None
        if cells and len(parts) > 1 and not cells[1].strip() and not _NEXT.match(cells[2]):
            parts.append(cells[2])
            continue
        if len(parts) > 2:
            message = " ".join("".join(parts).split())
            rows.append({"line": Known(message, paste.use(first, first + len(parts) - 2))})
        first, parts = index, [""]
        if cells and _MESSAGE.match(cells[1]):
            parts.append(cells[2])
    if rows:
        yield "text", tuple(rows)


_SPACE = r"\s+"
_FAILED_FLAGS = {
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
    for table in (_FAILED_FLAGS, _COUNTS, _WORDS)
    for sentence, column in table.items()
)
_BANDWIDTH = Pattern(
    (
        r"Bandwidth of GPU (?P<gpu>\d+) in direction (?P<way>\S+) of (?P<value>[\d.]+) did not exceed"
        r" minimum required bandwidth of (?P<least>[\d.]*\d)"
    ).replace(" ", _SPACE)
)
_CELLS = Pattern(r"\s*\|(.{27,29}?)\| (.*?)\|?\s*$")
_MARKS = phrases(
    """
    memory errors and row | pending retired page | sram threshold count | volatile double-bit ecc |
    row remap limit | clocks event due to | recovery action: | bandwidth of gpu
    """
)
"""Words of which each message has one; in cells they may be cut."""
_GPU = Pattern(r"\s*gpuId (\d{1,3}):\s*$")
_STATES = Pattern(r"\s+[UDX_](?: [UDX_]){0,63}\s*$")
_IDENTITY = Pattern(
    r"\s*\| (?P<id>\d{1,3}|) +\| (?P<label>Status|Name|PCI Bus ID|Device UUID): (?P<value>\S.*?)"
    r"(?: \(last known\))?\s*\|\s*$"
)
_COLUMNS = {"Name": "name", "PCI Bus ID": "address", "Device UUID": "uuid"}
_CELL_WIDTH = 45
"""Characters of a message in one cell of dcgmi diag's table: it is cut there, also within a word."""


def _message_rows(paste: Paste) -> Iterator[tuple[str, Rows]]:
    """Rows of ``gpu`` by the faults, and of ``rate`` by the slow host links, that DCGM's messages report."""
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
    """The value of a ``gpu`` column for the text in DCGM's message: an int, True without text (a flag).

    For throttle_reasons a tuple of one name, for recovery_action its words.
    """
    if column == "throttle_reasons":
        return (f"{text}_violation",)
    if column == "recovery_action":
        return _ACTIONS.get(text, text.lower().replace("_", " "))
    return int(text) if text else True


def _rate_row(parts: dict[str, str], source: str) -> Row:
    """A row of ``rate`` for a host link slower than dcgmi diag asks for; `parts` has value, least, way and gpu."""
    value, least = float(parts["value"].rstrip(".")), float(parts["least"])
    kernel, rates = f"dcgmi diag, {parts['way']}", compared(value, least, value / least if least else 1.0)
    return known_facts(source, gpu=int(parts["gpu"]), kernel=kernel, of="host link", against="expected", **rates)


def _sentences(paste: Paste) -> Iterator[tuple[int, int, str]]:
    """Index of first and last line, and text, of each line or run of table cells that may hold a message of DCGM."""
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
    """The message in table cells, joined by spaces; where no cell is longer than the 45 characters at which dcgmi diag
    cuts words, the cells joined as cut stand in front of it.
    """
    if all(len(cell.rstrip()) <= _CELL_WIDTH for cell in cells):
        return (
            "".join(cell[:_CELL_WIDTH].ljust(_CELL_WIDTH) for cell in cells)
            + "  "
            + " ".join(cell.strip() for cell in cells)
        )
    return " ".join(cell.strip() for cell in cells)


def _links(paste: Paste) -> Iterator[tuple[str, Rows]]:
    """Rows of ``nvlink`` per link that ``dcgmi nvlink -s`` shows up or down, and of ``gpu`` for the GPUs listed."""
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
    """Rows of ``gpu`` for the GPUs of ``dcgmi discovery -l``; with -a also those lost, which get an ``error``."""
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
