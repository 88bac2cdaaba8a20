"""Of a job in which one rank fails and the others by its end the first is named; a sound job gives one account."""

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpudoctor.app.monitoring.ranks import End, Ranks
from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.readers import read_report
from tests import needs
from tests.app.monitoring.running import PATIENCE, beside, document, found, python

LOST = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer"
    " [127.0.0.1]:63196. This is typically caused by a remote worker crashing."
)
"""What torch 2.13 prints of a rank whose neighbour has gone."""

JOB = f"""
import os, sys, time
rank, folder = int(os.environ["RANK"]), os.environ["TMPDIR"]
while len(os.listdir(folder + "/here")) < 4:
    open(f"{{folder}}/here/{{rank}}", "w").close()
    time.sleep(0.01)
if rank == 2:
    if sys.argv[1] == "raise":
        raise ValueError("bad sample 17")
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), 9)
if sys.argv[1] != "sound":
    sys.exit({LOST!r})
"""

TRAIN = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.ones(1)
for step in range(20):
    if step == 3 and dist.get_rank() == 2:
        if sys.argv[1] == "raise":
            raise ValueError("bad sample 17")
        if sys.argv[1] == "kill":
            os.kill(os.getpid(), 9)
    dist.all_reduce(value)
dist.destroy_process_group()
"""

STEP = """
srun: error: node3: task 2: Exited with exit code 7
srun: Terminating StepId=12.0
slurmstepd: error: *** STEP 12.0 ON node1 CANCELLED AT 2026-11-28T10:00:00 ***
srun: error: node1: tasks 0-1: Terminated
"""
OPEN_MPI = """
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[34143,1],5]
  Exit code:    3
"""
OPEN_MPI_SIGNAL = "mpirun noticed that process rank 1 with PID 4242 on node node7 exited on signal 11 (Segmentation"


def by_hand(folder: Path, how: str) -> list[tuple[int, str]]:
    """Four ranks of one host, each under ``gpudoctor run``: their exit codes and what they printed."""
    (folder / "here").mkdir()
    environ = dict(os.environ, TMPDIR=str(folder), WORLD_SIZE="4", MASTER_ADDR="localhost", LOCAL_WORLD_SIZE="4")
    ranks = [
        subprocess.Popen(
            [*beside(), *python(JOB), how],
            env={**environ, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(4)
    ]
    ends = [(rank.communicate(timeout=PATIENCE)[1], rank.returncode) for rank in ranks]
    return [(code, " ".join(text.split())) for text, code in ends]


@pytest.mark.parametrize(("how", "end"), [("raise", "exit 1 after"), ("kill", "killed by SIGKILL after")])
def test_the_first_gives_the_account(how: str, end: str, tmp_path: Path) -> None:
    ends = by_hand(tmp_path, how)
    assert [code for code, _ in ends] == [1, 1, -9 if how == "kill" else 1, 1]
    assert [text.count("gpudoctor: rank ") for _, text in ends] == [0, 0, 1, 0], ends
    assert f"gpudoctor: rank 2 of 4 on {os.uname().nodename}: {end}" in ends[2][1]
    assert "the first of its host to fail" in ends[2][1]
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_a_sound_job_gives_one_account(tmp_path: Path) -> None:
    ends = by_hand(tmp_path, "sound")
    assert [code for code, _ in ends] == [0] * 4
    assert [text.count("gpudoctor: ") for _, text in ends] == [1, 0, 0, 0], ends
    assert "gpudoctor: rank 0 of 4" in ends[0][1]


def test_where_all_lost_a_rank_of_another_host_one_tells(tmp_path: Path) -> None:
    ends = by_hand(tmp_path, "lost")
    accounts = [text for _, text in ends if "gpudoctor: " in text]
    assert len(accounts) == 1
    assert "because another rank of the job had ended" in accounts[0]
    assert "its own words: Connection closed by peer" in accounts[0]


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    """Anybody may make a folder in /tmp: the ranks are by themselves then, and each says what it has to say."""
    environ = {"TMPDIR": str(tmp_path), "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    ranks = Ranks.here(environ)
    assert ranks
    (folder,) = tmp_path.iterdir()
    folder.chmod(0o777)
    other = Ranks.here({**environ, "RANK": "1"})
    assert other
    ranks.begin(1)
    assert ranks.pids() == {1}
    assert other.pids() == frozenset()
    assert other.claim("that") is other.claim("that") is True


@pytest.mark.parametrize(
    ("environ", "watches"),
    [
        ({"RANK": "4", "LOCAL_RANK": "0"}, True),
        ({"RANK": "5", "LOCAL_RANK": "1"}, False),
        ({"RANK": "5", "LOCAL_RANK": "1", "SLURM_TRES_PER_TASK": "cpu=8,gres/gpu=1"}, True),
        ({"RANK": "5", "LOCAL_RANK": "1", "SLURM_TRES_PER_TASK": "cpu=8"}, False),
    ],
)
def test_one_rank_of_a_host_watches_the_gpus(environ: dict[str, str], watches: bool, tmp_path: Path) -> None:
    ranks = Ranks.here({**environ, "WORLD_SIZE": "8", "MASTER_ADDR": "node1", "TMPDIR": str(tmp_path)})
    assert ranks
    assert ranks.samples_gpus is watches


def test_one_rank_of_a_sound_job_reports_what_all_met(tmp_path: Path) -> None:
    finding = Finding("gpu.throttled", "gpu", "warning", "cause", "certain", "held down", "heat", ())
    judged = Diagnosis(Snapshot(Target("local", "node1"), {}, {}), "impaired", (finding,), (), (), "1")
    reports = []
    for rank in range(3):
        environ = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "node1"}
        ranks = Ranks.here({**environ, "TMPDIR": str(tmp_path)})
        assert ranks
        ranks.begin(os.getpid())
        own = End(rank, "exit code 0", time.time(), False, True)
        reports.append(ranks.should_report(own, own, False, judged))
    assert reports == [True, False, False]


def test_a_rank_is_none_where_there_is_one(tmp_path: Path) -> None:
    assert Ranks.here({"RANK": "0", "WORLD_SIZE": "1"}) is None
    assert Ranks.here({"RANK": "x", "WORLD_SIZE": "8"}) is None
    whole, _ = document(["true"], tmp_path, env={"RANK": "3", "WORLD_SIZE": "2"})
    assert "absent" in whole["facts"]["run.rank"]


@pytest.mark.parametrize(
    ("printed", "says"),
    [
        (STEP, ("srun", 2, "node3", "exit code 7")),
        (OPEN_MPI, ("mpirun", 5, None, "exit code 3")),
        (OPEN_MPI_SIGNAL, ("mpirun", 1, "node7", "SIGSEGV")),
        ("srun: error: node1: tasks 0-1: Terminated\n", (None, None, None, None)),
        ("srun: job 12 queued and waiting for resources\n", (None, None, None, None)),
    ],
)
def test_what_launchers_say(printed: str, says: tuple[object, ...]) -> None:
    snapshot = read_report(printed, "its output")
    assert tuple(snapshot.value(f"failure.{name}") for name in ("launcher", "rank", "host", "end")) == says


@pytest.mark.parametrize(
    ("end", "echo"),
    [
        (LOST, "Connection closed by peer"),
        (f"[rank1]: {LOST}", "Connection closed by peer"),
        (f"{LOST}\nRuntimeError: the third try failed: no such layer", None),
        (f"{LOST}\nthe connection is back\nValueError: bad sample 17", None),
        ("ConnectionError: Connection closed by peer of my own protocol", None),
    ],
)
def test_an_echo_by_its_own_words(end: str, echo: str | None) -> None:
    assert read_report(f"epoch 1\n{end}\n", "its output").value("failure.echo") == echo


def _torchrun(*words: str) -> list[str]:
    """torchrun with four ranks on this host."""
    python = Path(needs.torch_python())
    return [str(python), "-m", "torch.distributed.run", "--nproc-per-node", "4", *words]


def _train(tmp_path: Path, how: str) -> list[str]:
    """The training of a few steps, of which rank 2 fails in that way."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    return [str(script), how]


