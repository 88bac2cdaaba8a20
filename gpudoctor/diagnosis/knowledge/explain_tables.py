"""The tables for people: what each knows, and the rows that answer for a key, in words."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from gpudoctor.core.errors import UsageError
from gpudoctor.core.frozen import frozen
from gpudoctor.core.language import say
from gpudoctor.core.rule import Entries, Entry, Table
from gpudoctor.core.values import CannotJudge
from gpudoctor.diagnosis.knowledge import builds, drivers, gpus, printed_errors
from gpudoctor.diagnosis.knowledge._tables import TableRow, table
from gpudoctor.diagnosis.knowledge.archs import capability
from gpudoctor.diagnosis.knowledge.gpus import plain_name
from gpudoctor.diagnosis.knowledge.table_reach import version_numbers


class Hit(NamedTuple):
    """One table row that answers a key, and the name of the table section it stands in."""

    section: str
    row: TableRow


class Matches(NamedTuple):
    """The rows that answer a key; `note` says how the key was interpreted, empty where it was taken literally."""

    hits: list[Hit]
    note: str = ""


def matching_rows(name: str, section: str, fits: Callable[[TableRow], bool]) -> list[Hit]:
    """The rows of one section of the table `name` for which `fits` is true, as hits, in table order."""
    return [Hit(section, row) for row in table(name)[section] if fits(row)]


def has_version_prefix(version: object, wanted: str) -> bool:
    """Whether the version equals `wanted` or continues it by a dot: 12.8.1 has the prefix 12.8, 12.81 has not."""
    return f"{version}.".startswith(f"{wanted}.")


def strip_leading_word(key: str, *words: str) -> str:
    """The key without a leading word (regular expressions, any case): 12.8 of ``CUDA 12.8`` or ``cuda==12.8``."""
    return re.sub(rf"^(?:{'|'.join(words)})[\s=:-]*", "", key, flags=re.IGNORECASE).strip()


def find_torch(key: str) -> Matches:
    """Rows of the table torch for a release, build (``cu128``, ``2.9+cu128``), ``toolkit 12.8`` or ``glibc 2.28``.

    No rows where the key fits none.
    """
    wanted = strip_leading_word(key, "torch", "pytorch")
    if re.match(r"cu\d+$", wanted):
        return Matches(_build_rows(lambda row: row["build"] == wanted))
    if toolkit := re.match(r"toolkit ([\d.]+)$", wanted):
        return Matches(matching_rows("torch", "toolkit", lambda row: has_version_prefix(row["cuda"], toolkit[1])))
    if libc := re.match(r"glibc[\s-]?([\d.]+)$", wanted):
        return Matches(matching_rows("torch", "glibc", lambda row: has_version_prefix(row["glibc"], libc[1])))
    public, _, local = wanted.partition("+")
    hits = matching_rows("torch", "release", lambda row: has_version_prefix(row["version"], public))
    hits += matching_rows("torch", "early", lambda row: has_version_prefix(row["version"], public))
    made = _build_rows(lambda row: has_version_prefix(row["torch"], public) and local in ("", row["build"]))
    toolkits = {hit.row.get("toolkit") for hit in made if local}
    pins = matching_rows("torch", "toolkit", lambda row: row["cuda"] in toolkits)
    if local and not made and builds.flavor_of(f"+{local}") and not local.startswith("cu"):
        return Matches(hits, f"{local} builds have no rows: what is said is of the release")
    early = any(hit.section == "early" for hit in hits)
    return Matches([*hits, *made, *pins] if made or early else [])


def _build_rows(fits: Callable[[TableRow], bool]) -> list[Hit]:
    """Rows of torch's builds for which `fits` is true; where the GPU code of one is not known, ``archs`` says so."""
    return [Hit(part, _with_archs(row)) for part, row in matching_rows("torch", "build", fits)]


def _with_archs(row: TableRow) -> TableRow:
    """The build's row with ``archs``, in its usual place, also where the table does not know them."""
    first = {column: row[column] for column in ("torch", "build", "cuda", "toolkit") if column in row}
    return row if "archs" in row else {**first, "archs": say("not in the tables"), **row}


