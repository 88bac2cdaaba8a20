"""The kernel's own log: events of every kind that still count, and those of yesterday, of others, of programs."""

from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.probes import kernel_log
from gpudoctor.probes._log import Log, xids
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


def test_what_the_driver_says_of_gpus_that_do_not_start_and_of_uvm(tmp_path: Path) -> None:
    region = "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:"
    tree = tree_of(tmp_path, record(LOADING, 90_000), record(region, 89_999), record(RM_INIT), record(RM_INIT))
    assert values(kernel_log, tree.target())["kernel_log.init_failures"] == (region, RM_INIT)
    fatal = "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover."
    facts = values(kernel_log, tree_of(tmp_path / "uvm", record(LOADING, 200_000), record(fatal, 100_000)).target())
    assert facts["kernel_log.uvm_fatal"] == fatal


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


def test_a_container_that_does_not_know_its_own_gpus_drops_no_xid(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, record(XID_79)).container()
    (tree.root / "proc/driver/nvidia/gpus").rename(tree.root / "hidden")
    facts = said(kernel_log, tree.target())
    for name in ("xid", "kernel_log.fallen_off"):
        assert isinstance(facts[name], Unread)
        assert facts[name].why.endswith("not known which GPUs are this container's: no /proc/driver/nvidia/gpus")
    facts = values(kernel_log, tree.file("/dev/kmsg", record(LOADING)).target())
    assert (facts["xid"], facts["kernel_log.fallen_off"]) == ((), ()), "a log without Xids is a quiet one"
    tree.folder("/proc/driver/nvidia/gpus").file("/dev/kmsg", record(XID_79))
    assert codes(tree) == [], "none was handed over"


@pytest.mark.parametrize("noise", [b"\xff\xfe;;;\n3,1,x,-;NVRM: Xid\n", b"3,1,99\n", b"3,1,5,-;\n", b"\0" * 9000])
def test_noise_is_passed_over(tmp_path: Path, noise: bytes) -> None:
    tree = tree_of(tmp_path)
    tree.file("/dev/kmsg", noise + b"\n" + record(XID_31).encode())
    assert codes(tree) == [31]


def test_a_log_or_journal_that_shows_nothing_is_not_a_quiet_one(tmp_path: Path) -> None:
    with refused("/dev/kmsg") as tree:
        tree.linux().file("/dev/kmsg", record(XID_79))
        facts = said(kernel_log, tree.close())
    assert set(map(type, facts.values())) == {Unread}
    assert facts["xid"].why.startswith("/dev/kmsg: Permission denied; root may read the kernel's log: sudo dmesg;")
    tree = journal(tmp_path, "-- No entries --")
    facts = said(kernel_log, tree.target("standard", PATH=f"{tmp_path}/bin:/bin:/usr/bin"))
    assert isinstance(facts["xid"], Unread)


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
    lines = ("[  60.0] node1 kernel: ", "                       NVRM: ", "[  61.0] node1 kernel: ")
    tree = journal(tmp_path / "indented", f"{lines[0]}{OPEN_NEEDED}\n{lines[1]}{OPEN_NEEDED_MORE}\n{lines[2]}{XID_31}")
    facts = said(kernel_log, tree.target("standard", PATH=f"{tmp_path}/indented/bin:/bin:/usr/bin"))
    assert facts["kernel_log.init_failures"].value == (f"{OPEN_NEEDED} {OPEN_NEEDED_MORE}",)


def test_of_a_journal_that_is_too_long_the_end_is_read(tmp_path: Path) -> None:
    """It begins with the oldest: 6 MB of one message, then the one that matters."""
    lines = [f"[{199_000 + n / 1000:.6f}] node1 kernel: {XID_45.format(n % 251)}" for n in range(60_000)]
    tree = journal(tmp_path, "").file("/log", "\n".join([*lines, f"[199900.5] node1 kernel: {XID_79}\n"]))
    prints = f'#!/bin/sh\ncase "$*" in *" -n "*) exec tail -n 5 {tmp_path}/log;; *) exec cat {tmp_path}/log;; esac\n'
    tree.file("/bin/journalctl", prints, mode=0o755)
    facts = said(kernel_log, tree.target("standard", PATH=f"{tmp_path}/bin:/bin:/usr/bin"))
    assert [row["code"].value for row in facts["xid"]] == [45, 79]


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


