"""What a driver and a toolkit for this machine must be: worked out from its facts and the tables, as facts themselves.

Setup pages read them as ``setup.system`` and so on, beside the machine's own facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from gpudoctor.knowledge._tables import table
from gpudoctor.knowledge.drivers import driver_cuda, driver_floor
from gpudoctor.knowledge.gpus import gpu_ceiling, gpu_floor, is_datacenter, open_module, open_module_of
from gpudoctor.knowledge.toolchain import nvcc_for
from gpudoctor.model.catalog import fact
from gpudoctor.model.fact import Absent, Fact, Known, Unread
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.model.values import CannotJudge
from gpudoctor.model.version import parse
from gpudoctor.setup import systems

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


def fitted(snapshot: Snapshot) -> Snapshot:
    """The snapshot with what a driver and a toolkit for it must be."""
    working = replace(snapshot, facts=dict(snapshot.facts))
    for name, work in _WORKS.items():
        try:
            found = work(working)
        except CannotJudge as unsettled:
            found = Unread(str(unsettled))
        working.facts[name] = found  # type: ignore[index]
    return working


def _floor(snapshot: Snapshot) -> Fact:
    floors = [str(gpu_floor(capability)) for capability, _ in _gpus(snapshot)]
    cuda = snapshot.get("torch.cuda")
    if isinstance(cuda, Known):
        floors.append(driver_floor(cuda.value))
    return Known(max(floors, key=_order), "table gpus")


def _ceiling(snapshot: Snapshot) -> Fact:
    ceilings = [found for capability, _ in _gpus(snapshot) if isinstance(found := gpu_ceiling(capability), str)]
    return Known(min(ceilings, key=_order), "table gpus") if ceilings else Absent("every GPU is still served")


def _modules(snapshot: Snapshot) -> Fact:
    kinds = {str(open_module_of(name) if name else open_module(capability)) for capability, name in _gpus(snapshot)}
    if {"required", "unsupported"} <= kinds:
        return Known(NONE, "table gpus: one GPU needs the open modules, another the proprietary ones")
    return Known("proprietary" if "unsupported" in kinds else "open", "table gpus")


def _server(snapshot: Snapshot) -> Fact:
    return Known(all(is_datacenter(name) for _, name in _gpus(snapshot)), "table gpus")


def _branch(snapshot: Snapshot) -> Fact:
    return _fitting(snapshot, systems.known(snapshot, "setup.system"))


def _nvidia_branch(snapshot: Snapshot) -> Fact:
    return _fitting(snapshot, "nvidia")


def _fitting(snapshot: Snapshot, system: str) -> Fact:
    """The first branch there between the oldest and the newest driver that serve the machine."""
    floor, ceiling = snapshot.get("setup.floor"), snapshot.get("setup.ceiling")
    least = _major(floor) if isinstance(floor, Known) else 0
    most = _major(ceiling) if isinstance(ceiling, Known) else 10**6
    for unread in (floor, ceiling):
        if isinstance(unread, Unread):
            raise CannotJudge("driver branch", unread.why)
    branches = _ships(snapshot, system)
    fitting = next((branch for branch in branches if least <= int(branch) <= most), None)
    if fitting is None:
        bound = f"up to {most}" if isinstance(ceiling, Known) else f"from {least} on"
        return Known(NONE, f"of {', '.join(branches) or 'no branch'} none is {bound}, as the GPUs and torch need")
    return Known(fitting, "table drivers: shipped")


def _ships(snapshot: Snapshot, system: str) -> Sequence[str]:
    """The branches that it has packages of; raises `CannotJudge` where the tables do not know that release."""
    version = snapshot.get("host.distribution_version")
    release = str(version.value) if isinstance(version, Known) else ""
    for row in table("drivers")["shipped"]:
        here = not row["release"] or release == row["release"] or release.startswith(f"{row['release']}.")
        if row["distribution"] == system and here:
            branches: Sequence[str] = row["branches"].split()
            return branches
    raise CannotJudge("driver branch", f"the tables do not say which branches {system} {release} ships")


def _driver(snapshot: Snapshot) -> Fact:
    """By the distribution's branch, else by NVIDIA's."""
    own = snapshot.get("setup.branch")
    fits = isinstance(own, Known) and own.value != NONE
    return _first_of(systems.known(snapshot, "setup.branch" if fits else "setup.nvidia_branch"))


def _nvidia_driver(snapshot: Snapshot) -> Fact:
    return _first_of(systems.known(snapshot, "setup.nvidia_branch"))


def _first_of(branch: str) -> Fact:
    """The first driver of the branch that came with a toolkit; every later one of it is newer."""
    found = [row["linux"] for row in table("drivers")["toolkit"] if row["linux"].split(".")[0] == branch]
    if not found:
        raise CannotJudge("driver", "no branch that fits is known")
    return Known(min(found, key=_order), "table drivers")


def _cuda(snapshot: Snapshot) -> Fact:
    """Of torch's CUDA, else of the newest that the driver serves in full; a newer one of the same major where only
    its nvcc compiles for the GPUs.
    """
    torch, driver = snapshot.get("torch.cuda"), snapshot.get("driver.version")
    if isinstance(torch, Known):
        found, source = _order(str(torch.value)), torch.source
    elif isinstance(driver, Known):
        found, source = _order(driver_cuda(driver.value)), f"table drivers: {driver.source}"
    else:
        return torch
    if len(found) < 2:
        raise CannotJudge("torch.cuda", "not a release of CUDA")
    with suppress(CannotJudge):
        known = {_order(nvcc_for(capability))[:2] for capability, _ in _gpus(snapshot)}
        newest = max([found[:2], *(one for one in known if one[0] == found[0])])
        found, source = newest, source if newest == found[:2] else "table compilers: nvcc for these GPUs"
    return Known(f"{found[0]}.{found[1]}", source)


_WORKS: Mapping[str, Callable[[Snapshot], Fact]] = {
    "host.package_manager": systems.manager,
    "host.kernel": systems.kernel,
    "setup.system": systems.system,
    "setup.release": systems.release,
    "setup.folder": systems.folder,
    "setup.repository": systems.repository,
    "setup.floor": _floor,
    "setup.ceiling": _ceiling,
    "setup.modules": _modules,
    "setup.server": _server,
    "setup.branch": _branch,
    "setup.nvidia_branch": _nvidia_branch,
    "setup.driver": _driver,
    "setup.nvidia_driver": _nvidia_driver,
    "setup.cuda": _cuda,
}
"""Each may read those before it."""


def _gpus(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Compute capability and name of each GPU; raises `CannotJudge` where one is not known."""
    rows = snapshot.rows("gpu")
    if not isinstance(rows, tuple) or not rows:
        raise CannotJudge("gpu", getattr(rows, "why", "no GPU is known"))
    for row in rows:
        capability, name = row.get("compute_capability"), row.get("name")
        if not isinstance(capability, Known):
            raise CannotJudge("gpu.compute_capability", getattr(capability, "why", "not asked"))
        yield str(capability.value), str(name.value) if isinstance(name, Known) else ""


def _major(state: Known) -> int:
    return _order(str(state.value))[0]


def _order(version: str) -> tuple[int, ...]:
    parsed = parse(version)
    return parsed.release if parsed else (0,)