def find_images(key: str) -> Matches:
    """Rows of the table images for a container image reference, an NGC release or a distribution's tag.

    No rows where the key fits none.
    """
    wanted = key.strip().removeprefix("docker.io/").removeprefix("library/")
    name, _, tag = wanted.partition(":")
    release = re.search(r"\d\d\.\d\d", tag or wanted)
    hits = []
    if release and name in ("nvcr.io/nvidia/pytorch", wanted):
        hits = matching_rows("images", "ngc", lambda row: row["release"] == release[0])
    words = {*re.split(r"[-:]", wanted), tag, wanted}
    hits += matching_rows(
        "images", "distribution", lambda row: wanted in (row["image"], f"{row['image']}:{row['release']}")
    )
    hits += matching_rows("images", "distribution", lambda row: not words.isdisjoint(row["tags"].split()))
    made = matching_rows(
        "images", "made_for_gpus", lambda row: name.startswith(row["image"]) and (not tag or row.get("tag", "") in tag)
    )
    return Matches([*hits, *made])


def find_companions(key: str) -> Matches:
    """Rows of the table companions for a package, or ``package version``; no rows where unknown.

    Without a version also those on support, source builds and sdists.
    """
    package, _, version = re.sub(r"[\s=@]+", " ", key).partition(" ")
    package, version = package.lower().replace("_", "-"), version.partition("+")[0].strip()
    hits = [*_release_rows(package, version)]
    for section in () if version else _OTHER_COMPANIONS:
        hits += matching_rows("companions", section, lambda row: row["name"] == package)
    return Matches(hits)


_OTHER_COMPANIONS = ("support", "source_builds", "sdists")
"""Sections of the table companions that are of no package's releases."""


def _release_rows(package: str, version: str) -> list[Hit]:
    """The package's rows in the table companions, all or those of that version or its prefix; empty where unknown.

    For bitsandbytes, rows are ranges of releases.
    """
    if package in builds.WITH_TORCH:
        return [
            hit
            for hit in _releases_with_torch(package)
            if not version or has_version_prefix(hit.row["version"], version)
        ]
    if package == "bitsandbytes":
        return matching_rows("companions", package, lambda row: not version or _is_in_range(row, version))
    section = package.replace("-", "_")
    if section not in _sections("companions") or section in _OTHER_COMPANIONS:
        return []
    return matching_rows("companions", section, lambda row: not version or has_version_prefix(row["version"], version))


def _releases_with_torch(package: str) -> Iterator[Hit]:
    """Each known release of torchvision, torchaudio or triton as a hit whose row names the torch it belongs to."""
    for row in builds.releases().values():
        if package in row:
            others = package in row.get("loose", "").split()
            pair = {"package": package, "version": row[package], "torch": row["version"], "loose": others}
            yield Hit(package, pair)


def _is_in_range(row: TableRow, version: str) -> bool:
    """Whether the version is between the row's ``first`` and ``last``, or ``first`` has it as prefix.

    False where a part is not a number.
    """
    try:
        return version_numbers(row["first"]) <= version_numbers(version) <= version_numbers(
            row["last"]
        ) or has_version_prefix(row["first"], version)
    except ValueError:
        return False


def find_symbols(key: str) -> Matches:
    """Rows of the table symbols whose pattern matches a missing symbol, explained in `note`; no rows if unknown."""
    try:
        explanation = printed_errors.symbol_says(key)
    except CannotJudge:
        return Matches([])
    return Matches(
        matching_rows("symbols", "symbol", lambda row: re.search(row["match"], key) is not None),
        f"{key}: {explanation}",
    )


# Xid, return codes, and NCCL's words, by number or name.


