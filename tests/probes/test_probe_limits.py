"""Limits of the session and of its cgroups, of either version."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.probes import limits
from gpudoctor.target.local import Local
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


@pytest.mark.parametrize(("memlock", "expected"), [("65536", 64), ("unlimited", -1), ("8388608", 8192)])
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