def test_a_crash_whose_line_is_longer_than_its_pattern(tmp_path: Path) -> None:
    """Bazel's long names: what the pattern takes of the line ends within the number of a core."""
    library = "libexternal_Sxla_Sxla_Sservice_Sgpu_Slibgpu_Uexecutable_Ukernels_Ufor_Uarray.so.2"
    at = "[a1234,7f1234567000+12345000] likely on CPU 112 (core 156, socket 1)"
    line = f"python3[4711]: segfault at 7f1234567890 ip 00007f1234567890 sp 00007ffd12345678 error 4 in {library}{at}"
    tree = tree_of(tmp_path, record("usb 1-1: new device", 90), record(line, 60), record("usb 1-2: new device", 30))
    assert rows(tree, "crash", "pid", "library", "line", "count", "age_s", "last_age_s") == [
        (4711, library, line, 1, 60, 60)
    ]


XID_45 = "NVRM: Xid (PCI:0000:1a:00): 45, pid=4711, name=python3, Ch 000000{:02x}"
XID_119 = "NVRM: Xid (PCI:0000:1a:00): 119, pid=4711, name=python3, Timeout after 45s of waiting for RPC response"
XID_149 = "NVRM: Xid (PCI:0000:1a:00): 149, NETIR_LINK_EVT  {}   XC0 i0 Link 0{} (0x004505c6 0x00000000)"
XID_154 = "NVRM: Xid (PCI:0000:1a:00): 154, GPU recovery action changed from 0x{} ({}) to 0x{} ({})"
SXID = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): "
AER = "PCIe Bus Error: severity={}, type=Physical Layer, (Receiver ID)"


def test_one_row_a_gpu_and_xid_with_first_and_last_time(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, record(XID_119, 900), *(record(XID_45.format(n), 800 - n) for n in range(99)))
    tree = tree.file("/dev/kmsg", (tmp_path / "dev/kmsg").read_text() + record(XID_31, 500))
    assert rows(tree, "xid", "code", "address", "count", "age_s", "last_age_s") == [
        (119, "0000:1a:00.0", 1, 900, 900),
        (45, "0000:1a:00.0", 99, 800, 702),
        (31, "0000:2a:00.0", 1, 500, 500),
    ]


def test_of_xids_the_whole_number_and_the_last_recovery_action_count(tmp_path: Path) -> None:
    four = "NVRM: Xid (PCI:0000:1a:00): 4"
    tree = tree_of(tmp_path, record(f"{four}5, a", 90), record(four, 80), record(f"{four}6, a", 70))
    assert rows(tree, "xid", "code", "age_s", "last_age_s") == [(45, 90, 90), (4, 80, 80), (46, 70, 70)]
    wanted, back = (
        XID_154.format(0, "None", 1, "GPU Reset Required"),
        XID_154.format(1, "GPU Reset Required", 0, "None"),
    )
    tree = tree_of(tmp_path / "actions", record(wanted, 90), record(back, 80))
    assert rows(tree, "xid", "code", "line", "count") == [(154, back, 2)]


def test_a_flood_hides_nothing() -> None:
    """170,000 lines of Xid 45, as a kernel with a large ring or a file may hold, after the one that matters."""
    flood = "\n".join(f"3,{n},{n + 50},-;{XID_45.format(n % 251)}" for n in range(170_000))
    log = Log(f"3,1,7,-;{XID_119}\n{flood}\n3,2,900000,-;{XID_31}", "/dev/kmsg", 1.0, 0)
    found = xids(log, None)
    assert [(row["code"].value, row["count"].value) for row in found] == [(119, 1), (45, 170_000), (31, 1)]  # type: ignore[union-attr]


def test_nvlink_5_events_say_whether_they_are_fatal(tmp_path: Path) -> None:
    tree = tree_of(
        tmp_path,
        record(XID_149.format("Nonfatal", 3), 90),
        record(XID_149.format("Fatal", 9), 80),
        record(XID_149.format("Fatal", 8), 70),
        record("NVRM: Xid (PCI:0000:1a:00): 145, RLW_SRC_TRACK Fatal XC0 i0 Link -1 (0x00000001)", 60),
    )
    assert rows(tree, "xid", "code", "unit", "fatal", "link", "count") == [
        (149, "NETIR_LINK_EVT", False, 3, 1),
        (149, "NETIR_LINK_EVT", True, 9, 2),
        (145, "RLW_SRC_TRACK", True, Absent, 1),
    ]


