"""What an account says: the cause of each kind of death on real machinery, and what would make a sound run faster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.app.monitoring import run_diagnosis
from gpudoctor.app.monitoring.gpus import GPUUse
from gpudoctor.core.fact import value_of
from gpudoctor.core.sample import GPU, Process, Sample
from gpudoctor.core.shipped import own_command
from gpudoctor.target.passthrough.command import Ended
from tests import needs
from tests.app.monitoring.running import beside, document, found, python, run
from tests.sim import scenario
from tests.sim.root import Machine

EATS = "import time\nheld = []\nwhile True: held.append(bytearray(8 << 20)); time.sleep(0.02)"


def within(group: Path) -> list[str]:
    """What puts a program into that control group."""
    return ["sh", "-c", f'echo 0 > {group}/cgroup.procs; exec "$@"', "sh"]


@pytest.mark.full
def test_killed_by_the_kernel_for_its_memory(small_cgroup: Path, tmp_path: Path) -> None:
    whole, end = document(python(EATS), tmp_path, before=within(small_cgroup))
    assert end.code == -signal.SIGKILL
    assert list(found(whole)) == ["workload.oom-killed"]
    pid = whole["facts"]["run.pid"]["value"]
    title = found(whole)["workload.oom-killed"]
    assert title.startswith("Killed by the kernel's OOM killer: ")
    assert f"(pid {pid}); its processes held " in title
    assert f"of the 250 MiB that {small_cgroup} may use" in title


@pytest.mark.full
def test_a_worker_that_is_killed_for_its_memory(small_cgroup: Path, tmp_path: Path) -> None:
    code = f"import os\nif os.fork() == 0:\n exec({EATS!r})\nos.wait(); raise SystemExit('a worker is gone')"
    whole, end = document(python(code), tmp_path, before=within(small_cgroup))
    assert end.code == 1
    assert "workload.oom-killed" in found(whole)


@pytest.mark.full
def test_a_limit_of_processes(tmp_path: Path) -> None:
    """On the real cgroup of this machine, of either version: the kernel counts the forks that it refuses.

    The shell is refused before a thread of ours could have looked at it.
    """
    listed = Path("/proc/self/cgroup").read_text().splitlines()
    paths = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in listed}
    place = Path("/sys/fs/cgroup/pids" + paths["pids"]) if "pids" in paths else Path("/sys/fs/cgroup" + paths[""])
    group = place / f"gpudoctor-pids-{os.getpid()}"
    try:
        group.mkdir()
        (group / "pids.max").write_text("24")
    except OSError:
        needs.missing("control groups with a limit of processes that can be made")
    forks = ["sh", "-c", "for n in $(seq 60); do sleep 2 & done"]
    try:
        whole, end = document(forks, tmp_path, before=within(group))
        assert end.code
        title = found(whole)["workload.processes-limit"]
        assert title.startswith("The cgroup's limit of processes and threads refused new ones ")
        assert ", and it failed" in title
    finally:
        while group.exists():
            try:
                group.rmdir()
            except OSError:
                time.sleep(0.05)


def test_a_folder_that_is_deleted(tmp_path: Path) -> None:
    """A command whose folder is gone is watched as any other, and nothing of ours is printed beside it."""
    out, gone = tmp_path / "run.json", tmp_path / "gone"
    gone.mkdir()
    end = run(["sh", "-c", 'cd "$0" && rmdir "$0" && exec "$@"', str(gone), *beside("-o", str(out)), "true"])
    assert (end.code, b"Traceback" in end.err) == (0, False)
    assert json.loads(out.read_text())["facts"]["run.disk"]["unread"] == "its mount is not shown"


def test_killed_by_another(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    code = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    out = tmp_path / "run.json"
    with subprocess.Popen([*beside("-o", str(out)), *python(code)], stderr=subprocess.PIPE) as ran:
        while not mark.exists() or not mark.read_text():
            time.sleep(0.02)
        os.kill(int(mark.read_text()), signal.SIGKILL)
        assert ran.stderr
        said = ran.stderr.read().decode()
        assert ran.wait(120) == -signal.SIGKILL
    if "[workload.killed]" not in said:  # where neither counters nor the log of the kernel can be read
        assert "nothing found" in said


@pytest.mark.full
@pytest.mark.parametrize("name", ["SIGSEGV", "SIGILL", "SIGFPE", "SIGBUS"])
def test_native_code_that_crashes(name: str, tmp_path: Path) -> None:
    code = "import ctypes; ctypes.string_at(0)"
    if name != "SIGSEGV":
        code = f"import os, signal; os.kill(os.getpid(), signal.{name})"
    whole, end = document(python(code), tmp_path)
    assert end.code == -getattr(signal, name)
    assert list(found(whole)) == ["workload.crashed"]
    assert found(whole)["workload.crashed"].startswith(f"Native code crashed: {name}, ")


def test_a_crash_that_a_shell_tells_of(tmp_path: Path) -> None:
    whole, end = document(["sh", "-c", f"{sys.executable} -c 'import ctypes; ctypes.string_at(0)'; exit $?"], tmp_path)
    assert end.code == 128 + signal.SIGSEGV
    assert list(found(whole)) == ["workload.crashed"]
    assert b"a process of it was killed by SIGSEGV" in end.err


def mounted(size: str, place: str) -> list[str]:
    """What runs a program with a small file system in memory at that place; skips where that cannot be."""
    unshare = [needs.program("unshare"), "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    script = f'mount -t tmpfs -o size={size} tmpfs {place} && exec "$@"'
    if subprocess.run([*unshare, "sh", "-c", script, "sh", "true"], check=False, capture_output=True).returncode:
        needs.missing("the right to mount in a namespace of its own")
    return [*unshare, "sh", "-c", script, "sh"]


@pytest.mark.full
def test_a_full_dev_shm(tmp_path: Path) -> None:
    code = (
        "import mmap, os, time\n"
        "file = os.open('/dev/shm/batch', os.O_RDWR | os.O_CREAT); os.ftruncate(file, 16 << 20)\n"
        "memory = mmap.mmap(file, 16 << 20); memory[:1 << 20] = b'x' * (1 << 20); time.sleep(0.5)\n"
        "for at in range(0, 16 << 20, 4096): memory[at] = 1"
    )
    whole, end = document(python(code), tmp_path, before=mounted("4m", "/dev/shm"))
    assert end.code == -signal.SIGBUS
    assert list(found(whole)) == ["workload.shm-full"]
    assert "(4 MiB) was full while the command ran: 0 MiB were free" in found(whole)["workload.shm-full"]


@pytest.mark.full
def test_a_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    code = (
        f"import os\nfile = os.open({str(disk / 'step_10.pt')!r}, os.O_WRONLY | os.O_CREAT)\n"
        f"try:\n while True: os.write(file, bytes(1 << 20))\n"
        f"except OSError as error: raise OSError(error.errno, error.strerror, {str(disk / 'step_10.pt')!r})"
    )
    whole, end = document(python(code), tmp_path, before=mounted("2m", str(disk)))
    assert end.code == 1
    assert list(found(whole)) == ["host.disk-full"]
    assert "step_10.pt: No space left on device" in found(whole)["host.disk-full"]


@pytest.mark.full
@pytest.mark.parametrize("code", [79, 48])
def test_a_gpu_that_fails_during_the_run(code: int, tmp_path: Path) -> None:
    """The simulated driver: the kernel logs an Xid while the command runs; one of before it is no finding."""
    machine = Machine(scenario.load(scenario.PROFILES / "hgx-h100.json"), tmp_path / "root")
    now = float((tmp_path / "root/proc/uptime").read_text().split()[0])
    log = (
        f"3,9000,{int((now - 3000) * 1e6)},-;NVRM: Xid (PCI:0000:3a:00): 62, pid=77, name=other, halted\n",
        f"3,9999,{int((now - 0.2) * 1e6)},-;NVRM: Xid (PCI:0000:18:00): {code}, pid=4242, name=python, of this run\n",
    )
    with (tmp_path / "root/dev/kmsg").open("a") as file:
        file.write(log[0])
    program = f"import os, time; time.sleep(2); open('/dev/kmsg', 'a').write({log[1]!r}); os._exit(1)"
    ran = machine.run([*own_command(), "run", "-o", "/tmp/run.json", "--", sys.executable, "-c", program])
    assert ran.code == 1
    page = "gpu.fell-off-bus" if code == 79 else "gpu.ecc"
    assert f"[{page}]" in ran.err
    assert "1 finding below" in ran.err
    assert "GPU 0" in ran.err


@pytest.mark.full
def test_a_gpu_that_corrects_errors_all_the_time_during_the_run(tmp_path: Path) -> None:
    """The simulated driver counts on one GPU; on another it has counted, and stands still."""
    rising = {"nvmlDeviceGetTotalEccErrors(0,0)": {"from": 12, "per_second": 10_000_000}}
    still = {"nvmlDeviceGetTotalEccErrors(0,0)": 90_000_000, "nvmlDeviceGetPcieReplayCounter": 4000}
    record = scenario.expanded({"profile": "hgx-h100", "nvml": {"gpus": {"4": rising, "5": still}}})
    machine = Machine(record, tmp_path / "root")
    program = (
        "import os, time\nwhile not os.path.exists('/tmp/trace')"
        " or open('/tmp/trace').read().count('TotalEccErrors') < 200: time.sleep(0.1)"
    )
    argv = [*own_command(), "run", "--", sys.executable, "-c", program]
    ran = machine.run(["/bin/sh", "-c", 'export GPUDOCTOR_SIM_TRACE=/tmp/trace; exec "$@"', "sh", *argv])
    assert ran.code == 0
    assert "The errors of GPU 4 counted up while the command ran; its memory had" in " ".join(ran.err.split())
    assert "The errors of GPU 5" not in ran.err


@pytest.mark.full
def test_what_was_wrong_before_is_named_and_is_no_finding(tmp_path: Path) -> None:
    machine = Machine(scenario.load(scenario.SICK / "lost-gpu-h100.json"), tmp_path / "root")
    ran = machine.run([*own_command(), "run", "--", "/bin/sh", "-c", "exit 1"])
    assert ran.code == 1
    assert "nothing found that explains it" in ran.err
    assert "Wrong on this machine already before the run: gpu.fell-off-bus." in ran.err


@pytest.mark.full
@pytest.mark.parametrize("name", ["nvml-hangs-at-one-getter", "nvml-uninterruptible"])
def test_nvml_that_hangs_meanwhile(name: str, tmp_path: Path) -> None:
    machine = Machine(scenario.load(scenario.SICK / f"{name}.json"), tmp_path / "root")
    ran = machine.run([*own_command(), "run", "--", sys.executable, "-c", "import time; time.sleep(2); print('done')"])
    assert (ran.code, ran.out) == (0, "done\n")
    assert "exit 0 after" in ran.err


def test_a_command_that_was_asked_to_end(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    code = "import time; print('ready', flush=True); time.sleep(600)"
    argv = [*beside("-o", str(out)), *python(code)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as ran:
        assert ran.stdout
        assert ran.stdout.readline() == b"ready\n"
        ran.terminate()
        assert ran.stderr
        said = ran.stderr.read().decode()
        assert ran.wait(120) == -signal.SIGTERM
    assert "killed by SIGTERM after" in said
    assert "it was asked to end; nothing else found" in " ".join(said.split())
    assert f"(pid {os.getpid()})" in said


TRAIN = """
import sys, time
begun = time.monotonic()
import torch
from torch.utils.data import DataLoader, Dataset
slow, workers = sys.argv[1] == "slow", int(sys.argv[2])
torch.set_num_threads(1)
class Data(Dataset):
    def __len__(self): return 10 ** 6
    def __getitem__(self, at):
        end = time.process_time() + (0.02 if slow else 0)
        while time.process_time() < end: pass
        return torch.ones(64)
