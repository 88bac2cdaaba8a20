"""nvidia-smi -L, --query-gpu as CSV, topo -m and nvlink --status."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Value, known, known_facts, texts_of, value_of
from gpudoctor.readers._machine import gpu_vendor
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern, by_phrase
from gpudoctor.readers._values import first_integer, major_minor, normalized_pci_address, size_mib

EXACT = 9
FACTS = (
    column("mig.gpu", "int", "index of the GPU that the MIG device is part of"),
    column("mig.profile", "text", "its profile, such as 3g.40gb"),
    column("mig.uuid", "text", "its UUID, MIG-..."),
    fact("topology.pairs", "list", "how pairs of GPUs are connected, such as GPU0-GPU1 NV18, GPU0-GPU2 SYS"),
    column("nvlink.gpu", "int", "index of the GPU that the link is of"),
    column("nvlink.link", "int", "number of the link on that GPU"),
    column("nvlink.active", "bool", "whether the link is up"),
)

SOME_GPUS = Pattern(r"\bnvidia-smi\b[^|;&]*\s(?:-i|--id)\b")
"""A command that asks for some of the GPUs: the place in its output is no GPU's number."""
_LOOP = Pattern(r"\s(?:-l|-lms|--loop|--loop-ms)\b")
_GPU = Pattern(r"\s*GPU (\d+): (\S.*?)(?: \(UUID: (GPU-[0-9a-fA-F-]+)\))?\s*$")
_MIG = Pattern(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[\w/-]+)\)")
_ROW = Pattern(r"\s*(GPU\d+)((?:\s+(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|C2C))+)(?=\s|$)")
_HEADING = Pattern(r"\s*GPU0(?:\s+GPU\d+)*\s+(?:NIC\d|mlx|CPU|NUMA|GPU NUMA)|\s*GPU0\s+GPU1(?:\s|$)")
_PAIR = Pattern(
    r"(?i)\b(GPU ?\d+)\s*(?:<->|-|–|to|and)\s*(GPU ?\d+)(?:\s*:)?\s+(NV\d+|NVLink|PIX|PXB|PHB|NODE|SYS|SOC|C2C)\b"
)
_LINK = Pattern(r"(?i)\s*Link (\d+):\s*(<inactive>|inactive|down|[\d.]+ GB/s|active)")

_OF_GPU = Pattern(r"(?i)\bGPU ?(\d+)(?:'s)?\b")
_STATED = Pattern(
    r"(?i)\bLink (\d{1,3})\s*(?:(?::|is)\s*)?(?:currently )?(<?inactive>?|down|disabled|[\d.]+ GB/s|active|up)\b"
)


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Facts from ``nvidia-smi -L``, ``--query-gpu`` tables, ``topo -m`` and ``nvlink --status``."""
    if "(UUID: " in paste.text:
        yield from _gpu_list(paste)
    if "," in paste.text and any(
        word in paste.lower
        for word in ("index,", "name,", "driver_version", "query-gpu", "uuid,", "bus_id,", "remapped_rows.", "pid,")
    ):
        yield from _query_tables(paste)
    if "GPU" in paste.text and any(word in paste.text for word in ("topo", "SYS", "PIX", "PHB", "PXB", "NODE", "NV")):
        yield from _topology_pairs(paste)
    if "Link " in paste.text or "link " in paste.text:
        yield from _nvlink_rows(paste)


def _gpu_list(paste: Paste) -> Iterator[tuple[str, Rows]]:
    """Rows of ``gpu`` (index, name, UUID, MIG on) and ``mig`` (GPU, profile, UUID) from ``nvidia-smi -L``."""
    gpus: list[Row] = []
    migs: list[Row] = []
    for index, line in enumerate(paste.bare):
        if (gpu := _GPU.match(line)) and gpu.group(3):
            number, name, uuid = gpu.groups()
            gpus.append(known_facts(paste.use(index), index=int(number), name=name, uuid=uuid))
        elif gpus and (mig := _MIG.match(line)):
            source = paste.use(index)
            migs.append({"gpu": gpus[-1]["index"], **known_facts(source, profile=mig.group(1), uuid=mig.group(2))})
            gpus[-1] = {**gpus[-1], "mig": Known(True, source)}
    if gpus:
        yield "gpu", tuple(gpus)
    if migs:
        yield "mig", tuple(migs)


def _query_tables(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``gpu`` and the driver's version from CSV of ``--query-gpu``; other tables are marked as placed only.

    The fields are those of the heading, else of the command. GPUs are not numbered if it asks for some or in a loop.
    """
    fields: list[str | None] = []
    tables: list[list[Row]] = [[]]
    unnumbered: set[int] = set()
    other_columns = 0
    last = max((index for index, line in enumerate(paste.bare) if line.strip()), default=-1)
    for index, line in enumerate(paste.bare):
        command = paste.commands.get(index, line if "--query-gpu=" in line else "")
        if "--query-gpu=" in command:
            queried = command.partition("--query-gpu=")[2].partition(" ")[0].strip("'\"")
            fields = [column_of_field(name) for name in queried.split(",")]
            tables.append([])
            if SOME_GPUS.search(command) or _LOOP.search(command):
                unnumbered.add(len(tables) - 1)
            paste.use(index)
            continue
        cells = next(csv.reader([line[:2000]], skipinitialspace=True), []) if "," in line or fields else []
        columns = [column_of_field(name) for name in cells]
        if len(cells) > 1 and all(columns):
            fields = [] if counts_no_gpus(cells) else columns
            other_columns = 0 if fields else len(cells)
            if tables[-1]:
                tables.append([])
            paste.mark_listed(index, data=True)
        elif (
            fields
            and len(cells) == len(fields)
            and any(gpu_vendor(name) == "nvidia" or len(name) < 40 for name in cells)
        ):
            tables[-1].append(_row_of_cells(fields, cells, paste, index))
            paste.mark_listed(index, data=True)
        elif other_columns and len(cells) >= other_columns:
            paste.mark_listed(index, data=True)
        elif index == last and (all(columns[:-1]) if len(cells) > 1 and not fields else fields or other_columns):
            paste.mark_listed(index, data=True)  # the paste ends within a line
        elif cells and tables[-1]:
            fields = []
    for number, rows in enumerate(tables):
        yield from _query_rows(rows, number not in unnumbered)


