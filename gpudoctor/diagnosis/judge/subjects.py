"""What a finding is about: GPUs, ports, interfaces, processes, ranks or hosts, one mapping each.

A GPU is named by NVML's number, its UUID, name and PCI address, as far as the snapshot knows them, whichever of these
the row, the page or the text has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpudoctor.core.diagnosis import Subject
from gpudoctor.core.fact import Fact, Json, Row, listed, value_of, value_to_json
from gpudoctor.core.log_lines import pci_address
from gpudoctor.core.pattern import pattern
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.values import Nothing
from gpudoctor.diagnosis.expression import GroupRow

_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "gpu": {"index": "gpu", "uuid": "uuid", "name": "name", "address": "address"},
    "rdma": {"device": "nic", "port": "port"},
    "interface": {"name": "interface"},
    "sxid": {"address": "nvswitch"},
    "stuck": {"pid": "process", "name": "name"},
    "gpu_process": {"pid": "process", "name": "name", "gpu": "gpu"},
    "service": {"name": "service"},
    "node": {"path": "device"},
    "rank": {"rank": "rank", "host": "host", "hosts": "hosts", "pid": "process", "gpu": "gpu"},
    "rank_group": {"rank": "rank", "host": "host", "hosts": "hosts", "pid": "process", "gpu": "gpu"},
}
"""The keys of a subject by the columns of a group's rows."""
_OTHERS = {name: name for name in ("gpu", "uuid", "name", "address", "rank", "host", "hosts")}
"""The same for the groups that are not listed."""
_CAPTURED = ("gpu", "rank", "host", "port", "interface", "process")
"""Groups of a sign's pattern that name what it is about."""
_CUDA = frozenset(("cuda_device", "live_gpu", "measured", "memory_fault", "rate", "rung"))
"""Groups that number GPUs as CUDA does, which CUDA_VISIBLE_DEVICES changes."""
_PCI = pattern(r"(?:0000)?[\da-f]{4}:[\da-f]{2}:[\da-f]{2}(?:\.[0-7])?|[\da-f]{2}:[\da-f]{2}\.[0-7]", re.IGNORECASE)


def subject_of_row(snapshot: Snapshot, group: str, index: int) -> Subject:
    """The subject of that row: its index under the group's name, its identifying columns, and its GPU's identity."""
    row = listed(snapshot.rows(group))[index]
    return {group: index, **_row_subject(snapshot, group, row)}


def subjects_of_values(snapshot: Snapshot, values: Iterable[object]) -> tuple[Subject, ...]:
    """The subjects that a page's expressions list (rows, or mappings as ``{'rank': 3}``), each once.

    Anything else, and what is empty, is left out.
    """
    subjects: list[Subject] = []
    for value in values:
        if isinstance(value, GroupRow):
            subject = _row_subject(snapshot, *value.place)
        else:
            parts = value.items() if isinstance(value, Mapping) else ()
            subject = _with_gpu_identity(snapshot, {key: part for key, part in parts if not isinstance(part, Nothing)})
        if subject and not any(_same_subject(subject, other) for other in subjects):
            subjects.append(subject)
    return tuple(subjects)


def subjects_of_captures(snapshot: Snapshot, captures: Sequence[Mapping[str, str]]) -> tuple[Subject, ...]:
    """The subjects named by the groups that signs' patterns captured."""
    return subjects_of_values(snapshot, (dict(_captured_values(groups)) for groups in captures))


def _captured_values(groups: Mapping[str, str]) -> Iterator[tuple[str, Json]]:
    """Keys and values of a subject from a pattern's named groups: gpu, rank, host, port, interface, process.

    Numbers as int; a PCI address in the group gpu becomes ``address``; what does not fit is left out.
    """
    for name in _CAPTURED:
        text = groups.get(name, "").strip()
        if name in ("host", "interface"):
            if text:
                yield name, text
        elif text.isdecimal():
            yield name, int(text)
        elif name == "gpu" and _PCI.fullmatch(text):
            yield "address", pci_address(text)


def _row_subject(snapshot: Snapshot, group: str, row: Row) -> Subject:
    """A row's identifying columns as a subject, completed by the identity of the GPU that it names; may be empty."""
    known = {key: _json_value(row.get(column)) for column, key in _COLUMNS.get(group, _OTHERS).items()}
    subject = {key: value for key, value in known.items() if value is not None}
    if group == "gpu":
        if "gpu" not in subject:
            place = next((at for at, other in enumerate(listed(snapshot.rows("gpu"))) if other is row), 0)
            subject = {"gpu": place, **subject}
        return subject
    gpu = subject.get("gpu")
    if isinstance(gpu, str) or group in _CUDA:
        subject.pop("gpu", None)
    if isinstance(gpu, str):  # the GPU's address; the row's own is that of what lies before it
        if "address" in subject and subject["address"] != gpu:
            subject["port"] = subject["address"]
        subject["address"] = gpu
    completed = _with_gpu_identity(snapshot, subject)
    number = gpu if gpu is not None else _json_value(row.get("index"))
    if group in _CUDA and "gpu" not in completed and isinstance(number, int):
        return {"gpu": number, **completed}
    return completed


def _json_value(fact: Fact | None) -> Json:
    """The fact's value as JSON; None where it is not known."""
    return value_to_json(value_of(fact))


def _with_gpu_identity(snapshot: Snapshot, subject: Mapping[str, Json]) -> Subject:
    """The subject completed by number, UUID, name and address of the GPU that it names by number, UUID or address.

    Unchanged where it names none that the snapshot lists.
    """
    for index, row in enumerate(listed(snapshot.rows("gpu"))):
        known = {key: _json_value(row.get(column)) for column, key in _COLUMNS["gpu"].items()}
        own = {key: value for key, value in {"gpu": index, **known}.items() if value is not None}
        if any(key in subject and subject[key] == own.get(key) for key in ("gpu", "uuid", "address")):
            return {**own, **subject}
    return dict(subject)


def _same_subject(a: Subject, b: Subject) -> bool:
    """Whether both subjects are equal, or are of one GPU by number or address and name nothing besides."""
    keys = [key for key in ("gpu", "address") if key in a and key in b]
    more = ({*a} | {*b}) - {"gpu", "uuid", "name", "address"}
    return a == b or (not more and any(a[key] == b[key] for key in keys))
