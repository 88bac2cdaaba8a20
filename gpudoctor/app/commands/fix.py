"""``fix``: plan cures, run or only show them (``--dry-run``), list runs (``--runs``), take one back (``--undo``)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from gpudoctor.app import output, pipeline, reading
from gpudoctor.app.commands import apply_plan
from gpudoctor.app.commands.apply_plan import run_plan, settle_unfinished, undo_run
from gpudoctor.app.commands.reports import shared
from gpudoctor.app.output import BROKEN, SOUND, UNKNOWN
from gpudoctor.core import system
from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.errors import UsageError
from gpudoctor.core.language import say
from gpudoctor.core.plan import Foreseen, Plan
from gpudoctor.diagnosis import rulebook
from gpudoctor.fixes import effects, records, undo
from gpudoctor.fixes import plan as plans
from gpudoctor.fixes.permissions import journals_folder, run_mode_of_process, with_hindrances
from gpudoctor.fixes.records import Journals
from gpudoctor.readers import read_file
from gpudoctor.views import fix_run as run_view
from gpudoctor.views import plan as plan_view
from gpudoctor.views._report import counts
from gpudoctor.views._terminal import command, style_of
from gpudoctor.views.plan import SCRIPT_NAME, root_script
from gpudoctor.views.progress import progress_on


def fix(options: argparse.Namespace) -> int:
    """``gpudoctor fix``: plan the fixes of what is found and run them, or list runs or undo one.

    Exit code: 0 nothing is left to fix, or with --dry-run the plan fixes all of it; 1 an error or a step stays, 3 no
    verdict is possible, 130 after Ctrl-C.
    """
    _check_options(options)
    if options.runs:
        return _runs()
    if options.undo:
        return _undo(options)
    if not options.dry_run and options.out != "-":  # else nothing is run
        settle_unfinished(options)
    diagnosis = _diagnosis(options)
    plan = _plan(diagnosis, options)
    if options.dry_run or not plan.steps:
        return _show(diagnosis, plan, options)
    if options.out == "-":
        text = root_script(plan)
        print(text, end="\n" if text else "")
        return BROKEN if text else SOUND

    if options.only == "user":
        _write_script(plan, options.out)
    foreseen = _foreseen(diagnosis, plan, options)
    return max(run_plan(plan, options, _titles(diagnosis), foreseen), _exit_code(diagnosis, plan, options.ids))


def _check_options(options: argparse.Namespace) -> None:
    """Raise UsageError for options that do not go together, or that this user cannot use."""
    if options.read and not options.dry_run:
        raise UsageError(say("--read plans for another machine, on which nothing can be run from here: add --dry-run"))
    if options.share and not options.dry_run:
        raise UsageError(say("--share is for what is shown to others: add --dry-run, which shows the plan"))
    if options.as_owner and not options.dry_run:
        raise UsageError(say("--as-owner only asks: to change that user's environment, run gpudoctor fix as that user"))
    if options.out and options.only != "user":
        raise UsageError(say("-o names the administrator's script, which --only user writes"))
    if options.json and not (options.dry_run or options.yes):
        raise UsageError(say("--json gives the plan with --dry-run, or the run with --yes"))
    if options.ids and (options.runs or options.undo):
        raise UsageError(say("{id}: a run is taken back whole; leave the ids out", id=options.ids[0]))
    if options.only and sys.platform == "win32":
        raise UsageError(
            say(
                "--only {who}: no user of Windows is root; what needs an administrator is left to you",
                who=options.only,
            )
        )
    if options.only == "root" and not system.is_root():
        raise UsageError(say("--only root runs what needs root, which this is not: sudo gpudoctor fix --only root"))


def _write_script(plan: Plan, name: str | None) -> None:
    """Write the steps that need root as a shell script, to `name` or the default name; nothing if there are none."""
    if text := root_script(plan):
        place = name or SCRIPT_NAME
        output.put(text, place)
        sentence = "what needs root is in {place}; an administrator runs it: sudo sh {place}"
        output.put_message(say(sentence, place=place))


def _runs() -> int:
    """Print every run on this machine, the newest first; exit code 0."""
    entries = Journals(journals_folder()).list()
    broken = [f"{entry.id}  {say('cannot be read: {why}', why=entry.trouble)}" for entry in entries if not entry.run]
    listing = run_view.run_list([(entry.run, records.undo_state(entry.run, entries)) for entry in entries if entry.run])
    print("\n".join(filter(None, [listing, *broken])) or say("No run was made on this machine by this user."))
    return SOUND


def _undo(options: argparse.Namespace) -> int:
    """``fix --undo``: take a run back after asking; 0 if all was undone, 130 after Ctrl-C, else 1, as where the user
    declined.
    """
    journals = Journals(journals_folder())
    run = records.last_undoable(journals.list()) if options.undo == "last" else journals.load(options.undo)
    if (unfinished := records.unfinished(journals)) and run.id not in (unfinished.id, unfinished.undoes):
        output.put_message(run_view.interrupted_text(unfinished))
    context = pipeline.run_context(options.level, options.python or records.python_of(run), options.rules)
    plan = undo.plan_of(run, context)
    if not options.yes:
        apply_plan.require_terminal()
    if not options.json:
        print(run_view.undo_text(run, plan), flush=True)
    if not options.yes and not apply_plan.agreed(f"\n{say('Take run {id} back?', id=run.id)}"):
        return BROKEN
    return undo_run(run, context, options.json)


def _show(diagnosis: Diagnosis, plan: Plan, options: argparse.Namespace) -> int:
    """Print the plan and what it would change, or why there is none; nothing is run. Exit code as `_exit_code`."""
    foreseen = _foreseen(diagnosis, plan, options) if plan.steps else None
    code = _exit_code(diagnosis, plan, options.ids)
    diagnosis, plan = shared((diagnosis, plan), options)
    if options.json:
        print(plan_view.document(plan, foreseen))
    elif plan.steps:
        print(plan_view.render(plan, style_of(sys.stdout), foreseen, _titles(diagnosis)))
        print(f"\n{say('This was a dry run: nothing was changed.')}")
    else:
        hint_by_id = {finding.id: command(finding.more) for finding in _findings_to_fix(diagnosis, options.ids)}
        absent = [name for name in options.ids if name not in hint_by_id]
        lines = [say("{name}: not found here, so there is nothing to cure", name=name) for name in absent]
        lines += [
            say("{name}: no cure is written down; {command}", name=name, command=hint_by_id[name])
            for name in sorted(hint_by_id)
        ]
        print("\n".join(lines or [say("Nothing to cure."), "", counts(diagnosis)]))
    return code


def _foreseen(diagnosis: Diagnosis, plan: Plan, options: argparse.Namespace) -> Foreseen:
    """What the rules would say after the whole plan has run, computed without running it."""
    return effects.predict(diagnosis, plan, pipeline.judging(options.rules))


def _diagnosis(options: argparse.Namespace) -> Diagnosis:
    """The diagnosis of this machine or of the file of ``--read``; UsageError for an unknown id or a fleet's file."""
    book = rulebook.load(options.rules)
    for name in options.ids:
        if not book.find(name):
            raise UsageError(say("{name}: there is no such rule; gpudoctor rules list names them all", name=name))
    if options.read:
        diagnosis = reading.diagnose_text(read_file(options.read), options.read, book)
        if diagnosis.snapshot.target.kind == "fleet":
            raise UsageError(
                say("{name}: a fleet's hosts are repaired one by one, by gpudoctor fix on each", name=options.read)
            )
        return diagnosis
    with progress_on(sys.stderr) as progress:
        return pipeline.check(options.level, options.python, options.rules, progress)


