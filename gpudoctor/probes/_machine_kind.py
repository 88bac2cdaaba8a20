"""Which kind of machine this is: WSL, a Jetson, a container; it decides whether a missing file means anything."""

from __future__ import annotations

import re

from gpudoctor.core.fact import Absent, Fact, Known, Unread, known, text_of
from gpudoctor.probes._reading import as_unread, line, names, path_exists, text
from gpudoctor.target import Target

_RELEASE = "/proc/sys/kernel/osrelease"

_CGROUPS = (
    ("kubernetes", r"kubepods"),
    ("docker", r"/docker[-/]|/docker$|docker-[0-9a-f]{12}"),
    ("podman", r"libpod[-_/]"),
    ("lxc", r"/lxc[./]|/lxc$"),
    ("container", r"/(?:containerd|garden|crio|cri-containerd|machine\.slice/machine)[-/]"),
)
"""Words in the cgroup paths of process 1, most telling first."""

_CONTAINER_WORDS = {"docker": "docker", "podman": "podman", "lxc": "lxc", "lxc-libvirt": "lxc"}
"""What ``container=`` says, where it names an engine of ours; any other word is ``container``."""

_LEFT_BY_IMAGES = ("/run/.containerenv", "/.dockerenv")
"""Files that engines put into a container's root; ``docker export`` takes them along to a disk that a VM boots from."""

APPTAINER = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "APPTAINER_NAME", "SINGULARITY_NAME")


def kernel(target: Target) -> Fact:
    """Release of the running kernel, as ``uname -r`` prints it; unread if /proc does not show it."""
    release = line(target, _RELEASE)
    return as_unread(release) if isinstance(release, Absent) else release


def wsl(target: Target) -> Fact:
    """1 or 2 inside the Windows Subsystem for Linux; absent outside of it, unread if the kernel's release is.

    Its kernels have Microsoft in their release; with a kernel of one's own WSL's files show it.
    """
    release = kernel(target)
    if re.search(r"WSL2|microsoft-standard", text_of(release)):
        return Known(2, _RELEASE)
    if text_of(release).endswith("-Microsoft"):
        return Known(1, _RELEASE)
    for mark in ("/proc/sys/fs/binfmt_misc/WSLInterop", "/run/WSL", "/dev/dxg"):
        if path_exists(target, mark) is True:
            return Known(2, mark)
    if isinstance(release, (Absent, Unread)):
        return as_unread(release)
    return Absent("neither the kernel's release nor /dev/dxg shows WSL")


def jetson_model(target: Target) -> Fact:
    """The model of a Jetson or other Tegra board, whose GPU is not on the PCI bus.

    Absent on other machines, unread if /proc cannot be read.
    """
    model = line(target, "/proc/device-tree/model")
    if re.search(r"jetson|tegra|nvidia (orin|xavier|thor)", text_of(model), re.I):
        return model
    if release := known(line(target, "/etc/nv_tegra_release")):
        return release
    if isinstance(model, Unread) or path_exists(target, "/proc/sys") is not True:
        return Unread("/proc cannot be read")
    return Absent("no device tree of a Jetson and no /etc/nv_tegra_release")


def container(target: Target) -> Fact:
    """The engine of this container: docker, podman, kubernetes, lxc, apptainer, or container for any other.

    Absent outside of one; unread if nothing names an engine, but / looks like a container's or the mounts cannot be
    read.
    """
    environ = target.environ
    for variable in APPTAINER:
        if environ.get(variable):
            return Known("apptainer", f"environment variable {variable}")
    if path_exists(target, "/.singularity.d") is True:
        return Known("apptainer", "/.singularity.d")
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return Known("kubernetes", "environment variable KUBERNETES_SERVICE_HOST")
    for mark, engine in (
        ("/run/secrets/kubernetes.io", "kubernetes"),
        ("/var/run/secrets/kubernetes.io", "kubernetes"),
        ("/run/.containerenv", "podman"),
        ("/.dockerenv", "docker"),
        ("/dev/lxc", "lxc"),
    ):
        if path_exists(target, mark) is True and not (mark in _LEFT_BY_IMAGES and _booted_from_image(target)):
            return Known(engine, mark)
    return _declared_engine(target) or _engine_by_cgroup(target) or _absent_or_unclear(target)


