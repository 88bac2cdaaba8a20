"""The driver: loaded, its libraries, its device files and daemons; and what cannot be seen from inside a container."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Unread
from gpudoctor.probes import driver
from tests.probes.trees import KERNEL, Tree, refused, said, values


def healthy(root: Path, version: str = "580.95.05", kind: str = "open") -> Tree:
    return Tree(root).linux().gpu("nvidia").gpu("nvidia").driver(version, kind)


@pytest.mark.parametrize(
    ("version", "kind"), [("610.43.03", "open"), ("570.86", "open"), ("470.256.02", "proprietary")]
)
def test_a_healthy_driver(tmp_path: Path, version: str, kind: str) -> None:
    facts = values(driver, healthy(tmp_path, version, kind).target())
    assert facts["driver.version"] == facts["driver.module_version"] == version
    assert facts["driver.module_kind"] == kind
    assert facts["driver.module_disk_version"] == facts["driver.library_version"] == version
    for true in ("installed", "module_loaded", "module_on_disk", "uvm_loaded", "headers"):
        assert facts[f"driver.{true}"] is True, true
    for false in ("nouveau_loaded", "nova_loaded", "nouveau_blacklisted", "nvidia_blacklisted", "recent_suspend"):
        assert facts[f"driver.{false}"] is False, false
    assert facts["driver.bound_count"] == 2
    assert facts["driver.nodes_missing"] == facts["driver.nodes_denied"] == ()
    assert facts["driver.module_params"]["ModifyDeviceFiles"] == "1"


OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module  515.43.04  Release Build  (archlinux-builder@archlinux)\n"
EMPTY = "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15"
PID = "/run/nvidia-persistenced/nvidia-persistenced.pid"
IN_A_POD = "/run/nvidia/driver/usr/lib/x86_64-linux-gnu"


def persistenced(tree: Tree, name: str) -> Tree:
    return tree.file("/usr/bin/nvidia-persistenced").file(PID, "812\n").file("/proc/812/comm", f"{name}\n")


BARE: dict[str, tuple[Callable[[Tree], Tree], dict[str, object]]] = {
    "other modules whose names begin alike": (
        lambda tree: tree.module("nvidiafb").module("nvidia_wmi_ec_backlight"),
        {"module_loaded": False},
    ),
    "two libraries, of which a link names one": (
        lambda tree: tree.libraries("580.95.05").libraries("535.54.03"),
        {"library_version": "580.95.05"},
    ),
    "an empty library": (lambda tree: tree.file(EMPTY), {"libraries_empty": (EMPTY,), "library_version": Absent}),
    "a driver in the GPU operator's container": (
        lambda tree: tree.gpu("nvidia").module("nvidia", version="570.86.15").libraries("570.86.15", IN_A_POD),
        {"library_version": "570.86.15"},
    ),
    "never suspended": (lambda tree: tree.file("/sys/power/suspend_stats/success", "0\n"), {"recent_suspend": False}),
    "suspended": (lambda tree: tree.file("/sys/power/suspend_stats/success", "3\n"), {"recent_suspend": True}),
}
LOADED: dict[str, tuple[Callable[[Tree], Tree], dict[str, object]]] = {
    "an older wording of the open module": (
        lambda tree: tree.file("/proc/driver/nvidia/version", OPEN),
        {"module_version": "515.43.04", "module_kind": "open"},
    ),
    "procfs hidden": (
        lambda tree: tree.without("/proc/driver/nvidia/version"),
        {"module_version": "580.95.05", "module_kind": Unread},
    ),
    "garbage in procfs": (
        lambda tree: tree.file("/proc/driver/nvidia/version", b"\xff\xfe\0" * 999).without(
            "/sys/module/nvidia/version"
        ),
        {"module_version": Unread},
    ),
    "two versions of the libraries": (
        lambda tree: tree.libraries("535.54.03", "/usr/lib64"),
        {"library_versions": ("580.95.05", "535.54.03")},
    ),
    "no /proc/modules": (
        lambda tree: tree.without("/proc/modules").folder("/sys/module/nouveau"),
        {"module_loaded": True, "nouveau_loaded": True, "nova_loaded": False},
    ),
    "a daemon that stopped": (lambda tree: tree.file("/usr/bin/nvidia-persistenced"), {"persistenced": False}),
    "a daemon": (lambda tree: persistenced(tree, "nvidia-persiste"), {"persistenced": True}),
    "a pid file that outlived its daemon": (lambda tree: persistenced(tree, "bash"), {"persistenced": False}),
}


@pytest.mark.parametrize("name", [*BARE, *LOADED])
def test_what_is_read_of(tmp_path: Path, name: str) -> None:
    lay_out, expected = {**BARE, **LOADED}[name]
    facts = values(driver, lay_out(healthy(tmp_path) if name in LOADED else Tree(tmp_path).linux()).target())
    assert {fact: facts[f"driver.{fact}"] for fact in expected} == expected


def test_nothing_of_nvidia(tmp_path: Path) -> None:
    facts = values(driver, Tree(tmp_path).linux().gpu().target())
    assert facts["driver.installed"] is False
    assert facts["driver.module_loaded"] is False
    assert facts["driver.module_on_disk"] is False
    for absent in ("version", "module_version", "library_version", "nodes_missing", "dkms", "bound_count"):
        assert facts[f"driver.{absent}"] is Absent, absent


def test_where_nothing_can_be_told_nothing_is_claimed(tmp_path: Path) -> None:
    facts = values(driver, Tree(tmp_path).target())
    for unread in ("module_loaded", "module_version", "version", "installed", "module_on_disk", "nouveau_loaded"):
        assert facts[f"driver.{unread}"] is Unread, unread
    facts = values(driver, Tree(tmp_path / "unheard").linux().gpu().container("unheard-of").target())
    for unread in ("installed", "module_on_disk", "headers", "dkms", "nouveau_blacklisted"):
        assert facts[f"driver.{unread}"] is Unread, unread


def test_a_folder_reached_by_two_names_counts_once(tmp_path: Path) -> None:
    tree = healthy(tmp_path).link("/usr/lib64", "/usr/lib/x86_64-linux-gnu")
    source = said(driver, tree.target())["driver.library_versions"].source
    assert source.count("libcuda.so") == 1


def test_device_files_that_nvidia_modprobe_will_make(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().gpu("nvidia").driver("580.95.05", nodes=False)
    tree.file("/usr/bin/nvidia-modprobe", mode=0o4755)
    assert values(driver, tree.target())["driver.nodes_missing"] == ()
    tree.file("/proc/driver/nvidia/params", "ModifyDeviceFiles: 0\n")
    assert "/dev/nvidiactl" in values(driver, tree.target())["driver.nodes_missing"]


def test_a_container_needs_the_nodes_of_its_own_gpus_only(tmp_path: Path) -> None:
    tree = healthy(tmp_path).container().without("/dev/nvidia1")
    assert values(driver, tree.target())["driver.nodes_missing"] == ()
    tree.without("/dev/nvidia0").without("/dev/nvidia-uvm")
    assert values(driver, tree.target())["driver.nodes_missing"] == ("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1")


def test_modes_of_device_files_firmware_and_excluded_gpus(tmp_path: Path) -> None:
    tree = healthy(tmp_path).file("/dev/nvidia1", mode=0o600)
    facts = values(driver, tree.target())
    modes = {row["path"].value: row["mode"].value for row in facts["node"]}
    assert (modes["/dev/nvidia0"], modes["/dev/nvidia1"]) == ("0666", "0600")
    assert (facts["driver.gsp_firmware"], facts["driver.gsp_files"]) == ("580.95.05", False)
    tree.file("/lib/firmware/nvidia/580.95.05/gsp_ga10x.bin")
    note = tmp_path / "proc/driver/nvidia/gpus/0000:2a:00.0/information"
    note.write_text(note.read_text().replace("Excluded:\t No", "Excluded:\t Yes"))
    facts = values(driver, tree.target())
    assert (facts["driver.gsp_files"], facts["driver.excluded"]) == (True, ("0000:2a:00.0",))


@pytest.mark.parametrize(
    ("folder", "facts"),
    [
        ("/lib/modules", ["module_on_disk", "module_disk_version", "module_kernels", "headers"]),
        ("/proc/driver/nvidia", ["module_kind", "bound_count", "gsp_firmware", "module_params"]),
        ("/dev", ["nodes_missing", "nodes_denied"]),
        ("/etc/modprobe.d", ["nouveau_blacklisted", "nvidia_blacklisted"]),
        ("/var/lib/dkms", ["dkms", "dkms_error"]),
        ("/usr/lib/x86_64-linux-gnu", ["library_version", "library_versions"]),
        ("/sys/power", ["recent_suspend"]),
    ],
)
def test_a_folder_that_refuses_is_unread_and_named(folder: str, facts: list[str]) -> None:
    with refused(folder) as tree:
        tree.linux().gpu("nvidia").driver("580.95.05").folder(folder)
        answers = said(driver, tree.close())
    for name in facts:
        fact = answers[f"driver.{name}"]
        assert isinstance(fact, Unread), (name, fact)
        assert folder in fact.why


def test_modules_that_cannot_be_asked_for_leave_nothing_claimed() -> None:
    with refused("/proc/modules", "/sys/module") as tree:
        tree.linux().gpu("nvidia")
        facts = values(driver, tree.close())
    for name in ("module_loaded", "module_version", "nouveau_loaded", "nodes_missing"):
        assert facts[f"driver.{name}"] is Unread, name


def test_a_container_knows_what_is_loaded_and_not_what_is_installed(tmp_path: Path) -> None:
    facts = values(driver, healthy(tmp_path).container().target())
    assert facts["driver.version"] == "580.95.05"
    assert facts["driver.library_version"] == "580.95.05"
    for unread in ("module_on_disk", "headers", "dkms", "nouveau_blacklisted", "persistenced"):
        assert facts[f"driver.{unread}"] is Unread, unread
    facts = said(driver, Tree(tmp_path / "bare").linux().gpu().container().target())
    assert facts["driver.installed"] == Unread("inside a container (docker) the host's cannot be seen")
    assert facts["driver.module_loaded"].value is False


def test_wsl_has_no_linux_module(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux(kernel="5.15.167.4-microsoft-standard-WSL2").file("/usr/lib/wsl/lib/libcuda.so.1", b"E")
    facts = values(driver, tree.target())
    for absent in ("module_loaded", "module_on_disk", "nouveau_loaded", "nodes_missing", "headers", "library_version"):
        assert facts[f"driver.{absent}"] is Absent, absent
    assert facts["driver.installed"] is True


def test_a_module_is_found_at_the_end_of_a_huge_file(tmp_path: Path) -> None:
    lines = "kernel/drivers/x/y/z.ko.zst: kernel/a.ko.zst kernel/b.ko.zst\n" * 100_000
    tree = Tree(tmp_path).linux().on_disk("570.86.15")
    tree.file(f"/lib/modules/{KERNEL}/modules.dep", lines + "updates/dkms/nvidia.ko:\n")
    assert values(driver, tree.target())["driver.module_on_disk"] is True
