"""What follows from measurements: what was to be expected, what the siblings do, and the worst of each GPU.

The groups ``measured`` and ``rung`` have a row for every kernel and GPU; pages judge what is made of them here, a few
rows for each GPU: ``rate`` (how fast), and columns of ``gpu`` (what NVML saw meanwhile).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gpudoctor.knowledge._filling import Facts, Groups, given, number, text
from gpudoctor.knowledge.rates import Device, devices, expected, side
from gpudoctor.model.fact import Absent, Fact, Known, Row, Unread, listed
from gpudoctor.model.measurement import TIMES, Expected, Meanwhile, kind, slow_below
from gpudoctor.model.pattern import pattern
from gpudoctor.model.snapshot import Snapshot

_FEWEST_OTHERS = 2
_NOTABLE = 0.95
"""Share of what it should be below which a rate is one of ``rate``: pages say from where on it matters."""
_FAR = 0.9
_NO_GAIN = 1.15
"""As in the page env.tf32-off."""
_TABLE = "table rates"
_WAY = pattern(r"\d{1,3}-\d{1,3}")
_NO_RATES = "rates are measured at level deep, and by gpudoctor bench"
_UNKNOWN = dict.fromkeys(("limit", "expected", "expected_from"), Absent("neither its limits nor a share are known"))
_HOW = {"expected": "table", "siblings": "siblings"}
_SIBLINGS = "the other GPUs of that name"


class _Run(NamedTuple):
    """One row of ``measured`` that has a value."""

    at: int
    kernel: str
    gpu: int
    name: str
    unit: str
    value: float
    row: Row


class _Rate(NamedTuple):
    """A run against what it is held to; `share` is 1 where it is as expected and less where it is slower.

    What lies within the spread of its own series is not counted against it.
    """

    run: _Run
    of: str
    others: float
    against: str
    share: float


def imply_rates(snapshot: Snapshot, _: Facts, groups: Groups) -> None:
    """Columns of ``measured``, and the group ``rate`` where no report has filled it."""
    rows = groups.get("measured")
    if not isinstance(rows, tuple):
        return
    known = devices(snapshot)
    as_fp32 = _as_fp32(groups)
    done = [dict(row) for row in rows]
    rates: dict[tuple[int, str], list[_Rate]] = {}
    ran = list(_runs(rows))
    for run, others in _with_others(ran):
        for rate in _judged(run, others, known.get(run.gpu), done[run.at]):
            told = run.kernel == "matmul.tf32" and getattr(known.get(run.gpu), "uuid", "") in as_fp32
            if rate.share * (1 + (number(run.row, "spread") or 0)) < _NOTABLE and not told:
                rates.setdefault((run.gpu, rate.of), []).append(rate)
    groups["measured"] = tuple(done)
    for rate in _between(rows, known):
        if rate.share < _NOTABLE:
            rates.setdefault((rate.run.gpu, rate.of), []).append(rate)
    idle = tuple(_unmeasured(rows))
    if not isinstance(groups.get("rate"), tuple):
        worst = tuple(_worst(found, done, known) for found in rates.values())
        groups["rate"] = (*worst, *idle) if idle or ran else Unread(_NO_RATES)


def _as_fp32(groups: Groups) -> frozenset[object]:
    """GPUs whose products in TF32 are no faster than in fp32: they are told to, and are not slow for it."""
    gpus = groups.get("gpu")
    rows = listed(gpus)
    return frozenset(
        given(gpu, "uuid") for gpu in rows if isinstance(gain := given(gpu, "tf32_gain"), float) and gain < _NO_GAIN
    )


def _runs(rows: Sequence[Row]) -> Iterator[_Run]:
    """Those that can be compared: a training loop depends on too much beside the GPU."""
    for at, row in enumerate(rows):
        gpu, name, unit, rate = given(row, "gpu"), text(row, "device"), text(row, "unit"), number(row, "value")
        if not isinstance(gpu, int) or name in ("", "CPU") or given(row, "rung") == "training":
            continue
        if rate and rate > 0 and (unit.endswith("/s") or unit in TIMES):
            yield _Run(at, text(row, "kernel"), gpu, name, unit, rate, row)


def _between(rows: Sequence[Row], known: Mapping[int, Device]) -> Iterator[_Rate]:
    """Of each GPU on NVSwitches the median of its ways to and from the others, against its links and the other ways."""
    from statistics import median

    at = next((at for at, row in enumerate(rows) if given(row, "kernel") == "peer.copy"), None)
    ways = list(_ways(rows[at])) if at is not None else []
    for gpu in sorted({gpu for pair, _ in ways for gpu in pair}):
        device = known.get(gpu)
        table = expected("peer.copy", device) if device else None
        if at is None or device is None or table is None:
            continue
        own = median(rate for pair, rate in ways if gpu in pair)
        others = [rate for pair, rate in ways if gpu not in pair]
        run = _Run(at, "peer.copy", gpu, device.name, "GB/s", own, rows[at])
        yield _Rate(run, "GPU link", table.value, "expected", own / table.value)
        if others:
            yield _Rate(run, "GPU link", median(others), "siblings", own / median(others))


def _ways(row: Row) -> Iterator[tuple[tuple[int, ...], float]]:
    """Both GPUs, and GB/s from one to the other."""
    details = given(row, "details")
    rates = details.get("rates") if isinstance(details, Mapping) else None
    for name, rate in rates.items() if isinstance(rates, Mapping) else ():
        if _WAY.fullmatch(name) and isinstance(rate, (int, float)) and 0 < rate < 1e6:
            yield tuple(map(int, name.split("-"))), float(rate)


def _unmeasured(rows: Sequence[Row]) -> Iterator[Row]:
    """A row for each GPU on which nothing ran, that says why: no page may pass it."""
    ran = {number(row, "gpu") for row in rows if given(row, "status") == "ran"}
    why = {
        gpu: str(given(row, "because") or "nothing ran on it")
        for row in rows
        if isinstance(gpu := given(row, "gpu"), int) and gpu not in ran and given(row, "device") != "CPU"
    }
    for gpu, because in why.items():
        unread = dict.fromkeys(("value", "kernel", "of", "share"), Unread(because))
        yield {"gpu": Known(gpu, "gpudoctor bench"), **unread}


def _with_others(runs: Sequence[_Run]) -> Iterator[tuple[_Run, list[float]]]:
    """Each run, and the values of the same kernel on the other GPUs of the same name."""
    alike: dict[tuple[str, str], list[_Run]] = {}
    for run in runs:
        alike.setdefault((run.kernel, run.name), []).append(run)
    for group in alike.values():
        for run in group:
            yield run, [other.value for other in group if other is not run]


def _judged(run: _Run, others: Sequence[float], device: Device | None, row: dict[str, Fact]) -> Iterator[_Rate]:
    """Against the table and against siblings; notes both in the row."""
    of = kind(run.kernel, run.unit)
    table = _expected(run, device, of) if device else None
    if table:
        assert table.limit is not None
        row["limit"] = Known(round(table.limit, 1), table.words)
        row["expected"] = Known(round(table.value, 1), _TABLE)
        row["expected_from"] = Known(
            f"{round(100 * table.value / table.limit)} % of {table.limit:.0f} {run.unit}: {table.words}", _TABLE
        )
        yield _Rate(run, of, table.value, "expected", run.value / table.value)
    else:
        row.update(_UNKNOWN)
    if len(others) < _FEWEST_OTHERS:
        row["siblings"] = Absent("fewer than two others of its name were measured")
        return
    from statistics import median

    middle = median(others)
    row["siblings"] = Known(round(middle, 3), _SIBLINGS)
    yield _Rate(run, of, middle, "siblings", middle / run.value if run.unit in TIMES else run.value / middle)


def _expected(run: _Run, device: Device, of: str) -> Expected | None:
    """By the table; not of a copy that shared the host's link with another GPU's."""
    if of == "host link" and not _alone(run.row):
        return None
    return expected(
        run.kernel, device, _meanwhile(run.row) if of == "compute" else None, side(given(run.row, "details"))
    )


def _worst(rates: Sequence[_Rate], rows: Sequence[Row], known: Mapping[int, Device]) -> Row:
    """The row of ``rate``: the rate that is farthest below, and which others are near as far."""
    worst = min(rates, key=lambda rate: rate.share / slow_below(rate.of, _HOW[rate.against]))
    run = worst.run
    also: dict[str, str] = {}
    for rate in sorted(rates, key=lambda rate: rate.share):
        if rate.share < _FAR and rate.run.kernel != run.kernel:
            also.setdefault(rate.run.kernel, f"{rate.run.kernel} ({rate.share * 100:.0f} %)")
    source = _source(run.row)
    said: dict[str, Fact] = {
        "gpu": Known(run.gpu, source),
        "kernel": Known(run.kernel, source),
        "value": Known(_brief(run.value), source),
        "unit": Known(run.unit, source),
        "others": Known(_brief(worst.others), _SIBLINGS if worst.against == "siblings" else _TABLE),
        "of": Known(worst.of, source),
        "against": Known(worst.against, source),
        "share": Known(round(worst.share, 3), source),
        "also": Known(tuple(also.values()), source),
        "spread": Known(number(run.row, "spread") or 0.0, source),
        "name": Known(run.name, source),
        "expected_from": rows[run.at].get("expected_from", _UNKNOWN["expected_from"]),
    }
    device = known.get(run.gpu)
    for column in ("uuid", "address"):
        if value := getattr(device, column, ""):
            said[column] = Known(value, source)
    return said


def _brief(value: float) -> float:
    """Three digits and more: a reader compares two such figures."""
    return float(round(value)) if value >= 100 else round(value, 1 if value >= 10 else 2)


def _meanwhile(row: Row) -> Meanwhile | None:
    """NVML's word, as the run had it; None where it was not read."""
    if not isinstance(row.get("sm_clock_mhz"), Known):
        return None
    reasons = given(row, "throttle_reasons")
    return Meanwhile(
        sm_clock_mhz=number(row, "sm_clock_mhz"),
        max_sm_clock_mhz=number(row, "sm_clock_max_mhz"),
        power_w=number(row, "power_w"),
        power_limit_w=number(row, "power_limit_w"),
        temperature_c=number(row, "temperature_c"),
        reasons=tuple(map(str, reasons)) if isinstance(reasons, tuple) else (),
        utilization=number(row, "utilization"),
    )


def _alone(row: Row) -> bool:
    """Whether the copy had the host's link to itself."""
    details = given(row, "details")
    return not isinstance(details, Mapping) or details.get("alone") is not False


def _source(row: Row) -> str:
    state = row.get("value")
    return state.source if isinstance(state, Known) else ""
