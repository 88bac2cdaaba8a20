"""What the child that watches NVML told of a GPU, as one reading of a sample; read as the facts of those names are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpudoctor.model.sample import GPU, NUMBERS, Instance, Process
from gpudoctor.probes._nvml import words
from gpudoctor.probes._nvml.columns import COLUMNS
from gpudoctor.target.protocol import printable

TRAFFIC = (("nvlink_send_mb_s", "FieldValues(138)"), ("nvlink_receive_mb_s", "FieldValues(139)"))
"""Rates, and the counters of KiB that they follow from."""

_PCIE = (("pcie_send_mb_s", "PcieThroughput(0)"), ("pcie_receive_mb_s", "PcieThroughput(1)"))
_Field = tuple[str, tuple[str, ...], words.Reading]


def gpu(index: int, told: Mapping[str, Any], error: str, rates: Mapping[str, float | None]) -> GPU:
    """All that was told of it so far, the newest of each."""
    values: dict[str, Any] = {}
    unanswered: dict[str, str] = {}
    for name, calls, read in _FIELDS:
        answer: Any = next((told[call] for call in calls if told.get(call) is not None), None)
        if _failed(answer):
            unanswered[name] = printable(answer["text"])
        elif answer is not None:
            try:
                values[name] = read(answer)
            except words.ODD:
                unanswered[name] = f"an answer of another shape: {printable(answer, 40)}"
    return GPU(
        index=index,
        **{**values, **rates},
        links_up=told.get("links_up"),
        instances=tuple(_instance(place, one) for place, one in enumerate(told.get("mig") or ())),
        processes=_processes(told.get("processes")),
        error=error,
        unanswered=unanswered,
    )


def _failed(answer: Any) -> bool:
    return isinstance(answer, dict) and answer.keys() == {"code", "text"}


def _fields() -> Sequence[_Field]:
    """Fields of a GPU, with the calls that tell them and how each is read."""
    wanted = {*NUMBERS, "name", "uuid", "address", "throttle_reasons"}
    told: list[_Field] = [
        (column.name, tuple(call.removeprefix("nvmlDeviceGet") for call in column.calls), column.read)
        for column in COLUMNS
        if column.name in wanted and column.calls
    ]
    return (*told, ("links", ("FieldValues(91)",), words.whole), *((name, (call,), _megabytes) for name, call in _PCIE))


def _megabytes(raw: Any) -> float:
    return int(raw) / 1000


_FIELDS = _fields()


def _instance(place: int, told: Mapping[str, Any]) -> Instance:
    memory = told.get("MemoryInfo") or {}
    try:
        profile = words.profile(told.get("Name") or "", told.get("Attributes")) or ""
    except words.ODD:
        profile = ""
    return Instance(
        place,
        profile,
        str(told.get("UUID") or ""),
        words.mib(memory["total"]) if "total" in memory else None,
        words.mib(memory["used"]) if "used" in memory else None,
    )


def _processes(rows: object) -> tuple[Process, ...] | None:
    if not isinstance(rows, list):
        return None
    return tuple(
        Process(int(pid), printable(name), printable(user), None if memory is None else int(memory) >> 20)
        for pid, name, user, memory in rows
    )
