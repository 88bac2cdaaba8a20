"""Pictures of what was measured, as inline SVG: nothing is loaded, nothing runs, each says in words what it shows.

Each function gives the markup of figures, or nothing where there are no facts to show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.document import is_number
from gpudoctor.core.fact import Json
from gpudoctor.core.fleet import Check, Fleet, Outcome, Pairwise
from gpudoctor.core.language import say
from gpudoctor.core.measurement import Kernel, Measurements, Run, State, kind, slow_below
from gpudoctor.core.sample import GPU, sample_of
from gpudoctor.views import svg
from gpudoctor.views._terminal import digits
from gpudoctor.views.svg import MOST_ROWS, Bar, Cell, Look, Matrix, Panel, share_cell


def sections(diagnosis: Diagnosis, measurements: Measurements | None) -> Iterator[str]:
    """HTML of each kind of figure that has something to show: heading, legend, figures."""
    as_read = isinstance(diagnosis.snapshot.rows("gpu"), tuple)
    parts: tuple[tuple[str, str, Callable[[], Iterable[str]]], ...] = (
        (say("Hosts"), say("· passed, ! warning, ✗ error, ? not judged."), lambda: host_figures(diagnosis)),
        (
            say("Kernels, against what is expected"),
            say(
                "A bar for each GPU. Where that of a sound one ends is shaded; slow begins at the line."
                " Dashed: the maker's limit. ? was not measured."
            ),
            lambda: kernel_figures(measurements),
        ),
        (
            say("GPUs, when they were read" if as_read else "GPUs, over the run"),
            say("A bar for each GPU; dashed: its limit."),
            lambda: (*gpu_table(diagnosis), *gpu_figures(diagnosis)),
        ),
        (
            say("How long each source took"),
            say("They are asked side by side."),
            lambda: timing_figures(diagnosis),
        ),
    )
    for heading, legend, figures in parts:
        if drawn := list(figures()):
            yield f"<h2>{heading}</h2>"
            yield f'<p class="quiet">{legend}</p>'
            yield '<div class="plots">'
            yield from drawn
            yield "</div>"


# ---- What kernels measured, against what a sound GPU achieves ----

_STATE_LOOKS: Mapping[State, Look] = {"sound": "sound", "slow": "warning", "wrong": "error", "failed": "error"}
_MOST_KERNELS = 24
_PEER_COPY = "peer.copy"


def kernel_figures(measurements: Measurements | None) -> Iterator[str]:
    """SVG of bar charts of comparable kernels with a value, at most `_MOST_KERNELS`, and of GPU-to-GPU copy rates."""
    if measurements is None:
        return
    drawn = 0
    for kernel in measurements.kernels:
        runs = sorted((run for run in measurements.of(kernel.id) if run.gpu >= 0), key=lambda run: run.gpu)
        if kernel.comparable and any(run.value is not None for run in runs) and drawn < _MOST_KERNELS:
            drawn += 1
            yield _kernel_panel(measurements, kernel, runs).draw()
    for run in measurements.of(_PEER_COPY):
        if matrix := _copy_matrix(run):
            yield matrix.draw()


def _kernel_panel(measurements: Measurements, kernel: Kernel, runs: list[Run]) -> Panel:
    """The bar chart of one kernel, a bar per run; band and limit only if the same value is expected of all GPUs."""
    expected = [item for item in map(measurements.expected, runs) if item]
    common = expected[0] if expected and len({item.value for item in expected}) == 1 else None
    band = None
    if common:
        least = slow_below(kind(kernel.id, kernel.unit), common.how)
        band = (common.value / least, common.value) if kernel.less_is_better else (common.value * least, common.value)
    title = f"{kernel.title} {kernel.size}".strip()
    note = "less is better" if kernel.less_is_better else ""
    bars = [_kernel_bar(measurements, kernel, run) for run in runs]
    return Panel(title, kernel.unit, bars, band, common.limit if common else None, note)


def _kernel_bar(measurements: Measurements, kernel: Kernel, run: Run) -> Bar:
    """The bar of one run, coloured by its state; its tooltip has the value and share, or why it was not measured."""
    state, ratio = measurements.state(run), measurements.ratio(run)
    hint = f"{measurements.called(run.gpu)}: "
    if run.value is None:
        return Bar(str(run.gpu), None, hint + (run.because or run.words or "not measured"))
    hint += f"{digits(run.value)} {kernel.unit}"
    if ratio is not None and (expected := measurements.expected(run)):
        hint += f", {ratio:.0%} of {digits(expected.value)}"
    if state == "wrong":
        hint += ", and the answer is wrong"
    elif state in ("slow", "failed"):
        hint += f", {state}"
    return Bar(str(run.gpu), run.value, hint, _STATE_LOOKS.get(state, "plain"))


def _copy_matrix(run: Run) -> Matrix | None:
    """Copy rates in GB/s between GPUs, from ``rates`` of the run's details; None with fewer than two GPUs in them."""
    rates = run.details.get("rates")
    if not isinstance(rates, dict):
        return None
    by_pair = {
        pair: rate for name, value in rates.items() if (pair := _parse_gpu_pair(name)) and (rate := _valid_rate(value))
    }
    gpus = sorted({gpu for pair in by_pair for gpu in pair})
    if len(gpus) < 2:
        return None
    wrong = run.details.get("wrong")
    wrong_pairs = {_parse_gpu_pair(str(name)) for name in wrong} if isinstance(wrong, list) else set()
    fastest = max(by_pair.values())
    cells = [
        [_copy_cell(by_pair.get((source, target)), (source, target) in wrong_pairs, fastest) for target in gpus]
        for source in gpus
    ]
    labels = [f"GPU {gpu}" for gpu in gpus]
    return Matrix("Copies between GPUs", "GB/s, from the row to the column", labels, labels, cells)


