"""A job of one rank on each host, as ``gpudoctor preflight`` checks it: started, awaited, and what each rank said."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from tests.net.hosts import PORT, Hosts

PREFLIGHT = [sys.executable, "-m", "gpudoctor", "preflight", "--network"]
"""Only the network: no host here has a GPU."""

Env = Mapping[int, Mapping[str, str]]
"""What the environment of single ranks has beside what the launcher sets."""


class Ended(NamedTuple):
    """One rank that has ended."""

    code: int
    out: str
    err: str

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
        self.ranks: dict[int, subprocess.Popen[str]] = {
            host.number: host.start([*PREFLIGHT, *words], {**hosts.environ(host.number, port), **of(host.number)})
            for host in hosts
            if host.number not in missing
        }

    def ended(self, timeout: float = 600) -> dict[int, Ended]:
        """Each rank's end."""
        with ThreadPoolExecutor(len(self.ranks)) as hearing:  # all at once: a full pipe would stop a rank
            said = hearing.map(lambda process: self._heard(process, timeout), self.ranks.values())
            return dict(zip(self.ranks, said, strict=True))

    def _heard(self, process: subprocess.Popen[str], timeout: float) -> Ended:
        out, err = process.communicate(timeout=timeout)
        return Ended(process.returncode, out, err)