model, weight = torch.nn.Linear(64, 64), torch.ones(1200, 1200)
end = max(begun + 21, time.monotonic() + 12)
for batch in DataLoader(Data(), batch_size=16, num_workers=workers):
    model(batch).sum().backward()
    if not slow:
        weight @ weight
    if time.monotonic() > end:
        break
"""
"""Either the data is slow and the step is nothing, or the other way round; for as long as a judgement needs: 20 s in
all, and 10 s of them with workers.
"""
GIB = 1024.0


def train(tmp_path: Path, how: str, workers: int) -> list[str]:
    """A training on one processor with real torch and its DataLoader."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    cpu = str(min(os.sched_getaffinity(0)))
    return [needs.program("taskset"), "-c", cpu, needs.torch_python(), str(script), how, str(workers)]


@pytest.mark.full
def test_a_training_that_waits_for_its_data(tmp_path: Path) -> None:
    """Of workers that share a processor, the time that each waits for it counts as well as the time that it has it."""
    whole, end = document(train(tmp_path, "slow", 3), tmp_path)
    assert end.code == 0
    assert whole["verdict"] == "sound"
    title = found(whole)["workload.input-bound"]
    assert title.startswith("The training waits for data: it was at work for ")
    assert "its DataLoader workers (3) for " in title
    assert "3 workers share 1 of the machine's processors" in title
    assert [finding["severity"] for finding in whole["findings"]] == ["info"]