def _declared_engine(target: Target) -> Fact | None:
    """The engine by ``container=`` in process 1's or our environment, or by systemd's record; None without one."""
    first = text(target, "/proc/1/environ")
    if isinstance(first, str):
        match = re.search(r"(?:^|\0)container=([^\0]+)", first)
        if match and match[1] != "wsl":
            return Known(_CONTAINER_WORDS.get(match[1], "container"), f"/proc/1/environ container={match[1]}")
    systemd_record = known(line(target, "/run/systemd/container"))
    if systemd_record and systemd_record.value != "wsl":
        return Known(_CONTAINER_WORDS.get(str(systemd_record.value), "container"), systemd_record.source)
    word = target.environ.get("container")
    if word:
        return Known(_CONTAINER_WORDS.get(word, "container"), f"environment variable container={word}")
    return None


def _engine_by_cgroup(target: Target) -> Fact | None:
    """The container engine by the cgroup paths of process 1; None if they name none or cannot be read."""
    paths = text(target, "/proc/1/cgroup")
    if isinstance(paths, str):
        for engine, pattern in _CGROUPS:
            match = re.search(pattern, paths, re.M)
            if match:
                return Known(engine, f"/proc/1/cgroup: {match[0]}")
    return None


def _booted_from_image(target: Target) -> bool:
    """True on a machine that was booted from a container's files: it has kernel threads, and / is a whole file system.

    A container that shares the host's processes (``--pid=host``) sees the threads, too, but on a root of its own, which
    only on ZFS is a whole file system.
    """
    root = _root_mount(target)
    whole = not isinstance(root, Unread) and not _is_container_root(*root) and root[1] != "zfs"
    return whole and _has_kernel_threads(target)


def _has_kernel_threads(target: Target) -> bool:
    """True in the first PID namespace, whose process 2 starts the kernel's threads."""
    return text(target, "/proc/2/comm", 64) == "kthreadd"


def _root_mount(target: Target) -> tuple[str, str] | Unread:
    """The folder of its file system that is mounted at /, and that file system's type; ``/`` and empty for no line.
    Unread if the mounts cannot be read.
    """
    mounts = text(target, "/proc/self/mountinfo", 1 << 18)
    if not isinstance(mounts, str):
        return Unread(mounts.why)
    roots = re.findall(r"^\S+ \S+ \S+ (\S+) / .* - (\S+) ", mounts, re.M)
    return roots[-1] if roots else ("/", "")


def _is_container_root(folder: str, kind: str) -> bool:
    """True for a root of layers, or one that is a folder of a file system; of btrfs one that an engine has made."""
    layered = kind in ("overlay", "fuse-overlayfs", "aufs", "squashfuse_ll")
    return layered or (folder != "/" and (kind != "btrfs" or "/btrfs/subvolumes/" in folder))


def _absent_or_unclear(target: Target) -> Fact:
    """Absent: nothing names a container engine; unread if the root file system looks like a container's all the same.

    Nodes that boot over the network have such roots too; they run systemd and show the kernel's own threads.
    """
    root = _root_mount(target)
    if isinstance(root, Unread):
        return Unread(f"no mark of a container, and mounts cannot be read: {root.why}")
    booted = path_exists(target, "/run/systemd/system") is True and _has_kernel_threads(target)
    if _is_container_root(*root) and not booted:
        folder, kind = root
        return Unread(f"no mark of a known container engine, yet / is {folder} of a file system of type {kind}")
    return Absent("no mark of a container engine")


def host_hidden(target: Target) -> str:
    """Why the host's files and processes may not be visible here; empty if this is known to be no container."""
    found = container(target)
    if engine := known(found):
        return f"inside a container ({engine.value}) the host's cannot be seen"
    return found.why if isinstance(found, Unread) else ""


def pci_hidden(target: Target) -> str:
    """Why GPUs may exist that the PCI bus does not show (WSL, Jetson), as text; empty on other machines."""
    if found := known(wsl(target)):
        return f"WSL {found.value} hands the GPU over without showing it on the PCI bus"
    if found := known(jetson_model(target)):
        return f"the GPU of {found.value} is part of the chip, not on the PCI bus"
    return ""


def no_bus_hint(target: Target) -> str:
    """A clause such as ``; /sys may not be mounted`` to append to why no PCI bus is seen; may be empty."""
    if found := known(container(target)):
        return f"; the container ({found.value}) may hide it"
    return "; /sys may not be mounted" if isinstance(names(target, "/sys"), Absent) else ""
