"""Packages that a GPU's work hangs on, and when they were installed, exchanged or removed, by whose hand.

From the logs of the package managers: apt and dpkg, dnf, zypper, pacman, and conda's of the target's environment; of
what pip and uv installed there the files' own times tell. Only the ends of logs are read, the newest changes kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from gpudoctor.core.catalog import column
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread, number_of
from gpudoctor.probes._dists import Environment, environment, installer
from gpudoctor.probes._log import boot_time
from gpudoctor.probes._packages import (
    SYSTEM_LOGS,
    ClockReader,
    LogReader,
    PackageChange,
    conda_changes,
    is_relevant,
    machine_clock,
    newest_changes,
    utc_text,
)
from gpudoctor.probes._reading import number, refusal
from gpudoctor.probes._site import Site, site_of
from gpudoctor.target import Target
from gpudoctor.target.protocol import printable

NOT_YET = "windows"
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

_MOST_CHANGES = 200


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the group ``package_change``, the newest first; empty if all that is there was read and tells of no
    change, absent if there is neither a log of a package manager nor an environment's folder.

    Unread if no change was found and something could not be read.
    """
    site = site_of(target)
    logs: list[tuple[tuple[str, ...], LogReader]] = [((path,), read) for path, read in SYSTEM_LOGS]
    if isinstance(site, Site) and site.environment == "conda":
        prefix = site.prefix
        logs.append(
            ((f"{prefix}/conda-meta/history",), lambda target, parse_time: conda_changes(target, parse_time, prefix))
        )
    if isinstance(site, Site):
        logs.append((site.folders, pip_changes))
    entries: list[PackageChange] = []
    refused: list[Unread] = []
    read = False
    parse_time: ClockReader | None = None
    for paths, parse in logs:
        try:
            if not any(target.exists(path) for path in paths):
                continue
            parse_time = parse_time or machine_clock(target)
            entries += parse(target, parse_time)
            read = True
        except OSError as error:
            refused.append(refusal(paths[0], error))
    if entries or (read and not refused):
        booted, up = boot_time(target), number_of(number(target, "/proc/uptime"))
        now = booted + up if booted is not None and up is not None else time.time()
        yield "package_change", tuple(_change_row(entry, now) for entry in newest_changes(entries, _MOST_CHANGES))
    else:
        yield "package_change", refused[0] if refused else Absent("no log of a package manager is there")


def _change_row(entry: PackageChange, now: float) -> Row:
    """The row of one change: name, before, after, time, age_s, by and user; `now` in seconds since 1970.

    Versions, by and user are absent where empty.
    """

    def text_fact(text: str, why_empty: str) -> Fact:
        """The text as a fact; absent with the reason `why_empty` if it is empty."""
        return Known(printable(text), entry.source) if text else Absent(why_empty)

    return {
        "name": Known(printable(entry.name), entry.source),
        "before": text_fact(entry.before, "it was not installed, or the log does not say"),
        "after": text_fact(entry.after, "it was removed"),
        "time": Known(entry.time, entry.source),
        "age_s": Known(int(now - entry.stamp), entry.source),
        "by": text_fact(entry.by, f"{entry.source} does not say"),
        "user": text_fact(entry.user, f"{entry.source} does not say"),
    }


# ---- What pip and uv installed into the target's environment ----
# When, by the time of each RECORD, which is written last.

_EARLIEST_TIME = 1_000_000_000
"""Seconds since 1970: images that are built to be the same each time date their files to the beginning of time."""


def pip_changes(target: Target, parse_time: ClockReader) -> Iterator[PackageChange]:
    """Yields a change per relevant distribution that conda did not install, dated by its RECORD.

    Without a version before. Those without a RECORD, or with a date that a reproducible image sets, are left out.
    """
    found = environment(target)
    if not isinstance(found, Environment):
        return
    for dist in found.dists:
        if not is_relevant(dist.name) or found.by_conda(dist):
            continue
        record = f"{dist.path}/RECORD"
        try:
            stamp = target.modified(record)
        except OSError:  # a distribution's own packages have none; a record of a machine may not tell
            continue
        at = parse_time(utc_text(stamp)) if stamp > _EARLIEST_TIME else None
        if at:
            yield PackageChange(dist.name, "", dist.version, *at, installer(target, dist) or "", "", record)
