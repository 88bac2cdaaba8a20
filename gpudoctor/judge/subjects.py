"""What a finding is about: GPUs, ports, interfaces, processes, ranks or hosts, one mapping each.

A GPU is named by NVML's number, its UUID, name and PCI address, as far as the snapshot knows them, whichever of these
the row, the page or the text has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpudoctor.expression import GroupRow
from gpudoctor.model.diagnosis import Subject
from gpudoctor.model.fact import Json, Known, Row, listed, value_to_json
from gpudoctor.model.pattern import pattern
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.model.values import Nothing

_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "gpu": {"index": "gpu", "uuid": "uuid", "name": "name", "address": "address"},
    "rdma": {"device": "nic", "port": "port"},
    "interface": {"name": "interface"},
    "sxid": {"address": "nvswitch"},
    "stuck": {"pid": "process", "name": "name"},
    "gpu_process": {"pid": "process", "name": "name", "gpu": "gpu"},
    "service": {"name": "service"},
    "node": {"path": "device"},
}
"""The keys of a subject by the columns of a group's rows."""
_OTHERS = {name: name for name in ("gpu", "uuid", "name", "address", "rank", "host", "hosts")}
"""The same for the groups that are not listed."""
_CAPTURED = ("gpu", "rank", "host", "port", "interface", "process")
"""Groups of a sign's pattern that name what it is about."""
_CUDA = frozenset(("cuda_device", "live_gpu", "measured", "rate", "rung"))
"""Groups that number GPUs as CUDA does, which CUDA_VISIBLE_DEVICES changes."""
_PCI = pattern(r"(?:0000)?([\da-f]{4}):([\da-f]{2}):([\da-f]{2})(?:\.([0-7]))?", re.IGNORECASE)
_SHORT_PCI = pattern(r"([\da-f]{2}):([\da-f]{2})\.([0-7])", re.IGNORECASE)


def of_row(snapshot: Snapshot, group: str, index: int) -> Subject:
    """The subject of that row, with the row's place under the group's name."""
    row = listed(snapshot.rows(group))[index]
    return {group: index, **_row_subject(snapshot, group, row)}


def of_values(snapshot: Snapshot, values: Iterable[object]) -> tuple[Subject, ...]:
    """The subjects that a page lists, each once: rows, or mappings such as ``{'rank': 3}``."""
    found: list[Subject] = []
    for value in values:
        if isinstance(value, GroupRow):
            subject = _row_subject(snapshot, *value.place)
        else:
            parts = value.items() if isinstance(value, Mapping) else ()
            subject = _completed(snapshot, {key: part for key, part in parts if not isinstance(part, Nothing)})
        if subject and not any(_same(subject, other) for other in found):
            found.append(subject)
    return tuple(found)


def of_captures(snapshot: Snapshot, captures: Sequence[Mapping[str, str]]) -> tuple[Subject, ...]:
    """The subjects that signs name in the text: by the groups of their patterns."""
    return of_values(snapshot, (dict(_captured(groups)) for groups in captures))


def _captured(groups: Mapping[str, str]) -> Iterator[tuple[str, Json]]:
    for name in _CAPTURED:
        text = groups.get(name, "").strip()
        if name in ("host", "interface"):
            if text:
                yield name, text
        elif text.isdecimal():
            yield name, int(text)
        elif name == "gpu" and (address := _address(text)):
            yield "address", address


def _address(text: str) -> str:
    """The PCI address as facts have it; empty where the text is none."""
    if match := _PCI.fullmatch(text):
        domain, bus, device, function = match.groups()
        return f"{domain}:{bus}:{device}.{function or 0}".lower()
    return f"0000:{text}".lower() if _SHORT_PCI.fullmatch(text) else ""


def _row_subject(snapshot: Snapshot, group: str, row: Row) -> Subject:
    known = {key: _json(row.get(column)) for column, key in _COLUMNS.get(group, _OTHERS).items()}
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
    completed = _completed(snapshot, subject)
    number = gpu if gpu is not None else _json(row.get("index"))
    if group in _CUDA and "gpu" not in completed and isinstance(number, int):
        return {"gpu": number, **completed}
    return completed


def _json(state: object) -> Json:
    return value_to_json(state.value) if isinstance(state, Known) else None


def _completed(snapshot: Snapshot, subject: Mapping[str, Json]) -> Subject:
    """The subject with the number, UUID, name and address of the GPU that it names by one of them."""
    for index, row in enumerate(listed(snapshot.rows("gpu"))):
        known = {key: _json(row.get(column)) for column, key in _COLUMNS["gpu"].items()}
        own = {key: value for key, value in {"gpu": index, **known}.items() if value is not None}
        if any(key in subject and subject[key] == own.get(key) for key in ("gpu", "uuid", "address")):
            return {**own, **subject}
    return dict(subject)


def _same(one: Subject, other: Subject) -> bool:
    """Whether both are the same GPU, or are told by the same words."""
    keys = [key for key in ("gpu", "address") if key in one and key in other]
    more = ({*one} | {*other}) - {"gpu", "uuid", "name", "address"}
    return one == other or (not more and any(one[key] == other[key] for key in keys))
