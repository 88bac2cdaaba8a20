"""Xid, return codes, and NCCL's words, by number or name."""

from __future__ import annotations

import re

from gpudoctor.knowledge._tables import TableRow, table
from gpudoctor.knowledge.entries.hits import Found, Hit, rows, without


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
    told = {column: f"{word} ({means[word]})" for column in ("action", "then") if (word := row.get(column)) in means}
    return {**row, **told}


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
