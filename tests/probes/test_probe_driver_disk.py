"""Trees as the driver's files: modules on the disk, DKMS, headers, and what modprobe is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.probes import driver
from tests.probes.trees import KERNEL, Tree, said, values

DKMS = "/var/lib/dkms/nvidia"


@pytest.mark.parametrize(
    "path",
    [
        "updates/dkms/nvidia.ko.zst",
        "extra/nvidia.ko.xz",
        "updates/dkms/nvidia-current.ko.xz",
        "kernel/drivers/video/nvidia.ko",
    ],
)
@pytest.mark.parametrize("listed", [True, False])
def test_modules_on_the_disk(tmp_path: Path, path: str, listed: bool) -> None:
    tree = Tree(tmp_path).linux().on_disk("570.86.15", path=path)
    if not listed:
        tree.file(f"/lib/modules/{KERNEL}/modules.dep", "")
    facts = said(driver, tree.target())
    assert facts["driver.module_on_disk"] == Known(True, f"/lib/modules/{KERNEL}/{path}")
    known = facts["driver.module_disk_version"]
    assert known.value == "570.86.15" if path.endswith(".ko") else isinstance(known, Unread)


@pytest.mark.parametrize("path", ["updates/dkms/nvidia-uvm.ko", "kernel/drivers/video/fbdev/nvidia/nvidiafb.ko.zst"])
def test_other_modules_are_not_the_driver(tmp_path: Path, path: str) -> None:
    assert values(driver, Tree(tmp_path).linux().on_disk("1", path=path).target())["driver.module_on_disk"] is False


def test_a_module_and_headers_that_are_promised_and_not_there(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().on_disk("570.86.15").without(f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko")
    (tmp_path / f"usr/src/linux-headers-{KERNEL}").rmdir()
    facts = values(driver, tree.target())
    assert facts["driver.module_on_disk"] is facts["driver.headers"] is False


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 80, b"garbage" * 99], ids=len)
def test_a_damaged_module_has_no_version(tmp_path: Path, content: bytes) -> None:
    tree = Tree(tmp_path).linux().on_disk("1").file(f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko", content)
    facts = values(driver, tree.target())
    assert facts["driver.module_on_disk"] is True
    assert facts["driver.module_disk_version"] is Unread


@pytest.mark.parametrize(
    ("paths", "state"),
    [
        (["570.86.15/source/dkms.conf"], "added"),
        ([f"570.86.15/{KERNEL}/x86_64/module/nvidia.ko.zst"], "built"),
        ([f"570.86.15/{KERNEL}/x86_64/module/nvidia.ko.zst", f"kernel-{KERNEL}-x86_64"], "installed"),
        (["570.86.15/6.5.0-1-generic/x86_64/module/nvidia.ko.zst", "kernel-6.5.0-1-generic-x86_64"], "added"),
    ],
)
def test_dkms(tmp_path: Path, paths: list[str], state: str) -> None:
    tree = Tree(tmp_path).linux()
    for path in paths:
        tree.file(f"{DKMS}/{path}")
    assert values(driver, tree.target())["driver.dkms"] == state


def test_dkms_names_the_version_of_a_compressed_module(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().on_disk("x", path="updates/dkms/nvidia.ko.zst")
    tree.file(f"{DKMS}/570.86.15/{KERNEL}/x86_64/module/nvidia.ko.zst")
    assert values(driver, tree.target())["driver.module_disk_version"] == "570.86.15"


def test_a_failed_build_says_why(tmp_path: Path) -> None:
    log = (
        f"DKMS make.log for nvidia-535.104.05 for kernel {KERNEL} (x86_64)\n"
        "  CC [M]  /var/lib/dkms/nvidia/535.104.05/build/nvidia/nv.o\n"
        "nvidia/nv.c:1: error: implicit declaration of function 'pfn_valid'\nmake[1]: *** [Makefile:1] Error 2\n"
    )
    tree = Tree(tmp_path).linux().file(f"{DKMS}/535.104.05/build/make.log", log)
    error = "nvidia/nv.c:1: error: implicit declaration of function 'pfn_valid'"
    assert values(driver, tree.target())["driver.dkms_error"] == error
    tree.file(f"{DKMS}/535.104.05/build/make.log", log.replace(KERNEL, "5.0.0-1-generic"))
    assert values(driver, tree.target())["driver.dkms_error"] is Absent


def test_dkms_by_debians_name_and_beside_another_module(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().file(f"/var/lib/dkms/nvidia-fs/2.25.7/{KERNEL}/x86_64/module/nvidia-fs.ko")
    assert values(driver, tree.target())["driver.dkms"] is Absent
    tree.file("/var/lib/dkms/nvidia-current/535.183.01/source/dkms.conf")
    assert values(driver, tree.target())["driver.dkms"] == "added"


@pytest.mark.parametrize(
    "line", ["blacklist nouveau", "options nouveau modeset=0", "alias nouveau off", "install nouveau /bin/false"]
)
def test_blacklists_in_modprobe_d(tmp_path: Path, line: str) -> None:
    tree = Tree(tmp_path).linux().file("/usr/lib/modprobe.d/nvidia-graphics.conf", f"# x\n{line}\n")
    facts = said(driver, tree.target())
    assert facts["driver.nouveau_blacklisted"] == Known(True, "/usr/lib/modprobe.d/nvidia-graphics.conf line 2")
    assert facts["driver.nvidia_blacklisted"].value is False


@pytest.mark.parametrize(
    "line",
    [
        "# blacklist nvidia",
        "blacklist i2c_nvidia_gpu",
        "options nvidia NVreg_EnableGpuFirmware=0",
        "install nvidia modprobe -i nvidia-current $CMDLINE_OPTS",
    ],
)
def test_lines_that_blacklist_nothing(tmp_path: Path, line: str) -> None:
    tree = Tree(tmp_path).linux().file("/etc/modprobe.d/x.conf", f"{line}\n")
    assert values(driver, tree.target())["driver.nvidia_blacklisted"] is False


@pytest.mark.parametrize(
    "words",
    ["modprobe.blacklist=a,nouveau", "rd.driver.blacklist=nouveau", "nouveau.modeset=0", "module_blacklist=nouveau"],
)
def test_blacklists_on_the_kernel_command_line(tmp_path: Path, words: str) -> None:
    facts = said(driver, Tree(tmp_path).linux(command_line=f"ro {words}").target())
    assert facts["driver.nouveau_blacklisted"] == Known(True, f"/proc/cmdline: {words}")
    assert facts["driver.nvidia_blacklisted"].value is False


def test_a_file_in_etc_replaces_its_namesake(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().file("/etc/modprobe.d/nvidia.conf", "# emptied\n")
    tree.file("/usr/lib/modprobe.d/nvidia.conf", "blacklist nvidia\n").file(
        "/etc/modprobe.d/old.bak", "blacklist nvidia"
    )
    assert values(driver, tree.target())["driver.nvidia_blacklisted"] is False
