"""apt's history.log, which names the command and who asked for it, and dpkg.log, which has what apt never saw."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.model.pattern import pattern
from gpudoctor.probes._changes.entry import Entry, program, told
from gpudoctor.probes._changes.logs import Zoned, texts
from gpudoctor.target import Target

APT = "/var/log/apt/history.log"
DPKG = "/var/log/dpkg.log"

_LONGEST = 100
_FIELD = pattern(r"^([A-Z][A-Za-z-]*): (.*)$", re.M)
_LINE = pattern(
    r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:install|upgrade|remove|purge) "
    r"([^\s:]{1,100})(?::\S{1,20})? (\S{1,100}) (\S{1,100})$",
    re.M,
)
_NONE = "<none>"
_MOST = 96 << 10
"""Bytes of dpkg.log: ten lines for each package, most of which apt's log has in a word."""


def apt(target: Target, zoned: Zoned) -> Iterator[Entry]:
    """Stanzas of fields, an empty line between them; ``Upgrade: name:arch (before, after), ...``."""
    for path, text in texts(target, APT):
        for stanza in text.split("\n\n"):
            fields = dict(_FIELD.findall(stanza))
            changed = list(_changed(fields))
            if changed and (at := zoned(fields.get("Start-Date", ""))):
                by = program(fields.get("Commandline", ""))
                user = fields.get("Requested-By", "").partition(" (")[0][:60]
                yield from (Entry(name, before, after, *at, by, user, path) for name, before, after in changed)


def _changed(fields: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Name, version before and version after of the packages that are told of."""
    for kind in ("Install", "Upgrade", "Downgrade", "Remove", "Purge"):
        for item in fields.get(kind, "").split("), "):
            name, _, versions = item.partition(" (")
            name = name.partition(":")[0]
            if len(name) <= _LONGEST and told(name):
                first, _, second = versions[: 3 * _LONGEST].rstrip(")").partition(", ")
                before = "" if kind == "Install" else first
                after = first if kind == "Install" else second if kind in ("Upgrade", "Downgrade") else ""
                yield name, before, after


def dpkg(target: Target, zoned: Zoned) -> Iterator[Entry]:
    """Lines ``2025-11-03 06:25:14 upgrade libnvidia-compute-580:amd64 580.82.07-0ubuntu1 580.95.05-0ubuntu1``."""
    for path, text in texts(target, DPKG, _MOST):
        for time, name, before, after in _LINE.findall(text):
            if told(name) and (at := zoned(time)):
                was, now = ("" if version == _NONE else version for version in (before, after))
                if was != now:
                    yield Entry(name, was, now, *at, "", "", path)
