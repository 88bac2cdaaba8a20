"""Which facts are compared between hosts, and how a host's answer becomes one value that can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Answers = Mapping[str, Any]
"""The ``facts`` of a document as JSON: entries with ``value``, ``absent`` or ``unread``, or lists of rows of these."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A fact that should be the same on hosts of one kind.

    `matters`: jobs over hosts that differ in it fail, or wait for the worse one. Numbers within `near` (a share) of
    the median count as equal to it.
    """

    fact: str
    about: str
    matters: bool = False
    near: float = 0.0


NOT_THERE = "not there"
"""What a host says of a fact that it knows not to be there: a variable that is not set, torch that is not installed."""

SCALARS = (
    Compared("driver.version", "driver", matters=True),
    Compared("driver.module_kind", "kind of kernel module"),
    Compared("driver.gsp_firmware", "GSP firmware"),
    Compared("driver.fabric_manager_version", "fabric manager", matters=True),
    Compared("driver.cuda_version", "CUDA of the driver"),
    Compared("driver.peermem_loaded", "nvidia_peermem loaded"),
    Compared("imex.version", "IMEX"),
    Compared("cuda.nvcc_version", "CUDA toolkit"),
    Compared("torch.version", "torch", matters=True),
    Compared("torch.cuda", "CUDA of torch", matters=True),
    Compared("torch.nccl", "NCCL", matters=True),
    Compared("torch.cudnn", "cuDNN"),
    Compared("libnccl.version", "NCCL library", matters=True),
    Compared("net.nccl_interface", "interface that NCCL takes", matters=True),
    Compared("net.gloo_interface", "interface that Gloo takes", matters=True),
    Compared("net.plugin", "network plugin of NCCL", matters=True),
    Compared("net.firewall", "firewall"),
    Compared("triton.version", "Triton"),
    Compared("python.version", "Python"),
    Compared("host.os", "operating system"),
    Compared("host.kernel", "kernel"),
    Compared("host.glibc", "C library"),
    Compared("host.iommu", "IOMMU"),
    Compared("host.memory_mib", "memory in MiB", near=0.02),
    Compared("limits.shm_mib", "/dev/shm in MiB", near=0.02),
    Compared("limits.memlock_kib", "memlock limit in KiB", matters=True),
    Compared("limits.open_files", "limit of open files"),
    Compared("limits.cpus", "processors"),
    Compared("topology.numa_nodes", "NUMA nodes"),
    Compared("topology.nvswitches", "NVSwitches"),
    Compared("fitness.hugepages", "huge pages"),
    Compared("fitness.transparent_hugepages", "transparent huge pages"),
    Compared("fitness.numa_balancing", "NUMA balancing"),
    Compared("fitness.clock_source", "clock source"),
    Compared("fitness.governors", "frequency governor"),
)
"""Facts of a machine. Their names are those of `gpudoctor explain`."""

COLUMNS = (
    Compared("gpu.name", "GPUs", matters=True),
    Compared("gpu.memory_mib", "GPU memory in MiB", matters=True),
    Compared("gpu.vbios", "VBIOS"),
    Compared("gpu.inforom", "InfoROM"),
    Compared("gpu.ecc", "ECC"),
    Compared("gpu.mig", "MIG"),
    Compared("gpu.persistence", "persistence mode"),
    Compared("gpu.power_limit_w", "power limit in W", matters=True),
    Compared("gpu.clock_max_mhz", "highest SM clock in MHz", matters=True),
    Compared("gpu.memory_clock_max_mhz", "highest memory clock in MHz", matters=True),
    Compared("gpu.application_clock_mhz", "application clock in MHz"),
    Compared("gpu.link_generation_max", "PCIe generation", matters=True),
    Compared("gpu.link_width_max", "PCIe lanes", matters=True),
    Compared("gpu.links", "NVLinks", matters=True),
    Compared("rdma.model", "network adapters", matters=True),
    Compared("rdma.firmware", "firmware of network adapters"),
    Compared("rdma.rate", "rate of network adapters", matters=True),
    Compared("rdma.state", "state of network adapters", matters=True),
)
"""Columns of groups: a host's value is every value there is, with how often: ``8 × 1980``."""

MTU = Compared("interface.mtu", "MTU of the interface that NCCL takes", matters=True)
"""Other interfaces lead to management networks and containers, and differ as they like."""

VARIABLES = ("env.NCCL_", "env.TORCH_NCCL_", "env.GLOO_")
"""Beginnings of the names of variables that every rank must have alike, also where a file sets them."""
_OWN = ("env.NCCL_DEBUG_FILE", "env.NCCL_HOSTID")
"""Of these, what each host has of its own."""

_BY_NAME = {one.fact: one for one in (*SCALARS, *COLUMNS, MTU)}


def compared(fact: str) -> Compared:
    """How that fact is compared; a variable matters always."""
    return _BY_NAME.get(fact) or Compared(fact, fact.removeprefix("env."), matters=True)


def values(facts: Answers) -> Iterator[tuple[str, str]]:
    """What a host says of each compared fact, as text; what it could not read is left out."""
    for one in SCALARS:
        if (said := _scalar(facts.get(one.fact))) is not None:
            yield one.fact, "unlimited" if said == "-1" and one.fact.startswith("limits.") else said
    for one in COLUMNS:
        if (said := _column(facts, one.fact)) is not None:
            yield one.fact, said
    if (mtu := _mtu(facts)) is not None:
        yield MTU.fact, mtu
    yield from _variables(facts).items()


def _mtu(facts: Answers) -> str | None:
    taken = known(facts.get("net.nccl_interface"))
    row = next((row for row in rows(facts, "interface") if taken and known(row.get("name")) == taken), None)
    return None if row is None else _scalar(row.get("mtu"))


def _variables(facts: Answers) -> dict[str, str]:
    """What is in force: the environment's word, else that of a file such as /etc/nccl.conf."""
    found = {
        f"env.{name}": str(known(row.get("value")))
        for row in rows(facts, "setting")
        if (name := known(row.get("name"))) and f"env.{name}".startswith(VARIABLES)
    }
    for name, entry in facts.items():
        if name.startswith(VARIABLES) and (said := _scalar(entry)) is not None and said != NOT_THERE:
            found[name] = said
    return {name: said for name, said in found.items() if name not in _OWN}


def known(entry: object) -> Any:
    """The value of a fact; None where it has none."""
    return entry.get("value") if isinstance(entry, Mapping) else None


def rows(facts: Answers, group: str) -> Sequence[Mapping[str, Any]]:
    """The rows of a group; none where it is absent or unread."""
    found = facts.get(group)
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else ()


def _scalar(entry: object) -> str | None:
    if not isinstance(entry, Mapping) or "unread" in entry:
        return None
    return NOT_THERE if "absent" in entry else _text(entry.get("value"))


def _column(facts: Answers, name: str) -> str | None:
    """Every value of a column with how many rows have it, the most frequent first."""
    group, _, column = name.partition(".")
    found = facts.get(group)
    if not isinstance(found, list):
        return NOT_THERE if isinstance(found, Mapping) and "absent" in found else None
    counts: dict[str, int] = {}
    for row in rows(facts, group):
        said = _scalar(row.get(column))
        if said is None:
            return None  # of some of them it is not known
        counts[said] = counts.get(said, 0) + 1
    return counted(counts) or NOT_THERE


def counted(counts: Mapping[str, int]) -> str:
    """``7 × 1980, 1 × 1410``."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} × {said}" for said, count in ordered)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    return str(value)
