"""What is told of a command that stands still, by itself and where SIGQUIT asks; the command never suffers."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from gpudoctor.app.monitoring.watching import GPUStillness
from gpudoctor.core.sample import GPU, Process, Sample
from tests import needs
from tests.app.monitoring.running import beside, python
from tests.processes import free_port

PATIENCE = 600.0
RANKS = str(needs.REPOSITORY / "tests/cluster/hang/ranks.py")

ON_AND_ON = """
import os, time
print("ready", os.getpid(), flush=True)
while not os.path.exists("enough"):
    time.sleep(0.05)
print("sound", flush=True)
raise SystemExit(7)
"""


READY = """
import os, signal, socket, subprocess, threading
signal.signal(signal.SIGTERM, signal.SIG_DFL)
print("ready", os.getpid(), flush=True)
"""
LOCK = f"""{READY}
lock = threading.Lock()
lock.acquire()
lock.acquire()
"""
PEER = f"""{READY}
ours, theirs = socket.create_server(("127.0.0.1", 0)), socket.socket()
theirs.connect(ours.getsockname())
theirs.recv(1)
"""
CHILD = f"""{READY}
subprocess.run(["sleep", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""
SERVER = """
import os, socket, threading, time
server = socket.create_server(("127.0.0.1", 0))
def knock():
    while not os.path.exists("enough"):
        time.sleep(0.05)
    socket.create_connection(server.getsockname())
threading.Thread(target=knock).start()
print("ready", os.getpid(), flush=True)
server.accept()
print("sound", flush=True)
raise SystemExit(7)
"""


class Told:
    """A command under ``gpudoctor run``, whose standard error is read as it comes."""

    def __init__(
        self, folder: Path, argv: Sequence[str], *options: str, environ: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.err = folder / "err"
        with self.err.open("wb") as err:
            self.ran = subprocess.Popen(
                [*beside(*options), *argv],
                stdout=subprocess.PIPE,
                stderr=err,
                cwd=folder,
                text=True,
                env={**os.environ, **(environ or {})},
            )

    def says(self, *parts: str) -> bool:
        """Whether all these come on standard error."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.ran.poll() is None:
            if all(part in self.text for part in parts):
                return True
            time.sleep(0.1)
        return False

    @property
    def text(self) -> str:
        """Standard error so far, on one line."""
        return " ".join(self.err.read_text("utf-8", "replace").split())

    def enough(self) -> tuple[int, str]:
        """Have the command end: its exit code, and what it has printed."""
        (self.folder / "enough").touch()
        out, _ = self.ran.communicate(timeout=PATIENCE)
        return self.ran.returncode, out


def test_sigquit_asks_and_the_command_goes_on(tmp_path: Path) -> None:
    told = Told(tmp_path, python(ON_AND_ON))
    assert told.ran.stdout
    pid = int(told.ran.stdout.readline().split()[1])
    os.kill(told.ran.pid, signal.SIGQUIT)
    assert told.says(f"gpudoctor: as it is now: process {pid} sleeps", f"Process {pid} ("), told.text
    assert told.enough() == (7, "sound\n")
    assert "SIGQUIT" not in told.text


@pytest.mark.parametrize("waits", [ON_AND_ON, SERVER], ids=["sleep", "accept"])
def test_nothing_is_said_of_a_command_that_idles_and_has_no_ranks(tmp_path: Path, waits: str) -> None:
    """Such as a server: nobody waits for it."""
    told = Told(tmp_path, python(waits), "--hang-after", "0.5")
    assert told.ran.stdout
    told.ran.stdout.readline()
    time.sleep(12)  # a look takes 8 s
    assert told.text == ""
    assert told.enough() == (7, "sound\n")


@pytest.mark.parametrize(
    ("waits", "does"),
    [(LOCK, "waits for a lock"), (PEER, "waits for another process"), (CHILD, "waits for another process")],
    ids=["lock", "peer", "child"],
)
def test_a_single_process_that_waits_is_reported_once(tmp_path: Path, waits: str, does: str) -> None:
    """Nothing proves for whom it waits, so it is no finding; where it stands is said, and not again."""
    told = Told(tmp_path, python(waits), "--hang-after", "0.5", "-o", str(tmp_path / "run.json"))
    assert told.ran.stdout
    pid = told.ran.stdout.readline().split()[1]
    assert told.says("nothing printed for 0.5 s, and it stands still: ", f"process {pid} {does}"), told.text
    time.sleep(10)  # a look takes 8 s
    assert told.text.count("it stands still") == 1
    told.ran.send_signal(signal.SIGTERM)
    told.ran.communicate(timeout=PATIENCE)
    assert not json.loads((tmp_path / "run.json").read_text())["findings"]


@pytest.mark.full
def test_a_job_that_hangs_is_told_of_and_goes_on(tmp_path: Path) -> None:
    """Four ranks of torchrun, of which one sleeps: told, nothing is killed, and it stands in the end's document."""
    needs.program("py-spy")
    torchrun = [needs.torch_python(), "-m", "torch.distributed.run", "--nproc-per-node=4", "--master-port=0"]
    argv = [*torchrun, "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", RANKS, "sleep", str(tmp_path)]
    told = Told(tmp_path, argv, "--hang-after", "4", "-o", str(tmp_path / "run.json"))
    words = "does not come to all_reduce, where the others wait (ranks 0-1, 3): it sleeps at sleep (ranks.py:"
    assert told.says("nothing printed for 4.0 s, and it stands still", "Rank 2 (pid ", words), told.text
    assert told.ran.poll() is None
    told.ran.send_signal(signal.SIGTERM)
    told.ran.communicate(timeout=PATIENCE)
    found = {finding["id"]: finding for finding in json.loads((tmp_path / "run.json").read_text())["findings"]}
    assert words in found["workload.rank-late"]["title"]
    assert found["workload.rank-late"]["subject"]["rank"] == 2


@pytest.mark.full
def test_of_one_doctor_beside_each_rank_the_first_tells(tmp_path: Path) -> None:
    """As under srun: four of them, which look at each other's ranks, and one of which speaks."""
    needs.program("py-spy")
    own = {"WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    argv = [needs.torch_python(), RANKS, "sleep", str(tmp_path)]
    told = []
    for rank in range(4):
        (tmp_path / str(rank)).mkdir()
        environ = {**own, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        told.append(Told(tmp_path / str(rank), argv, "--hang-after", "4", environ=environ))
    try:
        assert told[0].says("(ranks 0-1, 3): it sleeps at sleep (ranks.py:"), told[0].text
        assert [one.text for one in told[1:]] == ["", "", ""]
    finally:
        for one in told:
            one.ran.kill()
            one.ran.communicate()


# ---- GPUs ----


def gpu(utilization: float, power: float = 300.0, traffic: float = 0.0, pid: int = 7) -> Sample:
    """A sample of one GPU that a process uses."""
    return Sample(
        1.0,
        (
            GPU(
                0,
                utilization=utilization,
                power_w=power,
                nvlink_send_mb_s=traffic,
                processes=(Process(pid),),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("samples", "still"),
    [
        ([gpu(100.0), gpu(100.0), gpu(99.0)], True),  # NCCL's kernels spin
        ([gpu(0.0, 60.0), gpu(0.0, 61.0)], True),
        ([gpu(100.0), gpu(60.0)], False),
        ([gpu(100.0, 300.0), gpu(100.0, 500.0)], False),
        ([gpu(100.0), gpu(100.0, traffic=4000.0)], False),
    ],
)
def test_gpus_stand_still_while_use_and_power_stay_and_nothing_is_moved(samples: list[Sample], still: bool) -> None:
    stillness = GPUStillness()
    assert stillness.since(frozenset({7})) is None
    stillness.add(samples[0])
    began = stillness.since(frozenset({7}))
    for sample in samples[1:]:
        stillness.add(sample)
    assert (stillness.since(frozenset({7})) == began) is still


def test_gpus_of_others_do_not_count_where_the_commands_own_are_known() -> None:
    stillness = GPUStillness()
    stillness.add(Sample(1.0, (GPU(0, processes=(Process(7),)), GPU(1, processes=(Process(8),)))))
    began = stillness.since(frozenset({7}))
    stillness.add(Sample(1.0, (GPU(0, processes=(Process(7),)), GPU(1, utilization=90.0, processes=(Process(8),)))))
    assert stillness.since(frozenset({7})) == began
    assert stillness.since(frozenset({7, 8})) != began