def find_xid(key: str) -> Matches:
    """Rows of the table xid for an Xid or SXid number (``79``, ``SXid 22013``) or a recovery action's name.

    An Xid that NVIDIA lists as unused gives a row that says so.
    """
    kind = re.match(r"(s?xid)\b", key, re.IGNORECASE)
    wanted = strip_leading_word(key, "s?xid", "error")
    sections = (kind[1].lower(),) if kind else ("xid", "sxid")
    hits = [
        hit for section in sections for hit in matching_rows("xid", section, lambda row: str(row["code"]) == wanted)
    ]
    hits += matching_rows("xid", "action", lambda row: row["name"].casefold() == key.casefold())
    if not hits and "xid" in sections and wanted in map(str, table("xid")["unused"]):
        return Matches([Hit("xid", {"code": int(wanted), "meaning": "listed as unused by NVIDIA's catalogue"})])
    return Matches([Hit(hit.section, _with_action_texts(hit.row)) for hit in hits])


def _with_action_texts(row: TableRow) -> TableRow:
    """The Xid row with the meaning of its recovery actions (``action``, ``then``) in brackets behind their names."""
    texts = {action["name"]: action["text"] for action in table("xid")["action"]}
    explained = {
        column: f"{word} ({texts[word]})" for column in ("action", "then") if (word := row.get(column)) in texts
    }
    return {**row, **explained}


def find_codes(key: str) -> Matches:
    """Rows of the table codes for an error by number or name (``nvml 15``, ``cudaErrorNoDevice``) or a clock event.

    A bare number may be one of CUDA, NVML and NCCL: all are given. No rows where none fits.
    """
    kind = re.match(r"(nvml|cuda|nccl)[\s:=-]+(?=\d)", key, re.IGNORECASE)
    wanted = (key[kind.end() :] if kind else key).casefold()
    sections = (kind[1].lower(),) if kind else ("cuda", "nvml", "nccl")
    hits = [
        hit
        for section in sections
        for hit in matching_rows("codes", section, lambda row: wanted in (str(row["code"]), row["name"].casefold()))
    ]
    return Matches(
        [*hits, *matching_rows("codes", "clock_event", lambda row: wanted in (row["bit"], row["name"].casefold()))]
    )


def find_nccl(key: str) -> Matches:
    """Rows of the table nccl whose variable, path, status, collective, link, ``platform collective`` or port rate (400,
    in Gbit/s) is the key, in any case.
    """
    wanted = strip_leading_word(key, "status", "path", "port").casefold()
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
        hits += matching_rows("nccl", section, lambda row, column=column: str(row[column]).casefold() == wanted)  # type: ignore[misc]
    for section, column in (("ib_status", "code"), ("port", "rate")):
        hits += matching_rows("nccl", section, lambda row, column=column: str(row[column]) == wanted)  # type: ignore[misc]
    hits += matching_rows(
        "nccl",
        "busbw",
        lambda row: wanted in (row["collective"].casefold(), f"{row['platform']} {row['collective']}".casefold()),
    )
    return Matches(hits)


# Drivers, GPUs and compilers, by version, compute capability, PCI id, or the name that some tool printed.


def find_drivers(key: str) -> Matches:
    """Rows of the table drivers for a driver, branch or CUDA version, or a distribution's release (``ubuntu 24.04``).

    A number of 100 or more is a driver's, a lower one CUDA's.
    """
    wanted = strip_leading_word(key, "cuda", "nvidia", "driver", "branch", "R(?=\\d)")
    if not re.match(r"\d+(\.\d+)*$", wanted):
        words = key.lower().split()
        return Matches(
            matching_rows("drivers", "shipped", lambda row: [row["distribution"], *row["release"].split()] == words)
        )
    major = int(wanted.partition(".")[0])
    if major >= 100:
        return _find_driver_version(wanted)
    hits = matching_rows("drivers", "toolkit", lambda row: has_version_prefix(row["cuda"], wanted))
    minor = ".".join(wanted.split(".")[:2])
    hits += matching_rows("drivers", "branch", lambda row: has_version_prefix(row.get("cuda", ""), minor))
    if hits or str(major) == wanted:
        hits = [*matching_rows("drivers", "family", lambda row: row["major"] == major), *hits]
    return Matches(hits)


