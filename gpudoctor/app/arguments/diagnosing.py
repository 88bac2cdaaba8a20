"""Commands that look at a machine, at many or at a file, and change none: from ``check`` and ``read`` to ``fleet``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpudoctor.app.arguments.options import (
    add_expect,
    add_format,
    add_lang,
    add_out,
    add_program,
    add_python,
    add_report,
    add_rules,
    add_serve,
    add_share,
    add_target,
    add_wait,
    count,
    minutes,
    new_command,
    process_id,
    seconds,
)


def add_check(commands: Any) -> None:
    """Add the command ``check`` to the subparsers `commands`."""
    check = new_command(commands, "check", "diagnose this machine")
    add_target(check)
    add_wait(check)
    add_report(check)
    add_expect(check)
    add_serve(check)


def add_read(commands: Any) -> None:
    """Add the command ``read``."""
    read = new_command(commands, "read", "diagnose pasted reports, logs, saved snapshots, records, or manifests")
    read.add_argument("files", nargs="+", metavar="FILE", help="a text file; - is standard input")
    read.add_argument(
        "--together", action="store_true", help="all files are about one machine: one diagnosis, the later file wins"
    )
    read.add_argument(
        "--for",
        dest="machine",
        metavar="MACHINE",
        default="",
        help="judge requirements.txt, pyproject.toml, environment.yml, a Dockerfile, compose.yaml or a pod's manifest"
        " for gpu=NAME,driver=V,python=V,os=linux|windows|wsl,arch=..., or for the machine that is here",
    )
    read.add_argument("--tui", action="store_true", help="show it in the terminal interface")
    add_report(read)
    add_expect(read)
    add_serve(read)


def add_demo(commands: Any) -> None:
    """Add the command ``demo``."""
    about = "look at a recorded sick machine: in the interface, or with NAME and a report's options as a report"
    demo = new_command(commands, "demo", about)
    names = "which one; list prints them all (default: choose from a list)"
    demo.add_argument("name", nargs="?", default="", metavar="NAME", help=names)
    add_report(demo)
    add_expect(demo)
    add_serve(demo)


def add_bench(commands: Any) -> None:
    """Add the command ``bench``."""
    bench = new_command(
        commands,
        "bench",
        "run the micro-kernels: does each GPU compute correctly and fast enough",
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
        help="only this one, those that begin with it (matmul), or a rung: driver, torch, triton, nccl, readiness",
    )
    bench.add_argument("--device", metavar="NAME", default="", help="cuda:0, or cpu to run the checks without a GPU")
    add_python(bench)
    bench.add_argument("--json", action="store_true", help="the measurements as one JSON document")
    add_lang(bench)
    add_share(bench)
    bench.add_argument("--list", action="store_true", help="name every kernel, and run none")


def add_soak(commands: Any) -> None:
    """Add the command ``soak``."""
    soak = new_command(
        commands,
        "soak",
        "stress-test an idle node for minutes: heat, checked products, memory tests, links",
        description="Works every GPU that nobody uses, round after round: products under heat that are checked bit for"
        " bit, march and retention tests of its memory with the addresses of faulty words, copies and collectives"
        " between GPUs. NVML is read meanwhile, and everything is judged at the end. Clocks and limits stay as they"
        " are. SIGTERM, SIGHUP or Ctrl-C ends it at once; what was measured until then is reported.",
        epilog="Exit code: 0 sound, 1 an error was found, 2 misuse, 3 nothing could be measured, 128 + n where signal n"
        " ended it.",
    )
    soak.add_argument(
        "--minutes", type=minutes, default=20.0, metavar="N", help="for how long, in all (default: 20); 0.5 is 30 s"
    )
    soak.add_argument(
        "--device", metavar="NAME", default="", help="cuda:0 alone, or cpu to run the tests without a GPU"
    )
    add_python(soak)
    add_report(soak)


def add_preflight(commands: Any) -> None:
    """Add the command ``preflight``."""
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
        "--network", action="store_true", help="check only the network between the ranks: needs no GPU"
    )
    preflight.add_argument(
        "--canary",
        action="store_true",
        help="also train some steps of a small transformer by DDP over all ranks, 60 s at most (at level deep always)",
    )
    preflight.add_argument(
        "--budget", type=seconds, metavar="SECONDS", help="for the whole check (default: by the level)"
    )
    add_out(preflight, "the JSON document of the whole job, beside the report")
    add_format(preflight)
    add_share(preflight)
    add_rules(preflight)
    add_expect(preflight)
    add_lang(preflight)


def add_run(commands: Any) -> None:
    """Add the command ``run``."""
    run = new_command(
        commands,
        "run",
        "run a command and monitor it: at its end, why it died, or what it used",
        usage="gpudoctor run [options] -- COMMAND...",
        description="Runs COMMAND as it would run without gpudoctor: the same terminal, signals, environment, output"
        " and exit code. Beside it memory, processes, shared memory, disk, the kernel's log and the GPUs are watched."
        " At its end a short account goes to standard error; where it died of something that is known, the cause and"
        " what to do.",
        epilog="Exit code: COMMAND's; killed by a signal, gpudoctor dies of the same. 126 it cannot be run, 127 there"
        " is no such command, 2 misuse. What is found changes no exit code. With --gate, where COMMAND did not run: 1"
        " no-go, 3 could not judge.",
    )
    run.add_argument("--quiet", action="store_true", help="print nothing unless something is found")
    run.add_argument(
        "--gate",
        action="store_true",
        help="gpudoctor preflight first, with all ranks of the job: COMMAND runs only on go",
    )
    run.add_argument(
        "--hang-after",
        type=seconds,
        default=600.0,
        metavar="SECONDS",
        help="report which rank the others wait for once nothing was printed and nothing moved for so long"
        " (default: 600); SIGQUIT to gpudoctor makes it look at once",
    )
    run.add_argument("--json", action="store_true", help="the diagnosis as one JSON document, on standard error")
    add_out(run, "write the JSON document there, beside the account: the file is whole or not there")
    run.add_argument(
        "--untouched",
        action="store_true",
        help="do not touch COMMAND's output, for programs that draw their screen with curses;"
        " what it prints is not read then",
    )
    add_share(run)
    add_rules(run)
    add_lang(run)


def add_job(commands: Any) -> None:
    """Add the command ``job``."""
    job = new_command(
        commands,
        "job",
        "why a running job hangs: which rank the others wait for, and what that rank does instead",
        description="Looks at the ranks of a job that runs, for some seconds, and stops none of them: which processes"
        " are its ranks, in which function each is (by py-spy), what it waits for, what its DataLoader's workers do,"
        " and its GPUs. Ranks are grouped by where they wait; the one that the others wait for is named.",
        epilog="Exit code: 0 no error is found (warnings may be), 1 an error is found (with --strict a warning, too), 2"
        " misuse, 3 no error is found and not every rank could be seen.",
    )
    job.add_argument(
        "pids",
        nargs="*",
        type=process_id,
        metavar="PID",
        help="its launcher, or a rank (without any: list the jobs of this machine)",
    )
    job.add_argument(
        "--match",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="the job whose processes were started with that variable, such as MASTER_PORT=29500",
    )
    job.add_argument("--slurm", metavar="JOBID", default="", help="a Slurm job, on all of its nodes, by srun")
    job.add_argument(
        "--hosts", metavar="NODESET", default="", help="the job of PID or --match on these hosts, over ssh: node[01-08]"
    )
    job.add_argument(
        "--look", type=seconds, default=8.0, metavar="SECONDS", help="how long to watch it, at most (default: 8)"
    )
    add_program(job)
    job.add_argument("--tui", action="store_true", help="follow it in the terminal interface")
    add_report(job)


def add_fleet(commands: Any) -> None:
    """Add the command ``fleet``."""
    fleet = new_command(
        commands,
        "fleet",
        "diagnose many hosts as one: over ssh, by Slurm, or from files that they wrote",
        description="Asks many hosts for gpudoctor check --json, or reads what they wrote, and folds it into one"
        " diagnosis: what is wrong on which hosts and what these share, who differs from the others, who gave no"
        " answer, and the command that takes the bad ones out of service.",
        epilog="Exit code: 0 go, 1 no-go: a host has an error, 2 misuse, 3 no error was found and not every host could"
        " be judged. Ctrl-C ends it, and shows what has arrived so far (130).",
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
    add_program(fleet)
    fleet.add_argument(
        "--scheduler",
        choices=("slurm", "kubernetes", "none"),
        help="whose command takes hosts out of service (default: Slurm's where it is installed)",
    )
    fleet.add_argument("--drain-silent", action="store_true", help="also take out hosts that gave no answer")
    fleet.add_argument("--tui", action="store_true", help="show it in the terminal interface")
    add_report(fleet)
    add_expect(fleet)


def add_explain(commands: Any) -> None:
    """Add the command ``explain``."""
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
    """Add the commands ``snapshot``, ``diff``, ``history``, ``replay`` and ``record``."""
    snapshot = new_command(commands, "snapshot", "save the facts of this machine, to be read or compared later")
    add_out(snapshot)
    add_share(snapshot)
    add_target(snapshot)
    add_wait(snapshot)
    add_diff(commands)
    history = new_command(
        commands,
        "history",
        "the checks and runs of this machine that are kept",
        description="Lists the kept checks of this machine, and the commands that ran under gpudoctor run, the"
        " newest first: when, how deep, what came of it. A run's"
        " name can stand in gpudoctor diff. GPUDOCTOR_HISTORY=off keeps none; GPUDOCTOR_STATE names another folder.",
    )
    history.add_argument("--json", action="store_true", help="the list as one JSON document")
    add_share(history)
    add_replay(commands)
    record = new_command(
        commands,
        "record",
        "save every question and answer of this machine as a file, personal data replaced",
        description="Saves whatever is asked on this machine and what it answers, so that the file can be diagnosed"
        " elsewhere, and again by later versions: gpudoctor read FILE. Host and user names, UUIDs, serial numbers,"
        " hardware and network addresses and secrets are replaced; review it before you share it.",
    )
    add_out(record)
    add_target(record)


def add_diff(commands: Any) -> None:
    """Add the command ``diff``."""
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
    diff.add_argument(
        "--level", choices=("quick", "standard", "deep"), help="level for this machine now (default: A's)"
    )
    add_python(diff, "the Python whose torch is examined, for this machine now")
    diff.add_argument("--json", action="store_true", help="the comparison as one JSON document")
    add_share(diff)
    add_rules(diff)
    add_lang(diff)


def add_replay(commands: Any) -> None:
    """Add the command ``replay``."""
    replay = new_command(
        commands,
        "replay",
        "which machines today's rules would have drained, judged from kept files",
        description="Judges kept documents, snapshots, logs and runs again, with the rules and profile of today, and"
        " tells which machines would have been taken out of service, when first, and by which finding. Folders are"
        " searched; a file's machine is the one that it names, else that of its folder. Nothing is changed.",
        epilog="Exit code: 0 none would have been drained, 1 at least one, 2 misuse, 3 no file could be read.",
    )
    replay.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a file, or a folder of files")
    replay.add_argument("--json", action="store_true", help="every file with its result as one JSON document")
    replay.add_argument("--strict", action="store_true", help="warnings drain, too")
    add_expect(replay)
    add_rules(replay)
    add_share(replay)
