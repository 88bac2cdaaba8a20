"""What a rank has to work with: its GPU, by its local rank, and memory."""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple

from .._protocol import last_line
from ._plan import Place


class Here(NamedTuple):
    """``cuda:3`` or ``cpu``, and what the other ranks are told."""

    device: str
    told: Place


def place(torch: Any, ask: Mapping[str, Any]) -> Here:
    """This rank's. A context is created on its GPU alone, and only where NCCL may be used."""
    rank, host, local = int(ask["rank"]), str(ask["host"]), int(ask["local_rank"])
    on_host = Place(rank, host, local, _host_memory())
    why = "Gloo was asked for" if ask["backend"] == "gloo" else _without(torch, local)
    number = local if not why and torch.cuda.device_count() > 1 else 0
    if not why:
        try:
            torch.cuda.set_device(number)
            free = int(torch.cuda.mem_get_info(number)[0])
        except RuntimeError as error:  # the others hear of it, and need not wait
            why = last_line(error)
    if why:
        return Here("cpu", on_host._replace(no_gpu=why))
    return Here("cuda:%d" % number, on_host._replace(gpu_memory=free))


def version(torch: Any, here: Here) -> Dict[str, Any]:
    """Which NCCL it is, where there is one."""
    if here.device == "cpu":
        return {}
    found = torch.cuda.nccl.version()
    return {"nccl": ".".join(map(str, found)) if isinstance(found, tuple) else str(found)}


def _without(torch: Any, local_rank: int) -> str:
    """Why this rank has no GPU that NCCL could use."""
    if not torch.distributed.is_nccl_available():
        return "torch %s is built without NCCL" % torch.__version__
    count = torch.cuda.device_count()
    if not count:
        return "torch %s sees no GPU" % torch.__version__
    if 1 < count <= local_rank:
        return "local rank %d has no GPU: %d are visible" % (local_rank, count)
    return ""


def _host_memory() -> int:
    """Bytes that are available on this host, as Linux reckons; 1 GiB where that is not known."""
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return 1 << 30
