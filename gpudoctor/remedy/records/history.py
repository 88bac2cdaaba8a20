"""What earlier runs mean for the next one: which was ended from outside, and which can still be taken back."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoctor.model.errors import UsageError
from gpudoctor.model.run import Run
from gpudoctor.remedy.records import locks
from gpudoctor.remedy.records.journal import Entry, Journals


def unfinished(journals: Journals) -> Run | None:
    """The newest run, where something ended it from outside: neither is it under way nor was anything run since."""
    run = next((entry.run for entry in journals.list() if entry.run), None)
    return run if run and not run.over and not locks.taken(locks.of_machine(journals.folder)) else None


def last(entries: Sequence[Entry]) -> Run:
    """The newest run that can be taken back; raises `UsageError` where there is none."""
    for entry in entries:
        if entry.run and way_back(entry.run, entries) == POSSIBLE:
            return entry.run
    raise UsageError("there is no run to take back; gpudoctor fix --runs lists them all")


POSSIBLE = "can be taken back"


def way_back(run: Run, entries: Sequence[Entry]) -> str:
    """Whether that run can be taken back, in words."""
    if run.undoes:
        return ""
    if any(entry.run and entry.run.undoes == run.id and entry.run.outcome == "undone" for entry in entries):
        return "was taken back"
    return POSSIBLE if run.changed or not run.over else "changed nothing"


def python_of(run: Run) -> str | None:
    """The interpreter of the environment that the run changed, None where it changed none."""
    return f"{run.plan.environment}/bin/python" if run.plan.environment else None
