"""Which rank of which job we are, and where its ranks meet: read from what the launcher has put into the environment.

What torchrun, Slurm 22.05, Open MPI 4.1 and Hydra set was seen in real runs (2026-11); Slurm's names are those of
srun(1), OUTPUT ENVIRONMENT VARIABLES.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from gpudoctor.cluster.links.protocol import job_key
from gpudoctor.core.errors import UsageError
from gpudoctor.core.language import say


@dataclass(frozen=True, slots=True)
class Place:
    """A rank's identity in its job, and where the ranks meet: at rank 0, or the first task of the first Slurm node."""

    launcher: str = "alone"
    rank: int = 0
    world: int = 1
    local_rank: int = 0
    host: str = "localhost"
    coordinator: bool = True
    master: str = ""
    """Name or address of the coordinator's machine."""
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
        """Key that authenticates messages between the job's ranks; see `job_key` for what of it is secret."""
        return job_key(self.job, self.secret)

    @property
    def alone(self) -> bool:
        """True if the job has this one rank only."""
        return self.world == 1

    @property
    def ports(self) -> tuple[int, ...]:
        """Ports at which the coordinator may listen, in order of preference: the job's own, then three derived from the
        job's id. The job's own is left out if the launcher's store holds it already.
        """
        ours = tuple(_FIRST_OWN_PORT + (zlib.crc32(self.job.encode()) + step * 2503) % _OWN_PORTS for step in range(3))
        return ours if self.store or not self.port else (self.port, *(port for port in ours if port != self.port))


_FIRST_OWN_PORT, _OWN_PORTS = 20000, 10000
"""Below what Linux gives to connections by itself (32768 and up)."""

JOB_KEY = "GPUDOCTOR_JOB_KEY"
"""Set by whoever starts the job, to the same random text for all ranks: ``openssl rand -hex 16``."""

Hostnames = Callable[[str], list[str]]
"""Expands a launcher's short form of host names: ``node[1-4]``."""


def place_from_environment(environ: Mapping[str, str], hostnames: Hostnames) -> Place:
    """This rank's place, from the environment of torchrun, mpirun, srun or plain RANK/WORLD_SIZE, in that order, else a
    job of one rank. `hostnames` expands Slurm's node list. Raises `UsageError` if the environment is inconsistent or
    does not tell rank 0's machine.
    """
    place = _launched(environ, hostnames)
    if place is None:
        return Place(host=_host_name(environ), node=environ.get("SLURMD_NODENAME", ""))
    return _validated(replace(place, secret=environ.get(JOB_KEY, "").strip()))


def own_rank(environ: Mapping[str, str]) -> Place | None:
    """This rank's place in its job, without hosts; None without launcher, for one rank, or if the environment is
    inconsistent.
    """
    try:
        place = _launched(environ, lambda _: [])
    except UsageError:
        return None
    return place if place and 0 <= place.rank < place.world and not place.alone else None


def _launched(environ: Mapping[str, str], hostnames: Hostnames) -> Place | None:
    """This rank's place by torchrun's, mpirun's, srun's or else plain RANK variables, not validated; None without
    any.
    """
    found = (known(environ, hostnames) for known in (_torchrun, _mpirun, _srun, _plain))
    if not (place := next(filter(None, found), None)):
        return None
    where = {"host": _host_name(environ), "node": environ.get("SLURMD_NODENAME", ""), "switch": _leaf_switch(environ)}
    return replace(place, **where)  # type: ignore[arg-type]


def _torchrun(environ: Mapping[str, str], _: Hostnames) -> Place | None:
    """Place by torchrun's variables; None if they are not set. Its agent holds a store on MASTER_PORT already."""
    if "TORCHELASTIC_RUN_ID" not in environ or "RANK" not in environ:
        return None
    run, restart = environ["TORCHELASTIC_RUN_ID"], environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return _place_from_rank_variables(environ, "torchrun", f"torchrun {run} {restart}")


def _plain(environ: Mapping[str, str], _: Hostnames) -> Place | None:
    """Place by RANK and WORLD_SIZE (``env://`` of torch.distributed); None if they are not set."""
    if "RANK" not in environ or "WORLD_SIZE" not in environ:
        return None
    return _place_from_rank_variables(environ, "the environment", "env")


