"""What kind of machine it is, WSL with its Windows driver among them; what a container or a refusal keeps from us."""

import os
import platform
import struct
from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.probes import host, wsl
from gpudoctor.target.local import Local
from tests.probes.trees import SHIM, Tree, refused, said, values


def test_a_bare_machine(tmp_path: Path) -> None:
    facts = values(host, Tree(tmp_path).linux().target())
    assert facts["host.platform"] == "linux"
    assert facts["host.os"] == "Ubuntu 24.04.3 LTS"
    assert (facts["host.distribution"], facts["host.distribution_version"]) == ("ubuntu", "24.04")
    assert facts["host.package_manager"] == "apt"
    assert (facts["host.kernel"], facts["host.arch"]) == ("6.8.0-79-generic", "x86_64")
    assert facts["host.memory_mib"] == 64000
    assert facts["host.uptime_s"] == 4711
    assert facts["host.secure_boot"] is False
    assert facts["host.lockdown"] == "none"
    for elsewhere in ("virtual_machine", "container", "wsl", "jetson"):
        assert facts[f"host.{elsewhere}"] is Absent


def test_an_empty_root_leaves_nothing_claimed(tmp_path: Path) -> None:
    facts = values(host, Tree(tmp_path).target())
    claimed = {name for name, value in facts.items() if value is not Unread}
    assert claimed == {"host.platform"}


def test_this_machine() -> None:
    facts = values(host, Local("quick"))
    assert facts["host.kernel"] == platform.release()
    assert facts["host.arch"] == platform.machine()
    assert facts["host.glibc"] in (platform.libc_ver()[1], Absent)
    assert facts["host.memory_mib"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20


@pytest.mark.parametrize(
    ("release", "manager"),
    [
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"', "dnf"),
        ("ID=pop\nID_LIKE='ubuntu debian'\nVERSION_ID=22.04", "apt"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"', "zypper"),
        ("ID=manjaro\nID_LIKE=arch", "pacman"),
        ("ID=nixos", Unread),
        ('ID="unclosed\nID_LIKE=debian', "apt"),
        ("\x00\x01\xff garbage == \nID=alpine", "apk"),
    ],
)
def test_the_package_manager_follows_from_os_release(tmp_path: Path, release: str, manager: object) -> None:
    assert values(host, Tree(tmp_path).linux(os_release=release).target())["host.package_manager"] == manager


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("5.15.167.4-microsoft-standard-WSL2", 2),
        ("6.6.87.2-microsoft-standard-WSL2+", 2),
        ("4.4.0-19041-Microsoft", 1),
        ("6.8.0-1021-azure", Absent),
        ("5.15.131.1-2.cm2", Absent),
    ],
)
def test_wsl_by_the_kernels_release(tmp_path: Path, release: str, expected: object) -> None:
    assert values(host, Tree(tmp_path).linux(kernel=release).target())["host.wsl"] == expected


def test_wsl_with_a_kernel_of_ones_own(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux(kernel="6.12.1-mine").file("/proc/sys/fs/binfmt_misc/WSLInterop", "enabled\n")
    facts = values(host, tree.target())
    assert facts["host.wsl"] == 2
    assert facts["host.virtual_machine"] == "hyper-v"
    assert facts["host.secure_boot"] is Absent


@pytest.mark.parametrize(
    ("path", "content", "engine"),
    [
        ("/.dockerenv", "", "docker"),
        ("/run/.containerenv", "", "podman"),
        ("/run/secrets/kubernetes.io/serviceaccount/namespace", "default", "kubernetes"),
        ("/.singularity.d/labels.json", "{}", "apptainer"),
        ("/proc/1/environ", "PATH=/bin\0container=lxc\0", "lxc"),
        ("/proc/1/environ", "container=systemd-nspawn\0TERM=x", "container"),
        ("/run/systemd/container", "lxc\n", "lxc"),
        ("/proc/1/cgroup", "12:memory:/docker/0123456789abcdef\n", "docker"),
        ("/proc/1/cgroup", "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-9a.scope\n", "kubernetes"),
        ("/proc/1/cgroup", "0::/machine.slice/libpod-0a1b.scope/container\n", "podman"),
        ("/proc/1/cgroup", "4:devices:/lxc.payload.c1\n", "lxc"),
    ],
)
def test_containers_by_their_marks(tmp_path: Path, path: str, content: str, engine: str) -> None:
    assert values(host, Tree(tmp_path).linux().file(path, content).target())["host.container"] == engine


@pytest.mark.parametrize(
    ("variable", "engine"),
    [
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"APPTAINER_CONTAINER": "/images/a.sif"}, "apptainer"),
        ({"SINGULARITY_NAME": "a.sif", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "apptainer"),
        ({"container": "oci"}, "container"),
    ],
)
def test_containers_by_the_environment(tmp_path: Path, variable: dict[str, str], engine: str) -> None:
    assert values(host, Tree(tmp_path).linux().target(**variable))["host.container"] == engine


