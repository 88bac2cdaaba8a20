"""What a driver and a toolkit for this machine must be: worked out from its facts and the tables, as facts themselves.

Setup pages read them as ``setup.system`` and so on, beside the machine's own facts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Absent, Fact, Known, Unread, known, text_of
from gpudoctor.core.frozen import replace
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.values import CannotJudge
from gpudoctor.core.versions import parse
from gpudoctor.diagnosis.knowledge._tables import table
from gpudoctor.diagnosis.knowledge.archs import nvcc_for
from gpudoctor.diagnosis.knowledge.drivers import driver_cuda, driver_floor
from gpudoctor.diagnosis.knowledge.gpus import gpu_ceiling, gpu_floor, is_datacenter, open_module, open_module_of

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


def is_distribution(text: str) -> bool:
    """True if the text begins with the short id of a Linux distribution of a known family: ``Ubuntu 24.04``,
    ``debian12``.
    """
    return re.split(r"[ :\d]", text.strip().lower(), maxsplit=1)[0].rstrip("-") in _SYSTEMS


def system_fact(snapshot: Snapshot) -> Fact:
    """Whose packages the system takes (ubuntu, debian, rhel, ...), or ``container``, ``wsl``, ``jetson``, ``windows``.

    A distribution of no known family gives its own id; unread or absent where the distribution is.
    """
    for name, place in (("host.container", "container"), ("host.wsl", "wsl"), ("host.jetson", "jetson")):
        if fact := snapshot.known(name):
            return Known(place, fact.source)
    platform, distribution = snapshot.known("host.platform"), snapshot.known("host.distribution")
    if platform and platform.value != "linux":
        return platform
    if distribution is None:
        return snapshot.get("host.distribution")
    return Known(_SYSTEMS.get(str(distribution.value), str(distribution.value)), distribution.source)


def release_fact(snapshot: Snapshot) -> Fact:
    """The major number of the distribution's release as text; raises `CannotJudge` where unknown or no number."""
    number = required_text(snapshot, "host.distribution_version").partition(".")[0]
    if not re.fullmatch(r"[0-9]{1,8}", number):
        raise CannotJudge("host.distribution_version", "it does not begin with a number")
    return Known(number, "host.distribution_version")


def kernel_fact(snapshot: Snapshot) -> Fact:
    """The running kernel's release where it can be part of a package name; raises `CannotJudge` otherwise."""
    if not re.fullmatch(r"[0-9][\w.+~-]{0,80}", required_text(snapshot, "host.kernel")):
        raise CannotJudge("host.kernel", "no release of a kernel")
    return snapshot.get("host.kernel")


def repository_folder(snapshot: Snapshot) -> Fact:
    """NVIDIA's CUDA repository folder for the distribution release (``ubuntu2404``), absent where there is none.

    Inside containers too; WSL has one of its own, without a driver. Raises `CannotJudge` where unknown.
    """
    name, version = required_text(snapshot, "host.distribution"), required_text(snapshot, "host.distribution_version")
    if snapshot.known("host.wsl") and _SYSTEMS.get(name) == "ubuntu":
        return Known("wsl-ubuntu", "host.wsl")
    pattern, releases = _REPOSITORIES.get(_SYSTEMS.get(name, ""), ("", ()))
    major = version.partition(".")[0]
    release = version if name == "ubuntu" else major
    if name not in _NAMED or release not in releases:
        return Absent(f"NVIDIA has no repository for {name} {version}"[:80])
    return Known(pattern.format(release.replace(".", "")), "releases that NVIDIA has a repository for")


def repository_fact(snapshot: Snapshot) -> Fact:
    """NVIDIA's repository for the machine (``ubuntu2404/x86_64``): ``setup.folder`` and the architecture.

    Absent for other architectures; as ``setup.folder`` where that is not known. Raises `CannotJudge` where the
    architecture is not.
    """
    folder, arch = snapshot.known("setup.folder"), {"x86_64": "x86_64", "aarch64": "sbsa"}
    if folder is None:
        return snapshot.get("setup.folder")
    machine = required_text(snapshot, "host.arch")
    if machine not in arch:
        return Absent("NVIDIA has repositories for x86_64 and aarch64")
    return Known(f"{folder.value}/{arch[machine]}", folder.source)


_NAMED = ("ubuntu", "debian", "rhel", "rocky", "almalinux", "ol", "centos", "fedora", "amzn", "opensuse-leap", "sles")
"""Distributions whose release number is that of the repository."""


def repository_releases(distribution: str) -> tuple[str, ...]:
    """Releases of a distribution (its short id) that NVIDIA has a repository for, newest first; empty if not known."""
    _, releases = _REPOSITORIES.get(_SYSTEMS.get(distribution, ""), ("", ()))
    return releases[::-1] if distribution in _NAMED else ()


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


