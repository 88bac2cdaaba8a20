"""What follows from measurements: what was to be expected, what the siblings do, the worst of each GPU, its load.

The groups ``measured`` and ``rung`` have a row for every kernel and GPU; pages judge what is made of them here, a few
rows for each GPU: ``rate`` (how fast), and columns of ``gpu`` (what NVML saw meanwhile, which is newer than what it saw
at rest). ``gpu.clock_mhz``, ``power_w``, ``temperature_c``, ``utilization`` and ``throttle_reasons`` are those of the
kernel that tells most of the clocks, ``link_width`` and ``link_generation`` those of the copies to and from the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gpudoctor.core.fact import Absent, Fact, Known, Row, Unread, known, listed, text_of, texts_of, value_of
from gpudoctor.core.measurement import COUNTERS, TIMES, Expected, Meanwhile, kind, median, slow_below
from gpudoctor.core.pattern import pattern
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis.knowledge._tables import Facts, Groups, number
from gpudoctor.diagnosis.knowledge.rates import Device, devices_by_index, expected, identity_columns, product_side

_FEWEST_OTHERS = 2
_NOTABLE_SHARE = 0.95
"""Share of what it should be below which a rate is one of ``rate``: pages say from where on it matters."""
_FAR_SHARE = 0.9
_NO_GAIN_FACTOR = 1.15
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
    """A run compared with its expected rate: `share` is 1 where it is as expected and less where it is slower.

    What lies within the spread of its own series is not counted against it.
    """

    run: _Run
    of: str
    others: float
    against: str
    share: float


def imply_rates(snapshot: Snapshot, _: Facts, groups: Groups) -> None:
    """Fills limit, expected and siblings in the rows of ``measured``, and the group ``rate``: rates that are too low.

    A group ``rate`` that a report has stays.
    """
    rows = groups.get("measured")
    if not isinstance(rows, tuple):
        return
    known = devices_by_index(snapshot)
    as_fp32 = _gpus_without_tf32_gain(groups)
    done = [dict(row) for row in rows]
    rates: dict[tuple[int, str], list[_Rate]] = {}
    ran = list(_comparable_runs(rows))
    for run, others in _with_sibling_values(ran):
        for rate in _rates_of_run(run, others, known.get(run.gpu), done[run.at]):
            by_setting = run.kernel == "matmul.tf32" and getattr(known.get(run.gpu), "uuid", "") in as_fp32
            if rate.share * (1 + (number(run.row, "spread") or 0)) < _NOTABLE_SHARE and not by_setting:
                rates.setdefault((run.gpu, rate.of), []).append(rate)
    groups["measured"] = tuple(done)
    for rate in _peer_link_rates(rows, known):
        if rate.share < _NOTABLE_SHARE:
            rates.setdefault((rate.run.gpu, rate.of), []).append(rate)
    idle = tuple(_unmeasured_rows(rows))
    if not isinstance(groups.get("rate"), tuple):
        worst = tuple(_worst_rate_row(found, done, known) for found in rates.values())
        groups["rate"] = (*worst, *idle) if idle or ran else Unread(_NO_RATES)


def _gpus_without_tf32_gain(groups: Groups) -> frozenset[object]:
    """UUIDs of GPUs whose TF32 products are no faster than fp32: set so, not slow."""
    return frozenset(
        value_of(gpu.get("uuid"))
        for gpu in listed(groups.get("gpu"))
        if isinstance(gain := value_of(gpu.get("tf32_gain")), float) and gain < _NO_GAIN_FACTOR
    )


def _comparable_runs(rows: Sequence[Row]) -> Iterator[_Run]:
    """The measured rows with a rate or time on a GPU, as runs; training loops and the CPU are left out."""
    for at, row in enumerate(rows):
        gpu, rate = value_of(row.get("gpu")), number(row, "value")
        name, unit = text_of(row.get("device")), text_of(row.get("unit"))
        if not isinstance(gpu, int) or name in ("", "CPU") or value_of(row.get("rung")) == "training":
            continue
        if rate and rate > 0 and (unit.endswith("/s") or unit in TIMES):
            yield _Run(at, text_of(row.get("kernel")), gpu, name, unit, rate, row)


def _peer_link_rates(rows: Sequence[Row], known: Mapping[int, Device]) -> Iterator[_Rate]:
    """For each GPU on NVSwitches its median copy rate, both ways, against its links and against other pairs."""
    at = next((at for at, row in enumerate(rows) if value_of(row.get("kernel")) == "peer.copy"), None)
    pairs = list(_pair_rates(rows[at])) if at is not None else []
    for gpu in sorted({gpu for pair, _ in pairs for gpu in pair}):
        device = known.get(gpu)
        table = expected("peer.copy", device) if device else None
        if at is None or device is None or table is None:
            continue
        own = median(rate for pair, rate in pairs if gpu in pair)
        others = [rate for pair, rate in pairs if gpu not in pair]
        run = _Run(at, "peer.copy", gpu, device.name, "GB/s", own, rows[at])
        yield _Rate(run, "GPU link", table.value, "expected", own / table.value)
        if others:
            yield _Rate(run, "GPU link", median(others), "siblings", own / median(others))


def _pair_rates(row: Row) -> Iterator[tuple[tuple[int, ...], float]]:
    """((first, second) GPU index, GB/s from the first to the second) of each pair in a row of ``peer.copy``."""
    details = value_of(row.get("details"))
    rates = details.get("rates") if isinstance(details, Mapping) else None
    for name, rate in rates.items() if isinstance(rates, Mapping) else ():
        if _WAY.fullmatch(name) and isinstance(rate, (int, float)) and 0 < rate < 1e6:
            yield tuple(map(int, name.split("-"))), float(rate)


def _unmeasured_rows(rows: Sequence[Row]) -> Iterator[Row]:
    """A row of ``rate``, its columns unread with the reason, for each GPU of which no measured row ran."""
    ran = {number(row, "gpu") for row in rows if value_of(row.get("status")) == "ran"}
    why = {
        gpu: str(value_of(row.get("because")) or "nothing ran on it")
        for row in rows
        if isinstance(gpu := value_of(row.get("gpu")), int) and gpu not in ran and value_of(row.get("device")) != "CPU"
    }
    for gpu, because in why.items():
        unread = dict.fromkeys(("value", "kernel", "of", "share"), Unread(because))
        yield {"gpu": Known(gpu, "gpudoctor bench"), **unread}


def _with_sibling_values(runs: Sequence[_Run]) -> Iterator[tuple[_Run, list[float]]]:
    """(run, values of the same kernel on other GPUs of the same name) of each run."""
    alike: dict[tuple[str, str], list[_Run]] = {}
    for run in runs:
        alike.setdefault((run.kernel, run.name), []).append(run)
    for group in alike.values():
        for run in group:
            yield run, [other.value for other in group if other is not run]


def _rates_of_run(run: _Run, others: Sequence[float], device: Device | None, row: dict[str, Fact]) -> Iterator[_Rate]:
    """The run's rate against the table, and against its siblings' median where two or more were measured.

    Also sets, in that `row` of ``measured``, limit, expected, expected_from and siblings, absent where unknown.
    """
    kernel_kind = kind(run.kernel, run.unit)
    table = _expected_by_table(run, device, kernel_kind) if device else None
    if table:
        assert table.limit is not None
        row["limit"] = Known(round(table.limit, 1), table.words)
        row["expected"] = Known(round(table.value, 1), _TABLE)
        row["expected_from"] = Known(
            f"{round(100 * table.value / table.limit)} % of {table.limit:.0f} {run.unit}: {table.words}", _TABLE
        )
        yield _Rate(run, kernel_kind, table.value, "expected", run.value / table.value)
    else:
        row.update(_UNKNOWN)
    if len(others) < _FEWEST_OTHERS:
        row["siblings"] = Absent("fewer than two others of its name were measured")
        return
    middle = median(others)
    row["siblings"] = Known(round(middle, 3), _SIBLINGS)
    yield _Rate(run, kernel_kind, middle, "siblings", middle / run.value if run.unit in TIMES else run.value / middle)


def _expected_by_table(run: _Run, device: Device, kernel_kind: str) -> Expected | None:
    """The value expected by the table; None where it does not tell, and for a host copy that shared the link."""
    if kernel_kind == "host link" and not _had_link_alone(run.row):
        return None
    return expected(
        run.kernel,
        device,
        _meanwhile_of_row(run.row) if kernel_kind == "compute" else None,
        product_side(value_of(run.row.get("details"))),
    )


def _worst_rate_row(rates: Sequence[_Rate], rows: Sequence[Row], known: Mapping[int, Device]) -> Row:
    """The row of ``rate`` for one GPU and kind of rate: the worst of its slow rates, other slow kernels in ``also``."""
    worst = min(rates, key=lambda rate: rate.share / slow_below(rate.of, _HOW[rate.against]))
    run = worst.run
    also: dict[str, str] = {}
    for rate in sorted(rates, key=lambda rate: rate.share):
        if rate.share < _FAR_SHARE and rate.run.kernel != run.kernel:
            also.setdefault(rate.run.kernel, f"{rate.run.kernel} ({rate.share * 100:.0f} %)")
    source = _value_source(run.row)
    return {
        "gpu": Known(run.gpu, source),
        "kernel": Known(run.kernel, source),
        "value": Known(_rounded(run.value), source),
        "unit": Known(run.unit, source),
        "others": Known(_rounded(worst.others), _SIBLINGS if worst.against == "siblings" else _TABLE),
        "of": Known(worst.of, source),
        "against": Known(worst.against, source),
        "share": Known(round(worst.share, 3), source),
        "also": Known(tuple(also.values()), source),
        "spread": Known(number(run.row, "spread") or 0.0, source),
        "name": Known(run.name, source),
        "expected_from": rows[run.at].get("expected_from", _UNKNOWN["expected_from"]),
        **identity_columns(known.get(run.gpu), source),
    }


def _rounded(value: float) -> float:
    """The value rounded: to a whole number from 100 on, to one decimal place from 10 on, else to two."""
    return float(round(value)) if value >= 100 else round(value, 1 if value >= 10 else 2)


def _meanwhile_of_row(row: Row) -> Meanwhile | None:
    """The GPU's clocks, power and temperature during the run; None where not read."""
    if not known(row.get("sm_clock_mhz")):
        return None
    return Meanwhile(
        sm_clock_mhz=number(row, "sm_clock_mhz"),
        max_sm_clock_mhz=number(row, "sm_clock_max_mhz"),
        power_w=number(row, "power_w"),
        power_limit_w=number(row, "power_limit_w"),
        temperature_c=number(row, "temperature_c"),
        reasons=texts_of(row.get("throttle_reasons")),
        utilization=number(row, "utilization"),
    )


