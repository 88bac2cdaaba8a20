"""What kernels measured: a picture for each of them, a bar for each GPU, against what a sound one achieves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpudoctor.model.fact import Json
from gpudoctor.model.measurement import Kernel, Measurements, Run, State, kind, slow_below
from gpudoctor.views._measured import figure as digits
from gpudoctor.views.plots._matrix import Cell, Matrix, share
from gpudoctor.views.plots._panel import Bar, Look, Panel

_LOOKS: Mapping[State, Look] = {"sound": "sound", "slow": "warning", "wrong": "error", "failed": "error"}
_MOST = 24
_PAIRS = "peer.copy"


def figures(found: Measurements | None) -> Iterator[str]:
    """Those with a figure on some GPU, and copies between every two GPUs."""
    drawn = 0
    for kernel in found.kernels if found else ():
        runs = [run for run in found.of(kernel.id) if run.gpu >= 0] if found else []
        if found and kernel.unit and kernel.comparable and any(run.value is not None for run in runs) and drawn < _MOST:
            drawn += 1
            yield _panel(found, kernel, sorted(runs, key=lambda run: run.gpu)).draw()
    for run in found.of(_PAIRS) if found else ():
        if matrix := _between(run):
            yield matrix.draw()


def _panel(found: Measurements, kernel: Kernel, runs: list[Run]) -> Panel:
    expected = [one for one in map(found.expected, runs) if one]
    first = expected[0] if expected and len({one.value for one in expected}) == 1 else None
    band = None
    if first:
        least = slow_below(kind(kernel.id, kernel.unit), first.how)
        band = (first.value / least, first.value) if kernel.less_is_better else (first.value * least, first.value)
    title = f"{kernel.title} {kernel.size}".strip()
    note = "less is better" if kernel.less_is_better else ""
    return Panel(
        title, kernel.unit, [_bar(found, kernel, run) for run in runs], band, first.limit if first else None, note
    )


def _bar(found: Measurements, kernel: Kernel, run: Run) -> Bar:
    state, ratio = found.state(run), found.ratio(run)
    said = f"{found.called(run.gpu)}: "
    if run.value is None:
        return Bar(str(run.gpu), None, said + (run.because or run.words or "not measured"))
    said += f"{digits(run.value)} {kernel.unit}"
    if ratio is not None and (expected := found.expected(run)):
        said += f", {ratio:.0%} of {digits(expected.value)}"
    if state == "wrong":
        said += ", and the answer is wrong"
    elif state in ("slow", "failed"):
        said += f", {state}"
    return Bar(str(run.gpu), run.value, said, _LOOKS.get(state, "plain"))


def _between(run: Run) -> Matrix | None:
    """Copies from each GPU to each other; None where the figures are not there, or are none."""
    rates = run.details.get("rates")
    if not isinstance(rates, dict):
        return None
    ways = {way: rate for name, said in rates.items() if (way := _way(name)) and (rate := _rate(said))}
    names = sorted({gpu for way in ways for gpu in way})
    if len(names) < 2:
        return None
    wrong = run.details.get("wrong")
    bad = {_way(str(name)) for name in wrong} if isinstance(wrong, list) else set()
    best = max(ways.values())
    cells = [[_cell(ways.get((one, other)), (one, other) in bad, best) for other in names] for one in names]
    labels = [f"GPU {name}" for name in names]
    return Matrix("Copies between GPUs", "GB/s, from the row to the column", labels, labels, cells)


def _cell(rate: float | None, wrong: bool, best: float) -> Cell:
    if rate is None:
        return Cell("", "not measured")
    return share(rate / best, digits(rate), f"{digits(rate)} GB/s", wrong)


def _way(name: str) -> tuple[int, int] | None:
    """``0-1``."""
    source, _, target = name.partition("-")
    return (int(source), int(target)) if source.isdecimal() and target.isdecimal() and len(name) < 12 else None


def _rate(said: Json) -> float | None:
    """GB/s; None for what is no such figure."""
    return said if isinstance(said, (int, float)) and not isinstance(said, bool) and 0 < said < 1e9 else None
