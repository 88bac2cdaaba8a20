"""``setup torch``; ``setup driver``, ``cuda-toolkit`` and ``container``: what to install so that it works here."""

from __future__ import annotations

import argparse
import re
import sys

from gpudoctor.app import output, pipeline
from gpudoctor.app.commands.apply_plan import run_plan, settle_unfinished
from gpudoctor.app.commands.reports import shared
from gpudoctor.app.output import BROKEN, SOUND
from gpudoctor.core import system
from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import Known
from gpudoctor.core.frozen import replace
from gpudoctor.core.language import say
from gpudoctor.core.plan import Plan
from gpudoctor.core.rule import SetupPage
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.stack import Stack, Wishes, parse_requirements, wishes_from_snapshot
from gpudoctor.diagnosis.judge import new_evaluator
from gpudoctor.diagnosis.judge.cures import setup_options
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.diagnosis.knowledge.setup_facts import with_setup_facts
from gpudoctor.diagnosis.rulebook.compiled import setups
from gpudoctor.fixes.plan import setup_plan
from gpudoctor.fixes.solver import described_machine, environment, index, stacks
from gpudoctor.fixes.solver.environment import Environment
from gpudoctor.fixes.solver.install_commands import BASE
from gpudoctor.views import plan as plans
from gpudoctor.views import stack as view
from gpudoctor.views._terminal import command, one_line, style_of, wrapped
from gpudoctor.views.progress import progress_on

_TOOLS = ("pip", "uv", "conda")


def setup_torch(options: argparse.Namespace) -> int:
    """``gpudoctor setup torch``: print the torch stack that fits, or with --apply install it after asking.

    Exit code 1 if none fits or a step fails, else 0. Raises `UsageError` for options that do not go together.
    """
    _refuse_together(options)
    if options.json and options.emit:
        raise UsageError(say("--json is the whole stack, --emit one form of it alone: leave one out"))
    if options.apply and (options.emit or options.json):
        raise UsageError(say("--apply installs the stack and tells of it; --emit and --json only print it"))
    if options.apply:
        settle_unfinished(options)
    shelves = replace(index.user_indexes(options.index or BASE), ask=not options.offline)
    snapshot, wishes, environment = _environment(options)
    stack = stacks.stack(wishes, environment, shelves)
    if options.share:
        stack, environment = shared((stack, environment), options)
    if options.json:
        print(view.document(stack))
    elif options.emit:
        _print_form(stack, options.emit)
    else:
        print(view.render(stack, environment.tool, style_of(sys.stdout)))
    if not stack.torch:
        return BROKEN
    return _apply(stack, environment, snapshot, options) if options.apply and snapshot else SOUND


def _refuse_together(options: argparse.Namespace) -> None:
    """Raise UsageError for --for with --apply or --python, --share with --apply, and --yes without --apply."""
    if options.machine and options.apply:
        raise UsageError(say("--for plans for a machine that is not here, --apply changes this one: leave one out"))
    if options.machine and options.python:
        raise UsageError(say("--python names an interpreter of this machine; for another one: --for python=3.12"))
    if options.share and options.apply:
        raise UsageError(say("--share is for what is shown to others, --apply changes this machine: leave one out"))
    if options.yes and not options.apply:
        raise UsageError(say("--yes goes with --apply: without it nothing is changed"))


def _environment(options: argparse.Namespace) -> tuple[Snapshot | None, Wishes, Environment]:
    """The snapshot, the wishes, and the environment to install into; for a machine described by --for None first."""
    if options.machine:
        wishes = described_machine.parse_machine(options.machine)
        described_machine.refuse_unknown_gpus(wishes)
        elsewhere = environment.Environment(windows=wishes.os == "windows")
        return None, replace(wishes, wants=_wanted(options)), elsewhere

    with progress_on(sys.stderr) as progress:
        snapshot = complete(pipeline.look("quick", options.python, progress))
    here = environment.environment_of_snapshot(snapshot)
    companions = () if here.new else tuple(name for name in environment.COMPANIONS if name in here.installed)
    return snapshot, replace(wishes_from_snapshot(snapshot), extras=companions, wants=_wanted(options)), here


def _wanted(options: argparse.Namespace) -> tuple[str, ...]:
    """The requirements of all ``--want``, one a string, split at blanks and ``;``; none is checked here."""
    return tuple(spec for text in options.want for spec in parse_requirements(text))


def _print_form(stack: Stack, form: str) -> None:
    """Print the stack in one form alone, its remarks on standard error; raises UsageError if it has no such form. Where
    no torch fits, only the explanation is printed, on standard error.
    """
    if not stack.torch:
        print(view.render(stack, form, style_of(sys.stderr)), file=sys.stderr)
        return
    text = stack.written(form, "command") if form in _TOOLS else stack.written("", form)
    if not text:
        why = next((remark for remark in stack.remarks if "conda-forge" in remark), "")
        none = say("--emit {form}: there is none for torch {version}", form=form, version=stack.torch)
        raise UsageError(f"{none}{say('; ')}{why}" if why else none)
    for remark in stack.remarks:
        output.put_message(one_line(remark))
    print(text.rstrip("\n"))


