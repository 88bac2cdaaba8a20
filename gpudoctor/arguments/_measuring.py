"""Commands that run kernels or meet others: ``bench``, ``preflight``, ``fleet``."""

from __future__ import annotations

from typing import Any

from gpudoctor.arguments._options import (
    FORMS,
    add_expect,
    add_lang,
    add_out,
    add_python,
    add_report,
    add_rules,
    add_share,
    add_target,
    count,
    new_command,
    seconds,
    words,
)


def add_bench(commands: Any) -> None:
    """``bench``."""
    bench = new_command(
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
    add_python(bench)
    bench.add_argument("--json", action="store_true", help="the measurements as one JSON document")
    add_lang(bench)
    add_share(bench)
    bench.add_argument("--list", action="store_true", help="name every kernel, and run none")


def add_preflight(commands: Any) -> None:
    """``preflight``."""
    preflight = new_command(
        commands,
        "preflight",
        "before training: go or no-go for this node, or for the whole job under srun, torchrun or mpirun",
        usage="gpudoctor preflight [options] [-- COMMAND...]",
        description="Checks this machine; started by srun, torchrun or mpirun, all machines of the job and the network"
        " between them: every rank runs it, and they find each other by what the launcher has set. The first node"
        " reports for all. With a COMMAND, each rank becomes that command on go, and does not on no-go.",
        epilog="Exit code, the same on all ranks: 0 go, 1 no-go, 2 misuse, 3 could not judge; COMMAND's where it ran.",
    )
    add_target(preflight, "quick")
    preflight.add_argument(
        "--network", action="store_true", help="only the network between the ranks counts: needs no GPU"
    )
    preflight.add_argument(
        "--budget", type=seconds, metavar="SECONDS", help="for the whole check (default: by the level)"
    )
    add_out(preflight, "the JSON document of the whole job, beside the report")
    preflight.add_argument(
        "--json", dest="format", action="store_const", const="json", help="the same as --format json"
    )
    preflight.add_argument("--format", choices=FORMS, help="the report's form (default: text)")
    add_share(preflight)
    add_rules(preflight)
    add_expect(preflight)
    add_lang(preflight)


def add_fleet(commands: Any) -> None:
    """``fleet``."""
    fleet = new_command(
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
    fleet.add_argument("--timeout", type=seconds, default=180.0, metavar="SECONDS", help="for one host (default: 180)")
    fleet.add_argument("--budget", type=seconds, default=120.0, metavar="SECONDS", help="for all (default: 120)")
    fleet.add_argument(
        "--fanout", type=count, default=64, metavar="N", help="hosts asked at the same time (default: 64)"
    )
    fleet.add_argument(
        "--program",
        type=words,
        metavar="PATH",
        default="gpudoctor",
        help="gpudoctor on the hosts: /opt/venv/bin/gpudoctor",
    )
    fleet.add_argument("--ssh-options", type=words, metavar="WORDS", default="", help="for ssh: '-l root -F FILE'")
    fleet.add_argument(
        "--scheduler",
        choices=("slurm", "kubernetes", "none"),
        help="whose words take hosts out (default: Slurm's where it is installed)",
    )
    fleet.add_argument("--drain-silent", action="store_true", help="take out hosts that gave no answer, too")
    fleet.add_argument("--tui", action="store_true", help="show it in the terminal interface")
    add_report(fleet)
    add_expect(fleet)
