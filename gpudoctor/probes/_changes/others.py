"""The logs of pacman, zypper and conda."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.probes._changes.entry import Entry, program, told
from gpudoctor.probes._changes.logs import Zoned, texts
from gpudoctor.target import Target

PACMAN = "/var/log/pacman.log"
ZYPP = "/var/log/zypp/history"

_PACMAN = (
    r"(?m)^\[(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?)([+-]\d{4})?\] \[(?:PACMAN|ALPM)\] "
    r"(?:Running '([^'\n]{1,400})'|(installed|upgraded|downgraded|removed) (\S{1,100}) \(([^()\n]{1,200})\))$"
)
_ZYPP = r"(?m)^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\|(install|remove ?|command)\|([^|\n]{1,200})\|([^|\n]{0,400})"
_CONDA = (
    r"(?m)^(?:==> (?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) <==|# cmd: (?P<cmd>[^\n]{1,400})"
    r"|(?P<sign>[-+])(?:\S{1,200}::)?(?P<name>[^\s:]{1,100}?)-(?P<version>[^\s-]{1,60})-[^\s-]{1,60})$"
)


def pacman(target: Target, zoned: Zoned) -> Iterator[Entry]:
    """``[2025-11-03T06:25:13+0100] [ALPM] upgraded nvidia-open (580.82.09-3 -> 580.95.05-1)``."""
    for path, text in texts(target, PACMAN):
        by = ""
        for time, offset, command, verb, name, versions in re.findall(_PACMAN, text):
            if command:
                by = program(command)
            elif told(name) and (at := zoned(f"{time}{offset[:3]}:{offset[3:]}" if offset else time)):
                first, _, second = versions.partition(" -> ")
                before, after = {"installed": ("", first), "removed": (first, "")}.get(verb, (first, second))
                yield Entry(name, before, after, *at, by, "", path)


def zypp(target: Target, zoned: Zoned) -> Iterator[Entry]:
    """``2025-11-03 06:25:13|install|nvidia-open-driver-G06|580.95.05-1.1|x86_64|...``.

    What was there before is known where the log has an earlier installation.
    """
    for path, text in texts(target, ZYPP):
        by, versions = "", dict[str, str]()
        for time, verb, name, version in re.findall(_ZYPP, text):
            if verb == "command":
                by = program(version.partition("|")[0])
            elif told(name) and (at := zoned(time)):
                gone = verb.startswith("remove")
                before = version if gone else versions.get(name, "")
                after = "" if gone else version
                versions[name] = after
                yield Entry(name, before, after, *at, by, "", path)


def conda(target: Target, zoned: Zoned, prefix: str) -> Iterator[Entry]:
    """conda-meta/history: the time and command of each transaction, then what went (``-``) and what came (``+``)."""
    for path, text in texts(target, f"{prefix}/conda-meta/history"):
        at: tuple[str, float] | None = None
        by = ""
        changed: dict[str, list[str]] = {}
        for match in (*re.finditer(_CONDA, text), None):
            if match is None or match["time"]:
                if at:
                    yield from (Entry(name, was, now, *at, by, "", path) for name, (was, now) in changed.items())
                at, by, changed = (zoned(match["time"]) if match else None), "", {}
            elif match["cmd"]:
                by = program(match["cmd"])
            elif told(match["name"]):
                changed.setdefault(match["name"], ["", ""])[match["sign"] == "+"] = match["version"]
