"""Which rank of which job we are, and where its ranks meet: read from what the launcher has put into the environment.

What torchrun, Slurm 22.05, Open MPI 4.1 and Hydra set was seen in real runs (2026-11); Slurm's names are those of
srun(1), OUTPUT ENVIRONMENT VARIABLES.
"""

from __future__ import annotations

import socket
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from gpudoctor.links.sealing import job_key
from gpudoctor.model.errors import UsageError


@dataclass(frozen=True, slots=True)
class Place:
    """One rank's place in its job. One of the ranks, the hub, is where all meet: rank 0, under Slurm the first task of
    the first node, which all can name.
    """

    launcher: str = "alone"
    rank: int = 0
    world: int = 1
    local_rank: int = 0
    host: str = "localhost"
    hub: bool = True
    master: str = ""
    """Name or address of the hub's machine."""
    port: int = 0
    """The job's own port there, which is tested as well; 0 where the environment names none."""
    job: str = ""
    """The same for all ranks of the job, and no other's."""
    store: bool = False
    """Whether the launcher itself listens on that port already, as torchrun does."""
    node: str = ""
    """What the scheduler calls the machine."""
    switch: str = ""
    hosts: tuple[str, ...] = ()
    """The machine of each rank, where the launcher tells."""
    secret: str = field(default="", repr=False)
    """GPUDOCTOR_JOB_KEY: what only this job's ranks know, where its owner has given it to all of them."""

    @property
    def key(self) -> str:
        """What the messages of this job's ranks are authenticated with: see `job_key` for what of it is secret."""
        return job_key(self.job, self.secret)

    @property
    def alone(self) -> bool:
        """Whether there is nobody to meet."""
        return self.world == 1

    @property
    def ports(self) -> tuple[int, ...]:
        """Where the hub may be met: the job's own port first, then some of ours, the same on all ranks of this job."""
        ours = tuple(_OURS + (zlib.crc32(self.job.encode()) + step * 2503) % _OURS_COUNT for step in range(3))
        return ours if self.store or not self.port else (self.port, *(port for port in ours if port != self.port))


_OURS, _OURS_COUNT = 20000, 10000
"""Below what Linux gives to connections by itself (32768 and up)."""

JOB_KEY = "GPUDOCTOR_JOB_KEY"
"""Set by whoever starts the job, to the same random text for all ranks: ``openssl rand -hex 16``."""

Hostnames = Callable[[str], list[str]]
"""Expands a launcher's short form of host names: ``node[1-4]``."""


def of(environ: Mapping[str, str], hostnames: Hostnames) -> Place:
    """Our place. Raises `UsageError` where the environment contradicts itself or names no rank 0."""
    for known in (_torchrun, _mpirun, _srun, _plain):
        place = known(environ, hostnames)
        if place:
            return _checked(replace(place, secret=environ.get(JOB_KEY, "").strip()))
    return Place(host=_host(environ), node=environ.get("SLURMD_NODENAME", ""))


def _torchrun(environ: Mapping[str, str], _: Hostnames) -> Place | None:
    """torchrun, and what is built on it: its agent holds a store on MASTER_PORT before any rank begins."""
    if "TORCHELASTIC_RUN_ID" not in environ or "RANK" not in environ:
        return None
    run, restart = environ["TORCHELASTIC_RUN_ID"], environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return _by_name(environ, "torchrun", f"torchrun {run} {restart}", _store(environ))


def _plain(environ: Mapping[str, str], _: Hostnames) -> Place | None:
    """RANK and WORLD_SIZE, as torch.distributed's ``env://`` wants them, set by whomever."""
    if "RANK" not in environ or "WORLD_SIZE" not in environ:
        return None
    return _by_name(environ, "the environment", "env", _store(environ))


def _store(environ: Mapping[str, str]) -> bool:
    """Whether a store listens on MASTER_PORT already; torch.distributed goes by the same variable."""
    return environ.get("TORCHELASTIC_USE_AGENT_STORE", "") == "True"


def _by_name(environ: Mapping[str, str], launcher: str, job: str, store: bool) -> Place:
    master, port = environ.get("MASTER_ADDR", ""), _whole(environ, "MASTER_PORT", 0)
    rank = _whole(environ, "RANK", 0)
    return Place(
        launcher=launcher,
        rank=rank,
        hub=rank == 0,
        world=_whole(environ, "WORLD_SIZE", 1),
        local_rank=_whole(environ, "LOCAL_RANK", 0),
        host=_host(environ),
        master=master,
        port=port,
        job=f"{job} {master}:{port}",
        store=store,
        node=environ.get("SLURMD_NODENAME", ""),
        switch=_switch(environ),
    )


