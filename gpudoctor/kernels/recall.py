"""Facts of what was measured, as measurements again: the inverse of `facts.rows`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import cast, get_args

from gpudoctor.kernels import specs
from gpudoctor.kernels.facts import SEEN
from gpudoctor.kernels.ladder import NODE
from gpudoctor.kernels.outcome import run_of
from gpudoctor.model.document import is_number
from gpudoctor.model.fact import Absent, Json, Known, Row, Unread, listed, value_to_json
from gpudoctor.model.measurement import Device, Expected, Kernel, Meanwhile, Measurements, Rung, Step
from gpudoctor.model.snapshot import Snapshot


def measurements(snapshot: Snapshot) -> Measurements | None:
    """What kernels measured on that machine; None where none was run."""
    rows = snapshot.rows("measured")
    if not isinstance(rows, tuple) or not rows:
        return None
    kernels: dict[str, Kernel] = {}
    devices: dict[int, Device] = {}
    ladders = _ladders(snapshot)
    runs = []
    for row in rows:
        said = {name: value_to_json(state.value) for name, state in row.items() if isinstance(state, Known)}
        kernel, gpu = _kernel(said), _gpu(row)
        kernels[kernel.id] = kernel
        name, because = str(said.get("device", "")), str(said.get("because", ""))
        if gpu != NODE and gpu not in devices:
            held = because.removeprefix(_HELD) if because.startswith(_HELD) else ""
            devices[gpu] = Device(gpu, name, held)
        ladder = ladders.get(gpu, ())
        at = next((at for at, step in enumerate(ladder, 1) if step.rung == kernel.rung), 0)
        run = run_of(kernel.id, gpu, said, ladder[:at], _meanwhile(row))
        runs.append(replace(run, expected=_expected(said)))
    return Measurements(snapshot.target.name, tuple(kernels.values()), tuple(devices.values()), tuple(runs))


_HELD = "in use by "


@lru_cache(maxsize=1)
def _known() -> Mapping[str, Kernel]:
    return {one.spec.id: one.kernel for one in specs.every()}


def _kernel(said: Mapping[str, Json]) -> Kernel:
    """By its id, which tells title and size as long as it is one of ours; the unit is that of the figure."""
    name, unit, rung = (str(said.get(key, "")) for key in ("kernel", "unit", "rung"))
    known = _known().get(name)
    stands: Rung = cast(Rung, rung) if rung in get_args(Rung) else "torch"
    if known is None:
        return Kernel(name, name, unit, rung=stands)
    return Kernel(name, known.title, unit or known.unit, known.size, known.level, stands)


def _expected(said: Mapping[str, Json]) -> Expected | None:
    """What the tables said of a sound GPU, where they were asked."""
    value, limit = (said[name] if is_number(said.get(name)) else None for name in ("expected", "limit"))
    if not isinstance(value, (int, float)) or not isinstance(limit, (int, float)) or min(value, limit) <= 0:
        return None
    return Expected(value, "table", limit, value / limit, source=str(said.get("expected_from", "")))


def _gpu(row: Row) -> int:
    state = row.get("gpu")
    return state.value if isinstance(state, Known) and isinstance(state.value, int) else NODE


def _ladders(snapshot: Snapshot) -> dict[int, tuple[Step, ...]]:
    """Of each device its rungs, the lowest first."""
    rows = snapshot.rows("rung")
    found: dict[int, dict[Rung, Step]] = {}
    for row in listed(rows):
        name, held, message = (row.get(column) for column in ("name", "held", "message"))
        if isinstance(name, Known) and name.value in get_args(Rung):
            rung = cast(Rung, name.value)
            known = held.value if isinstance(held, Known) and isinstance(held.value, bool) else None
            said = message.value if isinstance(message, Known) else held.why if isinstance(held, Unread) else ""
            found.setdefault(_gpu(row), {})[rung] = Step(rung, known, str(said))
    return {gpu: tuple(steps[rung] for rung in get_args(Rung) if rung in steps) for gpu, steps in found.items()}


def _meanwhile(row: Row) -> Meanwhile | None:
    said = {field: state.value for name, field in SEEN.items() if isinstance(state := row.get(name), Known)}
    said.update({field: () for name, field in SEEN.items() if isinstance(row.get(name), Absent) and field == "reasons"})
    return Meanwhile(**said) if said else None  # type: ignore[arg-type]
