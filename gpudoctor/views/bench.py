"""Measurements for a terminal or a pipe: a kernel a line, a GPU a column; below what is bad, what to do, and counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median

from gpudoctor.core.language import say
from gpudoctor.core.measurement import COUNTERS, Bench, Kernel, Measurements, Run, Rung, State
from gpudoctor.views import text
from gpudoctor.views._terminal import WIDTH, Style, digits, one_line, width, wrapped

_MOST_COLUMNS = 8
_MOST_WITH_SHARE = 3
"""GPUs up to which each figure has its share of the expected value beside it."""
_CELL_WIDTH = 6
_LEAST_TITLE_WIDTH = 14
_MARKS: Mapping[State, tuple[str, str]] = {"wrong": ("!", "red"), "slow": ("<", "yellow"), "failed": ("x", "red")}
_WORDS: Mapping[State, str] = {"wrong": "wrong", "failed": "fails", "unjudged": "-", "waiting": "-", "running": "-"}
_CPU_HINT = "Every kernel's checks run without a GPU, too: gpudoctor bench --device cpu"


def render(bench: Bench, style: Style) -> str:
    """The benchmark's results as text; if nothing was measured, why not."""
    measurements = bench.found
    if bench.because:
        return "\n".join(
            [*wrapped(say("Nothing was measured: {why}", why=bench.because), hang=2), "", *wrapped(say(_CPU_HINT))]
        )
    blocks = [
        "\n".join(block)
        for block in (
            list(_devices(measurements)),
            [*_table(measurements, style), *_legend(measurements)],
            list(_problems(measurements, style)),
            list(_notes(measurements)),
            list(_not_run(measurements)),
            *([block] for block in text.findings(bench.findings, style)),
            [counts(measurements)],
        )
        if block
    ]
    return "\n\n".join(blocks)


def document(bench: Bench) -> str:
    """The benchmark as a JSON document, indented, in ASCII."""
    return json.dumps(bench.to_json(), ensure_ascii=True, indent=1)


def kernel_list(kernels: Sequence[Kernel]) -> str:
    """Every kernel's id, level and title, one a line under its rung's heading; rungs without kernels are left out."""
    lines: list[str] = []
    for rung, title in RUNGS.items():
        rows = [f"  {kernel.id:<26} {kernel.level:<9} {kernel.title}" for kernel in kernels if kernel.rung == rung]
        lines += [say(title), *rows] if rows else []
    return "\n".join(lines)


def counts(measurements: Measurements) -> str:
    """Counts of runs: ``58 right, 1 wrong, 0 failed, 4 not run``; then how many ran without a reference, if any."""
    ran = [run for run in measurements.runs if run.status == "ran"]
    unchecked = sum(run.right is None for run in ran)
    parts = [
        say("{count} right", count=sum(run.right is True for run in ran)),
        say("{count} wrong", count=sum(run.right is False for run in ran)),
        say("{count} failed", count=sum(run.status == "failed" for run in measurements.runs)),
        say("{count} not run", count=sum(run.status not in {"ran", "failed"} for run in measurements.runs)),
        *([say("{count} measured without a reference", count=unchecked)] if unchecked else []),
    ]
    return say(", ").join(parts)


def _devices(measurements: Measurements) -> Iterator[str]:
    """Lines that name the devices; devices of one name and one user share a line."""
    indexes_by_device: dict[tuple[str, str], list[int]] = {}
    for device in measurements.devices:
        indexes_by_device.setdefault((device.name, device.held), []).append(device.index)
    for (name, held), indexes in indexes_by_device.items():
        if name == "CPU":
            yield from wrapped(say("CPU: every kernel small, for its checks"), 0, 2)
            continue
        where = gpus(measurements, indexes) or f"GPU {indexes[0]}"
        if len(indexes) == len(measurements.devices) > 1:
            where = say("{count} GPUs", count=len(indexes))
        used = ", in use by {holder}: left alone; --device cuda:{index} measures it all the same"
        note = say(used, holder=held, index=indexes[0]) if held else ""
        yield from wrapped(say("{title}: {text}", title=where, text=f"{name}{note}"), 0, 2)