def _copy_cell(rate: float | None, wrong: bool, best: float) -> Cell:
    """The cell of a copy rate in GB/s, shaded by its share of the fastest (`best`); None is shown as not measured."""
    if rate is None:
        return Cell("", "not measured")
    return share_cell(rate / best, digits(rate), f"{digits(rate)} GB/s", wrong)


def _parse_gpu_pair(name: str) -> tuple[int, int] | None:
    """(source, target) of a text such as ``0-1``; None for any other text."""
    source, _, target = name.partition("-")
    return (int(source), int(target)) if source.isdecimal() and target.isdecimal() and len(name) < 12 else None


def _valid_rate(value: Json) -> float | None:
    """The value, in GB/s, if it is a number above 0 and below 1e9, else None."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e9 else None


# ---- What the GPUs of a machine did when they were read ----


class _Quantity(NamedTuple):
    """A field of `GPU` and that of its limit, with the words before the limit; `per` is what values are divided by."""

    title: str
    unit: str
    field: str
    limit: str = ""
    before: str = ""
    per: float = 1

    def value_of(self, gpu: GPU) -> float | None:
        """The GPU's value of this quantity in `unit`; None if not known."""
        value = getattr(gpu, self.field)
        return value / self.per if is_number(value) else None

    def limit_of(self, gpu: GPU) -> float | None:
        """The GPU's limit of this quantity in `unit`; None if not known or there is none."""
        return self._replace(field=self.limit).value_of(gpu) if self.limit else None


_PANELS = (
    _Quantity("Temperature", "°C", "temperature_c", "temperature_slowdown_c", "slows down at"),
    _Quantity("SM clock", "MHz", "clock_mhz", "clock_max_mhz", "at most"),
    _Quantity("Power", "W", "power_w", "power_limit_w", "limited to"),
    _Quantity("Memory used", "GiB", "memory_used_mib", "memory_mib", "of", 1024),
    _Quantity("Utilization", "%", "utilization"),
)
_THROTTLE_REASONS = frozenset({"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"})
"""Clock-event reasons that mean throttling, not idleness."""
_THROTTLED_FIELDS = ("temperature_c", "clock_mhz")
_HOT_MARGIN = 3
"""Degrees below the slowdown from which a GPU is hot."""


def gpu_table(diagnosis: Diagnosis) -> Iterator[str]:
    """HTML of a table with a row for each GPU: values (``?`` if one could not be read) and ids of its findings.

    Nothing if no value of any GPU is known.
    """
    gpus = sample_of(diagnosis.snapshot).gpus
    shown = [quantity for quantity in _PANELS if any(quantity.value_of(gpu) is not None for gpu in gpus)]
    if not shown:
        return
    heads = ("GPU", "Name", *(f"{quantity.title}, {quantity.unit}" for quantity in shown), "Found")
    yield '<div class="wide"><table>'
    yield f"<tr>{''.join(f'<th>{svg.escaped(head)}</th>' for head in heads)}</tr>"
    for gpu in gpus:
        cells = [str(gpu.index), gpu.name, *(_number_text(gpu, quantity) for quantity in shown)]
        found = {
            f"{_SIGNS[finding.severity]} {finding.id}": None
            for finding in diagnosis.findings
            if any(subject.get("gpu") == gpu.index for subject in finding.subjects)
        }
        yield f"<tr>{''.join(f'<td>{svg.escaped(cell)}</td>' for cell in (*cells, ', '.join(found)))}</tr>"
    yield "</table></div>"


