"""nvidia-smi -L, --query-gpu as CSV, topo -m and nvlink --status."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from gpudoctor.model.catalog import column, fact
from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.readers._gpus import vendor
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers.tools._query_fields import cell, field_of, not_of_gpus

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

_GPU = Pattern(r"\s*GPU (\d+): (\S.*?)(?: \(UUID: (GPU-[0-9a-fA-F-]+)\))?\s*$")
_MIG = Pattern(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[\w/-]+)\)")
_ROW = Pattern(r"\s*(GPU\d+)((?:\s+(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|C2C))+)(?=\s|$)")
_HEADING = Pattern(r"\s*GPU0(?:\s+GPU\d+)*\s+(?:NIC\d|mlx|CPU|NUMA|GPU NUMA)|\s*GPU0\s+GPU1(?:\s|$)")
_PAIR = Pattern(
    r"\b(GPU ?\d+)\s*(?:<->|-|–|to|and)\s*(GPU ?\d+)(?:\s*:)?\s+(NV\d+|NVLink|PIX|PXB|PHB|NODE|SYS|SOC|C2C)\b", 2
)
_LINK = Pattern(r"\s*Link (\d+):\s*(<inactive>|inactive|down|[\d.]+ GB/s|active)", 2)

_OF_GPU = Pattern(r"\bGPU ?(\d+)(?:'s)?\b", 2)
_SAID = Pattern(
    r"\bLink (\d{1,3})\s*(?:(?::|is)\s*)?(?:currently )?(<?inactive>?|down|disabled|[\d.]+ GB/s|active|up)\b", 2
)


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """The four listings, each wherever it stands."""
    if "(UUID: " in paste.text:
        yield from _listing(paste)
    if "," in paste.text and any(
        word in paste.lower
        for word in ("index,", "name,", "driver_version", "query-gpu", "uuid,", "bus_id,", "remapped_rows.", "pid,")
    ):
        yield from _table(paste)
    if "GPU" in paste.text and any(word in paste.text for word in ("topo", "SYS", "PIX", "PHB", "PXB", "NODE", "NV")):
        yield from _topology(paste)
    if "Link " in paste.text or "link " in paste.text:
        yield from _links(paste)


def _listing(paste: Paste) -> Iterator[tuple[str, Rows]]:
    gpus: list[Row] = []
    migs: list[Row] = []
    for index, line in enumerate(paste.bare):
        if (gpu := _GPU.match(line)) and gpu.group(3):
            source = paste.use(index)
            number, name, uuid = gpu.groups()
            gpus.append({"index": Known(int(number), source), "name": Known(name, source), "uuid": Known(uuid, source)})
        elif gpus and (mig := _MIG.match(line)):
            source = paste.use(index)
            profile, uuid = mig.groups()
            of: Row = {"gpu": gpus[-1]["index"], "profile": Known(profile, source), "uuid": Known(uuid, source)}
            migs.append(of)
            gpus[-1] = {**gpus[-1], "mig": Known(True, source)}
    if gpus:
        yield "gpu", tuple(gpus)
    if migs:
        yield "mig", tuple(migs)


def _table(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    fields: list[str | None] = []
    tables: list[list[Row]] = [[]]
    others = 0
    last = max((index for index, line in enumerate(paste.bare) if line.strip()), default=-1)
    for index, line in enumerate(paste.bare):
        command = paste.commands.get(index, line if "--query-gpu=" in line else "")
        if "--query-gpu=" in command:
            asked = command.partition("--query-gpu=")[2].partition(" ")[0].strip("'\"")
            fields = [field_of(name) for name in asked.split(",")]
            tables.append([])
            paste.use(index)
            continue
        cells = next(csv.reader([line[:2000]], skipinitialspace=True), []) if "," in line or fields else []
        named = [field_of(name) for name in cells]
        if len(cells) > 1 and all(named):
            fields = [] if not_of_gpus(cells) else named
            others = 0 if fields else len(cells)
            if tables[-1]:
                tables.append([])
            paste.understand(index, data=True)
        elif fields and len(cells) == len(fields) and any(vendor(name) == "nvidia" or len(name) < 40 for name in cells):
            tables[-1].append(_cells(fields, cells, paste, index))
            paste.understand(index, data=True)
        elif others and len(cells) >= others:
            paste.understand(index, data=True)
        elif index == last and (all(named[:-1]) if len(cells) > 1 and not fields else fields or others):
            paste.understand(index, data=True)  # the paste ends within a line
        elif cells and tables[-1]:
            fields = []
    for rows in tables:
        yield from _rows(rows)


def _rows(rows: list[Row]) -> Iterator[tuple[str, Fact | Rows]]:
    """One table's rows as GPUs, numbered by their place where the table does not number them."""
    gpus = [{name: fact for name, fact in row.items() if name != "driver"} for row in rows]
    if any(gpus):
        yield "gpu", tuple({"index": Known(place, "its place in the list"), **row} for place, row in enumerate(gpus))
    if rows and isinstance(driver := rows[0].get("driver", Unread("")), Known):
        yield "driver.version", driver
        yield "nvml.state", Known("ok", driver.source)