@pytest.mark.full
def test_a_training_that_is_fed(tmp_path: Path) -> None:
    whole, end = document(train(tmp_path, "fed", 2), tmp_path)
    assert end.code == 0
    assert whole["facts"]["run.loader_workers"]["value"] == 2
    assert whole["findings"] == []


def eight(change: Callable[[int, int], dict[str, Any]]) -> GPUUse:
    """Eight GPUs at full load for ten minutes, as the samples show it; `change` differs by GPU and second."""
    use = GPUUse()
    for second in range(600):
        gpus = []
        for index in range(8):
            python = Process(4200 + index, "python", memory_mib=70000)
            whole = GPU(index, "NVIDIA H100 80GB HBM3", processes=(python,), power_w=690.0, temperature_c=70.0)
            full = replace(whole, utilization=98.0, clock_mhz=1700.0 + index, throttle_reasons=("sw_power_cap",))
            full = replace(full, memory_mib=80 * GIB, memory_used_mib=72 * GIB)
            gpus.append(replace(full, **change(index, second)))
        use.add(Sample(1000.0 + second, tuple(gpus)))
    return use


def advice(use: GPUUse) -> dict[str, str]:
    """The findings about a command that used these GPUs for ten minutes."""
    own = range(4200, 4208)
    ended = Ended(4200, 0, None, False, 0.0, 600.0, 600.0, 100, ())
    groups = {"run_gpu": use.rows(own)}
    judged = run_diagnosis.judge(ended, ["python", "train.py"], use.facts(own), groups, None, alarming=False)
    return {finding.id: finding.title for finding in judged.findings}


