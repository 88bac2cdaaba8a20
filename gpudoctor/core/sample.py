"""A sample: what the GPUs of a machine do at one moment. A number that is not there is None, for a reason.

Fields are named as the columns of the group ``gpu`` where a fact says the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Json, Known, Row, Unread, listed, text_of, value_of
from gpudoctor.core.snapshot import MOST_GPUS, Snapshot

NOT_REPORTED = "this GPU does not report it"
"""Why a number is None that could have been read and is not there: nothing is wrong."""

_MOST_LISTED = 512


@dataclass(frozen=True, slots=True)
class Process:
    """A process that uses a GPU."""

    pid: int
    name: str = ""
    user: str = ""
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG device of a GPU."""

    index: int
    profile: str = ""
    uuid: str = ""
    memory_mib: int | None = None
    memory_used_mib: int | None = None


@dataclass(frozen=True, slots=True)
class GPU:
    """One GPU. `unanswered` says why a field could not be read; one that is None and not in it is not reported.

    `error` says why the GPU does not answer at all.
    """

    index: int
    name: str = ""
    uuid: str = ""
    address: str = ""
    utilization: float | None = None
    memory_mib: float | None = None
    memory_used_mib: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    temperature_slowdown_c: float | None = None
    temperature_memory_c: float | None = None
    clock_mhz: float | None = None
    clock_max_mhz: float | None = None
    memory_clock_mhz: float | None = None
    memory_clock_max_mhz: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    """Clock-event reasons in force, by the names of the fact."""
    ecc_corrected: float | None = None
    ecc_uncorrected: float | None = None
    remapped_corrected: float | None = None
    remapped_uncorrected: float | None = None
    retired_single_bit: float | None = None
    retired_double_bit: float | None = None
    link_generation: float | None = None
    link_generation_max: float | None = None
    link_width: float | None = None
    link_width_max: float | None = None
    pcie_send_mb_s: float | None = None
    pcie_receive_mb_s: float | None = None
    links: float | None = None
    """NVLinks that it has, up or down."""
    links_up: float | None = None
    nvlink_send_mb_s: float | None = None
    nvlink_receive_mb_s: float | None = None
    pcie_replays: float | None = None
    """PCIe packets sent again; like the next three a counter since the driver loaded."""
    nvlink_crc: float | None = None
    nvlink_replays: float | None = None
    nvlink_failures: float | None = None
    """Times that a link was trained again, did not recover, or passed an error on, over all NVLinks."""
    instances: tuple[Instance, ...] = ()
    processes: tuple[Process, ...] | None = None
    error: str = ""
    unanswered: Mapping[str, str] = field(default_factory=dict)

    def why(self, name: str) -> str:
        """Why that field is None: the GPU's error, else why it was not read, else that this GPU does not report it."""
        return self.error or self.unanswered.get(name, NOT_REPORTED)

    def to_json(self) -> dict[str, Json]:
        """The fields by name, without None, empty texts and empty mappings."""
        known = {name: value for name, value in asdict(self).items() if value is not None and value not in ("", {})}
        return cast("dict[str, Json]", known)


NUMBERS = tuple(name for name, kind in GPU.__annotations__.items() if kind == "float | None")
"""The fields that are numbers."""
_TEXTS = ("name", "uuid", "address", "error")


@dataclass(frozen=True, slots=True)
class Sample:
    """All GPUs at one moment; `seconds` of the Unix clock, None where the moment is not known.

    `trouble` says why there is nothing new: then `gpus` is empty. What is not `live` was read once, for a report.
    """

    seconds: float | None
    gpus: tuple[GPU, ...] = ()
    source: str = "NVML"
    trouble: str = ""
    live: bool = True

    def to_json(self) -> dict[str, Json]:
        """``seconds``, ``source``, ``trouble``, ``live`` and ``gpus``: a document that `from_json` reads."""
        return {
            "seconds": self.seconds,
            "source": self.source,
            "trouble": self.trouble,
            "live": self.live,
            "gpus": [cast(Json, gpu.to_json()) for gpu in self.gpus],
        }