def _srun(environ: Mapping[str, str], hostnames: Hostnames) -> Place | None:
    """A step of Slurm; the shell of a batch script is none, though it has SLURM_PROCID."""
    if "SLURM_STEP_NUM_TASKS" not in environ or "SLURM_PROCID" not in environ:
        return None
    nodes = hostnames(environ.get("SLURM_STEP_NODELIST", ""))
    job, step = environ.get("SLURM_JOB_ID", "0"), environ.get("SLURM_STEP_ID", "0")
    local = _whole(environ, "SLURM_LOCALID", 0)
    return Place(
        launcher="srun",
        rank=_whole(environ, "SLURM_PROCID", 0),
        world=_whole(environ, "SLURM_STEP_NUM_TASKS", 1),
        local_rank=local,
        host=_host(environ),
        hub=local == 0 and _whole(environ, "SLURM_NODEID", 0) == 0,
        master=next(iter(nodes), ""),
        port=_whole(environ, "MASTER_PORT", 0),
        job=f"slurm {job}.{step}",
        node=environ.get("SLURMD_NODENAME", ""),
        switch=_switch(environ),
        hosts=_spread(nodes, environ),
    )


def _spread(nodes: list[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """The node of each task: ``4(x2),3`` tasks on the nodes in their order, in blocks or one after the other."""
    counts = _counts(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    way = environ.get("SLURM_DISTRIBUTION", "block").partition(":")[0]
    if len(counts) != len(nodes) or way not in {"block", "cyclic"}:
        return ()
    if way == "block":
        return tuple(node for node, count in zip(nodes, counts, strict=True) for _ in range(count))
    turns = range(max(counts, default=0))
    return tuple(node for turn in turns for node, count in zip(nodes, counts, strict=True) if turn < count)


def _counts(text: str) -> list[int]:
    counts: list[int] = []
    for part in text.split(","):
        count, _, times = part.removesuffix(")").partition("(x")
        if not count.isdecimal() or (times and not times.isdecimal()):
            return []
        counts += [int(count)] * int(times or 1)
    return counts


def _mpirun(environ: Mapping[str, str], hostnames: Hostnames) -> Place | None:
    """Open MPI, then the launchers of MPICH's family; where Slurm itself started the ranks, its own names tell more."""
    for rank, world, local in (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ):
        if rank not in environ or world not in environ:
            continue
        if rank == "PMI_RANK" and _is_slurms(environ):
            return None
        port, number, size = _whole(environ, "MASTER_PORT", 0), _whole(environ, rank, 0), _whole(environ, world, 1)
        return Place(
            launcher="mpirun",
            rank=number,
            world=size,
            local_rank=_whole(environ, local, 0),
            host=_host(environ),
            hub=number == 0,
            master=environ.get("MASTER_ADDR") or _first_host(environ, size, hostnames),
            port=port,
            job=f"mpirun {_run(environ)} {port}",
            node=environ.get("SLURMD_NODENAME", ""),
            switch=_switch(environ),
        )
    return None


def _is_slurms(environ: Mapping[str, str]) -> bool:
    """Whether it was srun that set PMI_RANK: where Hydra did, started by srun, Slurm's names are of Hydra's proxies."""
    same = (("PMI_RANK", "SLURM_PROCID"), ("PMI_SIZE", "SLURM_STEP_NUM_TASKS"))
    return all(environ.get(name) == environ.get(slurms) for name, slurms in same)


def _run(environ: Mapping[str, str]) -> str:
    """What tells this run from others."""
    names = ("OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID")
    return next((environ[name] for name in names if environ.get(name)), "")


def _first_host(environ: Mapping[str, str], size: int, hostnames: Hostnames) -> str:
    """Where rank 0 mostly is: here, where all are; where Open MPI's mpirun is; on the first node of Slurm's list."""
    together = "OMPI_COMM_WORLD_LOCAL_SIZE" if "OMPI_COMM_WORLD_RANK" in environ else "MPI_LOCALNRANKS"
    if size == _whole(environ, together, 0):
        return "localhost"
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", "")
    return _head(environ) or next(iter(hostnames(nodes)), "")


def _head(environ: Mapping[str, str]) -> str:
    """The machine of Open MPI 4's mpirun, where rank 0 mostly is too: ``3407872.0;tcp://10.0.0.1,172.17.0.1:40011``."""
    uri = environ.get("OMPI_MCA_orte_hnp_uri", "")
    return uri.partition("tcp://")[2].partition(",")[0].partition(":")[0]


def _checked(place: Place) -> Place:
    if not 0 <= place.rank < place.world:
        raise UsageError(f"{place.launcher} says rank {place.rank} of {place.world}: there is no such rank")
    if not 0 <= place.port < 1 << 16:
        raise UsageError(f"port {place.port} is no port: MASTER_PORT is 1 to 65535")
    if not place.alone and not place.master:
        raise UsageError(f"{place.launcher} does not tell where rank 0 is: set MASTER_ADDR to its host name")
    return place


def _host(environ: Mapping[str, str]) -> str:
    """What the machine is called: by Slurm, where several of its nodes may share one host; else its own name."""
    return environ.get("SLURMD_NODENAME") or socket.gethostname()


def _switch(environ: Mapping[str, str]) -> str:
    """The last switch before the node in ``core.leaf4.node17``; without a topology plugin it is the node alone."""
    parts = environ.get("SLURM_TOPOLOGY_ADDR", "").split(".")
    return parts[-2] if len(parts) > 1 else ""


def _whole(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "").strip()
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name}={text!r} is no number") from None
