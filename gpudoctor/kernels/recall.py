"""Facts of what was measured, as measurements again: the inverse of `facts.rows`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import cast, get_args

from gpudoctor.core.document import is_number
from gpudoctor.core.fact import Absent, Json, Reason, Row, Unread, known, listed, text_of, value_of, value_to_json
from gpudoctor.core.measurement import Device, Expected, Kernel, Meanwhile, Measurements, Rung, Step
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.kernels import specs
from gpudoctor.kernels.facts import MEANWHILE_FIELDS
from gpudoctor.kernels.ladder import NODE
from gpudoctor.kernels.runner import run_from_outcome


def measurements(snapshot: Snapshot) -> Measurements | None:
    """Measurements rebuilt from a snapshot's facts, inverse of `facts.rows`; None if no kernel was run."""
    rows = snapshot.rows("measured")
    if not isinstance(rows, tuple) or not rows:
        return None
    kernels: dict[str, Kernel] = {}
    devices: dict[int, Device] = {}
    ladders = _ladders(snapshot)
    runs = []
    for row in rows:
        values = {name: value_to_json(state.value) for name, fact in row.items() if (state := known(fact))}
        kernel, gpu = _kernel_from_row(values), _device_number(row)
        kernels[kernel.id] = kernel
        name, because = str(values.get("device", "")), str(values.get("because", ""))
        if gpu != NODE and gpu not in devices:
            value = row.get("value")
            in_use = isinstance(value, Unread) and value.reason is Reason.IN_USE
            held = because.removeprefix("in use by ") if in_use else ""
            devices[gpu] = Device(gpu, name, held)
        ladder = ladders.get(gpu, ())
        at = next((at for at, step in enumerate(ladder, 1) if step.rung == kernel.rung), 0)
        run = run_from_outcome(kernel.id, gpu, values, ladder[:at], _meanwhile(row))
        runs.append(replace(run, expected=_expected(values)))
    return Measurements(snapshot.target.name, tuple(kernels.values()), tuple(devices.values()), tuple(runs))


@lru_cache(maxsize=1)
def _kernels_by_id() -> Mapping[str, Kernel]:
    """All kernels of this gpudoctor, by id."""
    return {entry.spec.id: entry.kernel for entry in specs.all_kernels()}


def _kernel_from_row(values: Mapping[str, Json]) -> Kernel:
    """The kernel of a row; title and size by its id, or the id itself if unknown here; unit as recorded."""
    name, unit, rung = (str(values.get(key, "")) for key in ("kernel", "unit", "rung"))
    known = _kernels_by_id().get(name)
    own_rung: Rung = cast(Rung, rung) if rung in get_args(Rung) else "torch"
    if known is None:
        return Kernel(name, name, unit, rung=own_rung)
    return Kernel(name, known.title, unit or known.unit, known.size, known.level, own_rung)


def _expected(values: Mapping[str, Json]) -> Expected | None:
    """The recorded expected rate from the tables; None unless value and limit are positive numbers."""
    value, limit = (values[name] if is_number(values.get(name)) else None for name in ("expected", "limit"))
    if not isinstance(value, (int, float)) or not isinstance(limit, (int, float)) or min(value, limit) <= 0:
        return None
    return Expected(value, "table", limit, value / limit, source=str(values.get("expected_from", "")))


def _device_number(row: Row) -> int:
    """CUDA's number of the row's device; `NODE` where it is absent."""
    index = value_of(row.get("gpu"))
    return index if isinstance(index, int) else NODE


def _ladders(snapshot: Snapshot) -> dict[int, tuple[Step, ...]]:
    """Steps of each device by its number, the lowest rung first."""
    rows = snapshot.rows("rung")
    ladders: dict[int, dict[Rung, Step]] = {}
    for row in listed(rows):
        name, held, message = (row.get(column) for column in ("name", "held", "message"))
        if value_of(name) in get_args(Rung):
            rung = cast(Rung, value_of(name))
            passed = value_of(held)
            why = text_of(message) if known(message) else held.why if isinstance(held, Unread) else ""
            steps = ladders.setdefault(_device_number(row), {})
            steps[rung] = Step(rung, passed if isinstance(passed, bool) else None, why)
    return {gpu: tuple(steps[rung] for rung in get_args(Rung) if rung in steps) for gpu, steps in ladders.items()}


def _meanwhile(row: Row) -> Meanwhile | None:
    """What NVML reported while the kernel ran; None if nothing is known."""
    values = {field: state.value for name, field in MEANWHILE_FIELDS.items() if (state := known(row.get(name)))}
    values.update(
        {
            field: ()
            for name, field in MEANWHILE_FIELDS.items()
            if isinstance(row.get(name), Absent) and field == "reasons"
        }
    )
    return Meanwhile(**values) if values else None  # type: ignore[arg-type]
