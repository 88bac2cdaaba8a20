"""The command that works out what to install: ``setup``."""

from __future__ import annotations

from typing import Any

from gpudoctor.arguments._options import add_lang, add_python, add_share, new_command
from gpudoctor.arguments._setup_system import add_setup_system

EMITTED = ("pip", "uv", "conda", "requirements", "pyproject", "dockerfile", "environment", "pixi")


def add_setup(commands: Any) -> None:
    """``setup torch`` and what else can be set up."""
    whats = commands.add_parser("setup", help="what to install so that it works here, and why").add_subparsers(
        metavar="WHAT", required=True
    )
    torch = new_command(
        whats,
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
    add_setup_system(whats)