def _had_link_alone(row: Row) -> bool:
    """Whether no other GPU's copy shared the host link; True where the row does not say."""
    details = value_of(row.get("details"))
    return not isinstance(details, Mapping) or details.get("alone") is not False


def _value_source(row: Row) -> str:
    """The source of the row's value; empty where it is not known."""
    value = known(row.get("value"))
    return value.source if value else ""


# ---- What NVML saw of each GPU while kernels ran on it ----

_HARD = pattern("hw_|thermal|brake")
"""Clock-event reasons by which a GPU protects itself, or is told to."""
_BUSY_PERCENT = 50
"""Percent of utilization from which a sample was taken at work."""
_COUNTED = "NVML, before and after each kernel"
_SEEN = {
    "sm_clock_mhz": "clock_mhz",
    "power_w": "power_w",
    "temperature_c": "temperature_c",
    "utilization": "utilization",
}


def imply_load_columns(snapshot: Snapshot, _: Facts, groups: Groups) -> None:
    """Replaces the columns of ``gpu`` that tell its state (clock, power, errors, ...) by those under measured kernels.

    Nothing where no kernel was measured.
    """
    rows, gpus = groups.get("measured"), groups.get("gpu")
    if not isinstance(rows, tuple) or not isinstance(gpus, tuple):
        return
    runs: dict[float | None, list[Row]] = {}
    for row in rows:
        if value_of(row.get("device")) != "CPU" and value_of(row.get("status")) == "ran":
            runs.setdefault(number(row, "gpu"), []).append(row)
    runs_by_uuid = {
        device.uuid: runs.get(device.index, []) for device in devices_by_index(snapshot).values() if device.uuid
    }
    groups["gpu"] = tuple(
        {**gpu, **dict(_work_columns(gpu, runs_by_uuid.get(text_of(gpu.get("uuid")), [])))} for gpu in gpus
    )


