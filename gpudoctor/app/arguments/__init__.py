"""The command line of the contract, as far as it is built. `act` is the command's name."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from gpudoctor.app.arguments import changing, diagnosing
from gpudoctor.app.arguments.options import Parser, parser_of
from gpudoctor.core.about import __version__
from gpudoctor.core.errors import meant

COMMANDS = (
    "check",
    "read",
    "snapshot",
    "diff",
    "history",
    "replay",
    "record",
    "explain",
    "fix",
    "bench",
    "soak",
    "preflight",
    "run",
    "job",
    "fleet",
    "setup",
    "expect",
    "demo",
    "recipe",
    "rules",
    "schema",
    "pyz",
    "completion",
    "mcp",
)

_BEFORE_A_COMMAND = ("preflight", "run")
"""Commands that another command follows, after ``--``."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed options of a command line; what follows ``--`` of ``preflight`` and ``run`` is `options.command`.

    Exits with 2 for unknown or wrong arguments.
    """
    own, command = list(arguments), []
    if own and own[0] in _BEFORE_A_COMMAND and "--" in own:
        at = own.index("--")
        own, command = own[:at], own[at + 1 :]
    top = parser(own[0] if own and own[0] in COMMANDS else "")
    options, unknown = top.parse_known_args(own)
    if unknown:
        after = (
            "; what is to be run stands after --"
            if own[0] in _BEFORE_A_COMMAND and not unknown[0].startswith("-")
            else ""
        )
        parser_of(top, own).error(f"unrecognized arguments: {' '.join(unknown)}{after}")
    options.command = command
    return options


def no_command(word: str) -> NoReturn:
    """Print that the word is no command, with a suggestion, and exit with 2."""
    read = f"; to read a file: gpudoctor read {word}" if Path(word).exists() else ""
    if word in {"help", "version"}:
        read = f"; did you mean --{word}?"
    Parser(prog="gpudoctor", usage="gpudoctor [-h] [-V] COMMAND ...").error(
        f"no command {word!r}{read or meant(word, COMMANDS) or '; gpudoctor --help names them all'}"
    )


def parser(command: str = "") -> argparse.ArgumentParser:
    """The parser of all commands, or of that one alone, which is faster to build."""
    top = Parser(prog="gpudoctor", description="Names the cause when a GPU machine does not work.")
    top.add_argument("-V", "--version", action="version", version=f"gpudoctor {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True, prog=top.prog)
    for names, add in _ADDED:
        if not command or command in names:
            add(commands)
    add_examples(top)
    return top


_ADDED: Sequence[tuple[Sequence[str], Callable[[Any], None]]] = (
    (("check",), diagnosing.add_check),
    (("read",), diagnosing.add_read),
    (("snapshot", "diff", "history", "replay", "record"), diagnosing.add_saving),
    (("explain",), diagnosing.add_explain),
    (("fix",), changing.add_fix),
    (("bench",), diagnosing.add_bench),
    (("soak",), diagnosing.add_soak),
    (("preflight",), diagnosing.add_preflight),
    (("run",), diagnosing.add_run),
    (("job",), diagnosing.add_job),
    (("fleet",), diagnosing.add_fleet),
    (("setup",), changing.add_setup),
    (("expect",), changing.add_expect_command),
    (("demo",), diagnosing.add_demo),
    (("recipe",), changing.add_recipes),
    (("rules",), changing.add_rulebook),
    (("schema",), changing.add_schema),
    (("pyz", "completion"), changing.add_installing),
    (("mcp",), changing.add_mcp),
)
"""By which function which commands are added, in the order of the help."""


# ---- Command lines that each command's help ends with; the man page and the tests read them there ----

EXAMPLES = {
    "": """
gpudoctor                         this machine: on a terminal the interface
gpudoctor --json > gpu.json       the same as a document
gpudoctor read report.txt         a report that somebody pasted
gpudoctor explain driver.missing  all that is known of a cause
""",
    "check": """
gpudoctor check --level quick               only reads: less than a second
gpudoctor check --level deep                minutes: every GPU works
gpudoctor check --python .venv/bin/python   the torch of that environment
gpudoctor check --expect hgx-h100 --strict  against what the node must be
""",
    "read": """
gpudoctor read report.txt                    collect_env, nvidia-smi -q, a log
dmesg | gpudoctor read -                     the kernel log of this machine
gpudoctor read smi.txt train.log --together  two files about one machine
gpudoctor read requirements.txt --for here   would it work here
""",
    "snapshot": """
gpudoctor snapshot -o monday.json                while all is well
gpudoctor snapshot --level quick -o node07.json  without using the GPUs
""",
    "diff": """
gpudoctor diff --last-good              what changed since it worked
gpudoctor diff monday.json today.json   between two snapshots
gpudoctor diff node01.json node07.json  the sound node first
""",
    "history": """
gpudoctor history         the checks that were kept
gpudoctor history --json  for a program
""",
    "replay": """
gpudoctor replay kept/                       what our rules would have drained
gpudoctor replay kept/ --expect ours.toml    and this profile
gpudoctor replay kept/ --rules pages --json  and a site's pages
""",
    "record": """
gpudoctor record -o machine.json                for somebody who is to help
gpudoctor record --level quick -o machine.json  without using the GPUs
""",
    "explain": """
gpudoctor explain driver.missing  a rule
gpudoctor explain driver.version  a fact
gpudoctor explain drivers 12.8    what a table knows of CUDA 12.8
gpudoctor explain gpus RTX 5090   and of a GPU
""",
    "fix": """
