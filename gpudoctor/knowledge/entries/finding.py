"""Which rows answer for a key as people type it: a version, a code, a name that some tool printed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from gpudoctor.knowledge import builds, drivers, gpus, symbols
from gpudoctor.knowledge._tables import TableRow, table
from gpudoctor.knowledge.archs import capability
from gpudoctor.model.values import CannotJudge


class Hit(NamedTuple):
    """A row, and the section of the table that it stands in."""

    section: str
    row: TableRow


class Found(NamedTuple):
    """The rows that answer, and how the key was understood where that is not plain."""

    hits: list[Hit]
    note: str = ""


def find(name: str, key: str) -> Found:
    """The rows of that table that answer for the key; none where it has none."""
    return _FINDERS[name](key.strip())


def _rows(name: str, section: str, fits: Callable[[TableRow], bool]) -> list[Hit]:
    return [Hit(section, row) for row in table(name)[section] if fits(row)]


def _is_of(version: object, wanted: str) -> bool:
    """Whether the version begins with `wanted`: 12.8.1 is of 12.8."""
    return f"{version}.".startswith(f"{wanted}.")


def _without(key: str, *words: str) -> str:
    """The key without a leading word that only says what it is: ``CUDA 12.8``, ``torch==2.9``."""
    return re.sub(rf"^(?:{'|'.join(words)})[\s=:-]*", "", key, flags=re.IGNORECASE).strip()


def _drivers(key: str) -> Found:
    wanted = _without(key, "cuda", "nvidia", "driver", "branch", "R(?=\\d)")
    if not re.match(r"\d+(\.\d+)*$", wanted):
        return Found([])
    major = int(wanted.partition(".")[0])
    if major >= 100:
        return _of_driver(wanted)
    hits = _rows("drivers", "toolkit", lambda row: _is_of(row["cuda"], wanted))
    minor = ".".join(wanted.split(".")[:2])
    hits += _rows("drivers", "branch", lambda row: _is_of(row.get("cuda", ""), minor))
    if hits or str(major) == wanted:
        hits = [*_rows("drivers", "family", lambda row: row["major"] == major), *hits]
    return Found(hits)


def _of_driver(version: str) -> Found:
    try:
        branch = drivers.branch_of(version)
    except CannotJudge:
        return Found([])
    number = str(branch["branch"])
    note = "" if number == version.partition(".")[0] else f"{version} is read as a driver of branch {number}"
    shipped = _rows(
        "drivers", "toolkit", lambda row: any(_is_of(row.get(side, ""), number) for side in ("linux", "windows"))
    )
    return Found([Hit("branch", branch), *shipped], note)


def _gpus(key: str) -> Found:
    if match := re.match(r"(?:10de[: ])([0-9a-f]{4})$|([0-9a-f]{4})$", key.removeprefix("0x"), re.IGNORECASE):
        found = _of_device((match[1] or match[2]).lower())
        if found.hits:
            return found
    generations = _rows("gpus", "generation", lambda row: row["arch"].casefold() == key.casefold())
    if not generations and re.match(r"(?:sm_?|compute_?)?\d{1,2}\.?\d[af]?$", key, re.IGNORECASE):
        generations = _of_capability(key)
    if generations:
        return Found([Hit("generation", _with_names(hit.row)) for hit in generations])
    return _of_name(key)


def _of_device(number: str) -> Found:
    hits = _rows("gpus", "gpu", lambda row: number in row.get("pci", "").split())
    note = "" if hits else "the id is of no product in the table, and judged by its chip"
    chips = _rows("gpus", "device", lambda row: int(row["from"], 16) <= int(number, 16) <= int(row["to"], 16))
    families = [Hit(*pair) for hit in chips if not hits for pair in gpus.rows_for(hit.row["chip"])]
    return Found([*hits, *chips, *families, *_generations_of([*hits, *families])] if hits or chips else [], note)


def _of_name(key: str) -> Found:
    hits = [Hit(section, row) for section, row in gpus.rows_for(key)]
    if not hits:
        return Found([])
    bare, virtual = gpus.plain(key)
    if virtual:
        note = f"{key} is a slice that a hypervisor cut from this GPU: what the board has, it need not have"
    elif hits[0].section == "family":
        note = f"no row of its own: {bare} is judged by its name"
    elif len(hits) > 1:
        note = f"{key} may be any of these: what they share may be said of it"
    else:
        note = "" if bare.casefold() == key.casefold() else f"{key} is {hits[0].row['name']} here"
    return Found([*hits, *_generations_of(hits)], note)


def _of_capability(key: str) -> list[Hit]:
    try:
        wanted = capability(key)
    except CannotJudge:
        return []
    return _rows("gpus", "generation", lambda row: capability(row["cc"]) == wanted)


def _generations_of(hits: list[Hit]) -> Iterator[Hit]:
    told = dict.fromkeys(one for hit in hits for one in hit.row.get("cc", "").split())
    for cc in told:
        yield from _rows("gpus", "generation", lambda row, cc=cc: row["cc"] == cc)  # type: ignore[misc]


def _with_names(row: TableRow) -> TableRow:
    return {**row, "names": [gpu["name"] for gpu in table("gpus")["gpu"] if gpu["cc"] == row["cc"]]}


def _torch(key: str) -> Found:
    wanted = _without(key, "torch", "pytorch")
    if re.match(r"cu\d+$", wanted):
        return Found(_rows("torch", "build", lambda row: row["build"] == wanted))
    if toolkit := re.match(r"toolkit ([\d.]+)$", wanted):
        return Found(_rows("torch", "toolkit", lambda row: _is_of(row["cuda"], toolkit[1])))
    public, _, local = wanted.partition("+")
    hits = _rows("torch", "release", lambda row: _is_of(row["version"], public))
    made = _rows("torch", "build", lambda row: _is_of(row["torch"], public) and local in ("", row["build"]))
    toolkits = {hit.row.get("toolkit") for hit in made if local}
    pins = _rows("torch", "toolkit", lambda row: row["cuda"] in toolkits)
    if local and not made and builds.flavor_of(f"+{local}") and not local.startswith("cu"):
        return Found(hits, f"{local} builds have no rows: what is said is of the release")
    return Found([*hits, *made, *pins] if made else [])


def _xid(key: str) -> Found:
    kind = re.match(r"(s?xid)\b", key, re.IGNORECASE)
    wanted = _without(key, "s?xid", "error")
    sections = (kind[1].lower(),) if kind else ("xid", "sxid")
    hits = [hit for section in sections for hit in _rows("xid", section, lambda row: str(row["code"]) == wanted)]
    hits += _rows("xid", "action", lambda row: row["name"].casefold() == wanted.casefold())
    if not hits and "xid" in sections and wanted in map(str, table("xid")["unused"]):
        return Found([Hit("xid", {"code": int(wanted), "meaning": "listed as unused by NVIDIA's catalogue"})])
    actions = {hit.row.get("action") for hit in hits}
    return Found([*hits, *_rows("xid", "action", lambda row: row["name"] in actions)])


def _codes(key: str) -> Found:
    kind = re.match(r"(nvml|cuda|nccl)[\s:=-]+(?=\d)", key, re.IGNORECASE)
    wanted = (key[kind.end() :] if kind else key).casefold()
    sections = (kind[1].lower(),) if kind else ("cuda", "nvml", "nccl")
    hits = [
        hit
        for section in sections
        for hit in _rows("codes", section, lambda row: wanted in (str(row["code"]), row["name"].casefold()))
    ]
    return Found([*hits, *_rows("codes", "clock_event", lambda row: wanted in (row["bit"], row["name"].casefold()))])


def _compilers(key: str) -> Found:
    if re.match(r"(?:sm|compute)_\d+[af]?$", key):
        target = key.replace("compute_", "sm_")
        return Found(
            _rows("compilers", "nvcc", lambda row: target in row["targets"].split()),
            f"every nvcc that compiles for {target}",
        )
    release = ".".join(_without(key, "nvcc", "cuda").split(".")[:2])
    return Found(_rows("compilers", "nvcc", lambda row: _is_of(row["cuda"], release)))


def _companions(key: str) -> Found:
    package, _, version = re.sub(r"[\s=@]+", " ", key).partition(" ")
    package, version = package.lower(), version.partition("+")[0].strip()
    if package in ("torchvision", "torchaudio", "triton"):
        releases = [row for row in table("torch")["release"] if package in row]
        return Found(
            [
                Hit(
                    "paired",
                    {
                        "package": package,
                        "version": row[package],
                        "torch": row["version"],
                        "loose": _loose(row, package),
                    },
                )
                for row in releases
                if not version or _is_of(row[package], version)
            ]
        )
    if package == "bitsandbytes":
        return Found(_rows("companions", package, lambda row: not version or _between(row, version)))
    if package not in table("companions") or package in ("source", "checked"):
        return Found([])
    return Found(_rows("companions", package, lambda row: not version or _is_of(row["version"], version)))


def _loose(row: TableRow, package: str) -> bool:
    return package in row.get("loose", "").split()


def _between(row: TableRow, version: str) -> bool:
    try:
        return _numbers(row["first"]) <= _numbers(version) <= _numbers(row["last"]) or _is_of(row["first"], version)
    except ValueError:
        return False


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _nccl(key: str) -> Found:
    wanted = _without(key, "status", "path").casefold()
    hits = []
    for section, column in (
        ("variable", "name"),
        ("path", "name"),
        ("ib_status", "name"),
        ("factor", "collective"),
        ("line_rate", "link"),
    ):
        hits += _rows("nccl", section, lambda row, column=column: str(row[column]).casefold() == wanted)  # type: ignore[misc]
    hits += _rows("nccl", "ib_status", lambda row: str(row["code"]) == wanted)
    hits += _rows(
        "nccl",
        "busbw",
        lambda row: wanted in (row["collective"].casefold(), f"{row['platform']} {row['collective']}".casefold()),
    )
    return Found(hits)


def _symbols(key: str) -> Found:
    try:
        says = symbols.symbol_says(key)
    except CannotJudge:
        return Found([])
    return Found(_rows("symbols", "symbol", lambda row: re.search(row["match"], key) is not None), f"{key}: {says}")


_FINDERS: Mapping[str, Callable[[str], Found]] = {
    "codes": _codes,
    "companions": _companions,
    "compilers": _compilers,
    "drivers": _drivers,
    "gpus": _gpus,
    "nccl": _nccl,
    "symbols": _symbols,
    "torch": _torch,
    "xid": _xid,
}
