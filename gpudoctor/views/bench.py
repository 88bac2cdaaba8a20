"""Measurements as a table for a terminal or a pipe: a kernel a line, a GPU a column, and what is wrong below."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from gpudoctor.model.measurement import Kernel, Measurements, Run
from gpudoctor.views._terminal import Style, one_line, wrapped

_WORDS = {"wrong": "WRONG", "failed": "FAILED", "unjudged": "-", "waiting": "…", "running": "…"}


def render(found: Measurements, style: Style) -> str:
    """All of it as text."""
    return "\n".join([*_table(found, style), "", *_notes(found)])


def document(found: Measurements) -> str:
    """The JSON document."""
    return json.dumps(found.to_json(), ensure_ascii=True, indent=1)


def listed(kernels: Sequence[Kernel]) -> str:
    """Every kernel, one a line."""
    return "\n".join(f"{one.id:<28} {one.level:<9} {one.title}" for one in kernels)


def _table(found: Measurements, style: Style) -> Iterator[str]:
    for device in found.devices:
        held = f", in use by {device.held}: not measured" if device.held else ""
        yield one_line(f"{'CPU' if device.name == 'CPU' else f'GPU {device.index}: {device.name}'}{held}")
    yield ""
    for kernel in found.kernels:
        cells = "  ".join(_cell(found, run, style) for run in found.of(kernel.id))
        yield f"{one_line(kernel.title):<28} {one_line(kernel.unit):>8}  {cells}".rstrip()


def _cell(found: Measurements, run: Run, style: Style) -> str:
    state = found.state(run)
    if run.value is None:
        word = f"{'right' if run.right else _WORDS.get(state, state):>10}"
        return style.paint(word, "red") if state in {"wrong", "failed"} else word
    mark = {"wrong": "!", "slow": "<"}.get(state, " ")
    return f"{run.value:>9.4g}{mark}"


def _notes(found: Measurements) -> Iterator[str]:
    for run in found.runs:
        said = run.because if run.status != "ran" else " ".join(part for part in (run.words, run.advice) if part)
        if said:
            where = f" on GPU {run.gpu}" if len(found.devices) > 1 and run.gpu >= 0 else ""
            state = "" if run.status == "ran" else f"{run.status}, "
            yield from wrapped(f"{run.kernel}{where}: {state}{one_line(said)}", 0, 2)
