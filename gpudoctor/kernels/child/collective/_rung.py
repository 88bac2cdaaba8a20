"""NCCL over the GPUs of this node, Gloo over two processes where there is only the CPU; one group for all kernels."""

from __future__ import annotations

import importlib.util
import os
from typing import Any, Dict, List, Mapping, Sequence

from .. import _rank, _ranks
from .._kernel import CannotRun
from . import _job, _nccl
from ._operations import OPERATIONS

_SIZES = (64 << 10, 1 << 20, 16 << 20, 128 << 20)
_SIZES_CPU = (4 << 10, 256 << 10)
_SECONDS, _SECONDS_CPU = 20.0, 4.0
"""Of one wait for another rank."""
_WHOLE, _WHOLE_CPU = 75.0, 45.0
"""Of the group's whole life."""


class Context:
    """The devices, by torch's names, one rank each."""

    def __init__(self, torch: Any, devices: Sequence[str]) -> None:
        self.torch = torch
        self.devices = devices
        self.on_cpu = "cpu" in devices
        self._ends: List[_rank.End] = []

    def told(self) -> Dict[str, Any]:
        """What it is, for the protocol."""
        return {"torch": str(self.torch.__version__), "devices": list(self.devices)}

    def ends(self) -> List[_rank.End]:
        """What became of each rank of one group that does all operations; it is started once."""
        if not self._ends:
            count = len(self.devices)
            ask = {
                "backend": "gloo" if self.on_cpu else "nccl",
                "devices": self.devices,
                "sizes": _SIZES_CPU if self.on_cpu else _SIZES,
                "seconds": _SECONDS_CPU if self.on_cpu else _SECONDS,
                "operations": [name for name, operation in OPERATIONS.items() if count >= operation.least],
            }
            environ = {"GLOO_SOCKET_IFNAME": "lo"} if self.on_cpu else _nccl.ENVIRON
            whole = _WHOLE_CPU if self.on_cpu else _WHOLE
            self._ends = _ranks.together(_job.__name__, count, ask, whole, environ)
        return self._ends

    def nccl(self) -> Dict[str, Any]:
        """Which NCCL it is, and the variables that steer it."""
        if self.on_cpu:
            return {"backend": "gloo"}
        version = self.torch.cuda.nccl.version()
        said = {"nccl": ".".join(map(str, version)) if isinstance(version, tuple) else str(version)}
        return dict(said, **{name: value for name, value in os.environ.items() if name.startswith("NCCL_")})


def opened(ask: Mapping[str, Any]) -> Context:
    """torch and its devices: two processes for ``cpu``, else all GPUs there are. No context is created here."""
    if importlib.util.find_spec("torch") is None:
        raise CannotRun("torch is not installed in this interpreter")
    import torch  # type: ignore[import-not-found,unused-ignore]

    if not torch.distributed.is_available():
        raise CannotRun("torch %s is built without torch.distributed" % torch.__version__)
    if ask["device"] == "cpu":
        return Context(torch, ("cpu", "cpu"))
    if not torch.distributed.is_nccl_available():
        raise CannotRun("torch %s is built without NCCL" % torch.__version__)
    count = torch.cuda.device_count()
    if not count:
        raise CannotRun("torch %s sees no GPU" % torch.__version__)
    return Context(torch, ["cuda:%d" % number for number in range(count)])
