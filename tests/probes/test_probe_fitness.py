"""The host's clocks, processors, memory and disks, and processes that hang in the driver."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.fact import Absent, Unread
from gpudoctor.probes import fitness
from gpudoctor.probes import stuck as stuck_probe
from gpudoctor.target.child import kill_group, start_child
from gpudoctor.target.local import Local
from tests.needs import program
from tests.probes.buses import process, shown
from tests.probes.trees import Tree, said, values
from tests.processes import until

MOUNTS = """27 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
30 27 0:40 / /home ro,relatime shared:2 master:5 - nfs4 server:/home rw,vers=4.2
31 27 0:41 / /scratch\\040disk rw - xfs /dev/md0 ro
"""


def stuck(tree: Tree) -> list[dict[str, Any]]:
    return shown(said(stuck_probe, tree.target())["stuck"])


def test_a_machine_of_files(tmp_path: Path) -> None:
    clocks, cpus = "/sys/devices/system/clocksource/clocksource0", "/sys/devices/system/cpu/cpufreq"
    tree = Tree(tmp_path).linux().file(f"{clocks}/current_clocksource", "hpet\n")
    tree.file(f"{clocks}/available_clocksource", "hpet acpi_pm \n")
    for number in range(64):
        tree.file(f"{cpus}/policy{number}/scaling_governor", "powersave\n" if number % 4 else "performance\n")
        tree.file(f"{cpus}/policy{number}/scaling_max_freq", "2000000\n")
        tree.file(f"{cpus}/policy{number}/cpuinfo_max_freq", "3800000\n")
    tree.file(f"{cpus}/policy0/scaling_driver", "intel_pstate\n")
    tree.file(f"{cpus}/policy60/scaling_governor", "powersave\n").file(f"{cpus}/boost", "1\n")
    tree.file("/sys/devices/system/cpu/present", "0-63\n").file("/sys/devices/system/cpu/online", "0-3,8-63\n")
    tree.file("/sys/devices/system/cpu/smt/control", "on\n")
    tree.file("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    tree.file("/proc/sys/kernel/numa_balancing", "1\n").file("/proc/sys/vm/overcommit_memory", "2\n")
    tree.file("/proc/loadavg", "12.50 3.00 1.00 2/900 4242\n")
    meminfo = "MemTotal: 65536000 kB\nMemAvailable: 32768000 kB\nSwapTotal: 2097152 kB\nSwapFree: 1048576 kB\n"
    tree.file("/proc/meminfo", f"{meminfo}HugePages_Total:      16\nHugePages_Free:       4\n")
    for size, free in ((2048, 4), (1048576, 3)):
        folder = f"/sys/kernel/mm/hugepages/hugepages-{size}kB"
        tree.file(f"{folder}/free_hugepages", f"{free}\n").file(f"{folder}/resv_hugepages", "1\n")
    for controller, corrected in ((0, 2), (1, 3)):
        tree.file(f"/sys/devices/system/edac/mc/mc{controller}/ce_count", f"{corrected}\n")
        tree.file(f"/sys/devices/system/edac/mc/mc{controller}/ue_count", "0\n")
    facts = values(fitness, tree.target())
    expected = {
        "clock_source": "hpet",
        "clock_sources": ("hpet", "acpi_pm"),
        "governors": ("performance", "powersave"),
        "cpu_driver": "intel_pstate",
        "cpu_mhz_limit": 2000,
        "cpu_mhz_max": 3800,
        "cpus_present": 64,
        "cpus_online": 60,
        "smt": "on",
        "transparent_hugepages": "madvise",
        "numa_balancing": True,
        "overcommit": "never",
        "load": 12.5,
        "hugepages": 16,
        "hugepages_free": 4,
        "hugepages_unused_mib": 3 * 2 + 2 * 1024,
        "swap_mib": 2048,
        "swap_used_mib": 1024,
        "memory_available_mib": 32000,
        "memory_corrected": 5,
        "memory_uncorrected": 0,
    }
    assert {name: facts[f"fitness.{name}"] for name in expected} == expected


def test_what_the_kernel_has_not_and_what_cannot_be_seen(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().folder("/sys/devices/system/cpu").folder("/sys/kernel/mm")
    facts = values(fitness, tree.target())
    for name in ("governors", "memory_corrected", "transparent_hugepages", "numa_balancing", "hugepages_unused_mib"):
        assert facts[f"fitness.{name}"] is Absent
    assert facts["fitness.clock_source"] is facts["fitness.load"] is Unread
    bare = values(fitness, Tree(tmp_path / "bare").folder("/etc").target())
    for name in ("governors", "memory_corrected", "transparent_hugepages", "swap_mib", "overcommit"):
        assert bare[f"fitness.{name}"] is Unread


@pytest.mark.parametrize(
    ("path", "service", "right"),
    [
        ("/run/systemd/timesync/synchronized", "systemd-timesyncd", True),
        ("/run/systemd/timesync/clock", "systemd-timesyncd", False),
        ("/run/chrony/chronyd.pid", "chronyd", Unread),
        ("/run/systemd/journal", Absent, Unread),
        ("/run/lock", Unread, Unread),
    ],
)
def test_who_keeps_the_time(tmp_path: Path, path: str, service: object, right: object) -> None:
    facts = values(fitness, Tree(tmp_path).linux().file(path).target())
    assert (facts["fitness.time_service"], facts["fitness.time_synchronized"]) == (service, right)


def test_damaged_numbers_are_unread(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().file("/proc/loadavg", "many\n").file("/proc/sys/vm/overcommit_memory", "9\n")
    tree.file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "many\n")
    facts = values(fitness, tree.target())
    assert facts["fitness.load"] is facts["fitness.overcommit"] is facts["fitness.hugepages_unused_mib"] is Unread


def test_a_process_that_hangs_in_the_driver_is_named(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux()
    process(tree, 4242, "python3", "D", "rm_gpu_ops", "/dev/nvidia3")
    process(tree, 4243, "nvidia-smi", "D", "rwsem_down_write_slowpath")
    process(tree, 4244, "nvidia-smi", "S", "do_epoll_wait")
    process(tree, 4245, "dd", "D", "folio_wait_bit", "/data/file")
    assert stuck(tree) == [
        {"pid": 4243, "name": "nvidia-smi", "wchan": "rwsem_down_write_slowpath", "device": Unread, "seconds": 4701},
        {"pid": 4242, "name": "python3", "wchan": "rm_gpu_ops", "device": "/dev/nvidia3", "seconds": 4701},
    ]


def waiter(folder: Path) -> Path:
    """A program in state D: a parent waits for the child of its vfork."""
    source = folder / "wait.c"
    source.write_text("#include <unistd.h>\nint main(void) { if (vfork() == 0) { sleep(300); _exit(0); } return 0; }\n")
    subprocess.run([program("cc"), "-o", folder / "nvidia-wait", source], check=True)
    return folder / "nvidia-wait"


def test_a_real_process_in_uninterruptible_sleep(tmp_path: Path) -> None:
    with subprocess.Popen([waiter(tmp_path)], start_new_session=True) as process:
        try:
            until(lambda: " D " in Path(f"/proc/{process.pid}/stat").read_text())
            rows = stuck_probe.stuck(Local("quick"))
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert ("nvidia-wait", process.pid) in [(row["name"], row["pid"]) for row in shown(rows)]


@pytest.mark.parametrize("by_a_shell", [False, True])
def test_our_own_child_in_the_driver_is_not_stuck(tmp_path: Path, by_a_shell: bool) -> None:
    place = waiter(tmp_path)
    argv = ["sh", "-c", f"{place}; true"] if by_a_shell else [str(place)]
    started = start_child(argv, os.environ, with_stdin=False)

    def waiting() -> list[int]:
        """Process ids of the parents that run that program."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (folder / "cmdline").read_text().startswith(str(place)) and " D " in (folder / "stat").read_text():
                    found.append(int(folder.name))
        return found

    try:
        assert until(waiting)
        (pid,) = waiting()
        rows = stuck_probe.stuck(Local("quick"))
    finally:
        kill_group(started)
        started.communicate(timeout=600)
    assert not isinstance(rows, tuple) or pid not in [row["pid"] for row in shown(rows)]