def _find_driver_version(version: str) -> Matches:
    """Rows for that driver's branch, and for the CUDA toolkits that shipped with that branch; no rows if unknown."""
    try:
        branch = drivers.branch_of(version)
    except CannotJudge:
        return Matches([])
    number = str(branch["branch"])
    read_as = say("{version} is read as a driver of branch {branch}", version=version, branch=number)
    note = "" if number == version.partition(".")[0] else read_as
    shipped = matching_rows(
        "drivers",
        "toolkit",
        lambda row: any(has_version_prefix(row.get(side, ""), number) for side in ("linux", "windows")),
    )
    return Matches([Hit("branch", branch), *shipped], note)


def find_gpus(key: str) -> Matches:
    """Rows of the table gpus for a PCI device id, generation, compute capability (``sm_89``, 8.9) or product name.

    In this order; no rows where none fits.
    """
    if match := re.match(r"(?:10de[: ])([0-9a-f]{4})$|([0-9a-f]{4})$", key.removeprefix("0x"), re.IGNORECASE):
        matches = _find_pci_device((match[1] or match[2]).lower())
        named = match[2] == key and gpus.rows_for(key)  # a GTX 1080, before the chip of 10de:1080
        if matches.hits and (matches.hits[0].section == "gpu" or not named):
            return matches
    generations = matching_rows("gpus", "generation", lambda row: row["arch"].casefold() == key.casefold())
    if not generations and re.match(r"(?:sm_?|compute_?)?\d{1,2}\.?\d[af]?$", key, re.IGNORECASE):
        generations = _capability_generations(key)
    if generations:
        return Matches([Hit("generation", _with_gpu_names(hit.row)) for hit in generations])
    return _find_gpu_name(key)


def _find_pci_device(number: str) -> Matches:
    """Rows for a PCI device id (four hex digits): the product, its chip, and their generations; no rows if unknown.

    Of an id of no product, rows by its chip's name instead, with a note.
    """
    hits = matching_rows("gpus", "gpu", lambda row: number in row.get("pci", "").split())
    note = "" if hits else say("the id is of no product in the table, and judged by its chip")
    chips = matching_rows("gpus", "device", lambda row: int(row["from"], 16) <= int(number, 16) <= int(row["to"], 16))
    families = [Hit(*pair) for hit in chips if not hits for pair in gpus.rows_for(hit.row["chip"])]
    return Matches([*hits, *chips, *families, *_generation_hits([*hits, *families])] if hits or chips else [], note)


def _find_gpu_name(key: str) -> Matches:
    """Rows for a product name and its generations; no rows where unknown.

    `note` says where the name is virtual, MIG, judged by family, shortened or ambiguous.
    """
    hits = [Hit(section, row) for section, row in gpus.rows_for(key)]
    if not hits:
        return Matches([])
    bare, virtual = gpus.plain_name(key)
    if virtual:
        sentence = "{key} is a slice that a hypervisor cut from {gpu}: what the board has, it need not have"
    elif re.search(r"\bMIG \d", key):
        sentence = "{key} is one instance of {gpu}; the row is that of the whole GPU"
    elif hits[0].section == "family":
        sentence = "{gpu} has no row of its own and is judged by its name"
    elif len(hits) > 1:
        sentence = "{key} matches several GPUs: only what their rows have in common holds for it"
    else:
        sentence = "" if bare.casefold() == key.casefold() else "{key} is looked up as {name}"
    note = say(sentence, key=key, gpu=bare, name=hits[0].row.get("name", "")) if sentence else ""
    return Matches([*hits, *_generation_hits(hits)], note)


def _capability_generations(key: str) -> list[Hit]:
    """Hits for the generation of that compute capability; empty where the key is none or the table lacks it."""
    try:
        wanted = capability(key)
    except CannotJudge:
        return []
    return matching_rows("gpus", "generation", lambda row: capability(row["cc"]) == wanted)


def _generation_hits(hits: list[Hit]) -> Iterator[Hit]:
    """A hit for the generation of each compute capability of these rows, each once."""
    capabilities = dict.fromkeys(capability for hit in hits for capability in hit.row.get("cc", "").split())
    for cc in capabilities:
        yield from matching_rows("gpus", "generation", lambda row, cc=cc: row["cc"] == cc)  # type: ignore[misc]


def _with_gpu_names(row: TableRow) -> TableRow:
    """The generation's row with the names of its GPUs in a list ``names``."""
    return {**row, "names": [gpu["name"] for gpu in table("gpus")["gpu"] if gpu["cc"] == row["cc"]]}


