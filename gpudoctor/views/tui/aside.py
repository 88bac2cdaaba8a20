"""Beside the interface: text on the plain terminal, for what only the terminal itself can do."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Any

from textual.app import App


def show(app: App[Any], commands: Sequence[str]) -> None:
    """Print the commands, each whole on a line of its own, and come back on Enter.

    A mouse selection then takes them as they are, wherever the terminal wraps them, and after the end they are still
    in its history. Raises `SuspendNotSupported` where there is no terminal behind the interface.
    """
    with app.suspend():
        sys.stdout.write("\n".join(["", *commands, "", "Enter goes back to gpudoctor. "]))
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            sys.stdin.readline()