def _query_rows(rows: list[Row], numbered: bool) -> Iterator[tuple[str, Fact | Rows]]:
    """One table's rows as ``gpu``, indexed by position where it has no index; driver.version from its column.

    Not indexed where not `numbered`, nor a single GPU with address or UUID, as it may be any of several. Of rows that
    nothing tells apart but the time, those of the first second count.
    """
    if not any(known(row.get(name)) for row in rows for name in ("index", "address", "uuid")):
        rows = [row for row in rows if value_of(row.get("time")) == value_of(rows[0].get("time"))]
    gpus = [{name: fact for name, fact in row.items() if name not in ("driver", "time")} for row in rows]
    if not numbered or (len(gpus) == 1 and any(known(gpus[0].get(name)) for name in ("address", "uuid"))):
        yield from (("gpu", (row,)) for row in gpus if row)
    elif any(gpus):
        yield (
            "gpu",
            tuple({"index": Known(position, "its place in the list"), **row} for position, row in enumerate(gpus)),
        )
    if rows and (driver := known(rows[0].get("driver"))):
        yield "driver.version", driver
        yield "nvml.state", Known("ok", driver.source)


def _row_of_cells(fields: list[str | None], cells: list[str], paste: Paste, index: int) -> Row:
    """A row of ``gpu`` from the cells of CSV line `index` of the paste; needs one cell per field.

    `Absent` for what the GPU does not report; unreadable cells are left out; ``reason:`` columns are joined as
    ``throttle_reasons``.
    """
    row: dict[str, Fact] = {}
    for name, text in zip(fields, cells, strict=True):
        if not name or name == "?":
            continue
        value = cell_value(name, text)
        if value is None:
            if text.strip() in _NOT_REPORTED and ":" not in name:
                row[name] = Absent("this GPU does not report it")
        elif name.startswith("reason:") and isinstance(value, tuple):
            before = texts_of(row.get("throttle_reasons"))
            row["throttle_reasons"] = Known(tuple(dict.fromkeys((*before, *value))), paste.use(index))
        else:
            row[name] = Known(value, paste.use(index))
    return row


_NOT_REPORTED = ("[N/A]", "N/A", "[Not Supported]")