def _table(measurements: Measurements, style: Style) -> Iterator[str]:
    """Lines of the table of figures, under headings of rungs: a line for each kernel that ran on some device, or failed
    for a reason that fewer than `WHOLE` runs share. Nothing if there is no such kernel.

    A column per GPU, or minimum, median and maximum for more than `_MOST_COLUMNS` GPUs.
    """
    common_failures = {
        why for why, count in Counter(run.because for run in measurements.runs).items() if why and count >= WHOLE
    }
    kernels = [
        kernel
        for kernel in measurements.kernels
        if any(
            run.status == "ran" or (run.status == "failed" and run.because not in common_failures)
            for run in measurements.of(kernel.id)
        )
    ]
    if not kernels:
        return
    is_summary, with_share = len(measurements.devices) > _MOST_COLUMNS, len(measurements.devices) <= _MOST_WITH_SHARE
    headings = ["min", "med", "max"] if is_summary else [f"{device.index}" for device in measurements.devices]
    cell_width = _CELL_WIDTH + (6 if with_share else 0)
    unit_width = max(len(one_line(kernel.unit)) for kernel in kernels)
    room = WIDTH - 4 - unit_width - len(headings) * cell_width - (14 if is_summary else 0)
    title_width = max(_LEAST_TITLE_WIDTH, min(room, max(len(one_line(kernel.title)) for kernel in kernels)))
    if len(headings) > 1:
        headings[0] = headings[0] if is_summary else f"GPU {headings[0]}"
        yield (
            " " * (title_width + unit_width + 4)
            + "".join(f"{head:>{_CELL_WIDTH - 1}}".ljust(cell_width) for head in headings)
        ).rstrip()
    for rung, name in RUNGS.items():
        on_rung = [kernel for kernel in kernels if kernel.rung == rung]
        yield from [style.paint(say(name), "bold")] if on_rung else []
        for kernel in on_rung:
            cells = (
                _summary_cells(measurements, kernel, style)
                if is_summary
                else _gpu_cells(measurements, kernel, style, with_share)
            )
            unit = one_line(kernel.unit)
            room = title_width + unit_width - len(unit)
            yield f"  {_truncated(kernel.title, room):<{room}} {unit} {cells}".rstrip()


def _legend(measurements: Measurements) -> Iterator[str]:
    """A line that says what ``!`` and ``<`` mean, as far as they are used; nothing if GPUs are summarized."""
    states = {measurements.state(run) for run in measurements.runs if run.value is not None}
    words = [
        f"{_MARKS[state][0]} {say(word)}"
        for state, word in (("wrong", "wrong values"), ("slow", "slow"))
        if state in states
    ]
    if words and len(measurements.devices) <= _MOST_COLUMNS:
        yield f"  {say('({marks})', marks=say(', ').join(words))}"


def _gpu_cells(measurements: Measurements, kernel: Kernel, style: Style, with_share: bool) -> str:
    """One kernel's figures, a cell per device, blank without a run; one cell if it runs on all GPUs together."""
    runs = measurements.of(kernel.id)
    if [run.gpu for run in runs] == [-1]:
        together = f" {say('all together')}" if len(measurements.devices) > 1 else ""
        return _cell(measurements, runs[0], style, with_share) + together
    by_gpu = {run.gpu: run for run in runs}
    blank = " " * (_CELL_WIDTH + (6 if with_share else 0))
    return "".join(
        _cell(measurements, run, style, with_share) if (run := by_gpu.get(device.index)) else blank
        for device in measurements.devices
    )


def _cell(measurements: Measurements, run: Run, style: Style, with_share: bool) -> str:
    """A run's figure with its mark; if it has no figure, a word such as ``right`` or ``fails``.

    `with_share` adds the percentage of the expected value, if known.
    """
    state = measurements.state(run)
    mark, colour = _MARKS.get(state, (" ", ""))
    if run.value is None or run.status != "ran":
        word = say("right") if run.right else say(_WORDS.get(state, "done"))
        cell = f"{' ' * (_CELL_WIDTH - 1 - width(word))}{word} "
    else:
        cell = f"{digits(run.value):>{_CELL_WIDTH - 1}}{mark}"
    if with_share:
        ratio = measurements.ratio(run)
        cell += f"{ratio * 100:4.0f} %" if ratio is not None else " " * 6
    return style.paint(cell, colour) if colour else cell