def test_eight_gpus_at_full_load_get_none() -> None:
    assert advice(eight(lambda _index, _second: {})) == {}


@pytest.mark.parametrize("resting", [0.0, 3.0])
def test_a_pause_at_the_begin_and_the_end_is_no_idleness(resting: float) -> None:
    """Compiling before the first step, and saving after the last one; a desktop draws meanwhile."""
    use = eight(lambda _index, second: {"utilization": resting} if second < 250 or second > 500 else {})
    assert value_of(use.facts([4200])["run.gpu_busy"]) == 98
    assert advice(use) == {}


def test_a_gpu_that_is_slower_than_the_others() -> None:
    found_of_it = advice(eight(lambda index, _second: {"clock_mhz": 1105.0} if index == 5 else {}))
    assert found_of_it == {
        "workload.gpu-slowed": "GPU 5 ran at 1105 MHz while it worked, 65 % of what the other GPUs had"
    }


def test_a_gpu_that_is_too_hot() -> None:
    hot = {"throttle_reasons": ("hw_slowdown", "hw_thermal_slowdown"), "temperature_c": 92.0}
    title = advice(eight(lambda index, second: hot if index == 2 and second >= 300 else {}))["workload.gpu-slowed"]
    assert title.startswith("GPU 2 was held down by ")
    assert title.endswith(" for 300 of 600 s; it was up to 92 degrees C hot")


def test_memory_that_lies_free() -> None:
    small = {"memory_used_mib": 8 * GIB, "utilization": 40.0}
    assert advice(eight(lambda _index, _second: small)) == {
        "workload.memory-free": "The GPUs were 40 % busy and at most 10 % of a GPU's memory was in use:"
        " a larger batch would fit"
    }
    assert advice(eight(lambda _index, _second: {"memory_used_mib": 8 * GIB})) == {}