def _work_columns(gpu: Row, runs: Sequence[Row]) -> Iterator[tuple[str, Fact]]:
    """Columns of ``gpu`` under load, from the measured rows of that GPU; none where its clocks were not read meanwhile.

    Those of `_columns_of_run` and `_link_columns`, seconds_at_work, and, of each error counter that was read, its rise
    (``NAME_at_work``) and, if it rose from a known value, the new value (``NAME``).
    """
    if not any(known(run.get("sm_clock_mhz")) for run in runs):
        return
    run = _representative_run(runs)
    if run:
        yield from _columns_of_run(run)
    yield from _link_columns(gpu, runs, worked=run is not None)
    yield "seconds_at_work", Known(round(sum(number(run, "seconds") or 0 for run in runs), 1), _COUNTED)
    for name in COUNTERS:
        if any(known(run.get(name)) for run in runs):
            count = int(sum(number(run, name) or 0 for run in runs))
            yield f"{name}_at_work", Known(count, _COUNTED)
            before = value_of(gpu.get(name))
            if count and isinstance(before, int):
                yield name, Known(before + count, _COUNTED)


def _representative_run(runs: Sequence[Row]) -> Row | None:
    """The run of lowest clock among those with hardware or thermal throttling, else among busy matrix products.

    None where there is neither.
    """
    held = [run for run in runs if any(_HARD.search(reason) for reason in texts_of(run.get("throttle_reasons")))]
    busy = [run for run in runs if (number(run, "utilization") or 0) >= _BUSY_PERCENT]
    products = [run for run in busy if text_of(run.get("unit")).endswith("OP/s")]
    return min(held or products, key=lambda run: number(run, "sm_clock_mhz") or 0, default=None)


