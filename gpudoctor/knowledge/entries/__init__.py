"""The tables for people: what each knows, and the rows that answer for a key, in words."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from gpudoctor.knowledge import drivers, gpu_names
from gpudoctor.knowledge._tables import TableRow, table
from gpudoctor.knowledge.archs import capability
from gpudoctor.knowledge.entries.hits import Found, Hit, is_of, rows, without
from gpudoctor.knowledge.entries.software import of_companions, of_images, of_symbols, of_torch
from gpudoctor.knowledge.entries.words import PAIRED, SECTIONS, TABLES, Section
from gpudoctor.knowledge.gpu_names import plain
from gpudoctor.model.errors import UsageError
from gpudoctor.model.table import Entries, Entry, Table
from gpudoctor.model.values import CannotJudge

# Xid, return codes, and NCCL's words, by number or name.


def of_xid(key: str) -> Found:
    kind = re.match(r"(s?xid)\b", key, re.IGNORECASE)
    wanted = without(key, "s?xid", "error")
    sections = (kind[1].lower(),) if kind else ("xid", "sxid")
    hits = [hit for section in sections for hit in rows("xid", section, lambda row: str(row["code"]) == wanted)]
    hits += rows("xid", "action", lambda row: row["name"].casefold() == key.casefold())
    if not hits and "xid" in sections and wanted in map(str, table("xid")["unused"]):
        return Found([Hit("xid", {"code": int(wanted), "meaning": "listed as unused by NVIDIA's catalogue"})])
    return Found([Hit(hit.section, _with_words(hit.row)) for hit in hits])


def _with_words(row: TableRow) -> TableRow:
    """The row with what its action words mean beside them."""
    means = {action["name"]: action["text"] for action in table("xid")["action"]}
    explained = {
        column: f"{word} ({means[word]})" for column in ("action", "then") if (word := row.get(column)) in means
    }
    return {**row, **explained}


def of_codes(key: str) -> Found:
    kind = re.match(r"(nvml|cuda|nccl)[\s:=-]+(?=\d)", key, re.IGNORECASE)
    wanted = (key[kind.end() :] if kind else key).casefold()
    sections = (kind[1].lower(),) if kind else ("cuda", "nvml", "nccl")
    hits = [
        hit
        for section in sections
        for hit in rows("codes", section, lambda row: wanted in (str(row["code"]), row["name"].casefold()))
    ]
    return Found([*hits, *rows("codes", "clock_event", lambda row: wanted in (row["bit"], row["name"].casefold()))])


def of_nccl(key: str) -> Found:
    wanted = without(key, "status", "path").casefold()
    hits = []
    for section, column in (
        ("variable", "name"),
        ("renamed", "name"),
        ("risk", "name"),
        ("path", "name"),
        ("ib_status", "name"),
        ("factor", "collective"),
        ("line_rate", "link"),
    ):
        hits += rows("nccl", section, lambda row, column=column: str(row[column]).casefold() == wanted)  # type: ignore[misc]
    hits += rows("nccl", "ib_status", lambda row: str(row["code"]) == wanted)
    hits += rows(
        "nccl",
        "busbw",
        lambda row: wanted in (row["collective"].casefold(), f"{row['platform']} {row['collective']}".casefold()),
    )
    return Found(hits)


# Drivers, GPUs and compilers, by version, compute capability, PCI id, or the name that some tool printed.


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
        note = f"{key} matches several GPUs: only what their rows have in common holds for it"
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
    capabilities = dict.fromkeys(one for hit in hits for one in hit.row.get("cc", "").split())
    for cc in capabilities:
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


_MOST_NEAR = 5
_LONGEST = 1000
"""Characters of a key that are looked at: mangled symbols are long."""
_YES_NO = {True: "yes", False: "no"}
_FINDERS: Mapping[str, Callable[[str], Found]] = {
    "codes": of_codes,
    "companions": of_companions,
    "compilers": of_compilers,
    "drivers": of_drivers,
    "gpus": of_gpus,
    "images": of_images,
    "nccl": of_nccl,
    "rates": of_rates,
    "symbols": of_symbols,
    "torch": of_torch,
    "xid": of_xid,
}

NAMES = tuple(TABLES)
"""Every table that can be asked."""


def overview(name: str) -> Table:
    """What the table knows, from where, as of when."""
    raw, about = table(name), TABLES[name]
    return Table(name, about.says, raw["checked"], tuple(raw["source"]), tuple(_keys(name)), about.tries)


def entries(name: str, key: str) -> Entries:
    """The rows that answer for the key; raises `UsageError` naming the nearest keys where there is none."""
    found = _FINDERS[name](key.strip()[:_LONGEST])
    if not found.hits:
        known = [one for _, keys in _keys(name) for one in keys]
        near = nearest(_spelt(key) if name == "gpus" else key, known)
        help_ = f"near it: {', '.join(near)}" if near else f"it takes keys such as {', '.join(TABLES[name].tries)}"
        raise UsageError(f"the table {name} has no {key[:80]!r}; {help_}; gpudoctor explain {name} lists them")
    return Entries(key, tuple(_entry(name, hit) for hit in found.hits), found.note)


def near_gpus(name: str) -> list[str]:
    """The names in the tables that are most like it; none where nothing is."""
    return nearest(_spelt(name), [one for _, keys in _keys("gpus") for one in keys])


def gpu_is_listed(name: str) -> bool:
    """Whether the name is that of a row of the tables, or a part of one: ``H100`` of ``H100 SXM5 80GB``."""
    spelt = _spelt(name).casefold()
    return any(spelt in one.casefold() for _, keys in _keys("gpus") for one in keys)


def _keys(name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for (owner, part), section in SECTIONS.items():
        if owner == name:
            yield section.heading, tuple(dict.fromkeys(section.key.format_map(row) for row in table(name)[part]))
    if name == "companions":
        for package in PAIRED:
            versions = dict.fromkeys(row[package] for row in table("torch")["release"] if package in row)
            yield package, tuple(f"{package} {version}" for version in versions)


def _entry(name: str, hit: Hit) -> Entry:
    section = SECTIONS.get((name, hit.section)) or PAIRED[hit.row["package"]]
    title = section.title.format_map({"meaning": hit.row.get("name", ""), **hit.row})
    return Entry(title, tuple(_lines(section, hit.row)), hit.row.get("source", ""))


def _lines(section: Section, row: TableRow) -> Iterator[tuple[str, str]]:
    for column, value in row.items():
        label = section.labels.get(column, column)
        if label and column != "source":
            yield label, _words(column, value)


def _words(column: str, value: object) -> str:
    if isinstance(value, bool):
        return _YES_NO[value]
    if isinstance(value, dict):
        return ", ".join(f"{name} {number}" for name, number in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if column == "pci":
        return " ".join(f"10de:{device}" for device in str(value).split())
    return str(value)


def _spelt(name: str) -> str:
    """A GPU's name as the table spells it."""
    bare, _ = plain(name)
    return f"GeForce {bare}" if re.match(r"[RG]TX? \d", bare) else bare


def nearest(key: str, known: Sequence[str]) -> list[str]:
    """The keys most like it: the nearest numbers behind the same words, else those that are spelt alike."""
    head, numbers = _split(key)
    numbered = [one for one in known if _split(one)[1]]
    alike = [one for one in numbered if _split(one)[0] == head] or ([] if head else numbered)
    if numbers and alike:
        return sorted(alike, key=lambda one: abs(_weight(_split(one)[1]) - _weight(numbers)))[:_MOST_NEAR]
    lower = {one.casefold(): one for one in known}
    return [lower[one] for one in difflib.get_close_matches(key.casefold(), lower, _MOST_NEAR, 0.5)]


def _split(key: str) -> tuple[str, tuple[int, ...]]:
    """The words of a key, and the version or number that it ends in."""
    match = re.search(r"\d+(?:\.\d+)*$", key[:200])
    if not match:
        return key.casefold(), ()
    return key[: match.start()].casefold().strip(), tuple(int(part[:9]) for part in match[0].split("."))


def _weight(numbers: tuple[int, ...]) -> float:
    """A version as one number: 13.3.1 is nearer to 14.1 than 13.1 is."""
    return sum(number / float(1000**place) for place, number in enumerate(numbers))
