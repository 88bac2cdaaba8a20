"""The command line of the contract, as far as it is built. `act` is the command's name."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpudoctor.model.rule import LAYERS
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
FORMS = ("text", "json", "markdown", "html")


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

    check = _command(commands, "check", "diagnose this machine")
    _add_target_options(check)
    _add_report_options(check)
    _add_serve_option(check)
    read = _command(commands, "read", "diagnose pasted reports, logs, saved snapshots or records")
    read.add_argument("files", nargs="+", metavar="FILE", help="a text file; - is standard input")
    read.add_argument(
        "--together", action="store_true", help="all files are about one machine: one diagnosis, the later file wins"
    )
    read.add_argument("--tui", action="store_true", help="show it in the terminal interface")
    _add_report_options(read)
    _add_serve_option(read)
    _add_saving_commands(commands)
    _add_explain(commands)
    _add_bench(commands)
    _add_preflight(commands)
    _add_fleet(commands)
    demo = _command(commands, "demo", "look at a recorded sick machine in the terminal interface")
    demo.add_argument("name", nargs="?", default="", metavar="NAME", help="which one (default: choose from a list)")
    _add_serve_option(demo)
    _add_rules_commands(commands)
    schema = _command(commands, "schema", "print the JSON Schema of a document")
    schema.add_argument(
        "kind",
        nargs="?",
        choices=("diagnosis", "snapshot", "kernels"),
        default="diagnosis",
        help="of which (default: diagnosis)",
    )
    return top


def _add_bench(commands: Any) -> None:
    bench = _command(
        commands,
        "bench",
        "run the micro-kernels: does each GPU compute right, and as fast as it should",
        description="Runs small checked kernels on every GPU that nobody uses, the driver's first, then torch's, then"
        " those that are compiled, then NCCL's; the first that fails names the layer at fault.",
        epilog="Exit code: 0 all right, 1 a GPU computes wrong values, a kernel fails or an error is found, 2 misuse, 3"
        " nothing could be measured. Ctrl-C ends it, and shows what was measured so far (130).",
    )
    bench.add_argument(
        "--kernel",
        metavar="NAME",
        action="append",
        default=[],
        help="only this one, those that begin so (matmul), or a rung: driver, torch, triton, nccl, readiness",
    )
    bench.add_argument("--device", metavar="NAME", default="", help="cuda:0, or cpu to run the checks without a GPU")
    bench.add_argument("--python", metavar="PATH", help="the interpreter whose torch is meant")
    bench.add_argument("--json", action="store_true", help="the measurements as one JSON document")
    bench.add_argument("--list", action="store_true", help="name every kernel, and run none")


def _add_preflight(commands: Any) -> None:
    preflight = _command(
        commands,
        "preflight",
        "before training: go or no-go for this node, or for the whole job under srun, torchrun or mpirun",
        usage="gpudoctor preflight [options] [-- COMMAND...]",
        description="Checks this machine; started by srun, torchrun or mpirun, all machines of the job and the network"
        " between them: every rank runs it, and they find each other by what the launcher has set. The first node"
        " reports for all. With a COMMAND, each rank becomes that command on go, and does not on no-go.",
        epilog="Exit code, the same on all ranks: 0 go, 1 no-go, 2 misuse, 3 could not judge; COMMAND's where it ran.",
    )
    _add_target_options(preflight, "quick")
    preflight.add_argument(
        "--network", action="store_true", help="only the network between the ranks counts: needs no GPU"
    )
    preflight.add_argument(
        "--budget", type=_seconds, metavar="SECONDS", help="for the whole check (default: by the level)"
    )
    _add_out_option(preflight, "the JSON document of the whole job, beside the report")
    preflight.add_argument(
        "--json", dest="format", action="store_const", const="json", help="the same as --format json"
    )
    preflight.add_argument("--format", choices=FORMS, help="the report's form (default: text)")
    _add_rules_option(preflight)


def _add_fleet(commands: Any) -> None:
    fleet = _command(
        commands,
        "fleet",
        "diagnose many hosts as one: over ssh, by Slurm, or from what each of them wrote",
        description="Asks many hosts for gpudoctor check --json, or reads what they wrote, and folds it into one"
        " diagnosis: what is wrong on which hosts and what these share, who differs from the others, who gave no"
        " answer, and the command that takes the bad ones out.",
        epilog="Exit code: 0 go, 1 no-go: a host has an error, 2 misuse, 3 no error was found and not every host could"
        " be judged. Ctrl-C ends the asking, and shows what was heard so far (130).",
    )
    about = "files or folders with documents of gpudoctor check --json, one a file or a line; - is standard input"
    fleet.add_argument("results", nargs="*", metavar="RESULTS", help=about)
    fleet.add_argument("--hosts", metavar="NODESET", default="", help="over ssh: node[01-08],login1 or @group")
    fleet.add_argument("--slurm", action="store_true", help="the nodes of the Slurm job that this runs in, by srun")
    fleet.add_argument("--partition", metavar="NAME", default="", help="the nodes of a Slurm partition, by srun")
    fleet.add_argument(
        "--level", choices=("quick", "standard", "deep"), default="standard", help="how much to ask (default: standard)"
    )
    fleet.add_argument("--timeout", type=_seconds, default=60.0, metavar="SECONDS", help="for one host (default: 60)")
    fleet.add_argument("--budget", type=_seconds, default=120.0, metavar="SECONDS", help="for all (default: 120)")
    fleet.add_argument(
        "--fanout", type=_count, default=64, metavar="N", help="hosts asked at the same time (default: 64)"
    )
    fleet.add_argument(
        "--program",
        type=_words,
        metavar="PATH",
        default="gpudoctor",
        help="gpudoctor on the hosts: /opt/venv/bin/gpudoctor",
    )
    fleet.add_argument("--ssh-options", type=_words, metavar="WORDS", default="", help="for ssh: '-l root -F FILE'")
    fleet.add_argument(
        "--scheduler",
        choices=("slurm", "kubernetes", "none"),
        help="whose words take hosts out (default: Slurm's where it is installed)",
    )
    fleet.add_argument("--drain-silent", action="store_true", help="take out hosts that gave no answer, too")
    fleet.add_argument("--tui", action="store_true", help="show it in the terminal interface")
    _add_report_options(fleet)


def _seconds(text: str) -> float:
    """A time limit; refused are texts that are no number above zero."""
    seconds = float(text)
    if not 0 < seconds < 1e6:
        raise ValueError(text)
    return seconds


def _count(text: str) -> int:
    """How many at once: one at least."""
    count = int(text)
    if count < 1:
        raise ValueError(text)
    return count


def _words(text: str) -> str:
    """Words as a shell splits them; refused is a quote that is not closed."""
    import shlex

    shlex.split(text)
    return text


def _add_explain(commands: Any) -> None:
    explain = _command(commands, "explain", "show the page of a rule, what a fact means, or what a table knows")
    about = "a rule such as driver.missing, a fact such as driver.version, or a table such as drivers"
    explain.add_argument("id", metavar="ID", help=about)
    explain.add_argument(
        "key", metavar="KEY", nargs="*", help="what to look up in the table: drivers 12.8, gpus RTX 5090"
    )
    _add_rules_option(explain)


def _add_saving_commands(commands: Any) -> None:
    snapshot = _command(commands, "snapshot", "save the facts of this machine, to be read or compared later")
    _add_out_option(snapshot)
    _add_target_options(snapshot)
    diff = _command(
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
    _add_rules_option(diff)
    record = _command(
        commands,
        "record",
        "save this machine as a file that answers for it, personal things hidden",
        description="Saves whatever is asked on this machine and what it answers, so that the file can be diagnosed"
        " elsewhere, and again by later versions: gpudoctor read FILE. Host and user names, UUIDs, serial numbers,"
        " hardware and network addresses and secrets are replaced; look it through before you hand it on.",
    )
    _add_out_option(record)
    _add_target_options(record)


def _add_rules_commands(commands: Any) -> None:
    rules = commands.add_parser("rules", help="the rulebook").add_subparsers(
        metavar="WHAT", required=True, parser_class=_Intermixed
    )
    listing = _command(rules, "list", "every rule, one a line", act="rules list")
    _add_rules_option(listing)
    test = _command(rules, "test", "run the cases on the pages", act="rules test")
    test.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="a site's own pages (default: ours)")
    new = _command(rules, "new", "write a page to fill in, with what belongs where", act="rules new")
    new.add_argument("id", metavar="ID", help="<topic>.<what-is>: driver.too-old, site.no-quota")
    new.add_argument("folder", nargs="?", type=Path, metavar="DIR", default=Path("rules"), help="default: rules")
    new.add_argument("--layer", choices=LAYERS, help="what it is about, from the ground up (default: the topic's)")


def _command(commands: Any, name: str, about: str, act: str = "", **more: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=about, **more)
    command.set_defaults(act=act or name)
    return command


def _add_out_option(command: argparse.ArgumentParser, about: str = "where to (default: standard output)") -> None:
    command.add_argument("-o", dest="out", metavar="FILE", help=about)


def _add_target_options(command: argparse.ArgumentParser, level: str = "standard") -> None:
    command.add_argument(
        "--level", choices=("quick", "standard", "deep"), default=level, help=f"how much to ask (default: {level})"
    )
    command.add_argument("--python", metavar="PATH", help="the interpreter whose torch is meant")


def _add_rules_option(command: argparse.ArgumentParser) -> None:
    command.add_argument("--rules", metavar="DIR", type=Path, action="append", default=[], help="a site's own pages")


def _add_report_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")
    command.add_argument("--format", choices=FORMS, help="the report's form (default: text)")
    _add_rules_option(command)
    command.add_argument("--strict", action="store_true", help="exit 1 on warnings too")


def _add_serve_option(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--serve",
        nargs="?",
        const="127.0.0.1:0",
        metavar="HOST:PORT",
        help="show it in a browser, to whoever has the URL that is printed (default: 127.0.0.1, a free port)",
    )


class _Intermixed(argparse.ArgumentParser):
    """A command whose options may stand between its words: argparse gives a word that may be left out up too early."""

    _within = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._within:
            return super().parse_known_args(args, namespace)
        self._within = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._within = False