gpudoctor fix --dry-run               what would be done
gpudoctor fix torch.cpu-build         one cause, asking before each step
gpudoctor fix --only user -o root.sh  and a script for an administrator
gpudoctor fix --undo last             take the last run back
""",
    "bench": """
gpudoctor bench                                  all, on every free GPU
gpudoctor bench --kernel matmul --device cuda:0  some on one GPU
gpudoctor bench --device cpu                     without a GPU
""",
    "soak": """
gpudoctor soak                           20 minutes, on every free GPU
gpudoctor soak --minutes 5 -o soak.json  shorter, kept as a document
gpudoctor soak --device cpu --minutes 1  how it goes, without a GPU
""",
    "preflight": """
gpudoctor preflight -- python train.py  train only on go
srun gpudoctor preflight --budget 120   all nodes of a Slurm job
torchrun --nproc-per-node 8 --no-python gpudoctor preflight --network
""",
    "run": """
gpudoctor run -- python train.py             and why it died, if it does
gpudoctor run --quiet -o why.json -- ./job   a word if something is found
srun gpudoctor run -- python train.py        once per rank
srun gpudoctor run --gate -- ./train.sh      and only on a go of all
""",
    "job": """
gpudoctor job 4711                      the job that has this process
gpudoctor job 4711 --tui                the same, followed while it runs
gpudoctor job --slurm 88123             all nodes of a Slurm job
gpudoctor job 4711 --hosts "node[1-4]"  its ranks on these hosts
""",
    "fleet": """
gpudoctor fleet --hosts "node[01-16]"  over ssh
gpudoctor fleet --partition gpu        by Slurm
gpudoctor fleet results/ --json        from what the hosts wrote
""",
    "setup": """
gpudoctor setup torch   what fits this machine
gpudoctor setup driver  the driver, as a plan
""",
    "setup torch": """
gpudoctor setup torch --emit uv                       commands for uv
gpudoctor setup torch --want "torch>=2.6 flash-attn"  with that beside it
gpudoctor setup torch --for "gpu=RTX 5090,driver=570,python=3.12"
gpudoctor setup torch --apply                         install it, after a yes
""",
    "setup driver": """
gpudoctor setup driver               the plan for this machine
gpudoctor setup driver --for "distribution=ubuntu 24.04,gpu=H100"
sudo gpudoctor setup driver --apply  run it, asking before each step
""",
    "setup cuda-toolkit": """
gpudoctor setup cuda-toolkit              the release of torch
gpudoctor setup cuda-toolkit --cuda 12.8  another one
""",
    "setup container": """
gpudoctor setup container               the plan for the engines that are here
sudo gpudoctor setup container --apply  run it, asking before each step
""",
    "expect": """
gpudoctor expect list                       the profiles that ship
gpudoctor expect show hgx-h100 > ours.toml  one of them, to change
gpudoctor expect --from-here -o ours.toml   of this machine, if it is sound
gpudoctor expect --from A.json B.json       of both, loose where they differ
""",
    "demo": """
gpudoctor demo                  choose from a list
gpudoctor demo lost-gpu         a GPU that fell off the bus
gpudoctor demo lost-gpu --json  the same machine as a document
""",
    "recipe": """
gpudoctor recipe list                  what there is
gpudoctor recipe show slurm-prolog.sh  one of them
""",
    "recipe list": """
gpudoctor recipe list                  all of them
gpudoctor recipe list | grep -i slurm  those for Slurm
""",
    "recipe show": """
gpudoctor recipe show slurm-prolog.sh          read it
gpudoctor recipe show Dockerfile > Dockerfile  keep it
""",
    "recipe write": """
gpudoctor recipe write slurm-prolog.sh    into this folder
gpudoctor recipe write Dockerfile image/  into another one
""",
    "rules": """
gpudoctor rules list              every rule
gpudoctor rules test site-rules/  a site's own, by their cases
""",
    "rules list": """
gpudoctor rules list                      those that ship
gpudoctor rules list --rules site-rules/  and a site's own
""",
    "rules test": """
gpudoctor rules test              those that ship
gpudoctor rules test site-rules/  a site's own
""",
    "rules new": """
gpudoctor rules new driver.site-branch site-rules/  its layer is its topic's
gpudoctor rules new site.no-quota site-rules/ --layer host
""",
    "schema": """
gpudoctor schema        of gpudoctor check --json
gpudoctor schema stack  of gpudoctor setup torch --json
""",
    "pyz": """
gpudoctor pyz                                          in this folder
gpudoctor pyz --without-tui -o gpudoctor-lean.pyz      half the size
gpudoctor pyz --python python3.10 --python python3.12  for both
""",
    "mcp": """
gpudoctor mcp                            what an assistant is to start
gpudoctor mcp --python .venv/bin/python  with that torch
""",
    "completion": """
eval "$(gpudoctor completion bash)"             in this shell, or ~/.bashrc
gpudoctor completion zsh > ~/.zfunc/_gpudoctor  in a folder of fpath
gpudoctor completion fish | source              in this shell
""",
}
"""By the command's words; two spaces stand between a line and what it is for."""


def add_examples(top: argparse.ArgumentParser) -> None:
    """Append its examples to the help of each command."""
    for name, command in commands_of(top):
        if name in EXAMPLES:
            examples = "examples:" + EXAMPLES[name].rstrip().replace("\n", "\n  ").replace("%", "%%")
            command.epilog = f"{command.epilog}\n\n{examples}" if command.epilog else examples


def commands_of(top: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The parser and those of all commands below it, each with its full name: ``rules test``."""
    yield name, top
    for action in top._actions:  # noqa: SLF001 - argparse has no other list of them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for word, below in action.choices.items():
                yield from commands_of(below, f"{name} {word}".strip())
