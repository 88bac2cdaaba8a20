"""gpudoctor brought elsewhere: ``pyz``, ``completion``, ``mcp``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor import shipped
from gpudoctor.commands.exits import SOUND
from gpudoctor.model.errors import ExtraError

if TYPE_CHECKING:
    import argparse

COMPLETIONS = {"bash": "gpudoctor.bash", "zsh": "_gpudoctor", "fish": "gpudoctor.fish"}
"""Files of ``gpudoctor/completion``, named as each shell looks for them."""


def pyz(options: argparse.Namespace) -> int:
    from gpudoctor import pyz

    place = Path(options.out)
    pyz.build(place, options.pythons, not options.without_tui, _tell)
    size = place.stat().st_size / 1e6
    _tell(f"{place}, {size:.1f} MB; it runs as python3 {place} check")
    return SOUND


def completion(options: argparse.Namespace) -> int:
    print(shipped.text(f"completion/{COMPLETIONS[options.shell]}"), end="")
    return SOUND


def mcp(options: argparse.Namespace) -> int:
    from importlib.util import find_spec

    if not find_spec("mcp"):
        raise ExtraError("mcp is missing", "mcp")
    from gpudoctor.mcp import server

    server.serve(options.python, options.share, options.folders)
    return SOUND


def _tell(sentence: str) -> None:
    print(f"gpudoctor: {sentence}", file=sys.stderr)
