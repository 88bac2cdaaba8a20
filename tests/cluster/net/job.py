"""A job of one rank on each host, as ``gpudoctor preflight`` checks it: started, awaited, and what each rank said."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.cluster.net.hosts import PORT, Hosts
from tests.processes import Ran

PREFLIGHT = [sys.executable, "-m", "gpudoctor", "preflight", "--network"]
"""Only the network: no host here has a GPU."""

Env = Mapping[int, Mapping[str, str]]
"""What the environment of single ranks has beside what the launcher sets."""


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

    def ended(self, timeout: float = 600) -> dict[int, Ran]:
        """Each rank's end."""
        with ThreadPoolExecutor(len(self.ranks)) as hearing:  # all at once: a full pipe would stop a rank
            said = hearing.map(lambda process: self._heard(process, timeout), self.ranks.values())
            return dict(zip(self.ranks, said, strict=True))

    def _heard(self, process: subprocess.Popen[str], timeout: float) -> Ran:
        out, err = process.communicate(timeout=timeout)
        return Ran(process.returncode, out, err)
