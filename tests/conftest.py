"""Every test sees the same surroundings: no colour, no user cache, no variable that steers CUDA."""

from __future__ import annotations

import gc
import io
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.documents import watching
from tests.processes import Ran, finished

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Set where images are built. With it each of the thousand programs started here compiles all it imports anew.

_STEERING = ("CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_", "PYTHONPATH")


Program = Callable[..., Ran]
Once = Callable[[str, Callable[[Path], object]], Path]


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what ten thousand collected tests hold, and run seldom: it took a quarter of
    the time of a test of the interface.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


_FIRST = (
    ("tests/windows/",),
    ("tests/cluster/net/",),
    ("tests/cluster/launchers/",),
    ("tests/kernels/on_torch/",),
    ("tests/guard/", "tests/sim/test_waking.py", "tests/soak/", "tests/views/tui/test_hostile.py"),
)
"""What workers begin with, each with another line: what takes turns (one Windows, one job's network at a time) or waits
for long, so that no worker waits for another; and what takes a minute, so that nothing of it is left for the end.
"""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of `items` each worker begins with an equal part, and then takes from the ends of others' (``worksteal``): put
    what begins first to the heads of these parts.
    """
    if not (workers := getattr(config, "workerinput", {}).get("workercount", 0)):
        return
    heads: list[list[pytest.Item]] = [[] for _ in range(workers)]
    others: list[pytest.Item] = []
    for item in items:
        line = next((number for number, places in enumerate(_FIRST) if item.nodeid.startswith(places)), None)
        (others if line is None else heads[line % workers]).append(item)
    count = len(items)
    items.clear()
    for number, head in enumerate(heads):
        part = (count - len(items)) // (workers - number) - len(head)
        items += head + others[: max(part, 0)]
        del others[: max(part, 0)]
    items += others


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two workers for each processor, for many tests wait: for a deadline, a child, a port, a screen."""
    return min(8, 2 * (os.cpu_count() or 1))


@pytest.fixture(scope="session", autouse=True)
def _quiet_surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache for the whole run, so that the rulebook is compiled once; nothing of the user's own, and no history.
    What the product lays out in temporary folders is in memory where it can be: hundreds of machines' trees.
    """
    cache = tmp_path_factory.getbasetemp() / "cache"
    if "PYTEST_XDIST_WORKER" in os.environ:
        cache = cache.parent.with_name("cache")
    cache.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(_STEERING):
                patch.delenv(name)
        patch.setenv("NO_COLOR", "1")
        patch.setenv("GPUDOCTOR_LANG", "en")
        patch.setenv("GPUDOCTOR_HISTORY", "off")
        patch.setenv("XDG_CACHE_HOME", str(cache))
        if os.access("/dev/shm", os.W_OK) and not os.statvfs("/dev/shm").f_flag & os.ST_NOEXEC:
            patch.setattr(tempfile, "tempdir", "/dev/shm")
        yield


@pytest.fixture(scope="session", autouse=True)
def _documents_fit_the_schema() -> Iterator[None]:
    """No test gets a JSON document that ``gpudoctor schema`` does not describe."""
    with watching():
        yield


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Makes a file or folder of that name in the folder of this test run: under xdist all workers share it."""
    import fcntl  # Windows' Python reads this file, too

    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if base.name.startswith("popen-") else base) / "once"
    folder.mkdir(exist_ok=True)

    def made(name: str, make: Callable[[Path], object]) -> Path:
        place = folder / name
        with (folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / f"{name}.made").exists():
                shutil.rmtree(place, ignore_errors=True)
                make(place)
                os.close(os.open(folder / f"{name}.made", os.O_CREAT, 0o600))
        return place

    return made


@pytest.fixture(scope="session")
def gpudoctor() -> Program:
    """The real program in a process of its own."""

    def run(
        *words: str, stdin: str = "", timeout: float = 240, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> Ran:
        argv = [sys.executable, "-m", "gpudoctor", *words]
        return finished(argv, input=stdin, timeout=timeout, cwd=cwd, env={**os.environ, **(env or {})})

    return run


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    """The program as `gpudoctor` of all tests, without a process of its own."""

    def run(
        *words: str, stdin: str = "", timeout: float = 0, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> Ran:
        from gpudoctor.app import cli
        from gpudoctor.core import language

        if timeout or env or cwd:
            raise ValueError("these need a process")
        monkeypatch.setattr(language, "_current", language.current())  # as it is again after the test
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
        capsys.readouterr()
        try:
            code = cli.run(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A control group below our own that may use 250 MiB, of either version."""
    listed = Path("/proc/self/cgroup").read_text().splitlines()
    paths = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in listed}
    places = [Path("/sys/fs/cgroup/memory" + paths["memory"])] if "memory" in paths else []
    places += [Path("/sys/fs/cgroup" + paths.get("", "/")), Path("/sys/fs/cgroup")]
    for place in places:
        group = place / f"gpudoctor-test-{os.getpid()}"
        limit = "memory.limit_in_bytes" if "memory" in str(place) else "memory.max"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(250 << 20))
            if (group / "memory.swap.max").exists():
                (group / "memory.swap.max").write_text("0")
            yield group
            return
        except OSError:
            continue
        finally:
            deadline = time.monotonic() + 600
            while group.exists() and time.monotonic() < deadline:
                try:
                    group.rmdir()
                except OSError:
                    time.sleep(0.05)
    needs.missing("control groups with a memory limit that can be made")
