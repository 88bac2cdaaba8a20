"""What pip and uv installed into the target's environment: when, by the time of each RECORD, which is written last."""

from __future__ import annotations

import time
from collections.abc import Iterator

from gpudoctor.probes._changes.entry import Entry, told
from gpudoctor.probes._changes.logs import Zoned
from gpudoctor.probes._python.dists import Environment, environment, installer
from gpudoctor.target import Target

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
