"""Each kind of death on real machinery: the cause, the process and what it held are named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpudoctor.core.shipped import own_command
from tests import needs
from tests.app.beside.running import beside, document, found, python
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
    """On the real cgroup of this machine, of either version: the kernel counts the forks that it refuses."""
    listed = Path("/proc/self/cgroup").read_text().splitlines()
    paths = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in listed}
    place = Path("/sys/fs/cgroup/pids" + paths["pids"]) if "pids" in paths else Path("/sys/fs/cgroup" + paths[""])
    group = place / f"gpudoctor-pids-{os.getpid()}"
    try:
        group.mkdir()
        (group / "pids.max").write_text("24")
    except OSError:
        needs.missing("control groups with a limit of processes that can be made")
    code = (
        "import threading, time\n"
        "for n in range(60): threading.Thread(target=time.sleep, args=(2,), daemon=True).start()"
    )
    try:
        whole, end = document(python(code), tmp_path, before=within(group))
        assert end.code == 1
        title = found(whole)["workload.processes-limit"]
        assert title.startswith("The cgroup's limit of processes and threads refused new ones ")
        assert title.endswith(", and it failed")
    finally:
        while group.exists():
            try:
                group.rmdir()
            except OSError:
                time.sleep(0.05)


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


def test_cuda_out_of_memory(tmp_path: Path) -> None:
    words = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 786.00 MiB. GPU 0 has a total capacity of"
        " 79.11 GiB of which 140.75 MiB is free."
    )
    whole, end = document(python(f"import sys; sys.exit({words!r})"), tmp_path)
    assert end.code == 1
    assert list(found(whole)) == ["workload.oom"]


@pytest.mark.full
def test_an_import_that_fails(tmp_path: Path) -> None:
    words = "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory"
    whole, end = document(python(f"import sys; sys.exit({words!r})"), tmp_path)
    assert end.code == 1
    assert found(whole)


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