def test_nvswitch_errors(tmp_path: Path) -> None:
    tree = tree_of(
        tmp_path,
        record(f"{SXID}22013, Data {{0x0000002b, 0x0000002b, 0x00000000}}", 99),
        record(f"{SXID}22013, Non-fatal, Link 44 Minion Link DLREQ interrupt", 99),
        record(f"{SXID}22013, Severity 0 Engine instance 44 Sub-engine instance 00", 99),
        record(f"{SXID}24007, Fatal, Link 27 sourcetrack timeout error (First)", 60),
        record("nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 10001, Non-fatal, PRI WRITE SYSB error, instance=3", 50),
    )
    assert rows(tree, "sxid", "code", "address", "fatal", "link", "count", "age_s") == [
        (22013, "0000:c1:00.0", False, 44, 1, 99),
        (24007, "0000:c1:00.0", True, 27, 1, 60),
        (10001, "0000:07:00.0", False, Absent, 1, 50),
    ]
    assert values(kernel_log, tree.target())["kernel_log.sxid"] == (22013, 24007, 10001)
    assert codes(tree) == []


def test_pcie_errors_by_device_and_severity(tmp_path: Path) -> None:
    tree = tree_of(
        tmp_path,
        record("pcieport 0000:00:01.0: AER: Corrected error received: 0000:1a:00.0", 99),
        *(record(f"nvidia 0000:1a:00.0: {AER.format('Corrected')}", 99 - n) for n in range(30)),
        record("nvidia 0000:1a:00.0:   device [10de:2330] error status/mask=00000001/00002000", 99),
        record(f"pcieport 0000:00:02.0: {AER.format('Uncorrectable (Fatal)')}", 40),
        record(f"igb 0000:09:00.0: AER: {AER.format('Uncorrected (Non-Fatal)')}", 30),
        record(f"nvme 0000:0a:00.0: {AER.format('Correctable')}", 20),
    )
    assert rows(tree, "aer", "driver", "address", "severity", "gpu", "count", "age_s", "last_age_s") == [
        ("nvidia", "0000:1a:00.0", "corrected", "0000:1a:00.0", 30, 99, 70),
        ("pcieport", "0000:00:02.0", "fatal", "0000:2a:00.0", 1, 40, 40),
        ("igb", "0000:09:00.0", "non-fatal", Absent, 1, 30, 30),
        ("nvme", "0000:0a:00.0", "corrected", Absent, 1, 20, 20),
    ]


def test_processes_that_the_kernel_killed(tmp_path: Path) -> None:
    memory = "total-vm:99kB, anon-rss:31457280kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:9kB oom_score_adj:0"
    tree = tree_of(
        tmp_path,
        record(f"Memory cgroup out of memory: Killed process 4711 (python3) {memory}", 90, priority=3),
        record(f"Out of memory: Killed process 812 (a (b) c) {memory}", 80),
        record("Out of memory: Kill process 9 (old) score 912 or sacrifice child", 70),
    )
    assert rows(tree, "oom", "process", "pid", "scope", "memory_mib", "age_s") == [
        ("python3", 4711, "cgroup", 30720, 90),
        ("a (b) c", 812, "machine", 30720, 80),
        ("old", 9, "machine", Absent, 70),
    ]
    assert isinstance(said(kernel_log, tree.container().target())["oom"], Unread)


def test_machine_checks_and_memory_errors(tmp_path: Path) -> None:
    tree = tree_of(
        tmp_path,
        record("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)", 90),
        record("EDAC MC0: 3 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)", 80),
        record("EDAC MC1: 1 UE memory read error on unknown memory (channel:0)", 70),
        record("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 8c00004000010091", 60),
        record("mce: [Hardware Error]: CPU 4: Machine Check Exception: 5 Bank 4: be00000000800400", 50),
        record("mce: [Hardware Error]: TSC 0 ADDR 1ffe0 MISC 0", 50),
        record("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: bc00000000010091", 40),
    )
    assert rows(tree, "mce", "kind", "where", "corrected", "count", "age_s") == [
        ("memory", "MC0 CPU_SrcID#0_MC#0_Chan#1_DIMM#0", True, 2, 90),
        ("memory", "MC1 unknown", False, 1, 70),
        ("machine check", "CPU 3 bank 7", True, 1, 60),
        ("machine check", "CPU 4 bank 4", False, 1, 50),
        ("machine check", "CPU 3 bank 7", False, 1, 40),
    ]


