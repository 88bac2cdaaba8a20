"""A job of one rank on each host, as ``gpudoctor preflight`` checks it: started, awaited, and what each rank said."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.net.hosts import PORT, Hosts

PREFLIGHT = [sys.executable, "-m", "gpudoctor", "preflight", "--network"]
"""Only the network: no host here has a GPU."""

LIMIT = 25.0
"""Seconds in which each fault is named, on a machine whose processors are there for it."""

Env = Mapping[int, Mapping[str, str]]
"""What the environment of single ranks has beside what the launcher sets."""


class Ended(NamedTuple):
    """One rank that has ended; `seconds` since the job's start, without those in which something had no processor."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def document(self) -> Any:
        """Its JSON document."""
        return json.loads(self.out)

    @property
    def ids(self) -> set[str]:
        """Of its findings that are worse than information."""
        return {one["id"] for one in self.document["findings"] if one["severity"] != "info"}

    def titles(self, name: str) -> list[str]:
        """What its findings of one kind say."""
        return [one["title"] for one in self.document["findings"] if one["id"] == name]


class Job:
    """The ranks of a job, on their way."""

    def __init__(
        self,
        hosts: Hosts,
        words: Sequence[str] = ("--json",),
        env: Env | Callable[[int], Mapping[str, str]] = lambda _: {},
        missing: Collection[int] = (),
        port: int = PORT,
    ) -> None:
        of = env if callable(env) else lambda rank: env.get(rank, {})
        self.began = time.monotonic() - starved()
        self.ranks: dict[int, subprocess.Popen[str]] = {
            host.number: host.start([*PREFLIGHT, *words], {**hosts.environ(host.number, port), **of(host.number)})
            for host in hosts
            if host.number not in missing
        }

    def ended(self, timeout: float = 150) -> dict[int, Ended]:
        """Each rank's end."""
        with ThreadPoolExecutor(len(self.ranks)) as hearing:  # all at once: a full pipe would stop a rank
            said = hearing.map(lambda process: self._heard(process, timeout), self.ranks.values())
            return dict(zip(self.ranks, said, strict=True))

    def _heard(self, process: subprocess.Popen[str], timeout: float) -> Ended:
        out, err = process.communicate(timeout=timeout)
        return Ended(process.returncode, out, err, time.monotonic() - starved() - self.began)


def starved() -> float:
    """Seconds since the start of the machine in which some process waited for a processor; 0 where Linux does not say.

    As Linux counts them in ``/proc/pressure/cpu``: a suite keeps all processors busy, and what a job takes then is not
    what the job needs.
    """
    try:
        some = Path("/proc/pressure/cpu").read_text().splitlines()[0]
    except OSError:
        return 0.0
    return int(some.rpartition("total=")[2]) / 1e6