def _summary_cells(measurements: Measurements, kernel: Kernel, style: Style) -> str:
    """Minimum, median and maximum over the GPUs, then which GPUs are wrong, failed or slow."""
    runs = measurements.of(kernel.id)
    values = [run.value for run in runs if run.value is not None]
    figures = [digits(pick(values)) for pick in (min, median, max)] if values else ["", "", ""]
    odd_gpus: dict[State, list[int]] = {}
    for run in runs:
        if (state := measurements.state(run)) in _MARKS:
            odd_gpus.setdefault(state, []).append(run.gpu)
    marks = [
        style.paint(say("{title}: {text}", title=say(state), text=gpus(measurements, indexes)), _MARKS[state][1])
        for state, indexes in odd_gpus.items()
    ]
    right = "" if values or odd_gpus else say("right") if all(run.right for run in runs if run.status == "ran") else ""
    return "".join(f"{word:>{_CELL_WIDTH - 1}} " for word in figures) + " ".join([*marks, right])


def _truncated(title: str, width: int) -> str:
    """The title on one line; if longer than `width` characters, cut with an ellipsis."""
    plain = one_line(title)
    return plain if len(plain) <= width else f"{plain[: width - 1]}…"


def _problems(measurements: Measurements, style: Style) -> Iterator[str]:
    """Lines for each problem (wrong, failed or slow): kernels, GPUs, reason, layer; runs with the same problem share
    its lines.
    """
    runs_by_problem: dict[tuple[State, str], list[Run]] = {}
    for run in measurements.runs:
        if (state := measurements.state(run)) in _MARKS:
            runs_by_problem.setdefault((state, _problem_text(run, state)), []).append(run)
    for (state, problem), runs in runs_by_problem.items():
        devices = gpus(measurements, [run.gpu for run in runs])
        shares = [round(100 * (measurements.ratio(run) or 0)) for run in runs]
        share = say("{range} % of what was expected", range=_range(shares, str)) if state == "slow" else ""
        kernels = names(measurements, [run.kernel for run in runs])
        lines = wrapped(one_line(f"{_with_devices(kernels, devices)}{say(': ')}{share}{problem}"), 0, 2)
        yield style.paint(lines[0], _MARKS[state][1])
        yield from lines[1:]


def _problem_text(run: Run, state: State) -> str:
    """Why a run is wrong or failed, with its rung and advice; for a slow one what held it back, empty if not known."""
    if state == "slow":
        reasons = ", ".join(run.meanwhile.reasons if run.meanwhile else ())
        return say("; held back by {reasons}", reasons=reasons) if reasons else ""
    step = run.broken
    is_own_rung = step is None or step == run.ladder[-1]
    layer = ""
    if step is not None:
        sentence = " Layer: {layer}." if is_own_rung else " Layer: {layer}, where {what}."
        layer = say(sentence, layer=step.rung, what=step.message)
    is_in_words = run.differ is None or not run.compared or str(run.differ) in run.words
    both = say("{count} of {total} differ", count=f"{run.differ or 0:,}", total=f"{run.compared or 0:,}")
    differ = "" if is_in_words else both
    details = ". ".join(part for part in (differ, run.words.rstrip(".")) if part)
    why = details if state == "wrong" else run.because.rstrip(".") if run.because else ""
    problem = say("wrong values" if state == "wrong" else "failed")
    problem = say("{sentence}.", sentence=say("{title}: {text}", title=problem, text=why) if why else problem)
    return f"{problem.strip()}{layer} {run.advice}".strip()


def _notes(measurements: Measurements) -> Iterator[str]:
    """Lines with what the figures of runs that are not wrong mean, and the advice that follows; runs of one kernel with
    the same note share a line. Then the lines of `_counter_gains`.
    """
    runs_by_note: dict[tuple[str, str, str], list[Run]] = {}
    for run in measurements.runs:
        is_right = run.status == "ran" and measurements.state(run) != "wrong"
        if is_right and (run.words or run.advice):
            runs_by_note.setdefault((run.kernel, run.advice, run.words if not run.advice else ""), []).append(run)
    for (name, advice, _), runs in runs_by_note.items():
        kernel = measurements.kernel(name)
        if not kernel:
            continue
        devices = gpus(measurements, [run.gpu for run in runs])
        values = [run.value for run in runs if run.value is not None]
        value = f" {_range(values, digits)} {kernel.unit}".rstrip() if values else ""
        head = f"{_with_devices(kernel.title, devices)}:{value}".removesuffix(":")
        yield from wrapped(one_line(head + (". " if value else ": ") + runs[0].words).removesuffix(" "), 0, 2)
        if advice:
            yield from wrapped(f"-> {one_line(advice)}", 2, 5)
    yield from _counter_gains(measurements)


