"""The kernel's own log: Xids that still count, and those of yesterday, of other tenants, of programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.probes import kernel_log
from tests.probes.buses import shown
from tests.probes.trees import Tree, refused, said, values

UPTIME = 200_000
BOOT = 1_795_064_200  # 2026-11-19 04:56:40 UTC: the log's "now" is 2026-11-21 12:30 UTC
LOADING = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)"
XID_79 = "NVRM: Xid (PCI:0000:1a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
XID_31 = "NVRM: Xid (PCI:0000:2a:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000. MMU Fault"
RM_INIT = "NVRM: GPU 0000:1a:00.0: RmInitAdapter failed! (0x62:0xffff:2477)"


def record(words: str, ago: float = 60, priority: int = 3) -> str:
    """One record of /dev/kmsg, with the line of device data that the kernel appends to some."""
    return f"{priority},812,{int((UPTIME - ago) * 1e6)},-;{words}\n SUBSYSTEM=pci\n"


def tree_of(root: Path, *records: str) -> Tree:
    tree = Tree(root).linux().gpu("nvidia").gpu("nvidia").driver("580.95.05")
    tree.file("/proc/stat", f"cpu  1 2 3\nintr 7\nctxt 9\nbtime {BOOT}\nprocesses 4\n")
    return tree.file("/proc/uptime", f"{UPTIME}.21 1.0\n").file("/dev/kmsg", "".join(records))


def rows(tree: Tree, group: str, *columns: str) -> list[tuple[object, ...]]:
    """These columns of a group."""
    return [tuple(row[name] for name in columns) for row in shown(said(kernel_log, tree.target())[group])]


def codes(tree: Tree) -> list[int]:
    return [row["code"].value for row in said(kernel_log, tree.target())["xid"]]


def test_xids_have_a_code_an_address_and_an_age(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, record(LOADING, 9000), record("usb 1-1: new device"), record(XID_79, 3600))
    (row,) = said(kernel_log, tree.target())["xid"]
    assert shown([row])[0] == {
        "code": 79,
        "address": "0000:1a:00.0",
        "line": XID_79,
        "count": 1,
        "time": "2026-11-21T11:30:00Z",
        "age_s": 3600,
        "last_time": "2026-11-21T11:30:00Z",
        "last_age_s": 3600,
        "instance": Absent,
        "unit": Absent,
        "fatal": Absent,
        "link": Absent,
    }
    assert {state.source for state in row.values() if isinstance(state, Known)} == {"/dev/kmsg"}


def test_a_quiet_log_is_no_xid(tmp_path: Path) -> None:
    facts = values(kernel_log, tree_of(tmp_path, record(LOADING, 9000)).target())
    assert facts == {
        **dict.fromkeys(("xid", "sxid", "aer", "oom", "crash", "mce", "link_loss"), ()),
        **dict.fromkeys(("kernel_log.sxid", "kernel_log.fallen_off", "kernel_log.init_failures"), ()),
        "kernel_log.module_refused": Absent,
        "kernel_log.uvm_fatal": Absent,
    }


def test_what_came_before_the_driver_was_loaded_again_or_is_older_than_a_day_is_over(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, record(RM_INIT, 900), record(XID_79, 800), record(LOADING, 700), record(XID_31, 600))
    assert codes(tree) == [31]
    assert values(kernel_log, tree.target())["kernel_log.init_failures"] == ()
    assert codes(tree_of(tmp_path / "old", record(XID_79, 86_401), record(XID_31, 86_399))) == [31]


def test_a_driver_that_cannot_start_a_gpu(tmp_path: Path) -> None:
    region = "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:"
    tree = tree_of(tmp_path, record(LOADING, 90_000), record(region, 89_999), record(RM_INIT), record(RM_INIT))
    assert values(kernel_log, tree.target())["kernel_log.init_failures"] == (region, RM_INIT)


OPEN_NEEDED = "NVRM: The NVIDIA GPU 0000:1a:00.0 (PCI ID: 10de:2b85)"
OPEN_NEEDED_MORE = "installed in this system requires use of the NVIDIA open kernel modules."


def test_a_message_of_several_lines_is_one(tmp_path: Path) -> None:
    """The ring buffer writes a new line as ``\\x0a``; the driver begins each line of its long messages anew."""
    facts = said(kernel_log, tree_of(tmp_path, record(f"{OPEN_NEEDED}\\x0aNVRM: {OPEN_NEEDED_MORE}")).target())
    assert facts["kernel_log.init_failures"].value == (f"{OPEN_NEEDED} {OPEN_NEEDED_MORE}",)
    assert [row["line"] for row in facts["text"]] == [Known(f"{OPEN_NEEDED} {OPEN_NEEDED_MORE}", "/dev/kmsg")]


@pytest.mark.parametrize(
    "words",
    [
        "Loading of module with unavailable key is rejected",
        "Loading of unsigned module is rejected",
        "Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7",
    ],
)
def test_refused_modules(tmp_path: Path, words: str) -> None:
    facts = values(kernel_log, tree_of(tmp_path, record(words, 190_000)).target())
    assert facts["kernel_log.module_refused"] == words


def test_a_tainting_module_is_not_refused_and_what_programs_wrote_is_not_the_kernels(tmp_path: Path) -> None:
    words = "nvidia: module verification failed: signature and/or required key missing - tainting kernel"
    facts = values(kernel_log, tree_of(tmp_path, record(words), record(XID_79, priority=11)).target())
    assert facts["kernel_log.module_refused"] is Absent
    assert facts["xid"] == ()


def test_a_container_hears_of_its_own_gpus_only(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, record(XID_79), record(XID_31), record(XID_79.replace("1a", "9a"))).container()
    assert codes(tree) == [79, 31]


@pytest.mark.parametrize("noise", [b"\xff\xfe;;;\n3,1,x,-;NVRM: Xid\n", b"3,1,99\n", b"3,1,5,-;\n", b"\0" * 9000])
def test_noise_is_passed_over(tmp_path: Path, noise: bytes) -> None:
    tree = tree_of(tmp_path)
    tree.file("/dev/kmsg", noise + b"\n" + record(XID_31).encode())
    assert codes(tree) == [31]


def test_a_log_that_refuses_is_not_a_quiet_one() -> None:
    with refused("/dev/kmsg") as tree:
        tree.linux().file("/dev/kmsg", record(XID_79))
        facts = said(kernel_log, tree.close())
    assert set(map(type, facts.values())) == {Unread}
    assert facts["xid"].why.startswith("/dev/kmsg: Permission denied; root may read the kernel's log: sudo dmesg;")


def test_no_log_at_all_says_what_to_do(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().file("/proc/sys/kernel/dmesg_restrict", "1\n")
    assert said(kernel_log, tree.target())["xid"].why == (
        "no /dev/kmsg; root may read the kernel's log: sudo dmesg; sysctl kernel.dmesg_restrict=0 lets every user "
        "read it; members of the groups adm and systemd-journal may read journalctl -k"
    )
    inside = said(kernel_log, Tree(tmp_path / "inside").linux().container().target())["xid"].why
    assert inside == "no /dev/kmsg; the kernel's log is the host's: read it there with sudo dmesg"


def journal(tmp_path: Path, prints: str) -> Tree:
    return (
        Tree(tmp_path)
        .linux()
        .file("/proc/uptime", f"{UPTIME}.0 1\n")
        .file("/bin/journalctl", f"#!/bin/sh\ncat <<'END'\n{prints}\nEND\n", mode=0o755)
    )


def test_the_journal_where_the_ring_is_shut(tmp_path: Path) -> None:
    tree = journal(tmp_path, f"[    0.000000] node1 kernel: Linux version 6.8.0\n[199000.5] node1 kernel: {XID_79}")
    path = f"{tmp_path}/bin:/bin:/usr/bin"
    (row,) = said(kernel_log, tree.target("standard", PATH=path))["xid"]
    assert (row["code"], row["age_s"].value) == (Known(79, "journalctl -k -b"), 999)
    assert isinstance(said(kernel_log, tree.target("quick", PATH=path))["xid"], Unread)


def test_the_journal_indents_what_belongs_to_a_message(tmp_path: Path) -> None:
    lines = ("[  60.0] node1 kernel: ", "                       NVRM: ", "[  61.0] node1 kernel: ")
    tree = journal(tmp_path, f"{lines[0]}{OPEN_NEEDED}\n{lines[1]}{OPEN_NEEDED_MORE}\n{lines[2]}{XID_31}")
    facts = said(kernel_log, tree.target("standard", PATH=f"{tmp_path}/bin:/bin:/usr/bin"))
    assert facts["kernel_log.init_failures"].value == (f"{OPEN_NEEDED} {OPEN_NEEDED_MORE}",)


def test_a_journal_that_shows_nothing_is_not_a_quiet_one(tmp_path: Path) -> None:
    tree = journal(tmp_path, "-- No entries --")
    facts = said(kernel_log, tree.target("standard", PATH=f"{tmp_path}/bin:/bin:/usr/bin"))
    assert isinstance(facts["xid"], Unread)


def test_what_the_driver_says_of_its_gpus_before_it_names_itself(tmp_path: Path) -> None:
    """It probes them first: a card that fails then stands before the line that is taken for the driver's start."""
    failed = "NVRM: The NVIDIA probe routine failed for 1 device(s)."
    lines = (
        record("nvidia-nvlink: Nvlink Core is being initialized, major device number 510", 9000),
        record("NVRM: The NVIDIA GPU 0000:db:00.0 ... RmInitAdapter failed! (an earlier load)", 8990),
        record(LOADING, 8980),
        record("nvidia-nvlink: Nvlink Core is being initialized, major device number 510", 7200),
        record(failed, 7190),
        record(LOADING, 7180),
    )
    assert values(kernel_log, tree_of(tmp_path, *lines).target())["kernel_log.init_failures"] == (failed,)