@pytest.mark.parametrize("mark", ["/.dockerenv", "/run/.containerenv"])
@pytest.mark.parametrize(
    ("first_thread", "root", "contained"),
    [
        ("kthreadd", "/ / rw - ext4 /dev/vda rw", False),
        ("kthreadd", "/@ / rw - btrfs /dev/vda2 rw", False),
        ("bash", "/ / rw - ext4 /dev/vda rw", True),
        ("kthreadd", "/ / rw - overlay overlay rw", True),
        ("kthreadd", "/@/var/lib/docker/btrfs/subvolumes/0a1b / rw - btrfs /dev/vda2 rw", True),
        ("kthreadd", "/ / rw - zfs rpool/0a1b rw", True),
    ],
)
def test_a_machine_that_was_booted_from_a_containers_files(
    tmp_path: Path, mark: str, first_thread: str, root: str, contained: bool
) -> None:
    """``docker export`` onto a disk keeps the file; a container with the host's processes has a root of its own."""
    tree = Tree(tmp_path).linux().file(mark).file("/proc/2/comm", f"{first_thread}\n")
    tree.file("/proc/self/mountinfo", f"27 1 259:2 {root}\n")
    assert isinstance(said(host, tree.target())["host.container"], Known if contained else Absent)


def test_what_leaves_it_a_host(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().file("/proc/1/cgroup", "0::/init.scope\n").folder("/var/lib/docker/overlay2")
    assert values(host, tree.target())["host.container"] is Absent
    tree = Tree(tmp_path / "net").linux().file("/proc/self/mountinfo", "27 1 0:2 / / rw - overlay overlay rw\n")
    tree.folder("/run/systemd/system").file("/proc/2/comm", "kthreadd\n")
    assert values(host, tree.target())["host.container"] is Absent


@pytest.mark.parametrize(
    ("mount", "expected"),
    [
        ("27 1 259:2 / / rw - ext4 /dev/nvme0n1p2 rw", Absent),
        ("27 1 0:31 /@ / rw - btrfs /dev/nvme0n1p2 rw", Absent),
        ("27 1 8:2 /data/enroot/u1/pyxis_1 / rw - ext4 /dev/sda2 rw", Unread),
        ("27 1 0:72 / / rw,relatime - fuse-overlayfs fuse-overlayfs rw", Unread),
    ],
)
def test_roots_that_leave_it_open(tmp_path: Path, mount: str, expected: object) -> None:
    tree = Tree(tmp_path).linux().file("/proc/self/mountinfo", f"{mount}\n")
    assert values(host, tree.target())["host.container"] is expected


def test_secure_boot_with_shim_switched_off(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().secure_boot(True)
    facts = values(host, tree.target())
    assert facts["host.secure_boot"] is facts["host.shim_validation"] is True
    tree.file(f"/sys/firmware/efi/efivars/MokSBStateRT-{SHIM}", bytes([6, 0, 0, 0, 1]))
    assert values(host, tree.target())["host.shim_validation"] is False


def test_secure_boot_that_cannot_be_read_is_unread(tmp_path: Path) -> None:
    variable = f"/sys/firmware/efi/efivars/SecureBoot-{'8be4df61-93ca-11d2-aa0d-00e098032b8c'}"
    cut = said(host, Tree(tmp_path / "cut").linux().file(variable, b"\x06").target())["host.secure_boot"]
    assert cut == Unread(f"{variable} is cut short")
    masked = said(host, Tree(tmp_path / "masked").linux().container().target())["host.secure_boot"]
    assert masked == Unread("/sys/firmware is empty: hidden, as containers do")
    unmounted = Tree(tmp_path / "unmounted").linux().without(variable)
    assert said(host, unmounted.target())["host.secure_boot"] == Unread("/sys/firmware/efi/efivars is not mounted")
    tree = Tree(tmp_path / "bios").folder("/sys/firmware/acpi")
    assert said(host, tree.target())["host.secure_boot"] == Absent("booted without UEFI")


@pytest.mark.parametrize(
    ("vendor", "product", "flags", "expected"),
    [
        ("QEMU", "Standard PC (Q35 + ICH9, 2009)", "fpu hypervisor", "kvm"),
        ("QEMU", "Standard PC (Q35 + ICH9, 2009)", "fpu", "kvm"),
        ("VMware, Inc.", "VMware7,1", "fpu hypervisor", "vmware"),
        ("Microsoft Corporation", "Virtual Machine", "fpu hypervisor", "hyper-v"),
        ("Microsoft Corporation", "Surface Book 3", "fpu", Absent),
        ("Amazon EC2", "p5.48xlarge", "fpu hypervisor", "amazon"),
        ("Amazon EC2", "p4d.metal", "fpu", Absent),
        ("Google", "Google Compute Engine", "fpu hypervisor", "google"),
        ("Xen", "HVM domU", "fpu hypervisor", "xen"),
        ("Supermicro", "SYS-821GE", "fpu hypervisor", "hypervisor"),
        ("NVIDIA", "DGXH100", "fpu", Absent),
    ],
)
def test_hypervisors(tmp_path: Path, vendor: str, product: str, flags: str, expected: object) -> None:
    tree = Tree(tmp_path).linux().file("/proc/cpuinfo", f"vendor_id\t: AuthenticAMD\nflags\t\t: {flags}\n")
    tree.file("/sys/class/dmi/id/sys_vendor", vendor + "\n").file("/sys/class/dmi/id/product_name", product + "\n")
    assert values(host, tree.target())["host.virtual_machine"] == expected


def test_an_arm_machine_and_the_c_library_by_its_banner(tmp_path: Path) -> None:
    elf = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HH", 3, 0xB7)
    tree = Tree(tmp_path).linux().without("/proc/sys/kernel/arch").file("/bin/dash", elf).link("/bin/sh", "dash")
    tree.file("/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\n")
    facts = values(host, tree.target())
    assert facts["host.arch"] == "aarch64"
    assert facts["host.cpu_vendor"] is Absent
    banner = b"\x7fELF" + b"\0" * 9000 + b"GNU C Library (Ubuntu GLIBC 2.39-0ubuntu8.6) stable release version 2.39.\n"
    tree = (
        Tree(tmp_path / "libc").linux().file("/usr/lib/x86_64-linux-gnu/libc.so.6", banner).link("/lib64", "/usr/lib64")
    )
    tree.link("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu")
    assert values(host, tree.target())["host.glibc"] == "2.39"
    facts = said(host, Tree(tmp_path / "libc" / "musl").linux().file("/lib/ld-musl-x86_64.so.1").target())
    assert facts["host.glibc"] == Absent("/lib/ld-musl-x86_64.so.1: musl instead of the GNU C library")


def test_secrets_on_the_kernel_command_line_are_hidden(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux(command_line="iommu=pt ds=nocloud;s=http://me:pw@h/ rd.token=abc")
    line = said(host, tree.target())["host.kernel_command_line"]
    assert line == Known(
        "BOOT_IMAGE=/vmlinuz iommu=pt ds=nocloud;s=http://(hidden)@h/ rd.token=(hidden)", "/proc/cmdline"
    )


KERNEL = "5.15.167.4-microsoft-standard-WSL2"
LIB = "/usr/lib/x86_64-linux-gnu"


def sound(root: Path) -> Tree:
    """A distribution in WSL 2 whose Windows driver works."""
    tree = (
        Tree(root).linux(kernel=KERNEL).file("/usr/lib/wsl/lib/libcuda.so.1", b"\x7fELF").file("/dev/dxg", mode=0o666)
    )
    tree.file("/var/lib/dpkg/status", "Package: bash\nStatus: install ok installed\nVersion: 5.2\n")
    return tree.file("/etc/ld.so.conf.d/ld.wsl.conf", "# written by WSL\n/usr/lib/wsl/lib\n")


def test_a_sound_distribution(tmp_path: Path) -> None:
    assert values(wsl, sound(tmp_path).target()) == {
        "wsl.driver": True,
        "wsl.loader": True,
        "wsl.device": True,
        "wsl.linux_driver": (),
        "wsl.linux_packages": (),
    }


def test_elsewhere_nothing_is_asked_and_what_may_be_wsl_is_open(tmp_path: Path) -> None:
    facts = said(wsl, Tree(tmp_path).linux().target())
    assert set(facts) == {spec.name for spec in wsl.FACTS}
    assert set(map(type, facts.values())) == {Absent}
    container, unknown = sound(tmp_path / "in").container(), Tree(tmp_path / "unknown")
    for tree in (container, unknown):
        assert set(values(wsl, tree.target()).values()) == {Unread}


@pytest.mark.parametrize(
    ("path", "content", "environ"),
    [
        ("/etc/ld.so.cache", b"\0\0/usr/lib/wsl/lib/libcuda.so.1\0", {}),
        ("/etc/ld.so.conf", b"/usr/lib/wsl/lib\n", {}),
        ("/etc/motd", b"", {"LD_LIBRARY_PATH": "/opt/x:/usr/lib/wsl/lib"}),
    ],
)
def test_ways_for_the_loader_to_get_there(tmp_path: Path, path: str, content: bytes, environ: dict[str, str]) -> None:
    tree = sound(tmp_path).without("/etc/ld.so.conf.d/ld.wsl.conf")
    assert values(wsl, tree.target())["wsl.loader"] is False
    assert values(wsl, tree.file(path, content).target(**environ))["wsl.loader"] is True


def test_a_linux_driver_in_the_distribution(tmp_path: Path) -> None:
    tree = sound(tmp_path).libraries("535.288.01")
    packages = [("libnvidia-compute-535", "ii"), ("nvidia-driver-570-open", "ii"), ("nvidia-cuda-toolkit", "ii")]
    status = "".join(
        f"Package: {name}\nStatus: install ok installed\nVersion: 535.288.01-0ubuntu1\n\n" for name, _ in packages
    )
    tree.file("/var/lib/dpkg/status", f"{status}Package: nvidia-utils-470\nStatus: deinstall ok config-files\n\n")
    facts = values(wsl, tree.target())
    assert facts["wsl.linux_driver"] == (f"{LIB}/libcuda.so.1", f"{LIB}/libnvidia-ml.so.1")
    assert facts["wsl.linux_packages"] == ("libnvidia-compute-535", "nvidia-driver-570-open")


def test_a_link_to_wsls_own_library_is_no_linux_driver(tmp_path: Path) -> None:
    tree = sound(tmp_path).link(f"{LIB}/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1")
    assert said(wsl, tree.target())["wsl.linux_driver"] == Known((), "the usual folders of libraries")


def test_what_may_not_be_read_is_open() -> None:
    with refused("/etc/ld.so.conf.d", "/usr/lib64") as tree:
        tree.linux(kernel=KERNEL).folder("/usr/lib64").folder("/etc/ld.so.conf.d")
        facts = values(wsl, tree.close())
        assert facts["wsl.linux_driver"] is Unread
        assert facts["wsl.loader"] is Unread
