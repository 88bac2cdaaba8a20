"""What befell a running job by the kernel's log and NVML: since it began, and of its own GPUs and processes alone."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.cluster.running_job.recorded import MachineRecords
from gpudoctor.core.shipped import own_command
from gpudoctor.probes._job.members import Job, read_job
from gpudoctor.target.local import Local
from tests.cluster.hang.jobs import asked, titles
from tests.sim import scenario
from tests.sim.root import Machine

pytestmark = pytest.mark.full

NODE = """
import json, subprocess, sys
opened, messages, doctor = map(json.loads, sys.argv[1:])
held = f"held = [open(path) for path in {opened!r}]; print('ready', flush=True); import time; time.sleep(600)"
with subprocess.Popen([sys.executable, "-c", held], stdout=subprocess.PIPE) as rank:
    rank.stdout.readline()
    uptime = float(open("/proc/uptime").read().split()[0])
    with open("/dev/kmsg", "a") as log:
        for message, age in messages.items():
            log.write(f"3,9000,{int(max(0, uptime - age) * 1e6)},-;{message}\\n")
    subprocess.run([*doctor, "job", str(rank.pid), "--look", "0.5", "--json"])
    rank.kill()
"""
"""Starts a rank that holds device files open, logs messages of an age as the kernel does, and looks at the rank."""
OLD, NEW = 3000, 0
"""Seconds for which a message has been logged: long before the job began, or since."""


def ready(process: subprocess.Popen[str]) -> None:
    """Wait until it runs."""
    assert process.stdout
    assert process.stdout.readline() == "ready\n"


def looked_at(gpus: Sequence[int], messages: Mapping[str, int], folder: Path, name: str = "") -> Any:
    """The document of ``gpudoctor job`` of a rank with those GPUs open, on the simulated node of that name."""
    place = scenario.SICK / f"{name}.json" if name else scenario.PROFILES / "hgx-h100.json"
    machine = Machine(scenario.load(place), folder / "root", processes=True)
    words = ([f"/dev/nvidia{gpu}" for gpu in gpus], messages, own_command())
    ran = machine.run([sys.executable, "-c", NODE, *map(json.dumps, words)])
    assert ran.out, ran.err
    return json.loads(ran.out)


LOST = "NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
ROW = "NVRM: Xid (PCI:0000:18:00): 48, pid=77, name=python, DBE (double bit error) detected"


@pytest.mark.parametrize(("message", "page"), [(LOST, "gpu.fell-off-bus"), (ROW, "gpu.ecc")])
def test_a_gpu_of_the_job_that_fails_since_it_began(message: str, page: str, tmp_path: Path) -> None:
    document = looked_at([0], {message: NEW}, tmp_path)
    assert list(titles(document)) == [page]
    (finding,) = document["findings"]
    assert finding["subject"]["address"] == "0000:18:00.0"
    assert document["verdict"] == "broken"


@pytest.mark.parametrize(
    ("gpus", "messages"),
    [
        ([0], {LOST: OLD}),
        ([0], {ROW: OLD}),
        ([1, 2], {LOST: NEW}),
        ([1], {ROW: NEW}),
        ([], {LOST: NEW}),
    ],
    ids=["lost before", "bad memory before", "another job's GPU is lost", "another job's memory", "no GPU in use"],
)
def test_what_is_of_before_or_of_another_job_is_not_blamed_on_it(
    gpus: Sequence[int], messages: Mapping[str, int], tmp_path: Path
) -> None:
    assert titles(looked_at(gpus, messages, tmp_path)) == {}


def test_a_lost_gpu_that_nvml_no_longer_opens(tmp_path: Path) -> None:
    """NVML says that it is lost, and no more who used it: the job is known by its open device file."""
    document = looked_at(range(8), {}, tmp_path, "lost-gpu-h100")
    assert list(titles(document)) == ["gpu.fell-off-bus"]


# ---- Killed for memory: the real kernel, in real control groups ----

EATS = "held = []\nwhile True: held.append(bytearray(8 << 20))"


def started(group: Path, code: str) -> subprocess.Popen[str]:
    """A Python program as a rank in that control group; it prints when it begins."""
    script = f'echo $$ > {group}/cgroup.procs; exec "$@"'
    argv = ["sh", "-c", script, "sh", sys.executable, "-c", f"print('ready', flush=True)\n{code}"]
    environ = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "n1", "MASTER_PORT": str(os.getpid())}
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environ)


@pytest.fixture
def rank(small_cgroup: Path) -> Iterator[subprocess.Popen[str]]:
    """A rank that sleeps in a small control group."""
    with started(small_cgroup, "import time; time.sleep(600)") as process:
        ready(process)
        yield process
        process.kill()


def test_a_worker_that_the_kernel_killed_since_the_job_began(small_cgroup: Path, rank: subprocess.Popen[str]) -> None:
    with started(small_cgroup, EATS) as eater:
        assert eater.wait(600) == -signal.SIGKILL
    document = asked(str(rank.pid), "--look", "0.5")

    assert "workload.oom-killed" in titles(document), document["facts"]["oom"]
    title = titles(document)["workload.oom-killed"]
    assert title.startswith("Since the job began the kernel's OOM killer has killed python")
    assert f"(pid {eater.pid}) of it, in the control group /" in title
    assert title.endswith(small_cgroup.name)


def test_a_kill_of_before_the_job_and_one_in_a_shared_group_are_not_its(small_cgroup: Path) -> None:
    with started(small_cgroup, EATS) as eater:
        assert eater.wait(600) == -signal.SIGKILL
    time.sleep(3)  # more than by how much the kernel's clock may run apart
    with started(small_cgroup, "import time; time.sleep(600)") as sleeper:
        ready(sleeper)
        before = asked(str(sleeper.pid), "--look", "0.5")
        neighbour = subprocess.Popen(["sh", "-c", f"echo $$ > {small_cgroup}/cgroup.procs; exec sleep 600"])
        with started(small_cgroup, EATS) as eater:
            eater.wait(600)
        shared = asked(str(sleeper.pid), "--look", "0.5")
        neighbour.kill()
        neighbour.wait()
        sleeper.kill()
    assert titles(before) == {}
    assert "workload.oom-killed" not in titles(shared)


# ---- Blocked in the kernel ----


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[str]]:
    """A Python that sleeps."""
    argv = [sys.executable, "-c", "print('ready', flush=True); import time; time.sleep(600)"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        ready(process)
        yield process
        process.kill()


@pytest.mark.parametrize(("of", "age", "tells"), [(0, 0, True), (1, 0, False), (0, OLD, False)])
def test_a_process_that_the_kernel_calls_blocked(
    of: int, age: int, tells: bool, sleeper: subprocess.Popen[str], tmp_path: Path
) -> None:
    """The rank's own, since it began; not another process, nor one of its number before."""
    uptime = Path("/proc/uptime").read_text()
    line = f"INFO: task python:{sleeper.pid + of} blocked for more than 122 seconds."
    for name, content in {
        "dev/kmsg": f"3,9000,{int(max(0.0, float(uptime.split()[0]) - age) * 1e6)},-;{line}\n",
        "proc/uptime": uptime,
        "proc/self/mountinfo": "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    job = read_job([sleeper.pid])
    assert isinstance(job, Job)
    records = MachineRecords(job, Local("quick", root=str(tmp_path)))
    records.read()
    assert records.blocked(sleeper.pid) == (line if tells else "")