def test_the_child_of_another_gpudoctor_is_not_stuck_and_one_left_behind_is(tmp_path: Path) -> None:
    tree = process(Tree(tmp_path).linux(), 4242, "python3", "D", "rm_gpu_ops", "/dev/nvidia3")
    tree.file("/proc/4242/cmdline", "python3\0/opt/gpudoctor/probes/children/ask_nvml.py\0")
    stat = (tmp_path / "proc/4242/stat").read_text()
    process(tree, 77, "gpudoctor").file("/proc/77/cmdline", "python3\0/usr/bin/gpudoctor\0check\0")
    tree.file("/proc/4242/stat", stat.replace("D 1 ", "D 77 ", 1))
    assert stuck(tree) == []
    tree.file("/proc/4242/stat", stat)
    assert [row["pid"] for row in stuck(tree)] == [4242]


def test_a_name_with_brackets_and_blanks_is_read_to_its_end(tmp_path: Path) -> None:
    tree = process(Tree(tmp_path).linux(), 7, "nvidia-x) S (y", "D", "0")
    (row,) = stuck(tree)
    assert (row["name"], row["wchan"]) == ("nvidia-x) S (y", Unread)


def test_a_process_that_moves_on_is_not_stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for a disk, and is somewhere else at the second look."""
    tree = process(Tree(tmp_path).linux(), 4242, "python3", "D", "folio_wait_bit", "/dev/nvidia0")
    status = "voluntary_ctxt_switches:\t8\nnonvoluntary_ctxt_switches:\t2\n"
    monkeypatch.setattr("time.sleep", lambda _: tree.file("/proc/4242/status", status))
    assert stuck(tree) == []


def test_a_scan_that_did_not_reach_its_end_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path).linux()
    for pid in range(100, 105):
        process(tree, pid, "sh")
    monkeypatch.setattr(stuck_probe, "MOST_PROCESSES", 3)
    assert said(stuck_probe, tree.target())["stuck"] == Unread("only the newest 3 of 6 processes were looked at")
    process(tree, 104, "nvidia-smi", "D")
    assert [row["pid"] for row in stuck(tree)] == [104]


def test_a_container_sees_only_its_own_processes(tmp_path: Path) -> None:
    tree = process(Tree(tmp_path).linux().container(), 12, "sh")
    assert isinstance(said(stuck_probe, tree.target())["stuck"], Unread)
    process(tree, 13, "nvidia-smi", "D")
    assert [row["name"] for row in stuck(tree)] == ["nvidia-smi"]


def test_folders_by_file_system(tmp_path: Path) -> None:
    """Local ones first. A cache that is a link counts where it leads; a variable that is no path counts nowhere."""
    tree = Tree(tmp_path).linux().file("/proc/self/mountinfo", MOUNTS).folder("/scratch disk/hf").folder("/home/ada")
    tree.link("/home/ada/.cache", "/scratch disk/cache").folder("/scratch disk/cache")
    target = tree.target(HOME="/home/ada", TRITON_CACHE_DIR="relative", TMPDIR="/tmp/of-the-job/")
    rows = said(fitness, target)["space"]
    assert [(row["mount"].value, row["kind"].value, row["read_only"].value) for row in rows] == [
        ("/scratch disk", "xfs", True),
        ("/", "ext4", False),
        ("/home", "nfs4", True),
    ]
    assert rows[0]["uses"].value == ("Hugging Face models", "torch models", "torch extensions", "pip wheels")
    assert rows[0]["folder"].value == "/home/ada/.cache/huggingface"
    assert rows[1]["uses"].value == ("torch.compile", "temporary files")
    assert rows[0]["total_mib"].value >= rows[0]["free_mib"].value > 0


def test_a_folder_that_is_refused_says_why(tmp_path: Path) -> None:
    (row,) = said(fitness, Tree(tmp_path).linux().file("/proc/self/mountinfo", MOUNTS[:74]).target(HOME="/"))["space"]
    assert row["free_mib"].value > 0
    gone = Tree(tmp_path / "gone").linux().file("/proc/self/mountinfo", MOUNTS).target(HOME="/home/ada")
    home = [row for row in said(fitness, gone)["space"] if row["mount"].value == "/home"]
    assert home[0]["free_mib"] == Unread("/home: No such file or directory")