def _topology_pairs(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """topology.pairs, such as ``GPU0-GPU1 NV18``, from the matrix of ``topo -m`` or from stated pairs."""
    pairs: list[str] = []
    sources: list[str] = []
    columns = 0
    for index, line in enumerate(paste.bare):
        if "GPU" not in line:
            continue
        if row := _ROW.match(line):
            first, cells = int(row.group(1)[3:]), row.group(2).split()[: columns or None]
            if "X" in cells:
                pairs.extend(f"GPU{first}-GPU{n} {connection}" for n, connection in enumerate(cells) if n > first)
                sources.append(paste.use(index))
        elif _HEADING.match(line):
            columns = sum(word[:3] == "GPU" and word[3:].isdecimal() for word in line.split())
            paste.use(index)
        else:
            for pair in _PAIR.finditer(line):
                first_gpu, second_gpu, connection = (part.replace(" ", "") for part in pair.groups())
                pairs.append(f"{first_gpu}-{second_gpu} {connection}")
                sources.append(paste.use(index))
    if sources:
        yield "topology.pairs", Known(tuple(dict.fromkeys(pairs)), sources[0])


def _nvlink_rows(paste: Paste) -> Iterator[tuple[str, Rows]]:
    """Rows of ``nvlink`` (GPU, link number, whether active) from ``nvidia-smi nvlink`` or lines that state a link."""
    rows: list[Row] = []
    gpu: Fact | None = None
    for index, line in enumerate(paste.bare):
        if header := _GPU.match(line):
            gpu = Known(int(header.group(1)), f"line {paste.numbers[index]}")
        elif (link := _LINK.match(line)) and gpu:
            is_active = link.group(2)[0].isdecimal() or link.group(2).lower() == "active"
            rows.append({"gpu": gpu, **known_facts(paste.use(index), link=int(link.group(1)), active=is_active)})
        elif (gpu_mention := _OF_GPU.search(line)) and "link" in line.lower():
            for link in _STATED.finditer(line[:1000]):
                is_active = not any(word in link.group(2).lower() for word in ("inactive", "down", "disabled"))
                number, source = int(gpu_mention.group(1)), paste.use(index)
                rows.append(known_facts(source, gpu=number, link=int(link.group(1)), active=is_active))
    if rows:
        yield "nvlink", tuple(rows)


# ---- Fields of ``nvidia-smi --query-gpu`` ----
# By the names that it takes and prints, and the columns of ``gpu`` that they fill.

_FIELDS = by_phrase(
    """
index: index
name: name | gpu_name
uuid: uuid | gpu_uuid
time: timestamp
driver: driver_version | kmd_version
address: pci.bus_id | gpu_bus_id
compute_capability: compute_cap
memory_mib: memory.total
memory_used_mib: memory.used
compute_mode: compute_mode
recovery_action: gpu_recovery_action
mig: mig.mode.current
temperature_c: temperature.gpu
utilization: utilization.gpu
link_generation: pcie.link.gen.current | pcie.link.gen.gpucurrent
link_generation_max: pcie.link.gen.max
link_width: pcie.link.width.current
link_width_max: pcie.link.width.max
ecc_uncorrected: ecc.errors.uncorrected.volatile.total
remapped_uncorrected: remapped_rows.uncorrectable
remap_pending: remapped_rows.pending
remap_failed: remapped_rows.failure
throttle_reasons: clocks_throttle_reasons.active | clocks_event_reasons.active
clock_mhz: clocks.sm | clocks.current.sm
clock_max_mhz: clocks.max.sm
power_w: power.draw | power.draw.average | power.draw.instant
power_limit_w: power.limit | enforced.power.limit
power_limit_default_w: power.default_limit
"""
)
_REASON = Pattern(r"clocks_(?:throttle|event)_reasons\.(\w+)")
_OTHER = Pattern(
    r"[a-z_]+(?:\.\w+)+|count|pstate|serial|power_\w+|vbios_version|display_\w+|persistence_mode|hostname"
    r"|addressing_mode|kmd_version|edpp_multiplier|gpu_(?:serial|util\w*)|mem_util\w*|max_memory_usage|time|pid"
    r"|process_name|used_(?:gpu_)?memory|vgpu_\w+|accounting_\w+|gpu_operation_mode\w*|inforom_\w+|numa_\w+"
)
_OF_PROCESSES_OR_PAGES = ("pid", "process_name", "retired_pages.address", "retired_pages.cause", "max_memory_usage")
_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}


def column_of_field(name: str) -> str | None:
    """The column that a ``--query-gpu`` field fills; ``?`` for a known field without one; None for no field.

    A single clock-event reason gives ``reason:NAME``: its cell says whether it is active.
    """
    plain = name.partition("[")[0].strip().lower()
    if plain in _FIELDS:
        return _FIELDS[plain]
    if (reason := _REASON.fullmatch(plain)) and reason.group(1) in _REASONS.values():
        return f"reason:{reason.group(1)}"
    return "?" if _OTHER.fullmatch(plain) else None


def counts_no_gpus(names: Sequence[str]) -> bool:
    """Whether a table with these fields has a row per process or retired page, not per GPU."""
    return any(name.partition("[")[0].strip().lower() in _OF_PROCESSES_OR_PAGES for name in names)


def cell_value(column: str, text: str) -> Value:
    """The CSV cell as the column's value; None for ``[N/A]``, ``[Not Supported]``, empty or unreadable ones.

    For ``reason:NAME`` a tuple of that name, empty unless active.
    """
    text = text.strip()
    if not text or text.startswith("[") or text == "N/A":
        return None
    if column in ("name", "uuid", "compute_mode", "driver"):
        return text
    if column == "time":
        return text.partition(".")[0]
    if column == "recovery_action":
        return text.lower()
    if column == "address":
        return normalized_pci_address(text)
    if column == "compute_capability":
        return major_minor(text)
    if column in ("memory_mib", "memory_used_mib"):
        return size_mib(text if text[-1].isalpha() else f"{text} MiB")
    if column in ("mig", "remap_pending", "remap_failed"):
        return text.lower() in ("enabled", "yes", "1", "true")
    if column == "throttle_reasons":
        return throttle_reasons(text)
    if column.startswith("reason:"):
        return (column.partition(":")[2],) if text.lower() == "active" else ()
    return first_integer(text)


def throttle_reasons(text: str) -> Value:
    """Names of the clock-event reasons in a hexadecimal mask such as ``0x4``, empty for 0; None for no number."""
    try:
        mask = int(text, 16)
    except ValueError:
        return None
    return tuple(name for bit, name in _REASONS.items() if mask & bit)
