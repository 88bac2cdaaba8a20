"""The driver: loaded, its libraries, its device files and daemons; and what cannot be seen from inside a container."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.model.fact import Absent, Known, Unread
from gpudoctor.probes import driver
from gpudoctor.target.local import Local
from tests.unit.trees import KERNEL, Tree, refused, said, values


def healthy(root: Path, version: str = "580.95.05", kind: str = "open") -> Tree:
    return Tree(root).linux().gpu("nvidia").gpu("nvidia").driver(version, kind)


def test_this_machine_answers_for_every_fact() -> None:
    facts = said(driver, Local("quick"))
    elsewhere = {"driver.cuda_version", "driver.nvswitch"}
    assert {spec.name for spec in driver.FACTS if not spec.group} - elsewhere == set(facts) - {"node"}


@pytest.mark.parametrize("version", ["535.104.05", "470.256.02", "570.86", "610.43.03"])
@pytest.mark.parametrize("kind", ["open", "proprietary"])
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


def test_an_older_wording_of_the_open_module(tmp_path: Path) -> None:
    line = "NVRM version: NVIDIA UNIX Open Kernel Module  515.43.04  Release Build  (archlinux-builder@archlinux)\n"
    facts = values(driver, healthy(tmp_path).file("/proc/driver/nvidia/version", line).target())
    assert (facts["driver.module_version"], facts["driver.module_kind"]) == ("515.43.04", "open")


def test_the_version_from_sysfs_where_procfs_is_hidden(tmp_path: Path) -> None:
    facts = said(driver, healthy(tmp_path).without("/proc/driver/nvidia/version").target())
    assert facts["driver.module_version"] == Known("580.95.05", "/sys/module/nvidia/version")
    assert isinstance(facts["driver.module_kind"], Unread)


def test_garbage_in_procfs_is_no_version(tmp_path: Path) -> None:
    tree = healthy(tmp_path).file("/proc/driver/nvidia/version", b"\xff\xfe\0" * 999)
    assert values(driver, tree.without("/sys/module/nvidia/version").target())["driver.module_version"] is Unread


def test_nothing_of_nvidia(tmp_path: Path) -> None:
    facts = values(driver, Tree(tmp_path).linux().gpu().target())
    assert facts["driver.installed"] is False
    assert facts["driver.module_loaded"] is False
    assert facts["driver.module_on_disk"] is False
    for absent in ("version", "module_version", "library_version", "nodes_missing", "dkms", "bound_count"):
        assert facts[f"driver.{absent}"] is Absent, absent


def test_an_empty_root_claims_nothing(tmp_path: Path) -> None:
    facts = values(driver, Tree(tmp_path).target())
    for unread in ("module_loaded", "module_version", "version", "installed", "module_on_disk", "nouveau_loaded"):
        assert facts[f"driver.{unread}"] is Unread, unread


def test_without_proc_modules_sysfs_decides(tmp_path: Path) -> None:
    tree = healthy(tmp_path).without("/proc/modules").folder("/sys/module/nouveau")
    facts = values(driver, tree.target())
    assert facts["driver.module_loaded"] is True
    assert facts["driver.nouveau_loaded"] is True
    assert facts["driver.nova_loaded"] is False


def test_a_name_that_starts_alike_is_another_module(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().module("nvidiafb").module("nvidia_wmi_ec_backlight")
    assert values(driver, tree.target())["driver.module_loaded"] is False


def test_a_library_newer_than_the_loaded_module(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().gpu("nvidia").driver("570.124.06", library="570.133.07")
    facts = values(driver, tree.target())
    assert (facts["driver.module_version"], facts["driver.library_version"]) == ("570.124.06", "570.133.07")


def test_two_versions_of_the_libraries_are_both_named(tmp_path: Path) -> None:
    tree = healthy(tmp_path).libraries("535.54.03", "/usr/lib64")
    facts = values(driver, tree.target())
    assert facts["driver.library_versions"] == ("580.95.05", "535.54.03")


def test_a_folder_reached_by_two_names_counts_once(tmp_path: Path) -> None:
    tree = healthy(tmp_path).link("/usr/lib64", "/usr/lib/x86_64-linux-gnu")
    source = said(driver, tree.target())["driver.library_versions"].source
    assert source.count("libcuda.so") == 1


def test_the_library_in_use_is_the_one_its_link_names(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().libraries("580.95.05").libraries("535.54.03")
    assert values(driver, tree.target())["driver.library_version"] == "580.95.05"


def test_empty_libraries_are_not_a_driver(tmp_path: Path) -> None:
    path = "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15"
    facts = values(driver, Tree(tmp_path).linux().file(path).target())
    assert facts["driver.libraries_empty"] == (path,)
    assert facts["driver.library_version"] is Absent


def test_missing_device_files(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().gpu("nvidia").gpu("nvidia").driver("580.95.05", nodes=False).file("/dev/nvidiactl")
    assert values(driver, tree.target())["driver.nodes_missing"] == ("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1")


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


def test_device_files_have_modes(tmp_path: Path) -> None:
    rows = said(driver, healthy(tmp_path).file("/dev/nvidia1", mode=0o600).target())["node"]
    modes = {row["path"].value: row["mode"].value for row in rows}
    assert (modes["/dev/nvidia0"], modes["/dev/nvidia1"]) == ("0666", "0600")


def test_device_files_of_others_are_denied() -> None:
    with refused("/dev/nvidia1") as tree:
        tree.linux().gpu("nvidia").gpu("nvidia").driver("580.95.05")
        assert values(driver, tree.close())["driver.nodes_denied"] == ("/dev/nvidia1",)


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


def test_a_container_without_driver_files_does_not_say_not_installed(tmp_path: Path) -> None:
    facts = said(driver, Tree(tmp_path).linux().gpu().container().target())
    assert facts["driver.installed"] == Unread("inside a container (docker) the host's cannot be seen")
    assert facts["driver.module_loaded"].value is False


def test_where_it_may_be_a_container_nothing_is_called_missing(tmp_path: Path) -> None:
    facts = values(driver, Tree(tmp_path).linux().gpu().container("unheard-of").target())
    for unread in ("installed", "module_on_disk", "headers", "dkms", "nouveau_blacklisted"):
        assert facts[f"driver.{unread}"] is Unread, unread


def test_wsl_has_no_linux_module(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux(kernel="5.15.167.4-microsoft-standard-WSL2").file("/usr/lib/wsl/lib/libcuda.so.1", b"E")
    facts = values(driver, tree.target())
    for absent in ("module_loaded", "module_on_disk", "nouveau_loaded", "nodes_missing", "headers", "library_version"):
        assert facts[f"driver.{absent}"] is Absent, absent
    assert facts["driver.installed"] is True


def test_wsl_with_a_linux_driver_inside(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux(kernel="5.15.167.4-microsoft-standard-WSL2").libraries("535.183.01")
    assert values(driver, tree.target())["driver.library_version"] == "535.183.01"


def test_gsp_firmware(tmp_path: Path) -> None:
    tree = healthy(tmp_path)
    assert values(driver, tree.target())["driver.gsp_firmware"] == "580.95.05"
    assert values(driver, tree.target())["driver.gsp_files"] is False
    tree.file("/lib/firmware/nvidia/580.95.05/gsp_ga10x.bin")
    assert values(driver, tree.target())["driver.gsp_files"] is True


def test_excluded_gpus(tmp_path: Path) -> None:
    tree = healthy(tmp_path)
    note = tmp_path / "proc/driver/nvidia/gpus/0000:2a:00.0/information"
    note.write_text(note.read_text().replace("Excluded:\t No", "Excluded:\t Yes"))
    assert values(driver, tree.target())["driver.excluded"] == ("0000:2a:00.0",)


def test_daemons_by_their_pid_files_and_by_name(tmp_path: Path) -> None:
    tree = healthy(tmp_path).file("/usr/bin/nvidia-persistenced")
    assert values(driver, tree.target())["driver.persistenced"] is False
    tree.file("/run/nvidia-persistenced/nvidia-persistenced.pid", "812\n").file("/proc/812/comm", "nvidia-persiste\n")
    assert values(driver, tree.target())["driver.persistenced"] is True


def test_a_driver_that_lives_in_the_gpu_operators_container(tmp_path: Path) -> None:
    root = "/run/nvidia/driver"
    tree = Tree(tmp_path).linux().gpu("nvidia").module("nvidia", version="570.86.15")
    tree.libraries("570.86.15", f"{root}/usr/lib/x86_64-linux-gnu")
    assert values(driver, tree.target())["driver.library_version"] == "570.86.15"


def test_a_pid_file_that_outlived_its_daemon(tmp_path: Path) -> None:
    tree = healthy(tmp_path).file("/usr/bin/nvidia-persistenced")
    tree.file("/run/nvidia-persistenced/nvidia-persistenced.pid", "812\n").file("/proc/812/comm", "bash\n")
    assert values(driver, tree.target())["driver.persistenced"] is False


@pytest.mark.parametrize(("count", "expected"), [("0\n", False), ("3\n", True)])
def test_suspend(tmp_path: Path, count: str, expected: bool) -> None:
    tree = Tree(tmp_path).linux().file("/sys/power/suspend_stats/success", count)
    assert values(driver, tree.target())["driver.recent_suspend"] is expected


def test_a_module_is_found_at_the_end_of_a_huge_file(tmp_path: Path) -> None:
    lines = "kernel/drivers/x/y/z.ko.zst: kernel/a.ko.zst kernel/b.ko.zst\n" * 100_000
    tree = Tree(tmp_path).linux().on_disk("570.86.15")
    tree.file(f"/lib/modules/{KERNEL}/modules.dep", lines + "updates/dkms/nvidia.ko:\n")
    assert values(driver, tree.target())["driver.module_on_disk"] is True