def test_interfaces_whose_link_went_down(tmp_path: Path) -> None:
    tree = tree_of(
        tmp_path,
        record("mlx5_core 0000:1a:00.0 ens1f0np0: Link down", 90),
        record("mlx5_core 0000:1a:00.0 ens1f0np0: Link up", 88),
        record("mlx5_core 0000:1a:00.0 ens1f0np0: Link down", 80),
        record("igb: eth0 NIC Link is Down", 70),
        record("bnxt_en 0000:3b:00.0 ens2f0np0: NIC Link is Down", 60),
        record("tg3 0000:02:00.0 eno1: Link is down", 50),
        record("ixgbe 0000:03:00.0 eth1: NIC Link is Up 10 Gbps", 40),
        *(record(f"ata{port}: SATA link down (SStatus 0 SControl 300)", 30) for port in range(1, 9)),
    )
    assert rows(tree, "link_loss", "interface", "count", "age_s") == [
        ("ens1f0np0", 2, 90),
        ("eth0", 1, 70),
        ("ens2f0np0", 1, 60),
        ("eno1", 1, 50),
    ]


@pytest.mark.parametrize(
    "words",
    [
        (XID_79,),
        ("NVRM: GPU at PCI:0000:1a:00: GPU-3b5c9f0e-1111", "NVRM: GPU 0000:1a:00.0: GPU has fallen off the bus."),
        (
            "NVRM: The NVIDIA GPU 0000:1a:00.0",
            "NVRM: (PCI ID: 10de:2330) installed in this system has",
            "NVRM: fallen off the bus and is not responding to commands.",
        ),
    ],
)
def test_a_gpu_that_fell_off_the_bus_in_each_of_the_drivers_words(tmp_path: Path, words: tuple[str, ...]) -> None:
    tree = tree_of(tmp_path, record("usb 1-1: has fallen off the bus", 70), *(record(line) for line in words))
    assert values(kernel_log, tree.target())["kernel_log.fallen_off"] == ("0000:1a:00.0",)


def test_without_the_time_of_boot_only_ages_are_known(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, record(XID_79)).without("/proc/stat")
    assert rows(tree, "xid", "age_s", "time") == [(60, Unread)]


def kept(*lines: tuple[float, str], stamp: str = "Nov 21 12:29:00", host: str = "node1") -> str:
    """/var/log/kern.log as rsyslog writes it."""
    return "".join(f"{stamp} {host} kernel: [{at:12.6f}] {words}\n" for at, words in lines)


@pytest.mark.parametrize("stamp", ["Nov 21 12:29:00", "2026-11-21T12:29:00.123456+00:00"])
def test_the_file_of_a_machine_with_the_longest_name(tmp_path: Path, stamp: str) -> None:
    """Linux allows 64 characters; clusters on Kubernetes have names of 50 and more."""
    boot = (0, "Linux version 6.8.0-79-generic (buildd@lcy02) (x86_64-linux-gnu-gcc-13)")
    log = kept(boot, (9, LOADING), (UPTIME - 60, XID_31), stamp=stamp, host=64 * "n")
    tree = tree_of(tmp_path).without("/dev/kmsg").file("/var/log/kern.log", log)
    assert rows(tree, "xid", "code", "age_s", "line") == [(31, 60, XID_31)]


def test_the_file_that_syslog_keeps_of_this_boot(tmp_path: Path) -> None:
    boot = (0, "Linux version 6.8.0-79-generic (buildd@lcy02) (x86_64-linux-gnu-gcc-13)")
    before = kept(boot, (UPTIME - 50, XID_79))
    now = kept(boot, (9, LOADING), (UPTIME - 60, XID_31), (UPTIME - 50, XID_45.format(1)))
    tree = tree_of(tmp_path).without("/dev/kmsg").file("/var/log/kern.log", before + now)
    assert rows(tree, "xid", "code", "age_s", "line") == [(31, 60, XID_31), (45, 50, XID_45.format(1))]
    tree.file("/var/log/kern.log", kept((9, LOADING), (UPTIME - 60, XID_31)))
    assert isinstance(said(kernel_log, tree.target())["xid"], Unread), "it may tell of another boot"
