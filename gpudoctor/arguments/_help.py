"""How the help of every command looks."""

from __future__ import annotations

import argparse
import os
from typing import Any


class Help(argparse.HelpFormatter):
    """Paragraphs are filled; one whose lines are indented stands as it is."""

    def __init__(self, prog: str, **more: Any) -> None:
        """argparse makes one for each option; where no `width` is given that loads shutil to ask the terminal."""
        super().__init__(prog, **{"width": _columns() - 2, **more})

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled = super()._fill_text
        blocks = text.split("\n\n")
        return "\n\n".join(block if "\n  " in block else filled(block, width, indent) for block in blocks)


def _columns() -> int:
    """Columns of the terminal, as `shutil.get_terminal_size` has them."""
    try:
        return int(os.environ.get("COLUMNS", "")) or 80
    except ValueError:
        pass
    try:
        return os.get_terminal_size().columns
    except OSError:
        return 80
