"""The kept checks of a machine, one a line, the newest first; and kept files of many machines, judged again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gpudoctor.core.diagnosis import HISTORY_SCHEMA, Kept, Replay, Replayed
from gpudoctor.core.rule import SEVERITIES
from gpudoctor.views import _report as report
from gpudoctor.views._terminal import PLAIN, Style, joined, one_line, plural, wrapped
from gpudoctor.views.document import line


def render(runs: Sequence[Kept], folder: str, style: Style = PLAIN) -> str:
    """The kept checks as text, in the order given, ending without a newline; a sentence if there are none."""
    if not runs:
        return f"No check of this machine is kept in {one_line(folder)}; gpudoctor check makes one."
    return "\n".join(_lines(runs, folder, style))


def document(runs: Sequence[Kept], folder: str) -> str:
    """The kept checks as a JSON document on one line."""
    return line({"schema": HISTORY_SCHEMA, "folder": folder, "runs": [run.to_json() for run in runs]})


def _lines(runs: Sequence[Kept], folder: str, style: Style) -> Iterator[str]:
    """A heading; a line per check, and below it the check's Python if the checks ran with different ones; then the
    count and hints.
    """
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
    """``ID and 2 more`` of the check's errors and warnings (``-`` without any), and its command in parentheses.

    A check that cannot be read has only its trouble, in parentheses.
    """
    if run.trouble:
        return f"({run.trouble})"
    command = f"  ({run.command})" if run.command else ""
    ids = [finding["id"] for finding in run.findings if finding["severity"] in SEVERITIES[:2]]
    first = f"{ids[0]} and {len(ids) - 1} more" if len(ids) > 1 else ids[0] if ids else "-"
    return first + command


# ---- ``replay`` ----

_MOST_MACHINES, _MOST_UNREAD = 40, 5


def replay_document(found: Replay) -> str:
    """The kept files judged again, as a JSON document on one line."""
    return line(found.to_json())


@joined
def replay(found: Replay, style: Style = PLAIN) -> Iterator[str]:
    """How many machines would have been drained by kept files judged again, as one text.

    A line per drained machine with its first cause, those with the most drained files first; then causes by frequency,
    and files that could not be read.
    """
    by_machine: dict[str, list[Replayed]] = {}
    for one in found.files:
        by_machine.setdefault(one.machine, []).append(one)
    ill = {name: [one for one in files if one.drained] for name, files in by_machine.items()}
    drained = sorted((name for name in ill if ill[name]), key=lambda name: (-len(ill[name]), name))
    read = [one for one in found.files if not one.trouble]
    held = f", held to {found.profile}" if found.profile else ""
    of = f"{plural(len(read), 'file')} of {plural(len(by_machine), 'machine')}{held}"
    head = f"{plural(len(drained), 'machine')} would have been drained: by {len(found.drained)} of {of}"
    yield from (style.paint(row, "bold") for row in wrapped(head, 0, 2))
    for name in drained[:_MOST_MACHINES]:
        first = min(ill[name], key=lambda one: one.at)
        cause, title = first.causes[0] if first.causes else ("", "")
        share = f"{len(ill[name])} of {len(by_machine[name])}, first {first.at}"
        yield from wrapped(one_line(f"{name}: {share}, {cause}: {title}"), 2, 4)
    if len(drained) > _MOST_MACHINES:
        yield f"  and {len(drained) - _MOST_MACHINES} more"
    causes = Counter(cause for one in found.drained for cause, _ in one.causes)
    if causes:
        yield from wrapped(f"Causes: {', '.join(f'{name} ({count})' for name, count in causes.most_common())}", 0, 2)
    unread = [one for one in found.files if one.trouble]
    for one in unread[:_MOST_UNREAD]:
        yield from wrapped(one_line(f"Not read: {one.trouble}"), 0, 2)
    if len(unread) > _MOST_UNREAD:
        yield f"and {len(unread) - _MOST_UNREAD} more files that could not be read"
