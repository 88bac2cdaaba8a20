"""Jobs and runs of ``gpudoctor demo``, recorded while real ones hang, die and starve: ``python -m tests.demo_jobs``.

They run in namespaces of their own, so that host, folders and programs have names that are nobody's; what the machine
below says of itself is left out. It takes root, torch with Gloo, py-spy, a control group with a limit and, for the GPU
that is lost, the simulated driver.
"""

import gzip
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpudoctor.core.document import parse_toml
from gpudoctor.core.shipped import own_command
from tests import needs
from tests.sim import scenario
from tests.sim.root import Machine

HOME = needs.REPOSITORY / "gpudoctor/app/demos"
FILE = "document.json.gz"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A job or a run that was recorded, and what one meets before one looks; `rules` are what is found of it."""

    name: str
    machine: str
    title: str
    meets: str
    rules: list[str]


RECORDED = tuple(
    Recorded(**row) for row in parse_toml(Path(__file__).with_name("demos.toml").read_text("utf-8"))["recorded"]
)

_TRAIN = """\
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Shards(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index == 8 and dist.get_rank() == 2:
            open("/mnt/data/shard-00812.tar", "rb").read()
        return torch.ones(64)


class Images(Dataset):
    def __len__(self):
        return 10**6

    def __getitem__(self, index):
        end = time.process_time() + 0.02
        while time.process_time() < end:
            pass
        return torch.ones(64)


def step(batch):
    mean = batch.mean(0)
    dist.all_reduce(mean)


def train():
    dist.init_process_group("gloo")
    for batch in DataLoader(Shards(), batch_size=4, num_workers=2):
        step(batch)


def starve():
    torch.set_num_threads(1)
    model, end = torch.nn.Linear(64, 64), time.monotonic() + 40
    for batch in DataLoader(Images(), batch_size=16, num_workers=3):
        model(batch).sum().backward()
        if time.monotonic() > end:
            return


def grow():
    held = []
    while True:
        held.append(bytearray(8 << 20))
        time.sleep(0.2)


{"train": train, "starve": starve, "grow": grow}[sys.argv[1]]()
"""
_NODE = """\
hostname node07
mount -t tmpfs -o mode=755 tmpfs /mnt
mkdir /mnt/data
mkfifo /mnt/data/shard-00812.tar
cp {script} /mnt/train.py
cd /mnt
export HOME=/mnt PATH={python}:$PATH
{then}
"""
_OWN = (
    *("job.", "nccl.", "rank", "job_host", "run.", "run_process", "run_gpu", "oom", "failure."),
    *("gpu", "xid", "sxid", "aer", "kernel_log.fallen_off", "driver.version", "nvml.state"),
)
"""Beginnings of the facts and groups that are no fact of the machine below."""


def within(script: str, folder: Path) -> str:
    """What a shell script prints on a node of its own."""
    (folder / "train.py").write_text(_TRAIN)
    python = Path(needs.torch_python()).parent
    whole = _NODE.format(script=folder / "train.py", python=python, then=script)
    words = ["unshare", "--mount", "--uts", "sh", "-euc", whole]
    done = subprocess.run(words, check=False, stdout=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"})
    return done.stdout


def stuck_loader(folder: Path) -> Any:
    """Four ranks, one of which does not come to the next all-reduce."""
    doctor = shlex.join(own_command())
    printed = within(
        "export WORLD_SIZE=4 LOCAL_WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 OMP_NUM_THREADS=1\n"
        "pids=\n"
        'for rank in 0 1 2 3; do RANK=$rank LOCAL_RANK=$rank setsid python train.py train >&2 & pids="$pids $!"; done\n'
        f"sleep 45; {doctor} job $! --json || true; for pid in $pids; do kill -9 -$pid; done",
        folder,
    )
    return json.loads(printed[printed.index("{") :])


def oom_killed(folder: Path) -> Any:
    """A command that takes more memory than its control group may use."""
    group = Path("/sys/fs/cgroup/memory") / f"gpudoctor-demo-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(256 << 20))
        within(f"echo $$ > {group}/cgroup.procs; {run(folder, 'grow')} || true", folder)
    finally:
        group.rmdir()
    named = (folder / "run.json").read_text().replace(group.name, "slurm/uid_1000/job_4711")
    return json.loads(named)


def starved(folder: Path) -> Any:
    """A command on one processor whose data takes longer than its step."""
    within(f"taskset -c 0 {run(folder, 'starve')}", folder)
    return json.loads((folder / "run.json").read_text())


def run(folder: Path, part: str) -> str:
    """``gpudoctor run`` of that part of the training."""
    return shlex.join([*own_command(), "run", "-o", str(folder / "run.json"), "--", "python", "train.py", part])


def lost_meanwhile(folder: Path) -> Any:
    """A simulated node whose kernel logs Xid 79 while a command runs."""
    machine = Machine(scenario.load(scenario.PROFILES / "hgx-h100.json"), folder / "root")
    uptime = float((folder / "root/proc/uptime").read_text().split()[0])
    line = f"3,9999,{int((uptime - 0.2) * 1e6)},-;NVRM: Xid (PCI:0000:3a:00): 79, GPU has fallen off the bus.\n"
    place = folder / "root/usr/local/bin"
    place.mkdir(parents=True, exist_ok=True)
    (place / "python").symlink_to(sys.executable)
    (place / "train.py").write_text(
        f"import sys, time; time.sleep(4); open('/dev/kmsg', 'a').write({line!r})\n"
        "sys.exit('RuntimeError: CUDA error: unspecified launch failure')\n"
    )
    command = [f"/usr/local/bin/{name}" for name in ("python", "train.py")]
    machine.run([*own_command(), "run", "-o", "/usr/local/bin/run.json", "--", *command])
    return json.loads((place / "run.json").read_text())


_RECORD = {
    "stuck-loader": stuck_loader,
    "oom-killed": oom_killed,
    "lost-meanwhile": lost_meanwhile,
    "starved": starved,
}


def own(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the facts that are of the job or run, and of a simulated node's GPUs; its host is nobody's."""
    kept = {name: fact for name, fact in document["facts"].items() if name.startswith(_OWN)}
    name = re.sub(r"\b\d+\b", "4711", document["target"]["name"].replace(socket.gethostname(), "node07"))
    target = {**document["target"], "name": name, "python": None}
    whole = {**document, "facts": kept, "target": target, "timings_ms": {}, "notes": [], "passed": [], "unjudged": []}
    return json.loads(json.dumps(whole).replace(f'"{socket.gethostname()}"', '"node07"'))  # type: ignore[no-any-return]


def write(name: str) -> None:
    """Record it anew."""
    with tempfile.TemporaryDirectory() as folder:
        document = own(_RECORD[name](Path(folder)))
    place = HOME / name / FILE
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(gzip.compress(json.dumps(document, separators=(",", ":")).encode(), 9, mtime=0))


if __name__ == "__main__":
    for wanted in sys.argv[1:] or _RECORD:
        write(wanted)
