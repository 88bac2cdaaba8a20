"""Headings, titles and labels of the tables on Xid, return codes and NCCL's words."""

from __future__ import annotations

from collections.abc import Mapping

from gpudoctor.knowledge.entries.words._section import Section

_CODE = {"means": "means", "code": "", "name": ""}
_XID = {
    "code": "",
    "name": "NVIDIA's name",
    "symbol": "NVIDIA's name",
    "meaning": "",
    "class": "about",
    "action": "do at once",
    "then": "then",
    "fatal": "fatal",
    "note": "note",
}

SECTIONS: Mapping[tuple[str, str], Section] = {
    ("codes", "nvml"): Section("NVML return codes", "nvml {code}", "NVML {code}: {name}", _CODE),
    ("codes", "cuda"): Section("CUDA errors", "cuda {code}", "CUDA {code}: {name}", _CODE),
    ("codes", "nccl"): Section("NCCL results", "nccl {code}", "NCCL {code}: {name}", _CODE),
    ("codes", "clock_event"): Section(
        "Clock event reasons, bits", "{bit}", "Clock event {bit}: {name}", {"bit": "", "name": ""}
    ),
    ("nccl", "path"): Section("How far apart GPUs are", "{name}", "Path {name}", {"name": "", "meaning": "means"}),
    ("nccl", "ib_status"): Section(
        "InfiniBand completion status", "status {code}", "InfiniBand status {code}: {name}", _CODE
    ),
    ("nccl", "variable"): Section(
        "Variables",
        "{name}",
        "{name}",
        {"name": "", "values": "values", "effect": "effect", "risk": "risk", "since": "since NCCL"},
    ),
    ("nccl", "renamed"): Section(
        "Variables of torch that were renamed", "{name}", "{name}", {"name": "", "now": "is now"}
    ),
    ("nccl", "risk"): Section(
        "What follows from a variable's value",
        "{name}",
        "{name} = {match}",
        {"name": "", "match": "", "says": "what follows"},
    ),
    ("nccl", "factor"): Section(
        "Bus bandwidth over algorithm bandwidth",
        "{collective}",
        "busbw of {collective}",
        {"collective": "", "factor": "factor"},
    ),
    ("nccl", "busbw"): Section(
        "Bus bandwidth that sound machines reach",
        "{platform} {collective}",
        "{platform}: {collective}",
        {
            "platform": "",
            "collective": "",
            "least": "at least, GB/s",
            "typical": "typical, GB/s",
            "size": "message size",
        },
    ),
    ("nccl", "line_rate"): Section("Line rates", "{link}", "{link}", {"link": "", "rate": "GB/s each way"}),
    ("xid", "xid"): Section("Xid", "{code}", "Xid {code}: {meaning}", _XID),
    ("xid", "sxid"): Section("SXid", "SXid {code}", "SXid {code}: {name}", {**_XID, "name": ""}),
    ("xid", "action"): Section("Actions", "{name}", "{name}", {"name": "", "text": "do"}),
}
