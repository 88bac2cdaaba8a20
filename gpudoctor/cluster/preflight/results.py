"""What the meeting found: everything that becomes a fact, whether all came or not; and what that comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.cluster.preflight.launcher import Place
from gpudoctor.cluster.preflight.pairs import Pair, Suspect
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import Rows, Unread


@dataclass(frozen=True, slots=True)
class RankSeen:
    """One rank. `state` is here, awaited, missing, silent, ended, failed or twice; `because` says what is wrong."""

    rank: int
    state: str
    host: str = ""
    local_rank: int | None = None
    step: str = ""
    because: str = ""
    world: int | None = None
    nccl: str = ""
    seconds: float | None = None
    blames: bool = True
    """Whether what is wrong with it speaks against its machine: a number that two have does not, nor a signal."""

    @property
    def joined(self) -> bool:
        """True if the rank ever connected to the meeting."""
        return self.state not in {"awaited", "missing"}


@dataclass(frozen=True, slots=True)
class LinkSeen:
    """One attempt of a machine to connect to another, and its outcome."""

    source: str
    target: str
    kind: str
    outcome: str
    words: str
    used_by: str = ""
    address: str = ""
    port: int = 0
    interface: str = ""
    ms: float | None = None
    answers: bool | None = None
    """Where nothing listens, or nobody answered there: whether the target answers on other ports."""
    by: str = ""
    """The port of the source by which alone it was tried, as `Port.place`; empty: any."""

    @property
    def works(self) -> bool:
        """True if the connection was established."""
        return self.outcome == "connected"


@dataclass(frozen=True, slots=True)
class Port:
    """A network port of a machine that is measured alone."""

    rail: str
    """What pairs it with ports of other machines: its RDMA device (``mlx5_3``), else its interface (``eth2``)."""
    interface: str = ""
    address: str = ""
    port: int = 0
    """The TCP port on which the machine listens there; 0 where it does not."""
    gbps: float | None = None
    """Its own rate, as the kernel tells it."""
    pcie_gbps: float | None = None
    """Rate of its card's PCIe link in Gbit/s each way; None where it is not told, as in most virtual machines."""
    number: int = 0
    """Number of the RDMA device's port, from 1; 0 where it is none."""
    perftest: bool = False
    """Whether the machine has ib_write_bw to measure it by RDMA."""
    gpu: str = ""
    """PCI address of the GPU next to its card whose memory ib_write_bw can send from; empty where there is none."""
    because: str = ""
    """Why the machine does not listen there."""

    @property
    def place(self) -> str:
        """The port's address and interface, as sockets of this port alone are bound: ``10.0.1.5%eth2``."""
        return f"{self.address}%{self.interface}"


@dataclass(frozen=True, slots=True)
class Gain:
    """Increase of a port's error counters within `seconds`; None where they cannot be read."""

    seconds: float
    errors: int | None = None
    """Packets that arrived damaged, and errors on its lanes."""
    discards: int | None = None
    """Packets that it could not send, or had no room for."""


@dataclass
class RailResults:
    """Measurements of each port alone. Ports are keyed by rail and machine."""

    ports: dict[str, dict[str, Port]] = field(default_factory=dict)
    pairs: list[Pair] = field(default_factory=list)
    suspects: tuple[Suspect, ...] = ()
    usual: dict[str, float] = field(default_factory=dict)
    """By rail: the usual rate in Gbit/s."""
    rdma: frozenset[str] = frozenset()
    """Rails that were measured by RDMA; the others by TCP."""
    gpu_memory: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """By rail, sender and receiver: Gbit/s from the memory of a GPU to that of another one (GPUDirect RDMA)."""
    gains: dict[tuple[str, str], Gain] = field(default_factory=dict)
    """By rail and machine: what the port counted while all of them were measured."""
    unmeasured: dict[tuple[str, str], str] = field(default_factory=dict)
    """By rail and machine: why nothing is known of that port; ``{rail}`` and ``{host}`` stand for its names."""


@dataclass
class MeetingResults:
    """Everything the meeting has found so far; `cut` states why it was interrupted, ``""`` if it was not."""

    place: Place
    ranks: list[RankSeen] = field(default_factory=list)
    links: list[LinkSeen] = field(default_factory=list)
    flows: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    """What the first machine measured with the second, the last time."""
    pairs: list[Pair] = field(default_factory=list)
    suspects: tuple[Suspect, ...] = ()
    rails: RailResults = field(default_factory=RailResults)
    documents: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The check of each machine, by its name."""
    collective: Rows = field(default_factory=lambda: Unread("asked from level standard on"))
    """What torch.distributed measured over all ranks."""
    nccl_remarks: tuple[str, ...] | None = None
    """What NCCL's own diagnostics want looked at; None where they did not run."""
    canary: Rows | None = None
    """What the ranks' training of a few steps took; None where it was not asked for."""
    backend: str = ""
    switches: Mapping[str, str] = field(default_factory=dict)
    """The leaf switch of each machine, where the launcher tells."""
    checked: bool = True
    """Whether machines were asked for their own checks, too."""
    taken: str = ""
    """Who else holds the job's port."""
    skew_ms: float | None = None
    skew_host: str = ""
    asked: bool = True
    """Whether machines were asked to connect at all."""
    cut: str = ""
    seconds: float = 0.0

    @property
    def hosts(self) -> list[str]:
        """Distinct machines whose ranks connected, in rank order."""
        return list(dict.fromkeys(rank.host for rank in self.ranks if rank.host and rank.joined))


# ---- For whoever waits to start: a word, and a code to exit with ----

EXIT_UNKNOWN = 3


def exit_code(diagnosis: Diagnosis) -> int:
    """Exit code of a diagnosis: 1 if broken, 3 if unknown, else 0."""
    return {"broken": 1, "unknown": EXIT_UNKNOWN}.get(diagnosis.verdict, 0)


def verdict_word(diagnosis: Diagnosis) -> str:
    """``go``, ``no-go`` or ``unknown``: the fleet's verdict, else that of the exit code."""
    return diagnosis.fleet.verdict if diagnosis.fleet else {0: "go", 1: "no-go"}.get(exit_code(diagnosis), "unknown")
