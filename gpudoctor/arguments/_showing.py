"""Commands that show what is known, save or compare: ``explain``, ``snapshot``, ``diff``, ``history``, ``record``..."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpudoctor.arguments._options import (
    add_lang,
    add_out,
    add_python,
    add_rules,
    add_share,
    add_target,
    add_wait,
    new_command,
)
from gpudoctor.arguments._parser import Intermixed
from gpudoctor.model.rule import LAYERS


def add_explain(commands: Any) -> None:
    """``explain``."""
    explain = new_command(commands, "explain", "show the page of a rule, what a fact means, or what a table knows")
    about = (
        "a rule such as driver.missing, a fact such as driver.version, a table such as drivers, or facts: all of them"
    )
    explain.add_argument("id", metavar="ID", help=about)
    explain.add_argument(
        "key", metavar="KEY", nargs="*", help="what to look up in it: drivers 12.8, gpus RTX 5090, facts nvlink"
    )
    add_rules(explain)
    add_lang(explain)


def add_saving(commands: Any) -> None:
    """``snapshot``, ``diff``, ``history`` and ``record``."""
    snapshot = new_command(commands, "snapshot", "save the facts of this machine, to be read or compared later")
    add_out(snapshot)
    add_share(snapshot)
    add_target(snapshot)
    add_wait(snapshot)
    add_diff(commands)
    add_history(commands)
    record = new_command(
        commands,
        "record",
        "save this machine as a file that answers for it, personal things hidden",
        description="Saves whatever is asked on this machine and what it answers, so that the file can be diagnosed"
        " elsewhere, and again by later versions: gpudoctor read FILE. Host and user names, UUIDs, serial numbers,"
        " hardware and network addresses and secrets are replaced; look it through before you hand it on.",
    )
    add_out(record)
    add_target(record)


def add_recipes(commands: Any) -> None:
    """``recipe``."""
    recipes = commands.add_parser(
        "recipe",
        help="files to build gpudoctor into images, clusters and CI",
        description="Each recipe is a file, or a folder, that says where it goes and what each exit code leads to.",
    ).add_subparsers(metavar="WHAT", required=True, parser_class=Intermixed)
    new_command(recipes, "list", "every recipe, and what it does", act="recipe list")
    show = new_command(recipes, "show", "print one", act="recipe show")
    write = new_command(recipes, "write", "write one to a folder; what is there stays as it is", act="recipe write")
    for command in (show, write):
        command.add_argument("name", metavar="NAME", help="as recipe list has it: cloud-init, ansible, slurm-prolog.sh")
    write.add_argument("folder", nargs="?", type=Path, metavar="DIR", default=Path(), help="default: the current one")


def add_diff(commands: Any) -> None:
    """``diff``."""
    diff = new_command(
        commands,
        "diff",
        "what differs between two machines or two moments",
        description="Shows what differs between A, where it works, and B, where it does not: first the findings that"
        " only one has, then the facts. Without B it is this machine as it is now; --last-good and --last stand for A.",
        epilog="Exit code: 0 nothing differs but what always does (temperatures, serial numbers, ...), 1 something"
        " differs, 2 misuse. Example: gpudoctor diff --last-good",
    )
    about = "a snapshot, a document, a record, a pasted report, or a run that gpudoctor history lists; - is stdin"
    for side in ("A", "B"):
        diff.add_argument(side.lower(), metavar=side, nargs="?", help=about)
    kept = diff.add_mutually_exclusive_group()
    kept.add_argument("--last-good", action="store_true", help="against the last kept run that was sound or impaired")
    kept.add_argument("--last", action="store_true", help="against the last kept run, whatever it found")
    diff.add_argument("--level", choices=("quick", "standard", "deep"), help="of this machine now (default: as A was)")
    add_python(diff, "the interpreter whose torch is meant, of this machine now")
    diff.add_argument("--json", action="store_true", help="the comparison as one JSON document")
    add_share(diff)
    add_rules(diff)
    add_lang(diff)


def add_history(commands: Any) -> None:
    """``history``."""
    history = new_command(
        commands,
        "history",
        "the checks of this machine that are kept",
        description="Lists the kept checks of this machine, the newest first: when, how deep, what came of it. A run's"
        " name can stand in gpudoctor diff. GPUDOCTOR_HISTORY=off keeps none; GPUDOCTOR_STATE names another folder.",
    )
    history.add_argument("--json", action="store_true", help="the list as one JSON document")
    add_share(history)


def add_rulebook(commands: Any) -> None:
    """``rules``."""
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
    new = new_command(rules, "new", "write a page to fill in, with what belongs where", act="rules new")
    new.add_argument("id", metavar="ID", help="<topic>.<what-is>: driver.too-old, site.no-quota")
    new.add_argument("folder", nargs="?", type=Path, metavar="DIR", default=Path("rules"), help="default: rules")
    new.add_argument("--layer", choices=LAYERS, help="what it is about, from the ground up (default: the topic's)")
