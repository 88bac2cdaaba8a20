"""What a rank has to work with: its GPU, by its local rank, and memory."""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Optional

from .._kernel import CannotRun
from ._plan import Place


class Here(NamedTuple):
    """``cuda:3`` or ``cpu``, and what the other ranks are told."""

    device: str
    told: Place


def place(torch: Any, ask: Mapping[str, Any]) -> Here:
    """This rank's. A context is created on its GPU alone, and only where NCCL is asked for."""
    rank, host, local = int(ask["rank"]), str(ask["host"]), int(ask["local_rank"])
    memory = _host_memory()
    if ask["backend"] == "gloo":
        return Here("cpu", Place(rank, host, local, memory, 0, "Gloo was asked for"))
    why = _without(torch, local)
    if why:
        if ask["backend"] == "nccl":
            raise CannotRun(why)
        return Here("cpu", Place(rank, host, local, memory, 0, why))
    number = local if torch.cuda.device_count() > 1 else 0
    torch.cuda.set_device(number)
    return Here("cuda:%d" % number, Place(rank, host, local, memory, int(torch.cuda.mem_get_info(number)[0])))


def version(torch: Any, here: Here) -> Dict[str, Any]:
    """Which NCCL it is, where there is one."""
    if here.device == "cpu":
        return {}
    found = torch.cuda.nccl.version()
    return {"nccl": ".".join(map(str, found)) if isinstance(found, tuple) else str(found)}


def _without(torch: Any, local_rank: int) -> Optional[str]:
    """Why this rank has no GPU that NCCL could use."""
    if not torch.distributed.is_nccl_available():
        return "torch %s is built without NCCL" % torch.__version__
    count = torch.cuda.device_count()
    if not count:
        return "torch %s sees no GPU" % torch.__version__
    if 1 < count <= local_rank:
        return "local rank %d has no GPU: %d are visible" % (local_rank, count)
    return None


def _host_memory() -> int:
    """Bytes that are available on this host, as Linux reckons; 1 GiB where that is not known."""
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return 1 << 30
