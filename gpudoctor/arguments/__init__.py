"""The command line of the contract, as far as it is built. `act` is the command's name."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from gpudoctor.arguments._measuring import add_bench, add_fleet, add_preflight
from gpudoctor.arguments._options import add_report, add_serve, add_target, new_command
from gpudoctor.arguments._showing import add_explain, add_rulebook, add_saving
from gpudoctor.version import __version__

COMMANDS = (
    "check",
    "read",
    "snapshot",
    "diff",
    "record",
    "explain",
    "bench",
    "preflight",
    "fleet",
    "demo",
    "rules",
    "schema",
)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options; of ``preflight`` what follows ``--`` is the command, whatever it looks like."""
    own, command = list(words), []
    if own[:1] == ["preflight"] and "--" in own:
        at = own.index("--")
        own, command = own[:at], own[at + 1 :]
    options = parser().parse_args(own)
    options.command = command
    return options


def parser() -> argparse.ArgumentParser:
    """Every command with its options."""
    top = argparse.ArgumentParser(prog="gpudoctor", description="Names the cause when a GPU machine does not work.")
    top.add_argument("-V", "--version", action="version", version=f"gpudoctor {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    check = new_command(commands, "check", "diagnose this machine")
    add_target(check)
    add_report(check)
    add_serve(check)
    read = new_command(commands, "read", "diagnose pasted reports, logs, saved snapshots or records")
    read.add_argument("files", nargs="+", metavar="FILE", help="a text file; - is standard input")
    read.add_argument(
        "--together", action="store_true", help="all files are about one machine: one diagnosis, the later file wins"
    )
    read.add_argument("--tui", action="store_true", help="show it in the terminal interface")
    add_report(read)
    add_serve(read)
    add_saving(commands)
    add_explain(commands)
    add_bench(commands)
    add_preflight(commands)
    add_fleet(commands)
    demo = new_command(commands, "demo", "look at a recorded sick machine in the terminal interface")
    demo.add_argument("name", nargs="?", default="", metavar="NAME", help="which one (default: choose from a list)")
    add_serve(demo)
    add_rulebook(commands)
    schema = new_command(commands, "schema", "print the JSON Schema of a document")
    schema.add_argument(
        "kind",
        nargs="?",
        choices=("diagnosis", "snapshot", "kernels"),
        default="diagnosis",
        help="of which (default: diagnosis)",
    )
    return top