def package_manager_fact(snapshot: Snapshot) -> Fact:
    """The package manager as read; if unread, that of the distribution: absent where none is known for it, unread where
    the distribution is not known.
    """
    fact, name = snapshot.get("host.package_manager"), snapshot.known("host.distribution")
    if name is None or not isinstance(fact, Unread):
        return fact
    program = _MANAGERS.get(_SYSTEMS.get(str(name.value), ""))
    return Known(program, name.source) if program else Absent(f"no package manager is known of {name.value}"[:80])


def required_text(snapshot: Snapshot, name: str) -> str:
    """The fact's value as text; raises `CannotJudge` where it is absent or unread."""
    fact = snapshot.get(name)
    if isinstance(fact, (Absent, Unread)):
        raise CannotJudge(name, fact.why, fact.reason)
    return str(fact.value)


FACTS = (
    fact(
        "setup.system",
        "text",
        "whose packages it takes: ubuntu, debian, fedora, rhel, amazon, opensuse, sles, arch; "
        "or where packages are the wrong place: container, wsl, jetson, windows",
    ),
    fact("setup.release", "text", "first number of the distribution's release: 9 of 9.6"),
    fact("setup.folder", "text", "how NVIDIA's repositories call it: ubuntu2404"),
    fact("setup.repository", "text", "NVIDIA's repository for it: ubuntu2404/x86_64"),
    fact("setup.floor", "text", "the oldest driver that serves every GPU and torch's CUDA"),
    fact("setup.ceiling", "text", "the newest driver branch that serves every GPU"),
    fact("setup.modules", "text", "the kernel modules that drive every GPU: open, proprietary, or none"),
    fact("setup.server", "bool", "whether every GPU is a data-center product"),
    fact("setup.branch", "text", "the distribution's own branch that serves every GPU, or none"),
    fact("setup.nvidia_branch", "text", "the branch of NVIDIA's own repository that serves every GPU, or none"),
    fact("setup.driver", "version", "the driver that is there at least once that branch is installed"),
    fact("setup.nvidia_driver", "version", "the same of NVIDIA's own repository"),
    fact("setup.cuda", "version", "the release of the CUDA toolkit that fits torch, or else the driver"),
)

NONE = "none"
"""Where nothing serves every GPU."""


