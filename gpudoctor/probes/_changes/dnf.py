"""dnf's own history, which a child reads: it is a database, and it may be damaged."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.probes._changes.entry import RELEVANT, Entry, program
from gpudoctor.probes._changes.logs import Zoned
from gpudoctor.probes._child import script
from gpudoctor.target import Target
from gpudoctor.target.protocol import answers, printable

DATABASES = ("/usr/lib/sysimage/libdnf5/transaction_history.sqlite", "/var/lib/dnf/history.sqlite")
"""Of dnf 5 and of dnf 4; where both are, dnf 4 was in use before."""

_SECONDS = 3.0
_NOBODY = 4294967295
"""The login of what no login began: a timer, the installer."""


def dnf(target: Target, zoned: Zoned, path: str) -> Iterator[Entry]:
    """Raises `OSError` where it cannot be read, and where there is no Python that could."""
    argv = [target.python or "python3", "-I", "-S", *script("ask_dnf.py")]
    answer = target.run([*argv, str(target.path(path)), RELEVANT.pattern], _SECONDS)
    told = list(answers(answer.out))
    if not told or "done" not in told[-1]:
        raise OSError(0, f"the child that reads it: {answer.how}", path)
    for raw in told[:-1]:
        if entry := _entry(raw, zoned, path):
            yield entry


def _entry(raw: dict[str, object], zoned: Zoned, path: str) -> Entry | None:
    """None for what is not of the form that a child of ours gives."""
    at, user = raw.get("at"), raw.get("user")
    if not isinstance(at, int) or not 0 < at < 1 << 33:
        return None
    import time

    name, before, after = (printable(raw.get(key, ""), 100) for key in ("name", "before", "after"))
    local = zoned(time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(at)))
    who = "" if user in (None, _NOBODY, -1) else "root" if user == 0 else f"user {printable(user, 12)}"
    return Entry(name, before, after, *local, program(printable(raw.get("by", ""), 400)), who, path) if local else None
