"""Commands that look at a machine or at a file: ``check``, ``read``, ``demo``, and what documents look like."""

from __future__ import annotations

from typing import Any

from gpudoctor.arguments._options import add_expect, add_report, add_serve, add_target, add_wait, new_command


def add_check(commands: Any) -> None:
    """``check``."""
    check = new_command(commands, "check", "diagnose this machine")
    add_target(check)
    add_wait(check)
    add_report(check)
    add_expect(check)
    add_serve(check)


def add_read(commands: Any) -> None:
    """``read``."""
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
    """``demo``."""
    about = "look at a recorded sick machine: in the interface, or with NAME and a report's options as a report"
    demo = new_command(commands, "demo", about)
    demo.add_argument("name", nargs="?", default="", metavar="NAME", help="which one (default: choose from a list)")
    add_report(demo)
    add_expect(demo)
    add_serve(demo)


def add_schema(commands: Any) -> None:
    """``schema``."""
    schema = new_command(commands, "schema", "print the JSON Schema of a document")
    schema.add_argument(
        "kind",
        nargs="?",
        choices=("diagnosis", "snapshot", "kernels", "plan", "run", "stack", "fleet", "diff", "history", "profile"),
        default="diagnosis",
        help="of which (default: diagnosis)",
    )
