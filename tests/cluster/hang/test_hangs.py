"""Real jobs that hang in ten ways, looked at while they do: the rank, its host and the place are named, none else."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.cluster.hang.jobs import ASTRAY, Job, asked, running, titles, until_found

pytestmark = pytest.mark.full


@pytest.fixture(autouse=True, scope="module")
def _py_spy() -> None:
    """py-spy looks into the ranks."""
    needs.program("py-spy")


def check(job: Job, rule: str, *parts: str) -> None:
    """That rule alone finds something, about the rank that went astray, and says each of the parts."""
    document = until_found(job, parts)
    assert list(titles(document)) == [rule], titles(document)
    (finding,) = document["findings"]
    assert (finding["subject"]["rank"], finding["subject"]["host"]) == (ASTRAY, socket.gethostname())
    assert finding["subject"].get("process", job.ranks[ASTRAY].pid) == job.ranks[ASTRAY].pid


OTHERS = "ranks 0-1, 3"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("sleep", "it sleeps at sleep (ranks.py:"),
        ("lock", "it waits for a lock at lock_twice (ranks.py:"),
        ("socket", "it waits for a peer on the network at read_socket (ranks.py:"),
    ],
)
def test_a_rank_that_is_elsewhere(kind: str, words: str, tmp_path: Path) -> None:
    with running(kind, tmp_path) as job:
        check(job, "workload.rank-late", words, f"does not come to all_reduce, where the others wait ({OTHERS})")


def test_a_rank_whose_data_does_not_come(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "sample")
    with running("data", tmp_path) as job:
        place = f"waits for {tmp_path}/sample at Slow.__getitem__ (ranks.py:"
        check(job, "workload.rank-file", "is in its DataLoader at load_data (ranks.py:", place, OTHERS)


def test_ranks_in_different_collectives(tmp_path: Path) -> None:
    with running("other", tmp_path) as job:
        check(job, "workload.rank-apart", "Rank 2 in broadcast at other_collective (ranks.py:", "Ranks 0-1, 3 in")


def test_a_stopped_rank(tmp_path: Path) -> None:
    with running("stop", tmp_path) as job:
        check(job, "workload.rank-stopped", "(state T)", "at stop (ranks.py:", OTHERS)


@pytest.fixture(params=["freezer", "unified", "."])
def freezer(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A control group that can be frozen: of version 1, of version 2 beside it, or of version 2 alone."""
    group = Path("/sys/fs/cgroup") / request.param / "gpudoctor-test"
    above = group.parent
    switch = "freezer.state" if request.param == "freezer" else "cgroup.freeze"
    if not (above / "cgroup.procs").exists() or (
        switch != "freezer.state" and not (above / "cgroup.controllers").exists()
    ):
        pytest.skip(f"needs control groups at {above}, which this machine mounts elsewhere")
    try:
        group.mkdir()
    except OSError:
        needs.missing("the right to make control groups")
    yield group / switch
    group.rmdir()


def test_a_frozen_rank(freezer: Path, tmp_path: Path) -> None:
    """As ``docker pause`` and a suspended job leave it."""
    frozen, thawed = ("FROZEN", "THAWED") if freezer.name == "freezer.state" else ("1", "0")
    with running("sound", tmp_path) as job:
        (freezer.parent / "cgroup.procs").write_text(str(job.ranks[ASTRAY].pid))
        freezer.write_text(frozen)
        try:
            check(job, "workload.rank-stopped", "frozen with its control group", OTHERS)
        finally:
            freezer.write_text(thawed)


def test_a_rank_that_has_died(tmp_path: Path) -> None:
    with running("die", tmp_path) as job:
        check(job, "workload.rank-gone", "Rank 2 has no process", "in init_process_group the others wait", OTHERS)


def test_ranks_with_different_shapes(tmp_path: Path) -> None:
    """By the dumps of torch's flight recorder, which the job writes: where it hangs, the lines do not differ."""
    environ = {"TORCH_FR_BUFFER_SIZE": "100", "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump_"}
    with running("shapes", tmp_path, environ) as job:
        document = until_found(job, ["all_reduce of [[2]] (rank 2)"])
        assert "workload.desync" in titles(document)


# ---- File systems that do not answer ----


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of its own that is frozen: whoever writes waits in state D."""
    image, folder = tmp_path / "image", tmp_path / "disk"
    image.write_bytes(bytes(16 << 20))
    folder.mkdir()
    for tool in ("mkfs.ext4", "fsfreeze"):
        needs.program(tool)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    if subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=False).returncode:
        needs.missing("the right to mount a file")
    try:
        if subprocess.run(["fsfreeze", "-f", str(folder)], check=False).returncode:
            needs.missing("the right to freeze a file system")
        yield folder
    finally:
        subprocess.run(["fsfreeze", "-u", str(folder)], check=False)
        subprocess.run(["umount", "-l", str(folder)], check=False)


def test_a_rank_that_writes_to_a_frozen_disk(frozen: Path, tmp_path: Path) -> None:
    file = frozen / "checkpoint"
    with running("write", tmp_path, {"SAMPLE": str(file)}) as job:
        try:
            check(job, "workload.rank-file", f"waits for {file} at write_file (ranks.py:", "(state D", OTHERS)
        finally:
            subprocess.run(["fsfreeze", "-u", str(frozen)], check=False)


class Deaf:
    """A file system that never answers a read, in a folder; `end` lets go whoever waits, which no signal does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("deaf.py")), str(folder)], stdout=subprocess.PIPE, text=True
        )
        assert self.server.stdout
        self.mounted = self.server.stdout.readline().strip() == "mounted"

    def end(self) -> None:
        """Kill the program that serves it."""
        assert self.server.stdout
        self.server.kill()
        self.server.wait()
        self.server.stdout.close()


@pytest.fixture
def deaf(tmp_path: Path) -> Iterator[Deaf]:
    """A folder on a file system that never answers a read."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK) or os.geteuid():
        needs.missing("root and /dev/fuse")
    folder = tmp_path / "data"
    folder.mkdir()
    system = Deaf(folder)
    try:
        if not system.mounted:
            needs.missing("the right to mount FUSE")
        yield system
    finally:
        system.end()
        subprocess.run([shutil.which("umount") or "umount", "-l", str(folder)], check=False)


@pytest.mark.parametrize(("kind", "place"), [("file", "read_file"), ("data", "Slow.__getitem__")])
def test_a_rank_that_reads_from_a_mount_that_does_not_answer(deaf: Deaf, tmp_path: Path, kind: str, place: str) -> None:
    file = deaf.folder / "sample"
    with running(kind, tmp_path, {"SAMPLE": str(file)}) as job:
        try:
            mount = f"on the fuse.deaf mount {deaf.folder} of filer:/data"
            check(job, "workload.rank-file", f"waits for {file} at {place} (ranks.py:", mount, OTHERS)
        finally:
            deaf.end()


# ---- Where none is named ----


@pytest.mark.parametrize("kind", ["compute", "all-compute", "sound"])
def test_none_is_named_where_the_job_goes_on(kind: str, tmp_path: Path) -> None:
    with running(kind, tmp_path) as job:
        for _ in range(2):
            document = asked(str(job.pid))
            assert titles(document) == {}
            assert document["verdict"] == "sound"
