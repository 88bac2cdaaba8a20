"""Packages that a GPU's work hangs on, and when they were installed, exchanged or removed, by whose hand.

From the logs of the package managers: apt and dpkg, dnf, zypper, pacman, and conda's of the target's environment; of
what pip and uv installed there the files' own times tell. Only the ends of logs are read, the newest changes kept.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from functools import partial

from gpudoctor.model.catalog import column
from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.probes._changes import debian, others
from gpudoctor.probes._changes.dnf import DATABASES, dnf
from gpudoctor.probes._changes.entry import Entry, newest, told
from gpudoctor.probes._changes.logs import Zoned, clock
from gpudoctor.probes._python.dists import Environment, environment, installer
from gpudoctor.probes._python.site import Site, site_of
from gpudoctor.probes._reading import number, refusal, text
from gpudoctor.target import Target
from gpudoctor.target.protocol import printable

FACTS = (
    column(
        "package_change.name", "text", "a package that the GPUs' work may hang on, such as libnvidia-compute-580, torch"
    ),
    column("package_change.before", "text", "its version before, as the log has it; absent where there was none"),
    column("package_change.after", "text", "its version since; absent where it was removed"),
    column("package_change.time", "text", "when, by the machine's clock, such as 2025-11-03T06:25:14+01:00"),
    column("package_change.age_s", "int", "time since then; below zero where the log is ahead of the clock", "s"),
    column("package_change.by", "text", "what did it, such as unattended-upgrades, apt-get install nvidia-driver-580"),
    column("package_change.user", "text", "who asked for it, where the log says"),
)

_MOST = 200
_Log = Callable[[Target, Zoned], Iterator[Entry]]
_LOGS: tuple[tuple[tuple[str, ...], _Log], ...] = (
    ((debian.APT,), debian.apt),
    ((debian.DPKG,), debian.dpkg),
    ((others.PACMAN,), others.pacman),
    ((others.ZYPP,), others.zypp),
    *(((path,), partial(dnf, path=path)) for path in DATABASES),
)


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """The newest change first."""
    site = site_of(target)
    logs = list(_LOGS)
    if isinstance(site, Site) and site.environment == "conda":
        prefix = site.prefix
        logs.append(((f"{prefix}/conda-meta/history",), lambda target, zoned: others.conda(target, zoned, prefix)))
    if isinstance(site, Site):
        logs.append((site.folders, installed))
    entries: list[Entry] = []
    refused: list[Unread] = []
    read = False
    zoned: Zoned | None = None
    for paths, parse in logs:
        try:
            if not any(target.exists(path) for path in paths):
                continue
            zoned = zoned or clock(target)
            entries += parse(target, zoned)
            read = True
        except OSError as error:
            refused.append(refusal(paths[0], error))
    if entries or (read and not refused):
        now = _now(target)
        yield "package_change", tuple(_row(entry, now) for entry in newest(entries, _MOST))
    else:
        yield "package_change", refused[0] if refused else Absent("no log of a package manager is there")


def _row(entry: Entry, now: float) -> Row:
    def said(text: str, otherwise: str) -> Fact:
        return Known(printable(text), entry.source) if text else Absent(otherwise)

    return {
        "name": Known(printable(entry.name), entry.source),
        "before": said(entry.before, "it was not installed, or the log does not say"),
        "after": said(entry.after, "it was removed"),
        "time": Known(entry.time, entry.source),
        "age_s": Known(int(now - entry.stamp), entry.source),
        "by": said(entry.by, f"{entry.source} does not say"),
        "user": said(entry.user, f"{entry.source} does not say"),
    }


def _now(target: Target) -> float:
    """The machine's clock: when its kernel booted and how long ago; ours where it tells neither."""
    import time

    booted, up = text(target, "/proc/stat", 1 << 18), number(target, "/proc/uptime")
    match = re.search(r"^btime (\d{1,12})$", booted, re.M) if isinstance(booted, str) else None
    return float(match[1]) + float(str(up.value)) if match and isinstance(up, Known) else time.time()


# ---- What pip and uv installed into the target's environment ----
# When, by the time of each RECORD, which is written last.

_EARLIEST = 1_000_000_000
"""Seconds since 1970: images that are built to be the same each time date their files to the beginning of time."""


def installed(target: Target, zoned: Zoned) -> Iterator[Entry]:
    """One for each distribution that conda did not bring; of the version before it nothing tells."""
    found = environment(target)
    if not isinstance(found, Environment):
        return
    for dist in found.dists:
        if not told(dist.name) or found.by_conda(dist):
            continue
        record = f"{dist.path}/RECORD"
        try:
            stamp = target.modified(record)
        except OSError:  # a distribution's own packages have none; a record of a machine may not tell
            continue
        at = zoned(time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(stamp))) if stamp > _EARLIEST else None
        if at:
            yield Entry(dist.name, "", dist.version, *at, installer(target, dist) or "", "", record)
