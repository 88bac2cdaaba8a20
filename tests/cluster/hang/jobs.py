"""Real jobs of four ranks that tests hang in a way, and how they ask what the ranks wait for."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpudoctor.core.shipped import own_command
from tests import needs
from tests.processes import free_port, until

RANKS = range(4)
ASTRAY = 2
_HERE = Path(__file__).parent
_LIMIT = 600.0


class Job:
    """Four ranks that run, each a process of its own without a launcher; `folder` has their logs."""

    def __init__(self, kind: str, folder: Path, environ: Mapping[str, str], before: Sequence[str] = ()) -> None:
        self.folder = folder
        port = str(free_port())
        self.ranks = []
        for rank in RANKS:
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}
            own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1", "ASTRAY": str(ASTRAY)}
            with (folder / f"log-{rank}").open("wb") as log:
                words = [*before, needs.torch_python(), str(_HERE / "ranks.py"), kind, str(folder)]
                self.ranks.append(
                    subprocess.Popen(
                        words,
                        stdout=log,
                        stderr=log,
                        env={**os.environ, **own, **environ},
                        cwd=folder,
                        start_new_session=True,
                    )
                )

    @property
    def pid(self) -> int:
        """The process of its first rank."""
        return self.ranks[0].pid

    def await_files(self, name: str, ranks: Sequence[int]) -> None:
        """Wait until those ranks have written that file."""
        assert until(lambda: all((self.folder / f"{name}-{rank}").exists() for rank in ranks)), self.logs()

    def logs(self) -> str:
        """What the ranks have printed."""
        return "\n".join((self.folder / f"log-{rank}").read_text("utf-8", "replace") for rank in RANKS)

    def end(self) -> None:
        """Kill all of it, the workers of its DataLoaders too."""
        for rank in self.ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(rank.pid, signal.SIGKILL)
        for rank in self.ranks:
            rank.wait()


@contextlib.contextmanager
def running(kind: str, folder: Path, environ: Mapping[str, str] | None = None) -> Iterator[Job]:
    """A job whose ranks are where they are to hang, or nearly so."""
    job = Job(kind, folder, environ or {})
    try:
        alive = [rank for rank in RANKS if kind != "die" or rank != ASTRAY]
        job.await_files("began" if kind == "die" else "ready", alive)
        yield job
    finally:
        job.end()


def asked(*words: str, environ: Mapping[str, str] | None = None) -> Any:
    """The document of ``gpudoctor job``."""
    argv = [*own_command(), "job", *words, "--json"]
    own = {**os.environ, **(environ or {})}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_LIMIT, check=False, env=own)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def until_found(job: Job, parts: Sequence[str], *words: str) -> Any:
    """The document once a finding says all these parts: on a busy machine ranks take a while to where they hang."""
    deadline = time.monotonic() + _LIMIT
    while True:
        document = asked(str(job.pid), *words)
        if any(all(part in title for part in parts) for title in titles(document).values()):
            return document
        assert time.monotonic() < deadline, f"{titles(document)}\n{document['facts']}\n{job.logs()}"


def titles(document: Any) -> dict[str, str]:
    """The findings' titles by their ids."""
    return {finding["id"]: finding["title"] for finding in document["findings"]}
