"""Packages that dpkg has installed, from its status file. rpm's database is no text and is not read."""

from __future__ import annotations

import re

from gpudoctor.model.fact import Absent, Unread
from gpudoctor.probes._reading import text
from gpudoctor.target import Target

STATUS = "/var/lib/dpkg/status"
_LIMIT = 32 << 20


def packages(target: Target, pattern: str) -> dict[str, str] | Absent | Unread:
    """Versions, without epoch, of the installed packages whose whole name matches; absent where there is no dpkg."""
    status = text(target, STATUS, _LIMIT)
    if not isinstance(status, str):
        return status
    found: dict[str, str] = {}
    for match in re.finditer(rf"^Package: ({pattern})$", status, re.M):
        entry = status[match.start() : status.find("\n\n", match.start()) + 1 or len(status)]
        version = re.search(r"^Version: (?:\d+:)?(\S+)", entry, re.M)
        if version and re.search(r"^Status: .* installed$", entry, re.M):
            found[match[1]] = version[1]
    return found
