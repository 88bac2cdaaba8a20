"""Commands that show what is known, save or compare: ``explain``, ``snapshot``, ``diff``, ``record``, ``rules``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpudoctor.arguments._options import Intermixed, add_out, add_rules, add_target, new_command
from gpudoctor.model.rule import LAYERS


def add_explain(commands: Any) -> None:
    """``explain``."""
    explain = new_command(commands, "explain", "show the page of a rule, what a fact means, or what a table knows")
    about = "a rule such as driver.missing, a fact such as driver.version, or a table such as drivers"
    explain.add_argument("id", metavar="ID", help=about)
    explain.add_argument(
        "key", metavar="KEY", nargs="*", help="what to look up in the table: drivers 12.8, gpus RTX 5090"
    )
    add_rules(explain)


def add_saving(commands: Any) -> None:
    """``snapshot``, ``diff`` and ``record``."""
    snapshot = new_command(commands, "snapshot", "save the facts of this machine, to be read or compared later")
    add_out(snapshot)
    add_target(snapshot)
    diff = new_command(
        commands,
        "diff",
        "what differs between two machines or two moments",
        description="Shows what differs between A, where it works, and B, where it does not: first the findings that"
        " only one has, then the facts.",
        epilog="Exit code: 0 nothing differs but what always does (temperatures, serial numbers, ...), 1 something"
        " differs, 2 misuse.",
    )
    for side in ("A", "B"):
        about = "a snapshot, a document, a record or a pasted report; - is standard input"
        diff.add_argument(side.lower(), metavar=side, help=about)
    diff.add_argument("--json", action="store_true", help="the comparison as one JSON document")
    add_rules(diff)
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


def add_rulebook(commands: Any) -> None:
    """``rules``."""
    rules = commands.add_parser("rules", help="the rulebook").add_subparsers(
        metavar="WHAT", required=True, parser_class=Intermixed
    )
    listing = new_command(rules, "list", "every rule, one a line", act="rules list")
    add_rules(listing)
    test = new_command(rules, "test", "run the cases on the pages", act="rules test")
    test.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="a site's own pages (default: ours)")
    new = new_command(rules, "new", "write a page to fill in, with what belongs where", act="rules new")
    new.add_argument("id", metavar="ID", help="<topic>.<what-is>: driver.too-old, site.no-quota")
    new.add_argument("folder", nargs="?", type=Path, metavar="DIR", default=Path("rules"), help="default: rules")
    new.add_argument("--layer", choices=LAYERS, help="what it is about, from the ground up (default: the topic's)")