def find_compilers(key: str) -> Matches:
    """Rows of the table compilers: every nvcc for an ``sm_``/``compute_`` target, else nvcc of that CUDA x.y."""
    if re.match(r"(?:sm|compute)_\d+[af]?$", key):
        target = key.replace("compute_", "sm_")
        return Matches(
            matching_rows("compilers", "nvcc", lambda row: target in row["targets"].split()),
            say("every nvcc that compiles for {target}", target=target),
        )
    release = ".".join(strip_leading_word(key, "nvcc", "cuda").split(".")[:2])
    return Matches(matching_rows("compilers", "nvcc", lambda row: has_version_prefix(row["cuda"], release)))


def find_rates(key: str) -> Matches:
    """Rows of the table rates for a compute capability, kernel, ``PCIe 5`` or ``NVLink 4``; no rows where none fits."""
    wanted = key.casefold()
    hits = matching_rows(
        "rates", "product", lambda row: row["cc"] == strip_leading_word(key, "cc", "compute capability")
    )
    hits += matching_rows("rates", "reached", lambda row: wanted in (row["kernels"], *row["kernels"].split()))
    lane = strip_leading_word(key, "PCIe", "PCI Express", "gen(eration)?") if wanted.startswith("pci") else ""
    hits += matching_rows("rates", "lane", lambda row: str(row["generation"]) == lane)
    link = strip_leading_word(key, "NVLink") if wanted.startswith("nvlink") else "none"
    return Matches([*hits, *matching_rows("rates", "nvlink", lambda row: has_version_prefix(row["version"], link))])


_MOST_NEAR = 5
_LONGEST_KEY = 1000
"""Characters of a key that are looked at: mangled symbols are long."""
_YES_NO = {True: "yes", False: "no"}
_FINDERS: Mapping[str, Callable[[str], Matches]] = {
    "codes": find_codes,
    "companions": find_companions,
    "compilers": find_compilers,
    "drivers": find_drivers,
    "gpus": find_gpus,
    "images": find_images,
    "nccl": find_nccl,
    "rates": find_rates,
    "symbols": find_symbols,
    "torch": find_torch,
    "xid": find_xid,
}

NAMES = tuple(_FINDERS)
"""Every table that can be asked."""


@frozen
class Section:
    """One list of a table: its heading, and for its rows the key, the title and the label of each column.

    `key` and `title` are templates over the row. A column that has no label is told by its own name, one whose label is
    empty is left out.
    """

    heading: str
    key: str
    title: str
    labels: Mapping[str, str]


@cache
def _sections(name: str) -> Mapping[str, Section]:
    """By the name of a table's list, its section: heading, templates of key and title, labels of columns; cached."""
    words = table(name)["words"]
    shared = words.get("labels", {})
    sections = {
        part: Section(raw["heading"], raw["key"], raw["title"], {**shared, **raw.get("labels", {})})
        for part, raw in words["sections"].items()
    }
    paired = {"package": "", "version": "", "torch": "belongs to torch", "loose": "takes other torches too"}
    for package in builds.WITH_TORCH if name == "companions" else ():
        sections[package] = Section(package, f"{package} {{version}}", f"{package} {{version}}", paired)
    return sections


def overview(name: str) -> Table:
    """The table's description, sources, date of last check, keys by heading and example keys."""
    raw = table(name)
    words = raw["words"]
    keys = tuple(_keys_by_heading(name))
    return Table(name, words["about"], raw["checked"], tuple(raw["source"]), keys, tuple(words["tries"]))


def entries(name: str, key: str) -> Entries:
    """The rows that answer the key, as labelled text; raises `UsageError` naming near keys where there is none."""
    matches = _FINDERS[name](key.strip()[:_LONGEST_KEY])
    if not matches.hits:
        known = [listed for _, keys in _keys_by_heading(name) for listed in keys]
        nearest_keys = nearest(_table_spelling(key) if name == "gpus" else key, known)
        help_ = (
            say("near it: {names}", names=", ".join(nearest_keys))
            if nearest_keys
            else say("it takes keys such as {names}", names=", ".join(table(name)["words"]["tries"]))
        )
        raise UsageError(
            say(
                "the table {name} has no {key}; {help}; gpudoctor explain {name} lists them",
                name=name,
                key=repr(key[:80]),
                help=help_,
            )
        )
    return Entries(key, tuple(_entry(name, hit) for hit in matches.hits), matches.note)


