"""Commands that bring gpudoctor elsewhere: ``pyz``, ``completion``, ``mcp``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpudoctor.arguments._options import new_command

SHELLS = ("bash", "zsh", "fish")


def add_installing(commands: Any) -> None:
    """``pyz`` and ``completion``."""
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
        "--without-tui", action="store_true", help="leave the terminal interface out: half the size, all else works"
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
        "print what lets a shell complete commands, options and the names of rules",
        description="Prints the completion of a shell. A wheel installs it where shells look for it below the same"
        " prefix; in an environment of its own, have the shell read what is printed.",
    )
    completion.add_argument("shell", choices=SHELLS, help="the shell")


def add_mcp(commands: Any) -> None:
    """``mcp``."""
    mcp = new_command(
        commands,
        "mcp",
        "serve check, read, explain and setup to assistants, by the Model Context Protocol",
        description="Answers an assistant on standard input and output until it hangs up: tools that look and tell,"
        " and never change anything. Answers are hidden as by --share.",
    )
    mcp.add_argument("--python", metavar="PATH", default="", help="the interpreter whose torch is meant")
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
