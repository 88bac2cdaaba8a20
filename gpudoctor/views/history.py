"""The kept checks of a machine, one a line, the newest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.core.diagnosis import HISTORY_SCHEMA, Kept
from gpudoctor.core.rule import SEVERITIES
from gpudoctor.views import _report as report
from gpudoctor.views._terminal import Style, one_line
from gpudoctor.views.document import line


def render(runs: Sequence[Kept], folder: str, style: Style | None = None) -> str:
    """The list of kept checks, newest first as given, ending without a newline; a sentence where there are none."""
    if not runs:
        return f"No check of this machine is kept in {one_line(folder)}; gpudoctor check makes one."
    return "\n".join(_lines(runs, folder, style or Style()))


def document(runs: Sequence[Kept], folder: str) -> str:
    """The list of kept checks as JSON, on one line."""
    content = {"schema": HISTORY_SCHEMA, "folder": folder, "runs": [run.to_json() for run in runs]}
    return line(content)


def _lines(runs: Sequence[Kept], folder: str, style: Style) -> Iterator[str]:
    """A line per run; each run's Python below it where they differ; then the count and hints."""
    many_pythons = len({run.python for run in runs if run.python}) > 1
    yield style.paint(f"{'RUN':<20}{'LEVEL':<10}{'VERDICT':<10}FIRST FINDING", "bold")
    for run in runs:
        verdict = style.paint(f"{run.verdict:<10}", report.VERDICT_COLOURS.get(run.verdict, "dim"))
        yield f"{run.id:<20}{run.level:<10}{verdict}{one_line(_first_finding(run))}"
        if many_pythons and run.python:
            yield style.paint(f"{'':<20}{one_line(run.python)}", "dim")
    yield ""
    yield f"{len(runs)} kept in {one_line(folder)}; times are UTC"
    yield "What changed since it worked: gpudoctor diff --last-good; since a run: gpudoctor diff RUN"


def _first_finding(run: Kept) -> str:
    """``ID and 2 more`` of its errors and warnings, ``-`` without any; in parentheses its command, or the trouble."""
    if run.trouble:
        return f"({run.trouble})"
    command = f"  ({run.command})" if run.command else ""
    ids = [finding["id"] for finding in run.findings if finding["severity"] in SEVERITIES[:2]]
    first = f"{ids[0]} and {len(ids) - 1} more" if len(ids) > 1 else ids[0] if ids else "-"
    return first + command
