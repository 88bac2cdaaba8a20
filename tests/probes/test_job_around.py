"""What a command shares with its control group, of both versions: limits, peaks, kills and refused forks."""

from __future__ import annotations

from pathlib import Path

from gpudoctor.core.fact import Absent, Known, value_of
from gpudoctor.probes._job.around import Around
from gpudoctor.target.local import Local
from tests.probes.trees import Tree

V2 = "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"
"""Where Slurm's cgroup/v2 plugin puts a task; the limit is the step's."""
STEP = "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0"
EVENTS = "low 0\nhigh 0\nmax {max}\noom {oom}\noom_kill {kill}\noom_group_kill 0\n"
"""As the kernel prints memory.events since 5.17."""


def version2(tmp_path: Path) -> Tree:
    """A task of Slurm in cgroups of version 2, whose step may use 64 GiB and 512 processes."""
    tree = Tree(tmp_path)
    tree.file("/proc/self/cgroup", "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n")
    tree.file("/proc/meminfo", "MemTotal: 131072000 kB\nMemAvailable: 104857600 kB\n")
    tree.file("/proc/vmstat", "nr_free_pages 1\noom_kill 3\n")
    for folder in (V2, STEP):
        tree.file(f"{folder}/memory.max", "max\n" if folder == V2 else f"{64 << 30}\n")
        tree.file(f"{folder}/memory.current", f"{1 << 30}\n")
        tree.file(f"{folder}/memory.peak", f"{2 << 30}\n")
        tree.file(f"{folder}/memory.events", EVENTS.format(max=0, oom=0, kill=0))
        tree.file(f"{folder}/pids.max", "max\n" if folder == V2 else "512\n")
        tree.file(f"{folder}/pids.events", "max 0\n")
    return tree


def test_version_2(tmp_path: Path) -> None:
    """The kernel counts kills for the whole subtree, a full limit where it is, and keeps the peak between two looks."""
    tree = version2(tmp_path)
    around = Around.here(tree.target(), "/work")
    around.look()
    tree.file(f"{STEP}/memory.peak", f"{64 << 30}\n")
    tree.file(f"{STEP}/memory.events", EVENTS.format(max=41, oom=1, kill=1))
    tree.file(f"{V2}/memory.events", EVENTS.format(max=0, oom=0, kill=1))
    tree.file(f"{STEP}/pids.events", "max 12\n")
    tree.file("/proc/vmstat", "nr_free_pages 1\noom_kill 4\n")
    around.look()
    facts = around.facts()
    assert facts["run.memory_limit_mib"] == Known(64 << 10, STEP)
    assert facts["run.cgroup_peak_mib"] == Known(64 << 10, STEP)
    counted = {name: value_of(facts[f"run.{name}"]) for name in ("oom_kills", "limit_reached", "forks_refused")}
    assert counted == {"oom_kills": 1, "limit_reached": 41, "forks_refused": 12}


def test_a_peak_of_before_is_not_this_runs(tmp_path: Path) -> None:
    around = Around.here(version2(tmp_path).target(), "/work")
    around.look()
    facts = around.facts()
    assert value_of(facts["run.cgroup_peak_mib"]) == 1024
    assert value_of(facts["run.oom_kills"]) == value_of(facts["run.forks_refused"]) == 0


def test_a_kernel_without_peaks(tmp_path: Path) -> None:
    """memory.peak came with Linux 5.19."""
    tree = version2(tmp_path)
    for folder in (V2, STEP):
        (tmp_path / f"{folder}/memory.peak".lstrip("/")).unlink()
    around = Around.here(tree.target(), "/work")
    around.look()
    assert value_of(around.facts()["run.cgroup_peak_mib"]) == 1024


def test_version_1(tmp_path: Path) -> None:
    memory, pids = "/sys/fs/cgroup/memory/docker/ab12", "/sys/fs/cgroup/pids/docker/ab12"
    tree = Tree(tmp_path)
    tree.file("/proc/self/cgroup", "8:pids:/docker/ab12\n4:memory:/docker/ab12\n0::/\n")
    tree.file(f"{memory}/memory.limit_in_bytes", f"{8 << 30}\n")
    tree.file(f"{memory}/memory.usage_in_bytes", f"{1 << 30}\n")
    tree.file(f"{memory}/memory.max_usage_in_bytes", f"{2 << 30}\n")
    tree.file(f"{memory}/memory.failcnt", "5\n")
    tree.file(f"{memory}/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    tree.file(f"{pids}/pids.max", "100\n")
    tree.file(f"{pids}/pids.events", "max 2\n")
    around = Around.here(tree.target(), "/work")
    tree.file(f"{memory}/memory.max_usage_in_bytes", f"{8 << 30}\n")
    tree.file(f"{memory}/memory.failcnt", "905\n")
    tree.file(f"{memory}/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    tree.file(f"{pids}/pids.events", "max 3\n")
    around.look()
    facts = around.facts()
    names = ("memory_limit_mib", "cgroup_peak_mib", "limit_reached", "oom_kills", "forks_refused")
    assert [value_of(facts[f"run.{name}"]) for name in names] == [8192, 8192, 900, 2, 1]


def test_no_limit_at_all(tmp_path: Path) -> None:
    tree = Tree(tmp_path).file("/proc/self/cgroup", "0::/\n").file("/sys/fs/cgroup/memory.events", "oom_kill 0\n")
    around = Around.here(tree.target(), "/work")
    around.look()
    facts = around.facts()
    assert isinstance(facts["run.memory_limit_mib"], Absent)
    assert isinstance(facts["run.cgroup_peak_mib"], Absent)


def test_this_machine_is_read_without_a_word(tmp_path: Path) -> None:
    """Whatever version it has: its memory is read, and nothing raises."""
    around = Around.here(Local("quick"), str(tmp_path))
    around.look()
    low = value_of(around.facts()["run.machine_low_mib"])
    assert isinstance(low, int)
    assert low > 0
