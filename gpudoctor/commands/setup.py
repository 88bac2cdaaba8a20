"""What to install: ``setup torch``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpudoctor.commands.exits import BROKEN, SOUND
from gpudoctor.commands.sharing import shared
from gpudoctor.model.errors import UsageError
from gpudoctor.model.frozen import replace

if TYPE_CHECKING:
    import argparse

    from gpudoctor.model.snapshot import Snapshot
    from gpudoctor.model.stack import Stack, Wishes
    from gpudoctor.setup.environment import Environment

_TOOLS = ("pip", "uv", "conda")


def torch(options: argparse.Namespace) -> int:
    from gpudoctor.setup import stacks, verified
    from gpudoctor.setup.emit import BASE
    from gpudoctor.views import stack as view
    from gpudoctor.views._terminal import style_of

    _refuse_nonsense(options)
    if options.apply:
        from gpudoctor.commands.running import settle_unfinished

        settle_unfinished(options)
    shelves = replace(verified.of_the_user(options.index or BASE), ask=not options.offline)
    snapshot, wishes, environment = _machine(options)
    stack = stacks.stack(wishes, environment, shelves)
    if options.share:
        stack, environment = shared((stack, environment), options)
    if options.json:
        print(view.document(stack))
    elif options.emit:
        _emit(stack, options.emit)
    else:
        print(view.render(stack, environment.tool, style_of(sys.stdout)))
    if not stack.torch:
        return BROKEN
    return _apply(stack, environment, snapshot, options) if options.apply and snapshot else SOUND


def _refuse_nonsense(options: argparse.Namespace) -> None:
    if options.machine and options.apply:
        raise UsageError("--for plans for a machine that is not here, --apply installs on this one: leave one out")
    if options.machine and options.python:
        raise UsageError("--python names an interpreter of this machine; for another one: --for python=3.12")
    if options.json and options.emit:
        raise UsageError("--json is the whole stack, --emit one form of it alone: leave one out")
    if options.apply and (options.emit or options.json):
        raise UsageError("--apply installs the stack and tells of it; --emit and --json only print it")
    if options.share and options.apply:
        raise UsageError("--share is for what is shown to others, --apply installs: leave one out")
    if options.yes and not options.apply:
        raise UsageError("--yes goes with --apply: without it nothing is installed")


def _machine(options: argparse.Namespace) -> tuple[Snapshot | None, Wishes, Environment]:
    """What is known of the machine, what is wanted there, and the environment that it goes into."""
    from gpudoctor.setup import environment

    if options.machine:
        from gpudoctor.setup import described

        wishes = described.described(options.machine)
        there = environment.Environment(windows=wishes.os == "windows")
        return None, replace(wishes, wants=_wanted(options)), there
    from gpudoctor import doctor
    from gpudoctor.knowledge import complete
    from gpudoctor.model.stack import read_from
    from gpudoctor.views.progress import progress_on

    with progress_on(sys.stderr) as progress:
        snapshot = complete(doctor.look("quick", options.python, progress))
    here = environment.of(snapshot)
    beside = () if here.new else tuple(name for name in environment.COMPANIONS if name in here.installed)
    return snapshot, replace(read_from(snapshot), extras=beside, wants=_wanted(options)), here


def _wanted(options: argparse.Namespace) -> tuple[str, ...]:
    from gpudoctor.model.stack import wanted

    return tuple(spec for text in options.want for spec in wanted(text))


def _emit(stack: Stack, form: str) -> None:
    """That form and nothing else on stdout; raises `UsageError` where the stack has none such."""
    from gpudoctor.views._terminal import one_line, style_of

    if not stack.torch:
        from gpudoctor.views import stack as view

        print(view.render(stack, form, style_of(sys.stderr)), file=sys.stderr)
        return
    text = stack.written(form, "command") if form in _TOOLS else stack.written("", form)
    if not text:
        why = next((remark for remark in stack.remarks if "conda-forge" in remark), "")
        raise UsageError(f"--emit {form}: there is none for torch {stack.torch}; {why}".rstrip("; "))
    for remark in stack.remarks:
        print(f"gpudoctor: {one_line(remark)}", file=sys.stderr)
    print(text.rstrip("\n"))


def _apply(stack: Stack, environment: Environment, snapshot: Snapshot, options: argparse.Namespace) -> int:
    """Its commands as a plan, run as those of ``fix`` are."""
    from gpudoctor.commands.running import run_plan

    if all(environment.installed.get(name) == version for name, version in stack.packages) and not environment.new:
        print("\nThis is what is installed: there is nothing to install.")
        return SOUND
    plan = stack.plan(environment.tool, snapshot.target.name, environment.prefix)
    return int(run_plan(plan, options))