def _apply(stack: Stack, environment: Environment, snapshot: Snapshot, options: argparse.Namespace) -> int:
    """Install the stack by running its commands as a plan, after asking; the run's exit code.

    If it is installed already, nothing is run: 0.
    """
    if all(environment.installed.get(name) == version for name, version in stack.packages) and not environment.new:
        print(f"\n{say('This is what is installed: there is nothing to install.')}")
        return SOUND
    plan = stack.plan(environment.tool, snapshot.target.name, environment.prefix)
    return int(run_plan(plan, options))


# ---- What an administrator sets up ----
# Driver, toolkit, container support: by the pages of rules/setup.


def setup_system(options: argparse.Namespace) -> int:
    """``gpudoctor setup driver`` (or cuda-toolkit, container): print the plan, or with --apply run it after asking.

    Exit code 1 if this system has none or a step fails, else 0. Raises `UsageError` for options that do not go
    together.
    """
    _refuse_together(options)
    if options.apply and options.dry_run:
        raise UsageError(say("--dry-run changes nothing, --apply does: leave one out"))
    if options.cuda and not re.fullmatch(r"\d{1,2}\.\d{1,2}", options.cuda):
        raise UsageError(say("--cuda {cuda} is no CUDA release; it is written 12.8", cuda=repr(options.cuda[:20])))
    if options.apply:
        settle_unfinished(options)
    page = setups()[options.what]
    wishes = described_machine.parse_machine(options.machine) if options.machine else None
    if wishes:
        described_machine.refuse_unknown_gpus(wishes)
    snapshot = _with_cuda(_described(wishes) if wishes else _this_machine(options), options.cuda)
    plan = _system_plan(page, snapshot)
    if not plan.steps:
        missing = _missing_key(page, wishes, options.cuda) if wishes else ""
        print(missing or _why_no_plan(page, snapshot), file=sys.stderr)
        return BROKEN
    if options.apply:
        return int(run_plan(plan, options))
    assumed = described_machine.assumption_remark(wishes) if wishes else ""
    plan = shared(replace(plan, remarks=(*plan.remarks, assumed)) if assumed else plan, options)
    if options.json:
        print(plans.document(plan))
    else:
        print(plans.render(plan, style_of(sys.stdout)))
        print(f"\n{say('This was a dry run: nothing was changed.')}")
    return SOUND


def _described(wishes: Wishes) -> Snapshot:
    """The snapshot of the machine that ``--for`` describes, of the usual system and architecture if not given."""
    return complete(described_machine.snapshot_of(described_machine.with_usual_platform(wishes)))


def _this_machine(options: argparse.Namespace) -> Snapshot:
    """The snapshot of this machine."""
    with progress_on(sys.stderr) as progress:
        return complete(pipeline.look(options.level, options.python, progress))


def _with_cuda(snapshot: Snapshot, cuda: str) -> Snapshot:
    """The snapshot with that release as torch's CUDA; unchanged for ``""``."""
    return replace(snapshot, facts={**snapshot.facts, "torch.cuda": Known(cuda, "--cuda")}) if cuda else snapshot


def _system_plan(page: SetupPage, snapshot: Snapshot) -> Plan:
    """The page's plan for the machine; without steps if no way is known."""
    fixes = [fix for _, fix in setup_options(page.id, snapshot, new_evaluator(snapshot))]
    return setup_plan(page, fixes, snapshot, system.is_root())


def _missing_key(page: SetupPage, wishes: Wishes, cuda: str) -> str:
    """Text that names what ``--for`` does not give where a plan depends on it alone, with the completed command; ``""``
    if no single key would do.
    """
    for what, completed in described_machine.completions(wishes):
        if _system_plan(page, _with_cuda(_described(completed), cuda)).steps:
            machine = described_machine.given_text(described_machine.with_usual_platform(completed))
            argv = ["gpudoctor", "setup", page.id, "--for", machine, *(("--cuda", cuda) if cuda else ())]
            depends = "{title}: it depends on {what}, which --for does not give. For example:"
            return f"{say(depends, title=page.title, what=what)}\n    $ {command(argv)}"
    return ""


def _why_no_plan(page: SetupPage, snapshot: Snapshot) -> str:
    """Text that says that no way is known here, what the GPUs need where known, and the page's sources."""
    facts = with_setup_facts(snapshot)

    def shown(name: str) -> str:
        """The fact's text on one line, empty if it is not known."""
        return one_line(facts.text(name))

    where = f"{shown('host.distribution')} {shown('host.distribution_version')}".strip() or say("this system")
    needs = {
        "A driver from branch {value} on serves these GPUs, and torch's CUDA.": shown("setup.floor"),
        "The last branch that serves all of these GPUs is {value}.": shown("setup.ceiling"),
        "They take the {value} kernel modules.": shown("setup.modules"),
        "The CUDA release to build for is {value}.": shown("setup.cuda"),
    }
    lines = [
        say("{title}: no way is known for {system}.", title=page.title, system=where),
        *(say(sentence, value=value) for sentence, value in needs.items() if value),
        say("How it is done elsewhere:"),
        *(row for source in page.sources for row in wrapped(f"- {source}", 2, 4)),
    ]
    return "\n".join(lines)
