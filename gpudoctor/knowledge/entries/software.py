"""torch, what stands beside it, and symbols, by version or as the loader prints them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.knowledge import builds, symbols
from gpudoctor.knowledge._tables import TableRow, table
from gpudoctor.knowledge.entries.hits import Found, Hit, is_of, rows, without
from gpudoctor.model.values import CannotJudge


def of_torch(key: str) -> Found:
    wanted = without(key, "torch", "pytorch")
    if re.match(r"cu\d+$", wanted):
        return Found(rows("torch", "build", lambda row: row["build"] == wanted))
    if toolkit := re.match(r"toolkit ([\d.]+)$", wanted):
        return Found(rows("torch", "toolkit", lambda row: is_of(row["cuda"], toolkit[1])))
    if libc := re.match(r"glibc[\s-]?([\d.]+)$", wanted):
        return Found(rows("torch", "glibc", lambda row: is_of(row["glibc"], libc[1])))
    public, _, local = wanted.partition("+")
    hits = rows("torch", "release", lambda row: is_of(row["version"], public))
    hits += rows("torch", "early", lambda row: is_of(row["version"], public))
    made = rows("torch", "build", lambda row: is_of(row["torch"], public) and local in ("", row["build"]))
    toolkits = {hit.row.get("toolkit") for hit in made if local}
    pins = rows("torch", "toolkit", lambda row: row["cuda"] in toolkits)
    if local and not made and builds.flavor_of(f"+{local}") and not local.startswith("cu"):
        return Found(hits, f"{local} builds have no rows: what is said is of the release")
    early = any(hit.section == "early" for hit in hits)
    return Found([*hits, *made, *pins] if made or early else [])


def of_images(key: str) -> Found:
    wanted = key.strip().removeprefix("docker.io/").removeprefix("library/")
    name, _, tag = wanted.partition(":")
    release = re.search(r"\d\d\.\d\d", tag or wanted)
    hits = []
    if release and name in ("nvcr.io/nvidia/pytorch", wanted):
        hits = rows("images", "ngc", lambda row: row["release"] == release[0])
    words = {*re.split(r"[-:]", wanted), tag, wanted}
    hits += rows("images", "distribution", lambda row: wanted in (row["image"], f"{row['image']}:{row['release']}"))
    hits += rows("images", "distribution", lambda row: not words.isdisjoint(row["tags"].split()))
    made = rows("images", "made_for_gpus", lambda row: _begins(name, row) and (not tag or row.get("tag", "") in tag))
    return Found([*hits, *made])


def _begins(name: str, row: TableRow) -> bool:
    return name.startswith(row["image"])


def of_companions(key: str) -> Found:
    package, _, version = re.sub(r"[\s=@]+", " ", key).partition(" ")
    package, version = package.lower().replace("_", "-"), version.partition("+")[0].strip()
    asks = (
        []
        if version
        else [hit for part in ("support", "source_builds", "sdists") for hit in _of_package(part, package)]
    )
    return Found([*_released(package, version), *asks])


def _of_package(section: str, package: str) -> list[Hit]:
    return rows("companions", section, lambda row: row["name"] == package)


def _released(package: str, version: str) -> list[Hit]:
    if package in ("torchvision", "torchaudio", "triton"):
        return [hit for hit in _paired(package) if not version or is_of(hit.row["version"], version)]
    if package == "bitsandbytes":
        return rows("companions", package, lambda row: not version or _between(row, version))
    section = package.replace("-", "_")
    if section not in table("companions") or section in ("source", "checked", "support", "source_builds", "sdists"):
        return []
    return rows("companions", section, lambda row: not version or is_of(row["version"], version))


def _paired(package: str) -> Iterator[Hit]:
    """The releases of a companion, each with the torch that it belongs to."""
    for row in builds.releases().values():
        if package in row:
            others = package in row.get("loose", "").split()
            told = {"package": package, "version": row[package], "torch": row["version"], "loose": others}
            yield Hit("paired", told)


def _between(row: TableRow, version: str) -> bool:
    try:
        return _numbers(row["first"]) <= _numbers(version) <= _numbers(row["last"]) or is_of(row["first"], version)
    except ValueError:
        return False


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def of_symbols(key: str) -> Found:
    try:
        says = symbols.symbol_says(key)
    except CannotJudge:
        return Found([])
    return Found(rows("symbols", "symbol", lambda row: re.search(row["match"], key) is not None), f"{key}: {says}")
