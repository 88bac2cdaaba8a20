"""``setup driver``, ``setup cuda-toolkit`` and ``setup container``."""

from __future__ import annotations

from typing import Any

from gpudoctor.arguments._fix import add_running
from gpudoctor.arguments._options import add_lang, add_python, add_share, new_command

_WHATS = {
    "driver": "the NVIDIA driver, from the packages of this system",
    "cuda-toolkit": "the CUDA toolkit that fits torch, without a driver in it",
    "container": "the NVIDIA Container Toolkit, and the engines that are to know it",
}


def add_setup_system(whats: Any) -> None:
    """What an administrator sets up, each as a plan."""
    for what, about in _WHATS.items():
        command = new_command(
            whats,
            what,
            about,
            act="setup system",
            description=f"Prints the plan that sets up {about}: every step as it would run, what it needs, and the way"
            " back. Reads only, unless --apply is given.",
            epilog="Exit code: 0 there is a plan, 1 no way is known for this system, 2 misuse.",
        )
        command.set_defaults(what=what, cuda="", level="quick", rules=[])
        command.add_argument(
            "--for",
            dest="machine",
            metavar="FACTS",
            help="a machine that is not here: distribution=ubuntu 24.04,gpu=RTX 5090,arch=x86_64,driver=570",
        )
        add_share(command)
        if what == "cuda-toolkit":
            command.add_argument("--cuda", metavar="X.Y", default="", help="that release (default: torch's own)")
        command.add_argument("--apply", action="store_true", help="run the plan, asking before each step")
        command.add_argument("--dry-run", action="store_true", help="print the plan (the default)")
        add_python(command)
        add_running(command)
        add_lang(command)
