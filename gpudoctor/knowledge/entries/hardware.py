"""Drivers, GPUs and compilers, by version, compute capability, PCI id, or the name that some tool printed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.knowledge import drivers, gpu_names
from gpudoctor.knowledge._tables import TableRow, table
from gpudoctor.knowledge.archs import capability
from gpudoctor.knowledge.entries.hits import Found, Hit, is_of, rows, without
from gpudoctor.model.values import CannotJudge


def of_drivers(key: str) -> Found:
    wanted = without(key, "cuda", "nvidia", "driver", "branch", "R(?=\\d)")
    if not re.match(r"\d+(\.\d+)*$", wanted):
        named = key.lower().split()
        return Found(rows("drivers", "shipped", lambda row: [row["distribution"], *row["release"].split()] == named))
    major = int(wanted.partition(".")[0])
    if major >= 100:
        return _of_driver(wanted)
    hits = rows("drivers", "toolkit", lambda row: is_of(row["cuda"], wanted))
    minor = ".".join(wanted.split(".")[:2])
    hits += rows("drivers", "branch", lambda row: is_of(row.get("cuda", ""), minor))
    if hits or str(major) == wanted:
        hits = [*rows("drivers", "family", lambda row: row["major"] == major), *hits]
    return Found(hits)


def _of_driver(version: str) -> Found:
    try:
        branch = drivers.branch_of(version)
    except CannotJudge:
        return Found([])
    number = str(branch["branch"])
    note = "" if number == version.partition(".")[0] else f"{version} is read as a driver of branch {number}"
    shipped = rows(
        "drivers", "toolkit", lambda row: any(is_of(row.get(side, ""), number) for side in ("linux", "windows"))
    )
    return Found([Hit("branch", branch), *shipped], note)


def of_gpus(key: str) -> Found:
    if match := re.match(r"(?:10de[: ])([0-9a-f]{4})$|([0-9a-f]{4})$", key.removeprefix("0x"), re.IGNORECASE):
        found = _of_device((match[1] or match[2]).lower())
        if found.hits:
            return found
    generations = rows("gpus", "generation", lambda row: row["arch"].casefold() == key.casefold())
    if not generations and re.match(r"(?:sm_?|compute_?)?\d{1,2}\.?\d[af]?$", key, re.IGNORECASE):
        generations = _of_capability(key)
    if generations:
        return Found([Hit("generation", _with_names(hit.row)) for hit in generations])
    return _of_name(key)


def _of_device(number: str) -> Found:
    hits = rows("gpus", "gpu", lambda row: number in row.get("pci", "").split())
    note = "" if hits else "the id is of no product in the table, and judged by its chip"
    chips = rows("gpus", "device", lambda row: int(row["from"], 16) <= int(number, 16) <= int(row["to"], 16))
    families = [Hit(*pair) for hit in chips if not hits for pair in gpu_names.rows_for(hit.row["chip"])]
    return Found([*hits, *chips, *families, *_generations_of([*hits, *families])] if hits or chips else [], note)


def _of_name(key: str) -> Found:
    hits = [Hit(section, row) for section, row in gpu_names.rows_for(key)]
    if not hits:
        return Found([])
    bare, virtual = gpu_names.plain(key)
    if virtual:
        note = f"{key} is a slice that a hypervisor cut from {bare}: what the board has, it need not have"
    elif re.search(r"\bMIG \d", key):
        note = f"{key} is one instance of {bare}; the row is that of the whole GPU"
    elif hits[0].section == "family":
        note = f"{bare} has no row of its own and is judged by its name"
    elif len(hits) > 1:
        note = f"{key} may be any of these: what they share may be said of it"
    else:
        note = "" if bare.casefold() == key.casefold() else f"{key} is looked up as {hits[0].row['name']}"
    return Found([*hits, *_generations_of(hits)], note)


def _of_capability(key: str) -> list[Hit]:
    try:
        wanted = capability(key)
    except CannotJudge:
        return []
    return rows("gpus", "generation", lambda row: capability(row["cc"]) == wanted)


def _generations_of(hits: list[Hit]) -> Iterator[Hit]:
    told = dict.fromkeys(one for hit in hits for one in hit.row.get("cc", "").split())
    for cc in told:
        yield from rows("gpus", "generation", lambda row, cc=cc: row["cc"] == cc)  # type: ignore[misc]


def _with_names(row: TableRow) -> TableRow:
    return {**row, "names": [gpu["name"] for gpu in table("gpus")["gpu"] if gpu["cc"] == row["cc"]]}


def of_compilers(key: str) -> Found:
    if re.match(r"(?:sm|compute)_\d+[af]?$", key):
        target = key.replace("compute_", "sm_")
        return Found(
            rows("compilers", "nvcc", lambda row: target in row["targets"].split()),
            f"every nvcc that compiles for {target}",
        )
    release = ".".join(without(key, "nvcc", "cuda").split(".")[:2])
    return Found(rows("compilers", "nvcc", lambda row: is_of(row["cuda"], release)))


def of_rates(key: str) -> Found:
    """By compute capability, kernel, PCIe or NVLink generation, or as the table lists a row."""
    wanted = key.casefold()
    hits = rows("rates", "product", lambda row: row["cc"] == without(key, "cc", "compute capability"))
    hits += rows("rates", "reached", lambda row: wanted in (row["kernels"], *row["kernels"].split()))
    lane = without(key, "PCIe", "PCI Express", "gen(eration)?") if wanted.startswith("pci") else ""
    hits += rows("rates", "lane", lambda row: str(row["generation"]) == lane)
    link = without(key, "NVLink") if wanted.startswith("nvlink") else "none"
    return Found([*hits, *rows("rates", "nvlink", lambda row: is_of(row["version"], link))])
