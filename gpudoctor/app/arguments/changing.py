"""The commands that say what to change: ``fix`` and ``setup``."""

from __future__ import annotations

import argparse
from typing import Any

from gpudoctor.app.arguments.options import add_lang, add_python, add_rules, add_share, add_target, new_command

EMITTED = ("pip", "uv", "conda", "requirements", "pyproject", "dockerfile", "environment", "pixi")


def add_setup(commands: Any) -> None:
    """Add the command ``setup`` with its subcommands."""
    subcommands = commands.add_parser("setup", help="what to install so that it works here, and why").add_subparsers(
        metavar="WHAT", required=True
    )
    torch = new_command(
        subcommands,
        "torch",
        "the torch stack that fits this machine, or another one",
        act="setup torch",
        description="Works out the newest torch stack that runs on all GPUs of this machine, under its driver and"
        " Python, with all that is wanted beside it, and says why. Reads only, unless --apply is given.",
        epilog="Exit code: 0 something fits, 1 nothing does (the smallest change with which something would is named),"
        " 2 misuse.",
    )
    torch.add_argument(
        "--want",
        metavar="SPEC",
        action="append",
        default=[],
        help='requirements that must go together: --want "torch>=2.6 torchvision flash-attn"',
    )
    torch.add_argument(
        "--for",
        dest="machine",
        metavar="FACTS",
        help="a machine that is not here: gpu=RTX 5090,driver=570,python=3.12,os=linux,arch=x86_64",
    )
    torch.add_argument("--emit", choices=EMITTED, help="print this form alone (default: the commands, and why)")
    torch.add_argument("--index", metavar="URL", help="a mirror of https://download.pytorch.org/whl")
    torch.add_argument("--offline", action="store_true", help="ask no index whether it has the wheels")
    torch.add_argument("--apply", action="store_true", help="install it into the environment, after a yes")
    torch.add_argument("--yes", action="store_true", help="with --apply: without asking")
    torch.add_argument("--json", action="store_true", help="the stack as one JSON document")
    add_share(torch)
    add_python(torch, "the interpreter whose environment is meant")
    add_lang(torch)
    add_setup_system(subcommands)


# ---- ``setup driver``, ``setup cuda-toolkit`` and ``setup container`` ----

_WHATS = {
    "driver": "the NVIDIA driver, from the packages of this system",
    "cuda-toolkit": "the CUDA toolkit that fits torch, without a driver in it",
    "container": "the NVIDIA Container Toolkit, and the engines that are to know it",
}


def add_setup_system(subcommands: Any) -> None:
    """Add ``setup driver``, ``setup cuda-toolkit`` and ``setup container``."""
    for what, about in _WHATS.items():
        command = new_command(
            subcommands,
            what,
            about,
            act="setup system",
            description=f"Prints the plan that sets up {about}: every step as it would run, what it needs, and the way"
            " back. Reads only, unless --apply is given.",
            epilog="Exit code: 0 there is a plan, 1 no way is known for this system, 2 misuse.",
        )
        command.set_defaults(what=what, cuda="", level="quick", rules=[])
        command.add_argument(
            "--for",
            dest="machine",
            metavar="FACTS",
            help="a machine that is not here: distribution=ubuntu 24.04,gpu=RTX 5090,arch=x86_64,driver=570",
        )
        add_share(command)
        if what == "cuda-toolkit":
            command.add_argument("--cuda", metavar="X.Y", default="", help="that release (default: torch's own)")
        command.add_argument("--apply", action="store_true", help="run the plan, asking before each step")
        command.add_argument("--dry-run", action="store_true", help="print the plan (the default)")
        add_python(command)
        add_running(command)
        add_lang(command)


# ---- ``fix`` ----
# The plan for what is wrong on this machine, its runs, and the way back.


def add_fix(commands: Any) -> None:
    """Add the command ``fix``."""
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
    """Add the options of commands that run a plan: ``--yes``, ``--only`` and more."""
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