@pytest.mark.full
@pytest.mark.parametrize("how", ["raise", "kill", "sound"])
def test_each_rank_of_torchrun(how: str, tmp_path: Path) -> None:
    train = _train(tmp_path, how)
    argv = _torchrun("--no-python", *beside(), needs.torch_python(), *train)
    err = _printed(argv, {"TMPDIR": str(tmp_path)})
    accounts = [line for line in err.splitlines() if line.startswith("gpudoctor: ")]
    assert len(accounts) == 1, err
    assert accounts[0].startswith(f"gpudoctor: rank {0 if how == 'sound' else 2} of 4 ")
    assert ("killed by SIGKILL" in accounts[0]) == (how == "kill")


@pytest.mark.full
@pytest.mark.parametrize(("how", "says"), [("raise", "exit code 1; ValueError: bad sample 17"), ("kill", "SIGKILL")])
def test_torchrun_as_the_command(how: str, says: str, tmp_path: Path) -> None:
    whole, end = document(_torchrun(*_train(tmp_path, how)), tmp_path)
    assert end.code == 1
    title = found(whole)["workload.rank-failed"].replace("SIGABRT;", "exit code 1;")  # Gloo may abort at its end
    assert title == f"Rank 2 failed first, as torchrun tells: {says}"


@pytest.mark.full
def test_each_rank_of_mpiexec(tmp_path: Path) -> None:
    """Hydra, MPICH's launcher: what it sets is enough, no program of MPI is needed."""
    code = (
        "import os, sys, time; time.sleep(1)\n"
        "if os.environ['PMI_RANK'] == '1': sys.exit('no such layer')\n"
        "time.sleep(3)"
    )
    argv = [needs.program("mpiexec.hydra"), "-n", "3", *beside(), *python(code)]
    err = _printed(argv, {"TMPDIR": str(tmp_path)})
    accounts = [line[:21] for line in err.splitlines() if line.startswith("gpudoctor: ")]
    assert accounts == ["gpudoctor: rank 1 of ", "gpudoctor: rank 0 of "], err  # rank 0 goes on, and is sound


def _printed(argv: Sequence[str], environ: dict[str, str]) -> str:
    """What it prints to standard error."""
    ran = subprocess.run(
        list(argv), env={**os.environ, **environ}, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return ran.stderr


def test_the_document_has_the_rank(tmp_path: Path) -> None:
    environ = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "TMPDIR": str(tmp_path)}
    whole, _ = document(["true"], tmp_path, env=environ)
    values = [whole["facts"][f"run.{name}"].get("value") for name in ("rank", "local_rank", "world_size", "host")]
    assert values == [0, 0, 2, os.uname().nodename], json.dumps(whole["facts"])


def test_a_rank_that_watches_no_gpu_judges_none(tmp_path: Path) -> None:
    """Whether its GPU waits for data is for the rank to say that sees it."""
    environ = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "TMPDIR": str(tmp_path)}
    whole, _ = document(["sh", "-c", "sleep 1.5; exit 1"], tmp_path, env=environ)
    assert whole["facts"]["run_gpu"] == {"unread": "another rank of this host watches the GPUs"}
    assert "run.gpu_busy" not in whole["facts"]