def near_gpus(name: str) -> list[str]:
    """Up to five GPU names in the tables: nearest in number after the same words, else spelt alike; may be empty."""
    return nearest(_table_spelling(name), [key for _, keys in _keys_by_heading("gpus") for key in keys])


def gpu_is_listed(name: str) -> bool:
    """Whether the name is that of a GPU in the tables or a part of one, any case: ``H100`` of ``H100 SXM5 80GB``."""
    spelt = _table_spelling(name).casefold()
    return any(spelt in key.casefold() for _, keys in _keys_by_heading("gpus") for key in keys)


def _keys_by_heading(name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(heading, its keys, each once) of each section of that table."""
    for part, section in _sections(name).items():
        if part in builds.WITH_TORCH:
            rows = [{"version": row[part]} for row in table("torch")["release"] if part in row]
        else:
            rows = table(name)[part]
        yield section.heading, tuple(dict.fromkeys(section.key.format_map(row) for row in rows))


def _entry(name: str, hit: Hit) -> Entry:
    """The hit as an `Entry` to show: title, (label, text) of its cells, source."""
    section = _sections(name)[hit.section]
    title = say(section.title).format_map({"meaning": hit.row.get("name", ""), **hit.row})
    return Entry(title, tuple(_labelled_cells(section, hit.row)), hit.row.get("source", ""))


def _labelled_cells(section: Section, row: TableRow) -> Iterator[tuple[str, str]]:
    """(label, text) of each column that is shown: not ``source``, nor those whose label is empty."""
    for column, value in row.items():
        label = section.labels.get(column, column)
        if label and column != "source":
            yield label, _cell_text(column, value)


def _cell_text(column: str, value: object) -> str:
    """A cell of a table as text: yes or no, lists and mappings by commas, PCI ids with the vendor before them."""
    if isinstance(value, bool):
        return say(_YES_NO[value])
    if isinstance(value, dict):
        return ", ".join(f"{name} {number}" for name, number in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if column == "pci":
        return " ".join(f"10de:{device}" for device in str(value).split())
    return str(value)


def _table_spelling(name: str) -> str:
    """A GPU's name as the table spells it: without brand and decoration, with ``GeForce`` before RTX and GTX cards."""
    bare, _ = plain_name(name)
    return f"GeForce {bare}" if re.match(r"[RG]TX? \d", bare) else bare


def nearest(key: str, known: Sequence[str]) -> list[str]:
    """Up to five known keys most like the key: nearest in number after the same words, else similar in spelling."""
    head, numbers = _split_number(key)
    numbered = [candidate for candidate in known if _split_number(candidate)[1]]
    alike = [candidate for candidate in numbered if _split_number(candidate)[0] == head] or ([] if head else numbered)
    if numbers and alike:
        return sorted(
            alike, key=lambda candidate: abs(_as_one_number(_split_number(candidate)[1]) - _as_one_number(numbers))
        )[:_MOST_NEAR]
    lower = {candidate.casefold(): candidate for candidate in known}
    return [lower[candidate] for candidate in difflib.get_close_matches(key.casefold(), lower, _MOST_NEAR, 0.5)]


def _split_number(key: str) -> tuple[str, tuple[int, ...]]:
    """A key's leading words in lower case, and the trailing version or number as integers (empty without one)."""
    match = re.search(r"\d+(?:\.\d+)*$", key[:200])
    if not match:
        return key.casefold(), ()
    return key[: match.start()].casefold().strip(), tuple(int(part[:9]) for part in match[0].split("."))


def _as_one_number(numbers: tuple[int, ...]) -> float:
    """A version as one number for distances, each part a thousandth of the one before."""
    return sum(number / float(1000**place) for place, number in enumerate(numbers))
