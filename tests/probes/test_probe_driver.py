"""The driver: loaded, on the disk and in DKMS, its device files and daemons; settings of modprobe; in a container."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Known, Unread
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


def test_a_folder_of_two_names_counts_once_and_a_huge_file_is_read_to_its_end(tmp_path: Path) -> None:
    tree = healthy(tmp_path).link("/usr/lib64", "/usr/lib/x86_64-linux-gnu")
    source = said(driver, tree.target())["driver.library_versions"].source
    assert source.count("libcuda.so") == 1
    lines = "kernel/drivers/x/y/z.ko.zst: kernel/a.ko.zst kernel/b.ko.zst\n" * 100_000
    tree = Tree(tmp_path / "huge").linux().on_disk("570.86.15")
    tree.file(f"/lib/modules/{KERNEL}/modules.dep", lines + "updates/dkms/nvidia.ko:\n")
    assert values(driver, tree.target())["driver.module_on_disk"] is True


def test_device_files_that_are_missing(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().gpu("nvidia").driver("580.95.05", nodes=False)
    tree.file("/usr/bin/nvidia-modprobe", mode=0o4755)
    assert values(driver, tree.target())["driver.nodes_missing"] == ()
    tree.file("/proc/driver/nvidia/params", "ModifyDeviceFiles: 0\n")
    assert "/dev/nvidiactl" in values(driver, tree.target())["driver.nodes_missing"]
    tree = healthy(tmp_path / "container").container().without("/dev/nvidia1")
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


def test_dkms_by_other_names_and_for_a_compressed_module(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().on_disk("x", path="updates/dkms/nvidia.ko.zst")
    tree.file(f"{DKMS}/570.86.15/{KERNEL}/x86_64/module/nvidia.ko.zst")
    assert values(driver, tree.target())["driver.module_disk_version"] == "570.86.15"
    tree = Tree(tmp_path / "debian").linux().file(f"/var/lib/dkms/nvidia-fs/2.25.7/{KERNEL}/x86_64/module/nvidia-fs.ko")
    assert values(driver, tree.target())["driver.dkms"] is Absent
    tree.file("/var/lib/dkms/nvidia-current/535.183.01/source/dkms.conf")
    assert values(driver, tree.target())["driver.dkms"] == "added"


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
        "blacklist nvidia-drm",
        "remove nvidia /bin/false",
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
