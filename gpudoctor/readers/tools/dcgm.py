"""DCGM: fields by name, as dcgm-exporter prints them (``DCGM_FI_DEV_GPU_TEMP{gpu="0"} 61``), and dcgmi diag's table."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.fact import Absent, Fact, Known, Rows, Value
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import normalized_pci_address
from gpudoctor.readers.tools.nvidia_smi_list import throttle_reasons

EXACT = 8
FACTS = ()

_FIELD = Pattern(
    r"\bDCGM_FI_DEV_(?P<name>[A-Z_]{1,80})\s*(?:\{(?P<labels>[^{}\n]*)\}\s*)?(?:[:=]\s*)?(?P<value>\d+(?:\.\d+)?(?:e\+?\d+)?)\s*$",
    2,
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
_BLANK = 1 << 30
"""From here on DCGM means that it has no value."""
_ROW = Pattern(r"\s*\| (.{25}) \| (.{45})[^|\w]{0,4}\|?\s*$")
_MESSAGE = Pattern(r"(?:Warning|Info|Error)(?::? ?GPU ?\d+)?\s*$")
_NEXT = Pattern(r"(?:GPU ?\d+|.{1,20}): (?:Pass|Fail|Skip|Warn)\b|(?:Pass|Fail|Skip|Warn) - ")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """A row of ``gpu`` for each GPU named, one of ``xid`` for each last Xid that is not 0, and messages as ``text``."""
    yield from _broken_messages(paste)
    gpus: dict[str, dict[str, Fact]] = {}
    for index, line in paste.having("dcgm_fi_dev_"):
        if not (field := _FIELD.search(line.strip())):
            continue
        number = float(field["value"])
        name, labels = field["name"].upper(), dict(_LABEL.compiled.findall(field["labels"] or ""))
        if number >= _BLANK:
            continue
        if name == "XID_ERRORS":
            yield from _xid_row(int(number), labels, line, paste.use(index))
        elif column := _NUMBERS.get(name) or _FLAGS.get(name) or ("throttle_reasons" if name in _MASKS else None):
            source = paste.use(index)
            row = gpus.setdefault(labels.get("gpu", ""), _gpu_identity(labels, source))
            row.setdefault(column, Known(_column_value(column, int(number)), source))
    if gpus:
        yield "gpu", tuple(gpus.values())


def _column_value(column: str, number: int) -> Value:
    """The number as the column holds it: reasons of a mask, True above 0 for a flag, else the number."""
    if column == "throttle_reasons":
        return throttle_reasons(hex(number))
    return number > 0 if column in _FLAGS.values() else number


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
        pci_address = normalized_pci_address(labels.get("pci_bus_id", ""))
        yield (
            "xid",
            (
                {
                    "code": Known(code, source),
                    "address": Known(pci_address, source)
                    if pci_address
                    else Absent(f"the line does not say ({source})"),
                    "line": Known(line.strip()[:500], source),
                    "fatal": Absent(f"the line does not say ({source})"),
                },
            ),
        )


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