_SIGNS = {"error": "✗", "warning": "!", "info": "i"}


def _number_text(gpu: GPU, quantity: _Quantity) -> str:
    """The GPU's value, ``45 of 80`` if it has a limit; ``?`` if it could not be read, ``-`` if not reported."""
    value, limit = quantity.value_of(gpu), quantity.limit_of(gpu)
    if value is None:
        return "?" if gpu.error or quantity.field in gpu.unanswered else "-"
    return " of ".join(digits(number).removesuffix(".0") for number in (value, limit) if number is not None)


def gpu_figures(diagnosis: Diagnosis) -> Iterator[str]:
    """SVG of a bar chart per quantity known of some GPU; a limit is drawn if all share it (100 for percentages)."""
    gpus = sample_of(diagnosis.snapshot).gpus
    for quantity in _PANELS:
        if any(quantity.value_of(gpu) is not None for gpu in gpus):
            limits = {quantity.limit_of(gpu) for gpu in gpus}
            limit = limits.pop() if len(limits) == 1 else None
            bars = [_gpu_bar(gpu, quantity) for gpu in gpus]
            yield Panel(quantity.title, quantity.unit, bars, most=100.0 if quantity.unit == "%" else limit).draw()


def _gpu_bar(gpu: GPU, quantity: _Quantity) -> Bar:
    """The bar of one GPU with value and limit as tooltip; without a value there is no bar, and the tooltip says why.

    Temperature is red from `_HOT_MARGIN` degrees below the slowdown on; temperature and SM clock are else yellow while
    throttled.
    """
    value, limit = quantity.value_of(gpu), quantity.limit_of(gpu)
    if value is None:
        return Bar(str(gpu.index), None, f"GPU {gpu.index}: {gpu.why(quantity.field)}")
    hint = f"GPU {gpu.index}: {digits(value)} {quantity.unit}"
    hint += f", {quantity.before} {digits(limit)}" if limit else ""
    look: Look = "plain"
    if quantity.field == "temperature_c" and limit and value >= limit - _HOT_MARGIN:
        look = "error"
    elif quantity.field in _THROTTLED_FIELDS and (reasons := _THROTTLE_REASONS & set(gpu.throttle_reasons or ())):
        look, hint = "warning", f"{hint}, held back: {', '.join(sorted(reasons))}"
    return Bar(str(gpu.index), value, hint, look)


# ---- How long each source of facts took ----

_MOST_SOURCES = 12
_WIDTH, _ROW, _LEFT, _RIGHT = 640, 16, 150, 60


def timing_figures(diagnosis: Diagnosis) -> Iterator[str]:
    """SVG of one bar chart: how long the slowest `_MOST_SOURCES` sources took; nothing without timings."""
    timings = sorted(diagnosis.snapshot.timings_ms.items(), key=lambda item: (-item[1], item[0]))
    if not timings or timings[0][1] <= 0:
        return
    shown, rest = timings[:_MOST_SOURCES], timings[_MOST_SOURCES:]
    note = f"the slowest; {len(rest)} more took {_duration_text(rest[0][1])} at most" if rest else ""
    description = "; ".join(f"{name}: {_duration_text(ms)}" for name, ms in shown)
    yield svg.figure("Milliseconds", description, (_WIDTH, _ROW * len(shown) + 4), _timing_bars(shown), note, wide=True)


def _timing_bars(shown: list[tuple[str, float]]) -> Iterator[str]:
    """SVG of a row per source, in the order given: name, bar, duration. Bars are relative to the first, the longest."""
    longest = shown[0][1]
    for index, (name, ms) in enumerate(shown):
        top, width = _ROW * index + 2, max((_WIDTH - _LEFT - _RIGHT) * max(ms, 0) / longest, 1)
        yield svg.text((_LEFT - 6, top + 10), svg.shortened(name.removeprefix("probe."), 24), "end")
        yield svg.box((_LEFT, top), (width, _ROW - 4), "plain", f"{name}: {_duration_text(ms)}")
        yield svg.text((_LEFT + width + 5, top + 10), _duration_text(ms))


def _duration_text(ms: float) -> str:
    """Milliseconds as text: ``3.2 ms``, from 10 ms on ``45 ms``, from 1000 ms on ``1.3 s``."""
    return f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms"