def _place_from_rank_variables(environ: Mapping[str, str], launcher: str, job: str) -> Place:
    """Place from RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and TORCHELASTIC_USE_AGENT_STORE."""
    master, port = environ.get("MASTER_ADDR", ""), _integer(environ, "MASTER_PORT", 0)
    rank = _integer(environ, "RANK", 0)
    return Place(
        launcher=launcher,
        rank=rank,
        coordinator=rank == 0,
        world=_integer(environ, "WORLD_SIZE", 1),
        local_rank=_integer(environ, "LOCAL_RANK", 0),
        master=master,
        port=port,
        job=f"{job} {master}:{port}",
        store=environ.get("TORCHELASTIC_USE_AGENT_STORE", "") == "True",
    )


def _srun(environ: Mapping[str, str], hostnames: Hostnames) -> Place | None:
    """Place by the variables of a Slurm step; None outside of one, as in a batch script's own shell. Rank 0's machine
    is the step's first node.
    """
    if "SLURM_STEP_NUM_TASKS" not in environ or "SLURM_PROCID" not in environ:
        return None
    nodes = hostnames(environ.get("SLURM_STEP_NODELIST", ""))
    job, step = environ.get("SLURM_JOB_ID", "0"), environ.get("SLURM_STEP_ID", "0")
    local = _integer(environ, "SLURM_LOCALID", 0)
    return Place(
        launcher="srun",
        rank=_integer(environ, "SLURM_PROCID", 0),
        world=_integer(environ, "SLURM_STEP_NUM_TASKS", 1),
        local_rank=local,
        coordinator=local == 0 and _integer(environ, "SLURM_NODEID", 0) == 0,
        master=next(iter(nodes), ""),
        port=_integer(environ, "MASTER_PORT", 0),
        job=f"slurm {job}.{step}",
        hosts=_node_of_each_task(nodes, environ),
    )