def from_json(raw: object) -> Sample:
    """The inverse of `Sample.to_json`, with the first `MOST_GPUS` GPUs; raises `DocumentError`."""
    try:
        document = cast("Mapping[str, Any]", raw)
        seconds = document["seconds"]
        return Sample(
            None if seconds is None else float(seconds),
            tuple(_gpu_from_json(item) for item in document["gpus"][:MOST_GPUS]),
            str(document["source"]),
            str(document["trouble"]),
            bool(document["live"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DocumentError(f"not a sample of GPUs: {type(error).__name__} {error}") from error


def _gpu_from_json(raw: Mapping[str, Any]) -> GPU:
    """A GPU of a document; unknown fields are ignored; raises `KeyError`, `TypeError` or `ValueError`."""
    numbers = {name: float(raw[name]) for name in NUMBERS if name in raw}
    reasons, processes = raw.get("throttle_reasons"), raw.get("processes")
    return GPU(
        index=int(raw["index"]),
        **{name: str(raw[name]) for name in _TEXTS if name in raw},  # type: ignore[arg-type] # one name, one type
        **numbers,  # type: ignore[arg-type] # likewise
        throttle_reasons=None if reasons is None else tuple(map(str, reasons)),
        instances=tuple(Instance(**item) for item in raw.get("instances", ())[:_MOST_LISTED]),
        processes=None if processes is None else tuple(Process(**item) for item in processes[:_MOST_LISTED]),
        unanswered={str(name): str(why) for name, why in raw.get("unanswered", {}).items()},
    )


_OF_A_RUN = {"memory_used_mib": "memory_peak_mib", "throttle_reasons": "held_down"}
"""What ``run_gpu`` calls the most, or the usual, of a field."""


def sample_of(snapshot: Snapshot) -> Sample:
    """The GPUs of the group ``gpu`` as a sample that is not live; without it those of ``run_gpu``, peaks over a run.

    Without either there are none, and `trouble` says why.
    """
    rows = snapshot.rows("gpu")
    if not isinstance(rows, tuple) and isinstance(run := snapshot.rows("run_gpu"), tuple):
        rows = tuple({**row, **{name: row[of] for name, of in _OF_A_RUN.items() if of in row}} for row in run)
    if not isinstance(rows, tuple):
        return Sample(None, (), snapshot.target.kind, rows.why, live=False)
    gpus = tuple(_gpu_of_row(place, row, snapshot) for place, row in enumerate(rows))
    return Sample(None, gpus, snapshot.target.kind, live=False)


def _gpu_of_row(place: int, row: Row, snapshot: Snapshot) -> GPU:
    """The GPU of a row of ``gpu``, with its MIG devices and processes; its index is `place` where the row has none.

    Numbers, reasons and processes that are Unread are None, with why in `unanswered`; Absent ones are only None. Texts
    that are not known are empty.
    """
    values: dict[str, Any] = {}
    unanswered: dict[str, str] = {}
    for name in (*_TEXTS, *NUMBERS, "throttle_reasons"):
        state = row.get(name)
        if isinstance(state, Known):
            values[name] = state.value
        elif isinstance(state, Unread) and name not in _TEXTS:
            unanswered[name] = state.why
    links, down = row.get("links"), row.get("links_down")
    if isinstance(links, Known) and isinstance(down, Known):
        values["links_up"] = cast(int, links.value) - len(cast("tuple[int, ...]", down.value))
    number: Any = value_of(row.get("index"))
    index = place if number is None else number
    processes = snapshot.rows("gpu_process")
    return GPU(
        **{**values, "index": index},
        instances=_instances(snapshot, index),
        processes=_processes(processes, index) if isinstance(processes, tuple) else None,
        unanswered={**unanswered, "processes": processes.why} if isinstance(processes, Unread) else unanswered,
    )


def _instances(snapshot: Snapshot, index: int) -> tuple[Instance, ...]:
    """The MIG devices of that GPU, numbered from 0, with profile and UUID but without memory."""
    mine = [row for row in listed(snapshot.rows("mig")) if value_of(row.get("gpu")) == index]
    return tuple(
        Instance(number, text_of(row.get("profile")), text_of(row.get("uuid"))) for number, row in enumerate(mine)
    )


def _processes(rows: tuple[Row, ...], index: int) -> tuple[Process, ...]:
    """Processes of the GPU, each once even if NVML lists it as compute and as graphics."""
    found: dict[int, Process] = {}
    for row in rows:
        pid, memory = value_of(row.get("pid")), value_of(row.get("memory_mib"))
        if value_of(row.get("gpu")) == index and isinstance(pid, int):
            held = memory if isinstance(memory, int) else None
            found.setdefault(pid, Process(pid, text_of(row.get("name")), memory_mib=held))
    return tuple(found.values())
