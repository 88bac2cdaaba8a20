"""The kept checks of a machine, one a line, the newest first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from gpudoctor.model.kept import SCHEMA, Kept
from gpudoctor.model.rule import SEVERITIES
from gpudoctor.views._terminal import Style, one_line

_COLOURS = {"sound": "green", "impaired": "yellow", "broken": "red", "unknown": "yellow"}


def render(runs: Sequence[Kept], folder: str, style: Style | None = None) -> str:
    """The list, ending without a newline."""
    if not runs:
        return f"No check of this machine is kept in {one_line(folder)}; gpudoctor check makes one."
    return "\n".join(_lines(runs, folder, style or Style()))


def document(runs: Sequence[Kept], folder: str) -> str:
    """The same as JSON, on one line."""
    said = {"schema": SCHEMA, "folder": folder, "runs": [run.to_json() for run in runs]}
    return json.dumps(said, ensure_ascii=True, separators=(",", ":"))


def _lines(runs: Sequence[Kept], folder: str, style: Style) -> Iterator[str]:
    pythons = len({run.python for run in runs if run.python}) > 1
    yield style.paint(f"{'RUN':<20}{'LEVEL':<10}{'VERDICT':<10}FIRST FINDING", "bold")
    for run in runs:
        verdict = style.paint(f"{run.verdict:<10}", _COLOURS.get(run.verdict, "dim"))
        yield f"{run.id:<20}{run.level:<10}{verdict}{one_line(_said(run))}"
        if pythons and run.python:
            yield style.paint(f"{'':<20}{one_line(run.python)}", "dim")
    yield ""
    yield f"{len(runs)} kept in {one_line(folder)}; times are UTC"
    yield "What changed since it worked: gpudoctor diff --last-good; since a run: gpudoctor diff RUN"


def _said(run: Kept) -> str:
    """The finding to act on first, by its id, and how many more there are; of mere information nothing."""
    if run.trouble:
        return f"({run.trouble})"
    ids = [one["id"] for one in run.findings if one["severity"] in SEVERITIES[:2]]
    return f"{ids[0]} and {len(ids) - 1} more" if len(ids) > 1 else ids[0] if ids else "-"