def _node_of_each_task(nodes: list[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Node of each task, by Slurm's tasks per node and distribution (block or cyclic); empty if not known."""
    counts = _tasks_per_node(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    way = environ.get("SLURM_DISTRIBUTION", "block").partition(":")[0]
    if len(counts) != len(nodes) or way not in {"block", "cyclic"}:
        return ()
    if way == "block":
        return tuple(node for node, count in zip(nodes, counts, strict=True) for _ in range(count))
    turns = range(max(counts, default=0))
    return tuple(node for turn in turns for node, count in zip(nodes, counts, strict=True) if turn < count)


def _tasks_per_node(text: str) -> list[int]:
    """Tasks on each node from Slurm's notation ``4(x2),3``: ``[4, 4, 3]``; empty if it does not parse."""
    counts: list[int] = []
    for part in text.split(","):
        count, _, times = part.removesuffix(")").partition("(x")
        if not count.isdecimal() or (times and not times.isdecimal()):
            return []
        counts += [int(count)] * int(times or 1)
    return counts


def _mpirun(environ: Mapping[str, str], hostnames: Hostnames) -> Place | None:
    """Place by the variables of Open MPI or of MPICH's launcher; None if not set, or if srun set PMI_RANK itself."""
    for rank, world, local in (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ):
        if rank not in environ or world not in environ:
            continue
        if rank == "PMI_RANK" and _srun_set_pmi(environ):
            return None
        port, number = _integer(environ, "MASTER_PORT", 0), _integer(environ, rank, 0)
        size = _integer(environ, world, 1)
        return Place(
            launcher="mpirun",
            rank=number,
            world=size,
            local_rank=_integer(environ, local, 0),
            coordinator=number == 0,
            master=environ.get("MASTER_ADDR") or _first_host(environ, size, hostnames),
            port=port,
            job=f"mpirun {_run_id(environ)} {port}",
        )
    return None


def _srun_set_pmi(environ: Mapping[str, str]) -> bool:
    """True if PMI_RANK and PMI_SIZE are Slurm's own task numbers, so that srun set them, not MPICH's launcher."""
    same = (("PMI_RANK", "SLURM_PROCID"), ("PMI_SIZE", "SLURM_STEP_NUM_TASKS"))
    return all(environ.get(name) == environ.get(slurms) for name, slurms in same)


def _run_id(environ: Mapping[str, str]) -> str:
    """Identifier of this mpirun run, by Open MPI, PMIx, PMI or Slurm; ``""`` if none is set."""
    names = ("OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID")
    return next((environ[name] for name in names if environ.get(name)), "")


def _first_host(environ: Mapping[str, str], size: int, hostnames: Hostnames) -> str:
    """Likely host of rank 0: localhost if all are here, else mpirun's host, else the first Slurm node; or ``""``."""
    together = "OMPI_COMM_WORLD_LOCAL_SIZE" if "OMPI_COMM_WORLD_RANK" in environ else "MPI_LOCALNRANKS"
    if size == _integer(environ, together, 0):
        return "localhost"
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", "")
    uri = environ.get("OMPI_MCA_orte_hnp_uri", "")  # 3407872.0;tcp://10.0.0.1,172.17.0.1:40011
    mpirun = uri.partition("tcp://")[2].partition(",")[0].partition(":")[0]
    return mpirun or next(iter(hostnames(nodes)), "")


def _validated(place: Place) -> Place:
    """The place unchanged; raises `UsageError` for an impossible rank or port, or without a host of rank 0."""
    if not 0 <= place.rank < place.world:
        raise UsageError(
            say(
                "{launcher} says rank {rank} of {world}: there is no such rank",
                launcher=place.launcher,
                rank=place.rank,
                world=place.world,
            )
        )
    if not 0 <= place.port < 1 << 16:
        raise UsageError(say("port {port} is no port: MASTER_PORT is 1 to 65535", port=place.port))
    if not place.alone and not place.master:
        raise UsageError(
            say("{launcher} does not tell where rank 0 is: set MASTER_ADDR to its host name", launcher=place.launcher)
        )
    return place


def _host_name(environ: Mapping[str, str]) -> str:
    """Slurm's name of the node (several may share a host), else the machine's host name."""
    return environ.get("SLURMD_NODENAME") or socket.gethostname()


def _leaf_switch(environ: Mapping[str, str]) -> str:
    """Leaf switch from SLURM_TOPOLOGY_ADDR (``core.leaf4.node17`` gives ``leaf4``); ``""`` if not known."""
    parts = environ.get("SLURM_TOPOLOGY_ADDR", "").split(".")
    return parts[-2] if len(parts) > 1 else ""


def _integer(environ: Mapping[str, str], name: str, default: int) -> int:
    """Integer value of an environment variable; `default` if unset or empty, `UsageError` if not a number."""
    text = environ.get(name, "").strip()
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise UsageError(say("{name}={text} is no number", name=name, text=repr(text))) from None


# ---- A launcher's short form of host names, written out ----
# ``node[1-4,7]``.

_WORD = re.compile(r"[^,\[]*(?:\[[^\]]*\][^,\[]*)*")
_BRACKETS = re.compile(r"\[([\d,-]+)\]")
_MOST_NAMES = 1 << 16
"""Names that one list may stand for."""


def expanded(short: str) -> list[str]:
    """Hosts in a short form such as ``node[1-4,7]``, by scontrol or hostlist(3)'s rules; empty if neither can."""
    if "[" not in short:
        return [name for name in short.split(",") if name]
    return _expanded_by_scontrol(short) or _expanded_by_pattern(short)


def _expanded_by_scontrol(short: str) -> list[str]:
    """Names by ``scontrol show hostnames``; empty if that is not installed or fails."""
    scontrol = shutil.which("scontrol")
    if not scontrol:
        return []
    try:
        done = subprocess.run(
            [scontrol, "show", "hostnames", short], check=False, capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split() if done.returncode == 0 else []


def _expanded_by_pattern(short: str) -> list[str]:
    """Names in a short form, by expanding its brackets here; empty if they do not parse or give over 65,536 names."""
    names: list[str] = []
    for word in _WORD.findall(short):
        for name in _bracket_names(word) if word else ():
            if "[" in name or len(names) == _MOST_NAMES:
                return []
            names.append(name)
    return names


def _bracket_names(word: str) -> Iterator[str]:
    """Names of one word, ``rack[1-2]n[01-10]``: leading zeros are kept; an unparsable word is given as it is."""
    match = _BRACKETS.search(word)
    if not match:
        yield word
        return
    for part in match[1].split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            yield word
            return
        for number in range(int(first), int(last or first) + 1):
            yield from _bracket_names(f"{word[: match.start()]}{number:0{len(first)}}{word[match.end() :]}")
