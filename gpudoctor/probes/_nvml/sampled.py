"""What the child that watches NVML told of a GPU, as one reading of a sample; read as the facts of those names are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpudoctor.core.sample import GPU, NUMBERS, Instance, Process
from gpudoctor.probes._nvml import values
from gpudoctor.probes._nvml.columns import COLUMNS
from gpudoctor.target.protocol import printable

TRAFFIC = (("nvlink_send_mb_s", "FieldValues(138)"), ("nvlink_receive_mb_s", "FieldValues(139)"))
"""Rates, and the counters of KiB that they follow from."""

_READ = {*NUMBERS, "name", "uuid", "address", "throttle_reasons"}


def _megabytes_per_second(raw: Any) -> float:
    """KB/s as MB/s."""
    return int(raw) / 1000


_FIELDS: Sequence[tuple[str, Sequence[str], values.Reading]] = (
    *(
        (column.name, [call.removeprefix("nvmlDeviceGet") for call in column.calls], column.read)
        for column in COLUMNS
        if column.name in _READ and column.calls
    ),
    ("links", ("FieldValues(91)",), values.as_int),
    ("pcie_send_mb_s", ("PcieThroughput(0)",), _megabytes_per_second),
    ("pcie_receive_mb_s", ("PcieThroughput(1)",), _megabytes_per_second),
)
"""Fields of a GPU, with the calls that tell them and how each is read."""


def gpu(index: int, replies: Mapping[str, Any], error: str, rates: Mapping[str, float | None]) -> GPU:
    """One GPU's reading in a sample, from the newest answer to each NVML call.

    Fields whose call failed or whose answer is malformed are listed in `unanswered` with the reason.
    """
    answered: dict[str, Any] = {}
    unanswered: dict[str, str] = {}
    for name, calls, read in _FIELDS:
        answer: Any = next((replies[call] for call in calls if replies.get(call) is not None), None)
        if _failed(answer):
            unanswered[name] = printable(answer["text"])
        elif answer is not None:
            try:
                answered[name] = read(answer)
            except values.MALFORMED_ERRORS:
                unanswered[name] = f"an answer of another shape: {printable(answer, 40)}"
    return GPU(
        index=index,
        **{**answered, **rates},
        links_up=replies.get("links_up"),
        instances=tuple(_instance(place, device) for place, device in enumerate(replies.get("mig") or ())),
        processes=_processes(replies.get("processes")),
        error=error,
        unanswered=unanswered,
    )


def _failed(answer: Any) -> bool:
    """True if the answer is an NVML error: a dict of exactly ``code`` and ``text``."""
    return isinstance(answer, dict) and answer.keys() == {"code", "text"}


def _instance(place: int, replies: Mapping[str, Any]) -> Instance:
    """A MIG device's reading; profile and UUID are empty, and memory (MiB) None, where NVML gave none."""
    memory = replies.get("MemoryInfo") or {}
    try:
        profile = values.profile(replies.get("Name") or "", replies.get("Attributes")) or ""
    except values.MALFORMED_ERRORS:
        profile = ""
    return Instance(
        place,
        profile,
        str(replies.get("UUID") or ""),
        values.mib(memory["total"]) if "total" in memory else None,
        values.mib(memory["used"]) if "used" in memory else None,
    )


def _processes(rows: object) -> tuple[Process, ...] | None:
    """Processes from rows of (pid, name, user, bytes of GPU memory or None), memory as MiB.

    None for anything but a list.
    """
    if not isinstance(rows, list):
        return None
    return tuple(
        Process(int(pid), printable(name), printable(user), None if memory is None else int(memory) >> 20)
        for pid, name, user, memory in rows
    )
