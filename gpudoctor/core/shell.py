"""A command as one line to type: in a POSIX shell, or in PowerShell where it names a path of Windows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_PLAIN = re.compile(r"[\w%+=:./\\~-][\w@%+=:./\\~-]*")
"""Words that PowerShell takes as they are; a comma would make a list of one, a ``>`` a file."""


def shell_line(argv: Sequence[str]) -> str:
    """The words quoted and joined; of Windows where one of them is a path of a drive.

    ``& "C:\\Program Files\\py\\python.exe" -m pip install "torch>=2"``: a quoted program is called by ``&``.
    """
    if not any(_DRIVE.match(word) for word in argv):
        return shlex.join(argv)
    line = " ".join(word if _PLAIN.fullmatch(word) else _quoted(word) for word in argv)
    return f"& {line}" if line.startswith('"') else line


def _quoted(word: str) -> str:
    """The word in double quotes, with what PowerShell would expand in them escaped."""
    return '"' + re.sub(r'([`$"])', r"`\1", word) + '"'
