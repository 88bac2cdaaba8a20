"""Which system it is, for those who install on it: whose packages, and which of NVIDIA's repositories."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpudoctor.model.fact import Absent, Fact, Known, Unread
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.model.values import CannotJudge

_SYSTEMS = {
    name: system
    for system, names in {
        "ubuntu": "ubuntu linuxmint pop elementary zorin neon",
        "debian": "debian kali raspbian deepin",
        "fedora": "fedora nobara",
        "rhel": "rhel rocky almalinux ol centos scientific",
        "amazon": "amzn",
        "opensuse": "opensuse opensuse-leap opensuse-tumbleweed",
        "sles": "sles sled sle_hpc",
        "arch": "arch manjaro endeavouros cachyos garuda",
    }.items()
    for name in names.split()
}
"""Whose packages a distribution takes, by its short id."""
_REPOSITORIES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "ubuntu": ("ubuntu{}", ("22.04", "24.04", "26.04")),
    "debian": ("debian{}", ("12", "13")),
    "rhel": ("rhel{}", ("8", "9", "10")),
    "fedora": ("fedora{}", ("42", "43", "44")),
    "amazon": ("amzn{}", ("2023",)),
    "opensuse": ("opensuse{}", ("15", "16")),
    "sles": ("sles{}", ("15", "16")),
}
"""Folders of developer.download.nvidia.com/compute/cuda/repos, and the releases that have one."""


def system(snapshot: Snapshot) -> Fact:
    """Whose packages it takes, or where packages are the wrong place."""
    for name, place in (("host.container", "container"), ("host.wsl", "wsl"), ("host.jetson", "jetson")):
        if isinstance(there := snapshot.get(name), Known):
            return Known(place, there.source)
    platform, distribution = snapshot.get("host.platform"), snapshot.get("host.distribution")
    if isinstance(platform, Known) and platform.value != "linux":
        return platform
    if not isinstance(distribution, Known):
        return distribution
    return Known(_SYSTEMS.get(str(distribution.value), str(distribution.value)), distribution.source)


def release(snapshot: Snapshot) -> Fact:
    """The first number of the distribution's release."""
    number = known(snapshot, "host.distribution_version").partition(".")[0]
    if not re.fullmatch(r"[0-9]{1,8}", number):
        raise CannotJudge("host.distribution_version", "it does not begin with a number")
    return Known(number, "host.distribution_version")


def kernel(snapshot: Snapshot) -> Fact:
    """The running kernel's release, where it can be a part of a package's name."""
    if not re.fullmatch(r"[0-9][\w.+~-]{0,80}", known(snapshot, "host.kernel")):
        raise CannotJudge("host.kernel", "no release of a kernel")
    return snapshot.get("host.kernel")


def folder(snapshot: Snapshot) -> Fact:
    """NVIDIA's repository by the distribution, also inside a container; WSL has one of its own, without a driver."""
    name, version = known(snapshot, "host.distribution"), known(snapshot, "host.distribution_version")
    if isinstance(snapshot.get("host.wsl"), Known) and _SYSTEMS.get(name) == "ubuntu":
        return Known("wsl-ubuntu", "host.wsl")
    pattern, releases = _REPOSITORIES.get(_SYSTEMS.get(name, ""), ("", ()))
    major = version.partition(".")[0]
    release = version if name == "ubuntu" else major
    if name not in _NAMED or release not in releases:
        return Absent(f"NVIDIA has no repository for {name} {version}"[:80])
    return Known(pattern.format(release.replace(".", "")), "releases that NVIDIA has a repository for")


def repository(snapshot: Snapshot) -> Fact:
    """The same with the folder of the machine's architecture."""
    folder, arch = snapshot.get("setup.folder"), {"x86_64": "x86_64", "aarch64": "sbsa"}
    if not isinstance(folder, Known):
        return folder
    machine = known(snapshot, "host.arch")
    if machine not in arch:
        return Absent("NVIDIA has repositories for x86_64 and aarch64")
    return Known(f"{folder.value}/{arch[machine]}", folder.source)


_NAMED = ("ubuntu", "debian", "rhel", "rocky", "almalinux", "ol", "centos", "fedora", "amzn", "opensuse-leap", "sles")
"""Distributions whose release number is that of the repository."""


_MANAGERS = {
    "ubuntu": "apt",
    "debian": "apt",
    "fedora": "dnf",
    "rhel": "dnf",
    "amazon": "dnf",
    "opensuse": "zypper",
    "sles": "zypper",
    "arch": "pacman",
}


def manager(snapshot: Snapshot) -> Fact:
    """By the distribution, where nobody read it."""
    there = snapshot.get("host.package_manager")
    name = snapshot.get("host.distribution")
    if not isinstance(there, Unread) or not isinstance(name, Known):
        return there
    found = _MANAGERS.get(_SYSTEMS.get(str(name.value), ""))
    return Known(found, name.source) if found else Absent(f"no package manager is known of {name.value}"[:80])


def known(snapshot: Snapshot, name: str) -> str:
    """That fact as a text; raises `CannotJudge` where it is not known."""
    state = snapshot.get(name)
    if not isinstance(state, Known):
        raise CannotJudge(name, state.why)
    return str(state.value)