def _columns_of_run(run: Row) -> Iterator[tuple[str, Fact]]:
    """Columns of ``gpu`` in that run: at_work (the kernel), throttle_reasons, clock, power, temperature, utilization.

    Sensors that were not read are left out.
    """
    kernel = text_of(run.get("kernel"))
    yield "at_work", Known(kernel, "gpudoctor bench")
    yield "throttle_reasons", Known(texts_of(run.get("throttle_reasons")), f"NVML, while {kernel} ran")
    for seen, column in _SEEN.items():
        if (found := number(run, seen)) is not None:
            yield column, Known(round(found), f"NVML, while {kernel} ran")


def _link_columns(gpu: Row, runs: Sequence[Row], worked: bool) -> Iterator[tuple[str, Fact]]:
    """link_width and link_generation during copies to and from the host, where read.

    Without copies the generation is unread if other kernels `worked`: at rest it is lower.
    """
    copies = [run for run in runs if value_of(run.get("kernel")) in ("copy.to", "copy.from")]
    for name in ("link_width", "link_generation"):
        found = [most for run in copies if (most := number(run, name))]
        if found:
            yield name, Known(int(max(found)), "NVML, during copies")
        elif worked and name == "link_generation" and known(gpu.get(name)):
            yield name, Unread("read at rest, and no copy was measured")
