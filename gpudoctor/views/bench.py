"""Measurements for a terminal or a pipe: a kernel a line, a GPU a column; below what is bad, what to do, and counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from gpudoctor.model.bench import Bench
from gpudoctor.model.measurement import Kernel, Measurements, Run, State
from gpudoctor.views import text
from gpudoctor.views._measured import RUNGS, WHOLE, figure, gpus, names
from gpudoctor.views._terminal import WIDTH, Style, one_line, wrapped

_MOST_COLUMNS = 8
_FEW = 3
"""GPUs with room for the share of what was expected beside each figure."""
_CELL = 6
_SHORTEST = 14
_MARKS: Mapping[State, tuple[str, str]] = {"wrong": ("!", "red"), "slow": ("<", "yellow"), "failed": ("x", "red")}
_WORDS: Mapping[State, str] = {"wrong": "wrong", "failed": "fails", "unjudged": "-", "waiting": "-", "running": "-"}
_CPU = "Every kernel's checks run without a GPU, too: gpudoctor bench --device cpu"


def render(bench: Bench, style: Style) -> str:
    """All of it as text."""
    found = bench.found
    if bench.because:
        return "\n".join([*wrapped(f"Nothing was measured: {bench.because}", hang=2), "", *wrapped(_CPU)])
    blocks = [
        "\n".join(block)
        for block in (
            list(_devices(found)),
            [*_table(found, style), *_legend(found)],
            list(_bad(found, style)),
            list(_said(found)),
            list(_not_run(found)),
            *([block] for block in text.findings(bench.findings, style)),
            [counted(found)],
        )
        if block
    ]
    return "\n\n".join(blocks)


def document(bench: Bench) -> str:
    """The JSON document."""
    return json.dumps(bench.to_json(), ensure_ascii=True, indent=1)


def listed(kernels: Sequence[Kernel]) -> str:
    """Every kernel by its rung, one a line."""
    lines: list[str] = []
    for rung, title in RUNGS.items():
        of = [f"  {one.id:<26} {one.level:<9} {one.title}" for one in kernels if one.rung == rung]
        lines += [title, *of] if of else []
    return "\n".join(lines)


def counted(found: Measurements) -> str:
    """``58 right, 1 wrong, 0 failed, 4 not run``; those without a reference are said where there are any."""
    ran = [run for run in found.runs if run.status == "ran"]
    unchecked = sum(run.right is None for run in ran)
    parts = [
        f"{sum(run.right is True for run in ran)} right",
        f"{sum(run.right is False for run in ran)} wrong",
        f"{sum(run.status == 'failed' for run in found.runs)} failed",
        f"{sum(run.status not in {'ran', 'failed'} for run in found.runs)} not run",
        *([f"{unchecked} measured without a reference"] if unchecked else []),
    ]
    return ", ".join(parts)


def _devices(found: Measurements) -> Iterator[str]:
    """Those alike as one."""
    kinds: dict[tuple[str, str], list[int]] = {}
    for device in found.devices:
        kinds.setdefault((device.name, device.held), []).append(device.index)
    for (name, held), numbers in kinds.items():
        where = gpus(found, numbers) or f"GPU {numbers[0]}"
        where = f"{len(numbers)} GPUs" if where == "all GPUs" else where
        said = f", in use by {held}: left alone; --device cuda:{numbers[0]} measures it all the same" if held else ""
        yield from wrapped(
            "CPU: every kernel small, for its checks" if name == "CPU" else f"{where}: {name}{said}", 0, 2
        )


def _table(found: Measurements, style: Style) -> Iterator[str]:
    """A line for each kernel that ran somewhere, by rung."""
    closed = {why for why, many in Counter(run.because for run in found.runs).items() if why and many >= WHOLE}
    kernels = [
        one
        for one in found.kernels
        if any(
            run.status == "ran" or (run.status == "failed" and run.because not in closed) for run in found.of(one.id)
        )
    ]
    if not kernels:
        return
    folds, few = len(found.devices) > _MOST_COLUMNS, len(found.devices) <= _FEW
    heads = ["min", "med", "max"] if folds else [f"{device.index}" for device in found.devices]
    cell = _CELL + (6 if few else 0)
    unit = max(len(one_line(kernel.unit)) for kernel in kernels)
    room = WIDTH - 4 - unit - len(heads) * cell - (14 if folds else 0)
    title = max(_SHORTEST, min(room, max(len(one_line(kernel.title)) for kernel in kernels)))
    if len(heads) > 1:
        heads[0] = heads[0] if folds else f"GPU {heads[0]}"
        yield (" " * (title + unit + 4) + "".join(f"{head:>{_CELL - 1}}".ljust(cell) for head in heads)).rstrip()
    for rung, name in RUNGS.items():
        of = [kernel for kernel in kernels if kernel.rung == rung]
        yield from [style.paint(name, "bold")] if of else []
        for kernel in of:
            cells = _folded(found, kernel, style) if folds else _cells(found, kernel, style, few)
            measure = one_line(kernel.unit)
            room = title + unit - len(measure)
            yield f"  {_cut(kernel.title, room):<{room}} {measure} {cells}".rstrip()


def _legend(found: Measurements) -> Iterator[str]:
    """What the marks mean, where there are any."""
    states = {found.state(run) for run in found.runs if run.value is not None}
    words = [
        f"{_MARKS[state][0]} {word}" for state, word in (("wrong", "wrong values"), ("slow", "slow")) if state in states
    ]
    if words and len(found.devices) <= _MOST_COLUMNS:
        yield f"  ({', '.join(words)})"


def _cells(found: Measurements, kernel: Kernel, style: Style, few: bool) -> str:
    runs = found.of(kernel.id)
    if [run.gpu for run in runs] == [-1]:
        together = " all together" if len(found.devices) > 1 else ""
        return _cell(found, runs[0], style, few) + together
    by_gpu = {run.gpu: run for run in runs}
    return "".join(
        _cell(found, run, style, few) if (run := by_gpu.get(device.index)) else " " * _CELL for device in found.devices
    )


def _cell(found: Measurements, run: Run, style: Style, few: bool) -> str:
    state = found.state(run)
    mark, colour = _MARKS.get(state, (" ", ""))
    if run.value is None or run.status != "ran":
        said = "right" if run.right else _WORDS.get(state, "done")
        cell = f"{said:>{_CELL - 1}} "[: _CELL + 1]
    else:
        cell = f"{figure(run.value):>{_CELL - 1}}{mark}"
    if few:
        ratio = found.ratio(run)
        cell += f"{ratio * 100:4.0f} %" if ratio is not None else " " * 6
    return style.paint(cell, colour) if colour else cell


def _folded(found: Measurements, kernel: Kernel, style: Style) -> str:
    """Least, median and most; those that are odd by their numbers."""
    runs = found.of(kernel.id)
    values = [run.value for run in runs if run.value is not None]
    said = [figure(pick(values)) for pick in (min, median, max)] if values else ["", "", ""]
    odd: dict[State, list[int]] = {}
    for run in runs:
        if (state := found.state(run)) in _MARKS:
            odd.setdefault(state, []).append(run.gpu)
    marks = [style.paint(f"{state}: {gpus(found, numbers)}", _MARKS[state][1]) for state, numbers in odd.items()]
    right = "" if values or odd else "right" if all(run.right for run in runs if run.status == "ran") else ""
    return "".join(f"{word:>{_CELL - 1}} " for word in said) + " ".join([*marks, right])


def _cut(title: str, width: int) -> str:
    plain = one_line(title)
    return plain if len(plain) <= width else f"{plain[: width - 1]}…"


def _bad(found: Measurements, style: Style) -> Iterator[str]:
    """What is wrong, failed or slow: where, why, and the layer; alike as one."""
    alike: dict[tuple[State, str], list[Run]] = {}
    for run in found.runs:
        if (state := found.state(run)) in _MARKS:
            alike.setdefault((state, _trouble(run, state)), []).append(run)
    for (state, said), runs in alike.items():
        where = gpus(found, [run.gpu for run in runs])
        share = _share(found, runs) if state == "slow" else ""
        what = names(found, [run.kernel for run in runs])
        lines = wrapped(one_line(f"{what}{f', {where}' if where else ''}: {share}{said}"), 0, 2)
        yield style.paint(lines[0], _MARKS[state][1])
        yield from lines[1:]


def _share(found: Measurements, runs: Sequence[Run]) -> str:
    shares = sorted(round(100 * (found.ratio(run) or 0)) for run in runs)
    least, most = shares[0], shares[-1]
    return f"{least if least == most else f'{least} to {most}'} % of what was expected"


def _trouble(run: Run, state: State) -> str:
    """In a sentence or two."""
    if state == "slow":
        return f"; held back by {', '.join(run.meanwhile.reasons)}" if run.meanwhile and run.meanwhile.reasons else ""
    step = run.broken
    own = step is None or step == run.ladder[-1]
    layer = "" if step is None else f" Layer: {step.rung}" + ("." if own else f", where {step.message}.")
    counted = run.differ is None or not run.compared or str(run.differ) in run.words
    differ = "" if counted else f"{run.differ:,} of {run.compared:,} differ"
    told = ". ".join(part for part in (differ, run.words.rstrip(".")) if part)
    because = f": {run.because.rstrip('.')}" if run.because else ""
    said = f"wrong values{f': {told}' if told else ''}." if state == "wrong" else f"failed{because}."
    return f"{said.strip()}{layer} {run.advice}".strip()


def _said(found: Measurements) -> Iterator[str]:
    """What figures mean and what to do: of the GPUs that say the same one line."""
    alike: dict[tuple[str, str, str], list[Run]] = {}
    for run in found.runs:
        if found.state(run) in {"sound", "slow", "unjudged"} and run.status == "ran" and (run.words or run.advice):
            alike.setdefault((run.kernel, run.advice, run.words if not run.advice else ""), []).append(run)
    for (name, advice, _), runs in alike.items():
        kernel = found.kernel(name)
        if not kernel:
            continue
        where = gpus(found, [run.gpu for run in runs])
        value = f" {_range(runs)} {kernel.unit}".rstrip() if runs[0].value is not None else ""
        head = f"{kernel.title}{f', {where}' if where else ''}:{value}".removesuffix(":")
        yield from wrapped(one_line(head + (". " if value else ": ") + runs[0].words).removesuffix(" "), 0, 2)
        if advice:
            yield from wrapped(f"-> {one_line(advice)}", 2, 5)


def _range(runs: Sequence[Run]) -> str:
    values = sorted(run.value for run in runs if run.value is not None)
    least, most = figure(values[0]), figure(values[-1])
    return least if least == most else f"{least} to {most}"


def _not_run(found: Measurements) -> Iterator[str]:
    """Reasons once, with what waits for each."""
    reasons: dict[str, list[Run]] = {}
    held = {device.index for device in found.devices if device.held}
    for run in found.runs:
        if run.status not in {"ran", "failed"} and run.gpu not in held:
            reasons.setdefault(run.because or "not begun", []).append(run)
    if reasons:
        yield "Not run, because"
    for why, runs in reasons.items():
        yield from wrapped(one_line(why), 2, 4)
        where = gpus(found, [run.gpu for run in runs])
        yield from wrapped(f"-> {names(found, [run.kernel for run in runs])}{f', {where}' if where else ''}", 4, 7)
