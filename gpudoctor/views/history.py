"""The kept checks of a machine, one a line, the newest first; and kept files of many machines, judged again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gpudoctor.core.diagnosis import HISTORY_SCHEMA, Kept, Replay, Replayed
from gpudoctor.core.language import say
from gpudoctor.core.rule import SEVERITIES
from gpudoctor.views import _report as report
from gpudoctor.views._terminal import PLAIN, Style, joined, one_line, padded, wrapped
from gpudoctor.views.document import line


def render(runs: Sequence[Kept], folder: str, style: Style = PLAIN) -> str:
    """The kept checks as text, in the order given, ending without a newline; a sentence if there are none."""
    if not runs:
        none = "No check of this machine is kept in {folder}; gpudoctor check makes one."
        return say(none, folder=one_line(folder))
    return "\n".join(_lines(runs, folder, style))


def document(runs: Sequence[Kept], folder: str) -> str:
    """The kept checks as a JSON document on one line."""
    return line({"schema": HISTORY_SCHEMA, "folder": folder, "runs": [run.to_json() for run in runs]})


def _lines(runs: Sequence[Kept], folder: str, style: Style) -> Iterator[str]:
    """A heading; a line per check, and below it the check's Python if the checks ran with different ones; then the
    count and hints.
    """
    many_pythons = len({run.python for run in runs if run.python}) > 1
    heads = (padded(say("RUN"), 20), padded(say("LEVEL"), 10), padded(say("VERDICT"), 10), say("FIRST FINDING"))
    yield style.paint("".join(heads), "bold")
    for run in runs:
        verdict = style.paint(padded(say(run.verdict), 10), report.VERDICT_COLOURS.get(run.verdict, "dim"))
        yield f"{run.id:<20}{run.level:<10}{verdict}{one_line(_first_finding(run))}"
        if many_pythons and run.python:
            yield style.paint(f"{'':<20}{one_line(run.python)}", "dim")
    yield ""
    yield say("{count} kept in {folder}; times are UTC", count=len(runs), folder=one_line(folder))
    yield say("What changed since it worked: gpudoctor diff --last-good; since a run: gpudoctor diff RUN")


def _first_finding(run: Kept) -> str:
    """``ID and 2 more`` of the check's errors and warnings (``-`` without any), and its command in parentheses.

    A check that cannot be read has only its trouble, in parentheses.
    """
    if run.trouble:
        return say("({marks})", marks=run.trouble)
    command = f"  ({run.command})" if run.command else ""
    ids = [finding["id"] for finding in run.findings if finding["severity"] in SEVERITIES[:2]]
    more = say(" and {count} more", count=len(ids) - 1) if len(ids) > 1 else ""
    return (ids[0] if ids else "-") + more + command


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
    held = say(", held to {profile}", profile=found.profile) if found.profile else ""
    of = say("{files} of {machines}", files=_files(len(read)), machines=_machines(len(by_machine)))
    head = say(
        "{machines} would have been drained: by {count} of {files}{held}",
        machines=_machines(len(drained)),
        count=len(found.drained),
        files=of,
        held=held,
    )
    yield from (style.paint(row, "bold") for row in wrapped(head, 0, 2))
    for name in drained[:_MOST_MACHINES]:
        first = min(ill[name], key=lambda one: one.at)
        cause, title = first.causes[0] if first.causes else ("", "")
        drains = say(
            "{name}: {some} of {count}, first {time}, {cause}: {title}",
            name=name,
            some=len(ill[name]),
            count=len(by_machine[name]),
            time=first.at,
            cause=cause,
            title=title,
        )
        yield from wrapped(one_line(drains), 2, 4)
    if len(drained) > _MOST_MACHINES:
        yield f"  {say('and {count} more', count=len(drained) - _MOST_MACHINES)}"
    causes = Counter(cause for one in found.drained for cause, _ in one.causes)
    if causes:
        counted = ", ".join(f"{name} ({count})" for name, count in causes.most_common())
        yield from wrapped(say("Causes: {names}", names=counted), 0, 2)
    unread = [one for one in found.files if one.trouble]
    for one in unread[:_MOST_UNREAD]:
        yield from wrapped(one_line(say("Not read: {why}", why=one.trouble)), 0, 2)
    if len(unread) > _MOST_UNREAD:
        yield say("and {count} more files that could not be read", count=len(unread) - _MOST_UNREAD)


def _files(count: int) -> str:
    """The count with its noun: ``1 file``, ``3 files``."""
    return say("{count} file" if count == 1 else "{count} files", count=count)


def _machines(count: int) -> str:
    """The count with its noun: ``1 machine``, ``3 machines``."""
    return say("{count} machine" if count == 1 else "{count} machines", count=count)
