"""All other commands: ``fix`` and ``setup`` change a machine; the others tell of what gpudoctor brings along."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gpudoctor.app.arguments.options import (
    Intermixed,
    add_lang,
    add_out,
    add_python,
    add_rules,
    add_share,
    add_target,
    new_command,
)
from gpudoctor.core.rule import LAYERS

_SCHEMAS = ("diagnosis", "snapshot", "kernels", "plan", "run", "stack", "fleet", "diff", "history", "replay", "profile")
_ABOUT = """\
A profile says in TOML what a machine must be; check, read, preflight and fleet take it as --expect FILE, and every
line that is not met is a finding. Under [expect] stand facts and what they must be: gpu.count = 8, driver.version =
">= 570, < 590", limits.shm_mib = ">= 64 GiB", gpu.name = ["A", "B"] for one of several, gpu.ecc = { is = true,
severity = "warning", why = "...", do = "..." }; not, matches, has, lacks and present = false say more, and where and
at_least choose among ports or links. Under [line.NAME] stand conditions as on rule pages: each = "gpu", when = [...],
says = "...". Under [measure] stands what kernels reach at level deep: matmul.bf16 = ">= 600 TFLOP/s". A profile may
extend others: extends = "hgx-h100". gpudoctor explain FACT tells what a fact means, gpudoctor schema profile prints the
JSON Schema for editors. A line that cannot be judged leaves no verdict (exit code 3), unless a higher level would
measure it.
"""


def add_expect_command(commands: Any) -> None:
    """Add the command ``expect``."""
    expect = new_command(
        commands,
        "expect",
        "what a machine must be: profiles that ship, and new ones written from a known good machine",
        usage="gpudoctor expect list | show NAME | --from-here [options] | --from FILE... [options]",
        description=_ABOUT,
    )
    expect.add_argument("what", nargs="?", choices=("list", "show"), metavar="list|show", help="profiles that ship")
    expect.add_argument("name", nargs="?", default="", metavar="NAME", help="the one to show")
    expect.add_argument("--from-here", dest="here", action="store_true", help="write one of this machine")
    about = "write one of saved snapshots or documents; what differs between several is left loose"
    expect.add_argument("--from", dest="files", nargs="+", default=[], metavar="FILE", help=about)
    expect.add_argument("--name", dest="profile", default="", metavar="NAME", help="what the new profile is called")
    add_out(expect)
    add_target(expect)


SHELLS = ("bash", "zsh", "fish")


def add_installing(commands: Any) -> None:
    """Add the commands ``pyz`` and ``completion``."""
    pyz = new_command(
        commands,
        "pyz",
        "write gpudoctor as one file that runs wherever there is Python 3.10 or newer",
        description="Puts the installed gpudoctor and the packages that it needs into one file, which runs without"
        " being installed or unpacked: python3 gpudoctor.pyz. It starts at once in the Pythons that it was compiled"
        " for, and in others after a second.",
        epilog="Exit code: 0 the file is written, 2 misuse.",
    )
    pyz.add_argument(
        "-o", dest="out", metavar="FILE", default="gpudoctor.pyz", help="where to (default: gpudoctor.pyz)"
    )
    pyz.add_argument(
        "--without-tui",
        action="store_true",
        help="without the terminal interface: half the size, all else works",
    )
    pyz.add_argument(
        "--python",
        dest="pythons",
        metavar="PATH",
        action="append",
        default=[],
        help="compile for that Python as well as for ours; may be given more than once",
    )
    completion = new_command(
        commands,
        "completion",
        "print the completion script of a shell: commands, options and names of rules",
        description="Prints the completion of a shell. A wheel installs it where shells look for it below the same"
        " prefix; in an environment of its own, have the shell read what is printed.",
    )
    completion.add_argument("shell", choices=SHELLS, help="the shell")


def add_mcp(commands: Any) -> None:
    """Add the command ``mcp``."""
    mcp = new_command(
        commands,
        "mcp",
        "serve check, read, explain and setup to AI assistants (Model Context Protocol)",
        description="Answers an assistant on standard input and output until it hangs up: tools that look and tell,"
        " and never change anything. Answers are hidden as by --share.",
    )
    mcp.add_argument("--python", metavar="PATH", default="", help="the Python whose torch is examined")
    mcp.add_argument(
        "--folder",
        dest="folders",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="let the assistant read the files under that folder, links excepted; may be given again (default: none)",
    )
    mcp.add_argument(
        "--no-share",
        dest="share",
        action="store_false",
        help="leave names, addresses and serial numbers in the answers: the assistant may see them",
    )


def add_recipes(commands: Any) -> None:
    """Add the commands ``recipe list``, ``show`` and ``write``."""
    recipes = commands.add_parser(
        "recipe",
        help="files that run gpudoctor in images, clusters and CI",
        description="Each recipe is a file, or a folder, that says where it goes and what each exit code leads to.",
    ).add_subparsers(metavar="WHAT", required=True, parser_class=Intermixed)
    add_lang(new_command(recipes, "list", "every recipe, and what it does", act="recipe list"))
    show = new_command(recipes, "show", "print one", act="recipe show")
    write = new_command(recipes, "write", "write one to a folder; what is there stays as it is", act="recipe write")
    for command in (show, write):
        command.add_argument("name", metavar="NAME", help="as recipe list has it: cloud-init, ansible, slurm-prolog.sh")
        add_lang(command)
    write.add_argument("folder", nargs="?", type=Path, metavar="DIR", default=Path(), help="default: the current one")


def add_rulebook(commands: Any) -> None:
    """Add the commands ``rules list``, ``test`` and ``new``."""
    rules = commands.add_parser("rules", help="the rulebook").add_subparsers(
        metavar="WHAT", required=True, parser_class=Intermixed
    )
    listing = new_command(rules, "list", "every rule, one a line", act="rules list")
    add_rules(listing)
    add_lang(listing)
    test = new_command(rules, "test", "run the cases on the pages", act="rules test")
    test.add_argument(
        "places", nargs="*", default=[], type=Path, metavar="DIR", help="folders of pages, or pages (default: ours)"
    )
    add_lang(test)
    new = new_command(rules, "new", "write a page to fill in, with what belongs where", act="rules new")
    new.add_argument("id", metavar="ID", help="<topic>.<what-is>: driver.too-old, site.no-quota")
    new.add_argument("folder", nargs="?", type=Path, metavar="DIR", default=Path("rules"), help="default: rules")
    new.add_argument("--layer", choices=LAYERS, help="what it is about, from the ground up (default: the topic's)")
    add_lang(new)


def add_schema(commands: Any) -> None:
    """Add the command ``schema``."""
    schema = new_command(commands, "schema", "print the JSON Schema of a document")
    schema.add_argument(
        "kind",
        nargs="?",
        choices=_SCHEMAS,
        default="diagnosis",
        help="of which (default: diagnosis)",
    )


# ---- Commands that change a machine: ``fix`` and ``setup`` ----

EMITTED = ("pip", "uv", "conda", "requirements", "pyproject", "dockerfile", "environment", "pixi")


def add_setup(commands: Any) -> None:
    """Add the command ``setup`` with its subcommands."""
    subcommands = commands.add_parser("setup", help="what to install on this machine, and why").add_subparsers(
        metavar="{torch,driver,cuda-toolkit,container}", required=True
    )
    torch = new_command(
        subcommands,
        "torch",
        "the torch stack that fits this machine, or another one",
        act="setup torch",
        description="Works out the newest torch stack that runs on all GPUs of this machine, under its driver and"
        " Python, with any other packages that are wanted, and says why. Reads only, unless --apply is given.",
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
        help="another machine: gpu=RTX 5090,driver=570,python=3.12,os=linux,distribution=ubuntu 24.04",
    )
    torch.add_argument("--emit", choices=EMITTED, help="print only this form (default: the commands, and why)")
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
    "container": "the NVIDIA Container Toolkit, and the engines to be configured for it",
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
            help="another machine: distribution=ubuntu 24.04,gpu=RTX 5090,arch=x86_64,driver=570",
        )
        add_share(command)
        if what != "container":
            about_cuda = "that release" if what == "cuda-toolkit" else "a driver for that release"
            command.add_argument("--cuda", metavar="X.Y", default="", help=f"{about_cuda} (default: torch's own)")
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
        "fix what is wrong: a plan, run step by step after a yes, checked after each step; and undo",
        description="Makes one plan for all causes that are found on this machine, or for those of these IDs, shows it,"
        " and asks before each step. After a step the rule that fired is judged again. Every run keeps a record and"
        " what undo needs.",
        epilog="Exit code: 0 there is nothing (more) to cure, or with --dry-run a plan for all of it, 1 an error stays,"
        " 2 misuse, 3 nothing could be judged. Ctrl-C ends the step that runs, and the record says so (130).",
    )
    fix.add_argument("ids", nargs="*", metavar="ID", help="a finding's id: torch.cpu-build (default: every cause)")
    what = fix.add_mutually_exclusive_group()
    what.add_argument("-n", "--dry-run", action="store_true", help="show the plan, run nothing")
    what.add_argument("--undo", metavar="RUN", default="", help="undo that run; last is the latest")
    what.add_argument("--runs", action="store_true", help="list the past runs on this machine")
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
