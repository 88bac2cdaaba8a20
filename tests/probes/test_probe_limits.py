"""Limits of the session and of its cgroups, variables that steer GPU software, and what a command shares."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Known, Unread, value_of
from gpudoctor.core.secrets import HIDDEN
from gpudoctor.probes import environment, limits
from gpudoctor.probes._job.shared_resources import SharedResources
from gpudoctor.target.local import Local
from tests import needs
from tests.probes.trees import Tree, said, values

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max stack size            8388608              unlimited            bytes
Max processes             96365                96365                processes
Max open files            1024                 524288               files
Max locked memory         {memlock}               8388608              bytes
"""
ROOT = "/sys/fs/cgroup"


def tree_of(root: Path, own: str, **files: str) -> Tree:
    """A machine whose process is in the cgroups `own`; `files` by path under the mount, ``__`` for a slash."""
    tree = Tree(root).linux().file("/proc/self/cgroup", own).folder(ROOT)
    for name, content in files.items():
        tree.file(f"{ROOT}/{name.replace('__', '/').replace('_dot_', '.')}", content)
    return tree


def test_this_machine() -> None:
    facts = values(limits, Local("quick"))
    memlock = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    assert facts["limits.memlock_kib"] == (-1 if memlock == resource.RLIM_INFINITY else memlock // 1024)
    assert facts["limits.open_files"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert 1 <= facts["limits.cpus"] <= len(os.sched_getaffinity(0))
    space = os.statvfs("/dev/shm")
    assert facts["limits.shm_mib"] == space.f_blocks * space.f_frsize // 2**20


@pytest.mark.parametrize(("memlock", "expected"), [("65536", 64), ("unlimited", -1), (str(2**63 - 1), 2**53 - 1)])
def test_limits_of_the_session(tmp_path: Path, memlock: str, expected: int) -> None:
    facts = values(limits, Tree(tmp_path).linux().file("/proc/self/limits", LIMITS.format(memlock=memlock)).target())
    assert facts["limits.memlock_kib"] == expected
    assert (facts["limits.open_files"], facts["limits.processes"]) == (1024, 96365)


def test_shared_memory(tmp_path: Path) -> None:
    assert values(limits, Tree(tmp_path).linux().target())["limits.shm_mib"] is Absent
    facts = values(limits, Tree(tmp_path).folder("/dev/shm").target())
    assert 0 <= facts["limits.shm_free_mib"] <= facts["limits.shm_mib"]


def test_version_2_takes_the_smallest_limit_on_the_way_up(tmp_path: Path) -> None:
    tree = tree_of(
        tmp_path,
        "0::/user.slice/job_1\n",
        user_dot_slice__job_1__memory_dot_max="max\n",
        user_dot_slice__memory_dot_max=f"{8 << 30}\n",
        user_dot_slice__job_1__cpu_dot_max="250000 100000\n",
    )
    facts = said(limits, tree.target())
    assert facts["limits.memory_mib"] == Known(8192, f"{ROOT}/user.slice/memory.max")
    assert facts["limits.cpus"] == Known(3, f"processor quota in {ROOT}/user.slice/job_1")


@pytest.mark.parametrize(("own", "above"), [(4, 8), (8, 4)])
def test_of_two_memory_limits_the_smaller_holds(tmp_path: Path, own: int, above: int) -> None:
    files = {"a__b__memory_dot_max": f"{own << 30}\n", "a__memory_dot_max": f"{above << 30}\n"}
    assert values(limits, tree_of(tmp_path, "0::/a/b\n", **files).target())["limits.memory_mib"] == 4096


def test_version_2_beside_version_1_and_outside_the_shown_root(tmp_path: Path) -> None:
    """As systemd mounts both (the controller is version 2's); and a process that moved out of its namespace's root."""
    files = {"unified__a__memory_dot_max": f"{2 << 30}\n", "unified__a__cpu_dot_max": "100000 100000\n"}
    both = said(limits, tree_of(tmp_path / "1", "4:pids:/b\n1:name=systemd:/a\n0::/a\n", **files).target())
    assert both["limits.memory_mib"] == Known(2048, f"{ROOT}/unified/a/memory.max")
    assert value_of(both["limits.cpus"]) == 1
    outside = tree_of(tmp_path / "2", "0::/../other\n", memory_dot_max=f"{1 << 30}\n").target()
    assert values(limits, outside)["limits.memory_mib"] is Unread


def test_the_smallest_quota_on_the_way_up_holds(tmp_path: Path) -> None:
    quotas = {"a__b__cpu_dot_max": "400000 100000\n", "a__cpu_dot_max": "200000 100000\n"}
    facts = said(limits, tree_of(tmp_path, "0::/a/b\n", **quotas).target())
    assert facts["limits.cpus"] == Known(2, f"processor quota in {ROOT}/a")


def test_version_1_in_a_container_whose_path_is_the_hosts(tmp_path: Path) -> None:
    own = "5:memory:/docker/ab12\n4:cpu,cpuacct:/docker/ab12\n0::/\n"
    tree = tree_of(
        tmp_path,
        own,
        memory__memory_dot_limit_in_bytes=f"{4 << 30}\n",
        cpu__cpu_dot_cfs_quota_us="400000\n",
        cpu__cpu_dot_cfs_period_us="100000\n",
    )
    facts = values(limits, tree.target())
    assert facts["limits.memory_mib"] == 4096
    assert facts["limits.cpus"] == 4


def test_no_limit_is_not_a_number(tmp_path: Path) -> None:
    one = tree_of(tmp_path / "1", "5:memory:/\n", memory__memory_dot_limit_in_bytes="9223372036854771712\n")
    assert values(limits, one.target())["limits.memory_mib"] is Absent
    two = tree_of(tmp_path / "2", "0::/a\n", a__memory_dot_max="max\n", a__cpu_dot_max="max 100000\n")
    facts = values(limits, two.target())
    assert facts["limits.memory_mib"] is Absent
    assert facts["limits.cpus"] == 16


def test_a_limit_that_cannot_be_found_is_unread(tmp_path: Path) -> None:
    assert values(limits, tree_of(tmp_path, "0::/gone\n").target())["limits.memory_mib"] is Unread
    facts = values(limits, Tree(tmp_path / "empty").target())
    assert {name for name, value in facts.items() if value is not Unread} == {"limits.shm_mib", "limits.shm_free_mib"}


@pytest.mark.parametrize(("ranges", "count"), [("0", 1), ("0-3", 4), ("0-3,8,10-11", 7)])
def test_processors_are_counted_from_ranges(tmp_path: Path, ranges: str, count: int) -> None:
    tree = Tree(tmp_path).linux().file("/proc/self/status", f"Name:\tx\nCpus_allowed_list:\t{ranges}\n")
    assert values(limits, tree.target())["limits.cpus"] == count


def test_unset_is_an_answer_and_what_is_not_ours_is_not_read(tmp_path: Path) -> None:
    facts = said(environment, Tree(tmp_path).target(CUDA_VISIBLE_DEVICES="", NCCL_DEBUG="INFO"))
    assert facts["env.CUDA_VISIBLE_DEVICES"] == Known("", "environment")
    assert facts["env.NCCL_DEBUG"] == Known("INFO", "environment")
    assert facts["env.NCCL_SOCKET_IFNAME"] == Absent("not set")
    private = {"HOME": "/home/me", "AWS_SECRET_ACCESS_KEY": "x", "SSH_AUTH_SOCK": "y", "PS1": "$", "PATH": "/bin"}
    facts = said(environment, Tree(tmp_path).target(**private))
    assert not {f"env.{name}" for name in private} & set(facts)


def test_secrets_are_hidden_and_not_left_out_and_huge_values_are_cut(tmp_path: Path) -> None:
    plain, secret = "/scratch/sk-learn/cache", "https://user:pa55@host/plugin"
    target = Tree(tmp_path).target(NCCL_NET_PLUGIN=secret, TRITON_CACHE_DIR=plain, XLA_FLAGS="--a " * 50_000)
    facts = values(environment, target)
    assert HIDDEN in facts["env.NCCL_NET_PLUGIN"]
    assert "pa55" not in facts["env.NCCL_NET_PLUGIN"]
    assert facts["env.TRITON_CACHE_DIR"] == plain
    assert len(facts["env.XLA_FLAGS"]) < 5000
    assert facts["env.XLA_FLAGS"].endswith("(200000 characters)")


def test_search_paths(tmp_path: Path) -> None:
    tree = Tree(tmp_path).file("/usr/local/cuda/bin/nvcc").file("/usr/bin/gcc").folder("/home/me/bin")
    facts = values(
        environment,
        tree.target(LD_LIBRARY_PATH="/a:/b::/a", PATH="/home/me/bin:/usr/local/cuda/bin:bin:/usr/bin:/usr/bin"),
    )
    assert facts["env.library_path"] == ("/a", "/b", ".", "/a")
    assert facts["env.path"] == ("/usr/local/cuda/bin", "/usr/bin")
    assert values(environment, tree.target())["env.library_path"] is Absent


def test_variables_of_nccl_by_name(tmp_path: Path) -> None:
    target = Tree(tmp_path).target(NCCL_P2P_DISABLE="1", TORCH_NCCL_BLOCKING_WAIT="0", GLOO_SOCKET_IFNAME="eth0", A="1")
    assert values(environment, target)["env.nccl_set"] == (
        "GLOO_SOCKET_IFNAME",
        "NCCL_P2P_DISABLE",
        "TORCH_NCCL_BLOCKING_WAIT",
    )


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
        tree.file(f"{folder}/memory.high", "max\n" if folder == V2 else f"{60 << 30}\n")
        tree.file(f"{folder}/memory.current", f"{1 << 30}\n")
        tree.file(f"{folder}/memory.peak", f"{2 << 30}\n")
        tree.file(f"{folder}/memory.events", EVENTS.format(max=0, oom=0, kill=0))
        tree.file(f"{folder}/pids.max", "max\n" if folder == V2 else "512\n")
        tree.file(f"{folder}/pids.events", "max 0\n")
    return tree


def test_version_2(tmp_path: Path) -> None:
    """The kernel counts kills for the whole subtree, a full limit where it is, and keeps the peak between two looks."""
    tree = version2(tmp_path)
    around = SharedResources.here(tree.target(), "/work")
    around.look()
    tree.file(f"{STEP}/memory.peak", f"{64 << 30}\n")
    tree.file(f"{STEP}/memory.events", EVENTS.format(max=41, oom=1, kill=1).replace("high 0", "high 7"))
    tree.file(f"{V2}/memory.events", EVENTS.format(max=0, oom=0, kill=1))
    tree.file(f"{STEP}/pids.events", "max 12\n")
    tree.file("/proc/vmstat", "nr_free_pages 1\noom_kill 4\n")
    around.look()
    facts = around.facts()
    assert facts["run.memory_limit_mib"] == Known(64 << 10, STEP)
    assert facts["run.cgroup_peak_mib"] == Known(64 << 10, STEP)
    assert facts["run.memory_high_mib"] == Known(60 << 10, STEP)
    expected = {"oom_kills": 1, "limit_reached": 41, "forks_refused": 12, "memory_throttled": 7}
    assert {name: value_of(facts[f"run.{name}"]) for name in expected} == expected


def test_a_peak_of_before_is_not_this_runs_and_no_limit_is_none(tmp_path: Path) -> None:
    around = SharedResources.here(version2(tmp_path).target(), "/work")
    around.look()
    facts = around.facts()
    assert value_of(facts["run.cgroup_peak_mib"]) == 1024
    assert value_of(facts["run.oom_kills"]) == value_of(facts["run.forks_refused"]) == 0
    tree = (
        Tree(tmp_path / "bare").file("/proc/self/cgroup", "0::/\n").file("/sys/fs/cgroup/memory.events", "oom_kill 0\n")
    )
    around = SharedResources.here(tree.target(), "/work")
    around.look()
    facts = around.facts()
    assert isinstance(facts["run.memory_limit_mib"], Absent)
    assert isinstance(facts["run.cgroup_peak_mib"], Absent)


def test_a_kernel_without_peaks(tmp_path: Path) -> None:
    """memory.peak came with Linux 5.19."""
    tree = version2(tmp_path)
    for folder in (V2, STEP):
        (tmp_path / f"{folder}/memory.peak".lstrip("/")).unlink()
    around = SharedResources.here(tree.target(), "/work")
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
    around = SharedResources.here(tree.target(), "/work")
    tree.file(f"{memory}/memory.max_usage_in_bytes", f"{8 << 30}\n")
    tree.file(f"{memory}/memory.failcnt", "905\n")
    tree.file(f"{memory}/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    tree.file(f"{pids}/pids.events", "max 3\n")
    around.look()
    facts = around.facts()
    names = ("memory_limit_mib", "cgroup_peak_mib", "limit_reached", "oom_kills", "forks_refused")
    assert [value_of(facts[f"run.{name}"]) for name in names] == [8192, 8192, 900, 2, 1]


def test_this_machine_is_read_without_a_word(tmp_path: Path) -> None:
    """Whatever version it has: its memory is read, and nothing raises."""
    around = SharedResources.here(Local("quick"), str(tmp_path))
    around.look()
    low = value_of(around.facts()["run.machine_low_mib"])
    assert isinstance(low, int)
    assert low > 0


@pytest.mark.full
def test_version_2_of_a_real_kernel(tmp_path: Path) -> None:
    """User-mode Linux: a kernel that is a program, with this file system read-only as its own."""
    kernel = needs.program("linux.uml")
    init = tmp_path / "init"
    init.write_text(
        "#!/bin/sh\nexport PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1\n"
        f"cd {needs.REPOSITORY}; exec {sys.executable} -m tests.probes.cgroup_guest\n"
    )
    init.chmod(0o755)
    words = f"root=/dev/root rootfstype=hostfs rootflags=/ ro mem=800M init={init} con=null con0=null,fd:1 quiet"
    home = {**os.environ, "HOME": str(tmp_path)}  # where it keeps its sockets
    done = subprocess.run([kernel, *words.split()], capture_output=True, check=False, timeout=600, env=home)
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    read = dict(json.loads(line[1:]) for line in lines if line.startswith("@"))
    limited = {"status": -9, "memory_limit_mib": 128, "memory_limit_at": f"{ROOT}/step", "forks_refused": 0}
    unslowed = {"memory_high_mib": None, "memory_throttled": None}
    assert read["task slowed"].pop("memory_throttled") > 0
    assert read["task slowed"] == {**limited, "status": 0, "oom_kills": 0, "limit_reached": 0, "memory_high_mib": 8}
    assert read["sibling slowed"] == {**limited, "status": 0, "oom_kills": 0, "limit_reached": 0, **unslowed}
    limited |= unslowed
    assert read["root"] == ["Absent", "Absent"]
    assert read["task"] == [128, f"{ROOT}/step/memory.max"]
    assert read["killed"].pop("limit_reached") > 0
    assert read["killed"] == {**limited, "oom_kills": 1}
    assert read["sibling"] == {**limited, "oom_kills": 0, "limit_reached": 0}, "its own limit is not the job's"
    assert read["forks"] == {**limited, "status": 0, "oom_kills": 0, "limit_reached": 0, "forks_refused": 1}
    assert read["frozen"] == [False, True]
    path, limit, killed = read["namespace"]
    assert (path, limit) == ("0::/\n", [64, f"{ROOT}/memory.max"])
    assert (killed["memory_limit_at"], killed["oom_kills"]) == (ROOT, 1)