def _plan(diagnosis: Diagnosis, options: argparse.Namespace) -> Plan:
    """The plan for the wanted findings, its steps marked with what hinders running them here."""
    made = plans.plan_for(diagnosis, options.ids, root=system.is_root(), judge=pipeline.judging(options.rules))
    return with_hindrances(made, run_mode_of_process(made, "never" if options.yes else "each", options.only))


def _titles(diagnosis: Diagnosis) -> dict[str, str]:
    """Title of the first finding of each rule id."""
    return {finding.id: finding.title for finding in reversed(diagnosis.findings)}


def _findings_to_fix(diagnosis: Diagnosis, ids: Sequence[str]) -> list[Finding]:
    """The findings with these ids; without ids, every error."""
    return [finding for finding in diagnosis.findings if (finding.id in ids if ids else finding.severity == "error")]


def _exit_code(diagnosis: Diagnosis, plan: Plan, ids: Sequence[str]) -> int:
    """Exit code: 1 if one of the findings `ids` (without ids: an error) stays that the plan does not fix, 3 if there is
    neither plan nor verdict, else 0.

    `ids` are the findings that were asked for; with them no verdict is needed.
    """
    fixed = {
        *plan.verifies,
        *(name for finding in diagnosis.findings if finding.id in plan.verifies for name in finding.explains),
    }
    if any(finding.id not in fixed for finding in _findings_to_fix(diagnosis, ids)):
        return BROKEN
    return UNKNOWN if diagnosis.verdict == "unknown" and not plan.steps and not ids else SOUND