def test_an_older_load_is_not_the_last_one(tmp_path: Path) -> None:
    """A driver that prints nothing of NVLink: what came before its own line is of the load before."""
    lines = (
        record("nvidia-nvlink: Nvlink Core is being initialized, major device number 510", 9000),
        record(LOADING, 8980),
        record(XID_79, 8000),
        record(LOADING, 7180),
    )
    assert values(kernel_log, tree_of(tmp_path, *lines).target())["xid"] == ()


def test_uvm_says_that_it_met_a_fatal_error(tmp_path: Path) -> None:
    fatal = "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover."
    facts = values(kernel_log, tree_of(tmp_path, record(LOADING, 200_000), record(fatal, 100_000)).target())
    assert facts["kernel_log.uvm_fatal"] == fatal


def test_processes_that_crashed(tmp_path: Path) -> None:
    lines = (
        "python3[19691]: segfault at 0 ip 00007fc84b985ad8 sp 00007ffd5c194b78 error 4 in libc.so.6[167ad8,7f+156000]",
        "traps: pt_data_worker[77] trap invalid opcode ip:7f01 sp:7ffd error:0 in libfoo.so[7f01+1000]",
        "traps: a b[78] general protection fault ip:7f01 sp:7ffd error:0",
        "systemd[1]: Started a unit that says segfault at the end of its line.",
    )
    tree = tree_of(tmp_path, *(record(line, 60 - at) for at, line in enumerate(lines)))
    found = rows(tree, "crash", "process", "pid", "kind", "library", "age_s")
    assert found == [
        ("python3", 19691, "segfault", "libc.so.6", 60),
        ("pt_data_worker", 77, "invalid opcode", "libfoo.so", 59),
        ("a b", 78, "general protection fault", Absent, 58),
    ]