def _counter_gains(measurements: Measurements) -> Iterator[str]:
    """For each GPU by how much its error counters rose while its kernels ran: ``GPU 3 meanwhile: 310 ... in 12 s``.

    Nothing for a GPU whose counters did not rise.
    """
    for device in measurements.devices:
        seen = [run.meanwhile for run in measurements.runs if run.gpu == device.index and run.meanwhile]
        gains = {name: sum(getattr(one, name) or 0 for one in seen) for name in COUNTERS}
        parts = [
            say("{count} {errors}", count=f"{gain:,.0f}", errors=say(COUNTERS[name]))
            for name, gain in gains.items()
            if gain
        ]
        if parts:
            seconds = digits(sum(one.seconds or 0 for one in seen))
            sentence = "GPU {index} meanwhile: {gains} in {seconds} s"
            yield from wrapped(say(sentence, index=device.index, gains=say(", ").join(parts), seconds=seconds), 0, 2)


def _range(values: Sequence[float], shown: Callable[[float], str]) -> str:
    """Least and greatest value as `shown` formats them: ``391 to 402``; one of them if both look the same."""
    least, most = shown(min(values)), shown(max(values))
    return least if least == most else say("{least} to {most}", least=least, most=most)


def _with_devices(kernels: str, devices: str) -> str:
    """The kernels' names, and behind them the devices' unless that is empty."""
    return f"{kernels}{say(', ')}{devices}" if devices else kernels


def _not_run(measurements: Measurements) -> Iterator[str]:
    """Lines with each reason why kernels were not run, their names and GPUs; GPUs in use by others are left out."""
    reasons: dict[str, list[Run]] = {}
    held = {device.index for device in measurements.devices if device.held}
    for run in measurements.runs:
        if run.status not in {"ran", "failed"} and run.gpu not in held:
            reasons.setdefault(run.because or say("not begun"), []).append(run)
    if reasons:
        yield say("Not run, because")
    for why, runs in reasons.items():
        yield from wrapped(one_line(why), 2, 4)
        devices = gpus(measurements, [run.gpu for run in runs])
        yield from wrapped(f"-> {_with_devices(names(measurements, [run.kernel for run in runs]), devices)}", 4, 7)


# ---- Which GPUs and which kernels, in words ----

RUNGS: Mapping[Rung, str] = {
    "driver": "Driver alone",
    "torch": "torch",
    "triton": "Triton and torch.compile",
    "nccl": "NCCL",
    "training": "Training readiness",
    "jax": "JAX",
    "tensorflow": "TensorFlow",
}
WHOLE = 3
"""Kernels from which a complete rung is named as one."""


def gpus(measurements: Measurements, indexes: Iterable[int]) -> str:
    """The GPUs of these indexes: ``GPU 5``, ``GPUs 0-3, 6``, ``all GPUs``; empty if `measurements` has fewer than two
    devices, or none of the indexes is one of them.
    """
    shown = sorted(set(indexes) & {device.index for device in measurements.devices})
    if not shown or len(measurements.devices) < 2:
        return ""
    if len(shown) == len(measurements.devices):
        return say("all GPUs")
    parts: list[str] = []
    for index in shown:
        first, _, last = parts[-1].partition("-") if parts else ("", "", "")
        if parts and int(last or first) == index - 1:
            parts[-1] = f"{first}-{index}"
        else:
            parts.append(str(index))
    head = "GPU" if parts == [str(shown[0])] else "GPUs"
    return f"{head} {', '.join(parts)}"


def names(measurements: Measurements, ids: Iterable[str]) -> str:
    """Titles of the kernels with these ids, separated by ``;``. If all of a rung's, at least `WHOLE`, are among them,
    the rung's title and count.

    Kernels that run on each GPU and those that run on all GPUs together count as two rungs.
    """
    wanted = set(ids)
    parts: list[str] = []
    for rung, title in RUNGS.items():
        for on_all in (False, True):
            of_rung = [
                kernel
                for kernel in measurements.kernels
                if kernel.rung == rung and any(run.gpu < 0 for run in measurements.of(kernel.id)) == on_all
            ]
            titles = [kernel.title for kernel in of_rung if kernel.id in wanted]
            parts += (
                [say("{title} ({count} kernels)", title=say(title), count=len(of_rung))]
                if len(titles) == len(of_rung) >= WHOLE
                else titles
            )
    return "; ".join(parts)
