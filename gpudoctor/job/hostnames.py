"""A launcher's short form of host names, written out: ``node[1-4,7]``."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator

_WORD = re.compile(r"[^,\[]*(?:\[[^\]]*\][^,\[]*)*")
_BRACKETS = re.compile(r"\[([\d,-]+)\]")
_MOST = 1 << 16
"""Names that one list may stand for."""


def expanded(short: str) -> list[str]:
    """Each name: by Slurm's own program where it is there, in containers it is not; else as hostlist(3) says.

    Empty where that cannot be told.
    """
    if "[" not in short:
        return [name for name in short.split(",") if name]
    return _by_slurm(short) or _written_out(short)


def _by_slurm(short: str) -> list[str]:
    scontrol = shutil.which("scontrol")
    if not scontrol:
        return []
    try:
        done = subprocess.run(
            [scontrol, "show", "hostnames", short], check=False, capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split() if done.returncode == 0 else []


def _written_out(short: str) -> list[str]:
    names: list[str] = []
    for word in _WORD.findall(short):
        for name in _names(word) if word else ():
            if "[" in name or len(names) == _MOST:
                return []
            names.append(name)
    return names


def _names(word: str) -> Iterator[str]:
    """``rack[1-2]n[01-10]``: the first brackets turn slowest; numbers keep their zeros."""
    match = _BRACKETS.search(word)
    if not match:
        yield word
        return
    for part in match[1].split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            yield word
            return
        for number in range(int(first), int(last or first) + 1):
            yield from _names(f"{word[: match.start()]}{number:0{len(first)}}{word[match.end() :]}")
