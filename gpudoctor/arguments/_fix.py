"""``fix``: the plan for what is wrong on this machine, its runs, and the way back."""

from __future__ import annotations

import argparse
from typing import Any

from gpudoctor.arguments._options import add_lang, add_rules, add_share, add_target, new_command


def add_fix(commands: Any) -> None:
    """``fix``."""
    fix = new_command(
        commands,
        "fix",
        "cure what is wrong: a plan, done step by step after a yes, judged after each, and taken back",
        description="Makes one plan for all causes that are found on this machine, or for those of these IDs, shows it,"
        " and asks before each step. After a step the rule that had fired is judged again. Every run keeps a record and"
        " what it takes to go back.",
        epilog="Exit code: 0 there is nothing (more) to cure, or with --dry-run a plan for all of it, 1 an error stays,"
        " 2 misuse, 3 nothing could be judged. Ctrl-C ends the step that runs, and the record says so (130).",
    )
    fix.add_argument("ids", nargs="*", metavar="ID", help="a finding's id: torch.cpu-build (default: every cause)")
    what = fix.add_mutually_exclusive_group()
    what.add_argument("-n", "--dry-run", action="store_true", help="show the plan, run nothing")
    what.add_argument("--undo", metavar="RUN", default="", help="take that run back; last is the one before now")
    what.add_argument("--runs", action="store_true", help="list the runs there were on this machine")
    fix.add_argument("--read", metavar="FILE", default="", help="with --dry-run: plan for a report or a snapshot")
    add_running(fix)
    fix.add_argument(
        "-o",
        dest="out",
        metavar="FILE",
        help="with --only user: the administrator's script; - prints it, and nothing is run",
    )
    add_share(fix)
    add_target(fix)
    add_rules(fix)
    add_lang(fix)


def add_running(command: argparse.ArgumentParser) -> None:
    """How a plan is run: by whom, and whether anybody is asked."""
    command.add_argument(
        "-y", "--yes", action="store_true", help="ask nothing; what reboots or interrupts jobs is left out"
    )
    command.add_argument(
        "--only",
        choices=("user", "root"),
        default="",
        help="user: run what needs no root, and write the rest as a script for an administrator; root: only that rest",
    )
    command.add_argument(
        "--json", action="store_true", help="the plan as one JSON document, or with --yes the run, if there is one"
    )
