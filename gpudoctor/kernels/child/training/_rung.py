"""torch on one device or on all of a node, as in ``eager``; what is written meanwhile goes when this process does."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Mapping

from .. import _scratch
from ..eager import _rung as eager
from ..eager._rung import NODE, Context

__all__ = ["NODE", "Context", "Room", "gpus", "opened"]

MOST_SOCKET = 107
"""Bytes that the path of a Unix socket may have on Linux (unix(7))."""
SOCKET = "/pymp-12345678/listener-12345678"
"""What multiprocessing adds to the folder for temporary files, to name a socket."""
_OURS = "/gpudoctor-12345678"


class Room(Context):
    """As for torch, with a folder for what libraries and workers write."""

    def __init__(self, below: Context) -> None:
        super().__init__(below.torch, str(below.device), below.seed, below.devices, below.numbers)
        self.usual = tempfile.gettempdir()
        """Where temporary files are without us."""
        fits = len((self.usual + _OURS + SOCKET).encode()) <= MOST_SOCKET
        self._folder = _scratch.Folder(self.usual if fits else "/tmp")
        tempfile.tempdir = os.environ["TMPDIR"] = self._folder.path


def opened(ask: Mapping[str, Any]) -> Room:
    """Raises what the rung of torch raises."""
    return Room(eager.opened(ask))


def gpus(context: Context) -> int:
    """How many GPUs torch sees; 0 in a run on the CPU."""
    return 0 if context.on_cpu else int(context.torch.cuda.device_count())