# ---- Many hosts: what each check says of each, and the bandwidth between every two ----

_OUTCOME_LOOKS: Mapping[Outcome, tuple[str, str, float]] = {
    "ok": ("·", "sound", 0.25),
    "info": ("i", "sound", 0.25),
    "warning": ("!", "warning", 0.6),
    "error": ("✗", "error", 0.75),
    "unjudged": ("?", "none", 1.0),
}
_MOST_HOSTS_IN_FULL = 24
"""Hosts up to which all are drawn; of more, only those with problems."""
_WORST: tuple[Outcome, ...] = ("error", "warning", "unjudged", "info", "ok")


def host_figures(diagnosis: Diagnosis) -> Iterator[str]:
    """SVG of the fleet's matrices: hosts by checks, and bandwidth between hosts; nothing with fewer than two hosts.

    Of more than `_MOST_HOSTS_IN_FULL` the first has only the worst `MOST_ROWS` hosts with something other than ok, or a
    single host if all are ok.
    """
    fleet = diagnosis.fleet
    if fleet is None or len(fleet.hosts) < 2:
        return
    if fleet.checks:
        names, note = [host.name for host in fleet.hosts], ""
        if len(names) > _MOST_HOSTS_IN_FULL:
            worst = sorted(names, key=lambda name: _severity_rank(fleet, name))[:MOST_ROWS]
            shown = {name for name in worst if any(_severity_rank(fleet, name))} or set(worst[:1])
            names = [name for name in names if name in shown]
            rest = "the others pass every check" if len(names) < MOST_ROWS else "those with the most to see to"
            note = f"{len(names)} of {len(fleet.hosts)} hosts; {rest}"
        cells = [[_check_cell(fleet, name, check) for check in fleet.checks] for name in names]
        yield Matrix("Hosts by checks", note, names, [check.short or check.id for check in fleet.checks], cells).draw()
    if fleet.pairwise and fleet.pairwise.names:
        yield _pair_matrix(fleet.pairwise).draw()


def _severity_rank(fleet: Fleet, name: str) -> tuple[int, ...]:
    """Sort key of a host, the worst first: negated counts of its checks with error, warning, unjudged and info."""
    outcomes = [fleet.result(name, check.id).outcome for check in fleet.checks]
    return tuple(-outcomes.count(outcome) for outcome in _WORST[:-1])


def _check_cell(fleet: Fleet, name: str, check: Check) -> Cell:
    """The cell of a host's check: mark and colour by its outcome, with the result's words as tooltip."""
    result = fleet.result(name, check.id)
    mark, look, shade = _OUTCOME_LOOKS[result.outcome]
    return Cell(mark, result.words or result.outcome, look, shade)


def _pair_matrix(pairwise: Pairwise) -> Matrix:
    """Matrix of bandwidth between hosts, from row to column; of more than `MOST_ROWS` those with the lowest mean."""
    names = list(pairwise.names)
    note = f"{pairwise.unit}, expected {digits(pairwise.expected)}; from the row to the column"
    if len(names) > MOST_ROWS:
        rates = {name: _mean_rate(pairwise, index) for index, name in enumerate(names)}
        names = sorted(names, key=rates.__getitem__)[:MOST_ROWS]
        note += f"; the {MOST_ROWS} of {len(pairwise.names)} with the slowest ways"
    cells = [[_pair_cell(pairwise, source, target) for target in names] for source in names]
    return Matrix(pairwise.title, note, names, names, cells)


def _mean_rate(pairwise: Pairwise, index: int) -> float:
    """Mean of all measured rates from and to the host at that index; infinity without any.

    Minima would mark its peers too.
    """
    both_ways = (*pairwise.measured[index], *(row[index] for row in pairwise.measured))
    rates = [rate for rate in both_ways if rate is not None]
    return sum(rates) / len(rates) if rates else float("inf")


def _pair_cell(pairwise: Pairwise, source: str, target: str) -> Cell:
    """The cell of a host pair, shaded by its ratio to the expected bandwidth; empty, with the reason, if unmeasured."""
    pair = pairwise.pair(source, target)
    if pair.measured is None or pair.ratio is None:
        return Cell("", pair.words or ("itself" if source == target else "not measured"))
    hint = f"{digits(pair.measured)} {pairwise.unit}, {pair.ratio:.0%}"
    return share_cell(pair.ratio, digits(pair.measured), f"{hint}, {pair.words}" if pair.words else hint, pair.wrong)