def _cells(fields: list[str | None], cells: list[str], paste: Paste, index: int) -> Row:
    row: dict[str, Fact] = {}
    for name, text in zip(fields, cells, strict=True):
        if not name or name == "?":
            continue
        value = cell(name, text)
        if value is None:
            if text.strip() in _NOT_REPORTED and ":" not in name:
                row[name] = Absent("this GPU does not report it")
        elif name.startswith("reason:") and isinstance(value, tuple):
            known = row.get("throttle_reasons")
            before = known.value if isinstance(known, Known) and isinstance(known.value, tuple) else ()
            row["throttle_reasons"] = Known(tuple(dict.fromkeys((*before, *value))), paste.use(index))
        else:
            row[name] = Known(value, paste.use(index))
    return row


_NOT_REPORTED = ("[N/A]", "N/A", "[Not Supported]")


def _topology(paste: Paste) -> Iterator[tuple[str, Fact]]:
    pairs: list[str] = []
    sources: list[str] = []
    columns = 0
    for index, line in enumerate(paste.bare):
        if "GPU" not in line:
            continue
        if row := _ROW.match(line):
            first, cells = int(row.group(1)[3:]), row.group(2).split()[: columns or None]
            if "X" in cells:
                pairs.extend(f"GPU{first}-GPU{n} {how}" for n, how in enumerate(cells) if n > first)
                sources.append(paste.use(index))
        elif _HEADING.match(line):
            columns = sum(word[:3] == "GPU" and word[3:].isdecimal() for word in line.split())
            paste.use(index)
        else:
            for pair in _PAIR.finditer(line):
                one, other, how = (part.replace(" ", "") for part in pair.groups())
                pairs.append(f"{one}-{other} {how}")
                sources.append(paste.use(index))
    if sources:
        yield "topology.pairs", Known(tuple(dict.fromkeys(pairs)), sources[0])


def _links(paste: Paste) -> Iterator[tuple[str, Rows]]:
    rows: list[Row] = []
    gpu: Fact | None = None
    for index, line in enumerate(paste.bare):
        if header := _GPU.match(line):
            gpu = Known(int(header.group(1)), f"line {paste.numbers[index]}")
        elif (link := _LINK.match(line)) and gpu:
            source = paste.use(index)
            up = link.group(2)[0].isdecimal() or link.group(2).lower() == "active"
            rows.append({"gpu": gpu, "link": Known(int(link.group(1)), source), "active": Known(up, source)})
        elif (told := _OF_GPU.search(line)) and "link" in line.lower():
            source = f"line {paste.numbers[index]}"
            for link in _SAID.finditer(line[:1000]):
                up = not any(word in link.group(2).lower() for word in ("inactive", "down", "disabled"))
                number = Known(int(told.group(1)), paste.use(index))
                rows.append({"gpu": number, "link": Known(int(link.group(1)), source), "active": Known(up, source)})
    if rows:
        yield "nvlink", tuple(rows)