def with_setup_facts(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the facts ``setup.*``: fitting driver, branch, modules, toolkit.

    What cannot be worked out is unread. ``host.package_manager`` and ``host.kernel`` are replaced by checked ones.
    """
    working = replace(snapshot, facts=dict(snapshot.facts))
    for name, derive in _WORKS.items():
        try:
            derived = derive(working)
        except CannotJudge as unsettled:
            derived = Unread(str(unsettled))
        working.facts[name] = derived  # type: ignore[index]
    return working


def _driver_floor(snapshot: Snapshot) -> Fact:
    """The lowest driver version or branch that serves every GPU and torch's CUDA, if known; raises `CannotJudge`."""
    floors = [str(gpu_floor(capability)) for capability, _ in _capabilities_and_names(snapshot)]
    if cuda := snapshot.known("torch.cuda"):
        floors.append(driver_floor(cuda.value))
    return Known(max(floors, key=_release_numbers), "table gpus")


def _driver_ceiling(snapshot: Snapshot) -> Fact:
    """The last driver branch that still serves every GPU; absent where all are still served; raises `CannotJudge`."""
    ceilings = [
        found
        for capability, _ in _capabilities_and_names(snapshot)
        if isinstance(found := gpu_ceiling(capability), str)
    ]
    return Known(min(ceilings, key=_release_numbers), "table gpus") if ceilings else Absent("every GPU is still served")


def _module_kind(snapshot: Snapshot) -> Fact:
    """Kernel modules that drive all GPUs: ``proprietary`` where the open ones do not drive some GPU, else ``open``.

    `NONE` where, besides, another GPU needs the open ones; raises `CannotJudge` where there is no GPU or one is
    unknown.
    """
    kinds = {
        str(open_module_of(name) if name else open_module(capability))
        for capability, name in _capabilities_and_names(snapshot)
    }
    if {"required", "unsupported"} <= kinds:
        return Known(NONE, "table gpus: one GPU needs the open modules, another the proprietary ones")
    return Known("proprietary" if "unsupported" in kinds else "open", "table gpus")


def _first_fitting_branch(snapshot: Snapshot, system: str) -> Fact:
    """The first driver branch that `system` ships between ``setup.floor`` and ``setup.ceiling``; `NONE` without one.

    Raises `CannotJudge` where a bound is unread or the tables do not know the release.
    """
    floor, ceiling = snapshot.get("setup.floor"), snapshot.get("setup.ceiling")
    lowest = _release_numbers(text_of(floor))[0]
    highest = _release_numbers(text_of(ceiling))[0] if known(ceiling) else 10**6
    for unread in (floor, ceiling):
        if isinstance(unread, Unread):
            raise CannotJudge("driver branch", unread.why, unread.reason)
    branches = _shipped_branches(snapshot, system)
    fitting = next((branch for branch in branches if lowest <= int(branch) <= highest), None)
    if fitting is None:
        bound = f"up to {highest}" if known(ceiling) else f"from {lowest} on"
        return Known(NONE, f"of {', '.join(branches) or 'no branch'} none is {bound}, as the GPUs and torch need")
    return Known(fitting, "table drivers: shipped")


def _shipped_branches(snapshot: Snapshot, system: str) -> Sequence[str]:
    """The driver branches that the machine's release of that system ships, in the table's order.

    Raises `CannotJudge` where the table lacks it.
    """
    release = snapshot.text("host.distribution_version")
    for row in table("drivers")["shipped"]:
        matches = not row["release"] or release == row["release"] or release.startswith(f"{row['release']}.")
        if row["distribution"] == system and matches:
            branches: Sequence[str] = row["branches"].split()
            return branches
    raise CannotJudge("driver branch", f"the tables do not say which branches {system} {release} ships")


def _driver_to_install(snapshot: Snapshot) -> Fact:
    """The oldest driver that can come of the distribution's fitting branch, else of NVIDIA's; raises `CannotJudge`."""
    own = snapshot.text("setup.branch")
    return _first_driver_of(own if own and own != NONE else required_text(snapshot, "setup.nvidia_branch"))


def _first_driver_of(branch: str) -> Fact:
    """The oldest Linux driver of the branch that shipped with a CUDA toolkit; raises `CannotJudge` where none did."""
    drivers = [row["linux"] for row in table("drivers")["toolkit"] if row["linux"].split(".")[0] == branch]
    if not drivers:
        raise CannotJudge("driver", "no branch that fits is known")
    return Known(min(drivers, key=_release_numbers), "table drivers")


def _toolkit_release(snapshot: Snapshot) -> Fact:
    """The CUDA toolkit release to install (``12.8``): torch's CUDA, else the newest that the driver serves in full.

    A newer one of the same major where only its nvcc compiles for the GPUs; as ``torch.cuda`` where neither is known.
    Raises `CannotJudge`.
    """
    if torch := snapshot.known("torch.cuda"):
        release_, source = _release_numbers(str(torch.value)), torch.source
    elif driver := snapshot.known("driver.version"):
        release_, source = _release_numbers(driver_cuda(driver.value)), f"table drivers: {driver.source}"
    else:
        return snapshot.get("torch.cuda")
    if len(release_) < 2:
        raise CannotJudge("torch.cuda", "not a release of CUDA")
    with suppress(CannotJudge):
        releases = {_release_numbers(nvcc_for(capability))[:2] for capability, _ in _capabilities_and_names(snapshot)}
        newest = max([release_[:2], *(release for release in releases if release[0] == release_[0])])
        release_, source = newest, source if newest == release_[:2] else "table compilers: nvcc for these GPUs"
    return Known(f"{release_[0]}.{release_[1]}", source)


_WORKS: Mapping[str, Callable[[Snapshot], Fact]] = {
    "host.package_manager": package_manager_fact,
    "host.kernel": kernel_fact,
    "setup.system": system_fact,
    "setup.release": release_fact,
    "setup.folder": repository_folder,
    "setup.repository": repository_fact,
    "setup.floor": _driver_floor,
    "setup.ceiling": _driver_ceiling,
    "setup.modules": _module_kind,
    "setup.server": lambda snapshot: Known(
        all(is_datacenter(name) for _, name in _capabilities_and_names(snapshot)), "table gpus"
    ),
    "setup.branch": lambda snapshot: _first_fitting_branch(snapshot, required_text(snapshot, "setup.system")),
    "setup.nvidia_branch": lambda snapshot: _first_fitting_branch(snapshot, "nvidia"),
    "setup.driver": _driver_to_install,
    "setup.nvidia_driver": lambda snapshot: _first_driver_of(required_text(snapshot, "setup.nvidia_branch")),
    "setup.cuda": _toolkit_release,
}
"""Each may read those before it."""


def _capabilities_and_names(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Compute capability and name (empty if unknown) of each GPU; raises `CannotJudge` without any GPU, or where a
    compute capability is not known.
    """
    rows = snapshot.rows("gpu")
    if not isinstance(rows, tuple) or not rows:
        raise CannotJudge("gpu", getattr(rows, "why", "no GPU is known"))
    for row in rows:
        capability = row.get("compute_capability")
        if not known(capability):
            raise CannotJudge("gpu.compute_capability", getattr(capability, "why", "not asked"))
        yield text_of(capability), text_of(row.get("name"))


def _release_numbers(version: str) -> tuple[int, ...]:
    """A version's release numbers, for comparison; (0,) for what is no version."""
    parsed = parse(version)
    return parsed.release if parsed else (0,)
