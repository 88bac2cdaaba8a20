"""What an administrator sets up: ``setup driver``, ``setup cuda-toolkit``, ``setup container``."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from gpudoctor.commands.exits import BROKEN, SOUND
from gpudoctor.commands.sharing import shared
from gpudoctor.language import say
from gpudoctor.model.errors import UsageError
from gpudoctor.model.frozen import replace

if TYPE_CHECKING:
    import argparse

    from gpudoctor.model.plan import Plan
    from gpudoctor.model.setup_page import SetupPage
    from gpudoctor.model.snapshot import Snapshot


def system(options: argparse.Namespace) -> int:
    """The plan for ``options.what``, printed or run; 1 where no way is known for this system."""
    from gpudoctor.rulebook.setups import setups

    _refuse_nonsense(options)
    if options.apply:
        from gpudoctor.commands.running import settle_unfinished

        settle_unfinished(options)
    page = setups()[options.what]
    snapshot = _asking_for(options.cuda, _machine(options))
    plan = _planned(page, snapshot)
    if not plan.steps:
        print(_no_way(page, snapshot), file=sys.stderr)
        return BROKEN
    if options.apply:
        from gpudoctor.commands.running import run_plan

        return int(run_plan(plan, options))
    _show(shared(plan, options), options.json)
    return SOUND


def _refuse_nonsense(options: argparse.Namespace) -> None:
    if options.machine and options.apply:
        raise UsageError("--for plans for a machine that is not here, --apply changes this one: leave one out")
    if options.machine and options.python:
        raise UsageError("--python names an interpreter of this machine; for another one: --for python=3.12")
    if options.apply and options.dry_run:
        raise UsageError("--dry-run changes nothing, --apply does: leave one out")
    if options.share and options.apply:
        raise UsageError("--share is for what is shown to others, --apply changes this machine: leave one out")
    if options.yes and not options.apply:
        raise UsageError("--yes goes with --apply: without it nothing is changed")
    if options.cuda and not re.fullmatch(r"\d{1,2}\.\d{1,2}", options.cuda):
        raise UsageError(f"--cuda {options.cuda[:20]!r} is no CUDA release; it is written 12.8")


def _machine(options: argparse.Namespace) -> Snapshot:
    """This machine as it is read, or the one that was described."""
    from gpudoctor.knowledge import complete

    if options.machine:
        from gpudoctor.setup.described import described, snapshot_of

        return complete(snapshot_of(described(options.machine)))
    from gpudoctor import doctor
    from gpudoctor.views.progress import progress_on

    with progress_on(sys.stderr) as progress:
        return complete(doctor.look(options.level, options.python, progress))


def _asking_for(cuda: str, snapshot: Snapshot) -> Snapshot:
    """With that CUDA release as the one that is to be built for, where one was asked for."""
    from gpudoctor.model.fact import Known

    if not cuda:
        return snapshot
    return replace(snapshot, facts={**snapshot.facts, "torch.cuda": Known(cuda, "as you said")})


def _planned(page: SetupPage, snapshot: Snapshot) -> Plan:
    from gpudoctor.judge import new_evaluator
    from gpudoctor.judge.cures import set_up
    from gpudoctor.remedy import allowed, setting_up

    ways = [fix for _, fix in set_up(page.id, snapshot, new_evaluator(snapshot))]
    return setting_up.plan_of(page, ways, snapshot, allowed.is_root())


def _show(plan: Plan, json: bool) -> None:
    from gpudoctor.views import plan as views
    from gpudoctor.views._terminal import style_of

    if json:
        print(views.document(plan))
        return
    print(views.render(plan, style_of(sys.stdout)))
    print(f"\n{say('This was a dry run: nothing was changed.')}")


def _no_way(page: SetupPage, snapshot: Snapshot) -> str:
    """That none is known, what is known that one would rest on, and whose documents to look into."""
    from gpudoctor.model.fact import Known
    from gpudoctor.setup.fits import fitted
    from gpudoctor.views._terminal import one_line, wrapped

    there = fitted(snapshot)

    def said(name: str) -> str:
        fact = there.get(name)
        return one_line(str(fact.value)) if isinstance(fact, Known) else ""

    where = f"{said('host.distribution')} {said('host.distribution_version')}".strip() or "this system"
    lines = [f"{page.title}: no way is known for {where}."]
    needs = {
        "A driver from branch {} on serves these GPUs, and torch's CUDA.": said("setup.floor"),
        "The last branch that serves all of these GPUs is {}.": said("setup.ceiling"),
        "They take the {} kernel modules.": said("setup.modules"),
        "The CUDA release to build for is {}.": said("setup.cuda"),
    }
    lines += [words.format(value) for words, value in needs.items() if value]
    return "\n".join(
        [*lines, "How it is done elsewhere:", *(row for source in page.sources for row in wrapped(f"- {source}", 2, 4))]
    )
