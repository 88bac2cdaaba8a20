"""Every test sees the same surroundings: no colour, no user cache, no variable that steers CUDA."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.documents import watching

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Set where images are built. With it each of the thousand programs started here compiles all it imports anew.

_STEERING = ("CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_", "PYTHONPATH")


class Run(NamedTuple):
    """What the program did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Its one JSON document."""
        return json.loads(self.out)


Program = Callable[..., Run]


def pytest_collection_finish() -> None:
    """Let the collector of garbage pass over what ten thousand collected tests hold, each time it runs in one."""
    gc.collect()
    gc.freeze()


def pytest_xdist_auto_num_workers() -> int:
    """Two workers for each processor, for many tests wait: for a deadline, a child, a port, a screen."""
    return min(8, 2 * (os.cpu_count() or 1))


@pytest.fixture(scope="session", autouse=True)
def _quiet_surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache for the whole run, so that the rulebook is compiled once; nothing of the user's own, and no history."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(_STEERING):
                patch.delenv(name)
        patch.setenv("NO_COLOR", "1")
        patch.setenv("GPUDOCTOR_LANG", "en")
        patch.setenv("GPUDOCTOR_HISTORY", "off")
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _documents_fit_the_schema() -> Iterator[None]:
    """No test gets a JSON document that ``gpudoctor schema`` does not describe."""
    with watching():
        yield


@pytest.fixture(scope="session")
def gpudoctor() -> Program:
    """The real program in a process of its own."""

    def run(
        *words: str, stdin: str = "", timeout: float = 240, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> Run:
        done = subprocess.run(
            [sys.executable, "-m", "gpudoctor", *words],
            check=False,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=cwd,
            env={**os.environ, **(env or {})},
        )
        return Run(done.returncode, done.stdout, done.stderr)

    return run
