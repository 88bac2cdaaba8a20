"""A candidate written down: as commands of a tool, as a project's file, as an image. One file a form."""

from __future__ import annotations

from gpudoctor.setup.emit import conda, dockerfile, environment, pip, pixi, pyproject, requirements, uv
from gpudoctor.setup.emit.beside import completed
from gpudoctor.setup.emit.order import BASE, Argvs, Order

COMMANDS = {"pip": pip.commands, "uv": uv.commands, "conda": conda.commands}
FILES = {
    "requirements": requirements.text,
    "pyproject": pyproject.text,
    "dockerfile": dockerfile.text,
    "environment": environment.text,
    "pixi": pixi.text,
}

__all__ = ["BASE", "COMMANDS", "FILES", "Argvs", "Order", "completed"]
