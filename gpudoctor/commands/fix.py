"""Cures: ``fix``, its dry run, its runs and the way back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpudoctor.commands.exits import BROKEN, SOUND, UNKNOWN
from gpudoctor.commands.sharing import shared
from gpudoctor.model.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from gpudoctor.model.diagnosis import Diagnosis, Finding
    from gpudoctor.model.foreseen import Foreseen
    from gpudoctor.model.plan import Plan
    from gpudoctor.remedy.records.journal import Journals


def fix(options: argparse.Namespace) -> int:
    _refuse_nonsense(options)
    if options.runs:
        return _runs()
    if options.undo:
        return _undo(options)
    if options.dry_run:
        return _dry_run(options)
    if options.out != "-":  # else nothing is run
        from gpudoctor.commands.running import settle_unfinished

        settle_unfinished(options)
    diagnosis = _diagnosed(options)
    plan = _planned(diagnosis, options)
    if not plan.steps:
        return _told(diagnosis, plan, options)
    if options.out == "-":
        return _script_alone(plan)
    from gpudoctor.commands.running import run_plan

    if options.only == "user":
        _write_script(plan, options.out)
    foreseen = _foreseen(diagnosis, plan, options)
    return max(run_plan(plan, options, _titles(diagnosis), foreseen), _code(diagnosis, plan, options.ids))


def _refuse_nonsense(options: argparse.Namespace) -> None:
    from gpudoctor.remedy import allowed

    if options.read and not options.dry_run:
        raise UsageError("--read plans for another machine, on which nothing can be run from here: add --dry-run")
    if options.share and not options.dry_run:
        raise UsageError("--share is for what is shown to others: add --dry-run, which shows the plan")
    if options.as_owner and not options.dry_run:
        raise UsageError("--as-owner only asks: to change that user's environment, run gpudoctor fix as that user")
    if options.out and options.only != "user":
        raise UsageError("-o names the administrator's script, which --only user writes")
    if options.json and not (options.dry_run or options.yes):
        raise UsageError("--json gives the plan with --dry-run, or the run with --yes")
    if options.ids and (options.runs or options.undo):
        raise UsageError(f"{options.ids[0]}: a run is taken back whole; leave the ids out")
    if options.only == "root" and not allowed.is_root():
        raise UsageError("--only root runs what needs root, which this is not: sudo gpudoctor fix --only root")


def _write_script(plan: Plan, name: str | None) -> None:
    """What needs root, for an administrator, where there is any."""
    from gpudoctor import output
    from gpudoctor.views import script

    if text := script.render(plan):
        place = name or script.NAME
        output.put(text, place)
        print(f"gpudoctor: what needs root is in {place}; an administrator runs it: sudo sh {place}", file=sys.stderr)


def _script_alone(plan: Plan) -> int:
    """Nothing but the script, for a pipe; nothing is run."""
    from gpudoctor.views import script

    text = script.render(plan)
    print(text, end="\n" if text else "")
    return BROKEN if text else SOUND


def _journals() -> Journals:
    from gpudoctor.remedy.records.journal import Journals
    from gpudoctor.remedy.site import state_folder

    return Journals(state_folder())


def _runs() -> int:
    """Every run there was, the newest first."""
    from gpudoctor.remedy.records import history
    from gpudoctor.views import run

    entries = _journals().list()
    broken = [f"{entry.id}  cannot be read: {entry.trouble}" for entry in entries if not entry.run]
    said = run.listed([(one.run, history.way_back(one.run, entries)) for one in entries if one.run])
    print("\n".join(filter(None, [said, *broken])) or "No run was made on this machine by this user.")
    return SOUND


def _undo(options: argparse.Namespace) -> int:
    from gpudoctor import doctor
    from gpudoctor.commands import asking
    from gpudoctor.commands.running import taken_back
    from gpudoctor.remedy import undo
    from gpudoctor.remedy.records import history
    from gpudoctor.views import run as views

    journals = _journals()
    run = history.last(journals.list()) if options.undo == "last" else journals.load(options.undo)
    if (found := history.unfinished(journals)) and run.id not in (found.id, found.undoes):
        print(f"gpudoctor: {views.was_ended(found)}", file=sys.stderr)
    site = doctor.site(options.level, options.python or history.python_of(run), options.rules)
    plan = undo.plan_of(run, site)
    if not options.yes:
        asking.require_terminal()
    if not options.json:
        print(views.taking_back(run, plan), flush=True)
    if not options.yes and not asking.agreed(f"\nTake run {run.id} back?"):
        return BROKEN
    return taken_back(run, site, options.json)


def _dry_run(options: argparse.Namespace) -> int:
    diagnosis = _diagnosed(options)
    return _told(diagnosis, _planned(diagnosis, options), options)


def _told(diagnosis: Diagnosis, plan: Plan, options: argparse.Namespace) -> int:
    """The plan, or why there is none; nothing is run."""
    from gpudoctor.views import plan as views
    from gpudoctor.views._terminal import style_of

    foreseen = _foreseen(diagnosis, plan, options) if plan.steps else None
    code = _code(diagnosis, plan, options.ids)
    diagnosis, plan = shared((diagnosis, plan), options)
    if options.json:
        print(views.document(plan, foreseen))
    elif plan.steps:
        print(views.render(plan, style_of(sys.stdout), foreseen, _titles(diagnosis)))
        print("\nThis was a dry run: nothing was changed.")
    else:
        print(_nothing(diagnosis, options.ids))
    return code


def _foreseen(diagnosis: Diagnosis, plan: Plan, options: argparse.Namespace) -> Foreseen:
    """What the rules would say with all of the plan done."""
    from gpudoctor import doctor
    from gpudoctor.remedy import effects

    return effects.foreseen(diagnosis, plan, doctor.judging(options.rules))


def _diagnosed(options: argparse.Namespace) -> Diagnosis:
    from gpudoctor import doctor, rulebook
    from gpudoctor.readers import read_file
    from gpudoctor.views.progress import progress_on

    book = rulebook.load(options.rules)
    for name in options.ids:
        if not book.find(name):
            raise UsageError(f"{name}: there is no such rule; gpudoctor rules list names them all")
    if options.read:
        told = doctor.judged(read_file(options.read), options.read, book)
        if told.snapshot.target.kind == "fleet":
            raise UsageError(f"{options.read}: a fleet's hosts are repaired one by one, by gpudoctor fix on each")
        return told
    with progress_on(sys.stderr) as progress:
        return doctor.check(options.level, options.python, options.rules, progress)


def _planned(diagnosis: Diagnosis, options: argparse.Namespace) -> Plan:
    from gpudoctor import doctor
    from gpudoctor.remedy import allowed, plan

    made = plan.of(diagnosis, options.ids, root=allowed.is_root(), judge=doctor.judging(options.rules))
    return allowed.hindered(made, allowed.here(made, "never" if options.yes else "each", options.only))


def _titles(diagnosis: Diagnosis) -> dict[str, str]:
    return {finding.id: finding.title for finding in reversed(diagnosis.findings)}


def _wanted(diagnosis: Diagnosis, ids: Sequence[str]) -> list[Finding]:
    """The findings that are to be cured: those of these ids, else every error."""
    return [one for one in diagnosis.findings if (one.id in ids if ids else one.severity == "error")]


def _nothing(diagnosis: Diagnosis, ids: Sequence[str]) -> str:
    """Why there is no plan."""
    from gpudoctor.views._report import counts
    from gpudoctor.views._terminal import command

    found = {finding.id: command(finding.more) for finding in _wanted(diagnosis, ids)}
    absent = [name for name in ids if name not in found]
    said = [f"{name}: not found here, so there is nothing to cure" for name in absent]
    said += [f"{name}: no cure is written down; {found[name]}" for name in sorted(found)]
    return "\n".join(said or ["Nothing to cure.", "", counts(diagnosis)])


def _code(diagnosis: Diagnosis, plan: Plan, ids: Sequence[str]) -> int:
    """1 where an error is found that the plan does not cure, 3 where nothing is planned for want of a verdict."""
    cured = {*plan.verifies, *(name for one in diagnosis.findings if one.id in plan.verifies for name in one.explains)}
    if any(one.id not in cured for one in _wanted(diagnosis, ids)):
        return BROKEN
    return UNKNOWN if diagnosis.verdict == "unknown" and not plan.steps and not ids else SOUND
