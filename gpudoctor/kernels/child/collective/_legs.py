"""One leg after the other, each in a process group of its own; what is found is said at once."""

from __future__ import annotations

import os
import re
import time
import traceback
from datetime import timedelta
from typing import Any, Iterator, Sequence, Tuple

from .. import _protocol
from .._kernel import no_memory
from ._measure import EVEN, largest, measured
from ._nccl_log import MARKER
from ._operations import OPERATIONS, Group, base
from ._plan import Leg, group_of
from ._sockets import listens_at
from ._store import Store

_WAIT = {"gloo": 2.5, "nccl": 10.0}
"""Seconds of one wait for other ranks."""
_CONNECT = {"gloo": 5 * _WAIT["gloo"] + 2, "nccl": 40.0}
"""Seconds until a group is connected: Gloo takes five times its wait, and names nobody."""
_WAITS = 4
"""How many such waits an operation may take."""
PLAN = 10.0
"""Seconds that rank 0 has to tell its plan."""


class Walk:
    """What all legs have in common on one rank. `me` is its `Me`."""

    def __init__(self, torch: Any, me: Any, store: Store, device: str) -> None:
        self._torch = torch
        self._me = me
        self._store = store
        self._device = device
        self._numbers: Any = None

    def through(self, legs: Sequence[Leg]) -> None:
        """All legs, all ranks together; one that fails on some ranks keeps nobody from the next."""
        largest_size = max((size for leg in legs for size in leg.sizes), default=0)
        self._numbers = base(self._torch, largest_size // 4 + EVEN * self._me.world)
        patience = self._me.left() / 2
        for at, leg in enumerate(legs):
            self._me.step("wait for all ranks: " + _named(leg), leg=leg)
            self._store.meet("leg-%d" % at, patience)
            patience = _CONNECT[leg.backend] + _WAIT[leg.backend] * _WAITS
            ranks = group_of(leg, self._me.rank)
            if not ranks:
                continue
            try:
                self._leg(leg, ranks, time.monotonic() + self._me.left() / (len(legs) - at))
            except Exception as error:
                traceback.print_exc()
                ended(leg, "", said(error), cannot=no_memory(said(error)))
                self._store.failed("leg-%d" % (at + 1))

    def _leg(self, leg: Leg, ranks: Tuple[int, ...], until: float) -> None:
        """This rank's part in one group of a leg. The group is torch's default one while it lasts."""
        self._me.step("init_process_group " + _named(leg), _CONNECT[leg.backend], leg)
        os.write(2, ("\n%s%s %s\n" % (MARKER, leg.backend, leg.name)).encode())
        dist = self._torch.distributed
        rank = ranks.index(self._me.rank)
        dist.init_process_group(
            leg.backend,
            store=dist.PrefixStore("%s-%s-%d" % (leg.backend, leg.name, ranks[0]), self._store.torchs),
            rank=rank,
            world_size=len(ranks),
            timeout=timedelta(seconds=_WAIT[leg.backend]),
        )
        try:
            device = self._torch.device(self._device if leg.backend == "nccl" else "cpu")
            self._sweep(leg, Group(self._torch, dist, rank, len(ranks), device), ranks[0], until)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()

    def _sweep(self, leg: Leg, group: Group, first: int, until: float) -> None:
        """Every operation at the smallest size first: where time is short, each has something."""
        self._me.step("first collective " + _named(leg), _CONNECT[leg.backend], leg)
        largest(group, 0.0)
        if leg.backend == "gloo":
            _protocol.say(via={"leg": leg.name, "backend": leg.backend, "ways": listens_at(self._store.listens)})
        for name, size in _cases(leg, group.ranks):
            if largest(group, float(time.monotonic() > until)):
                return ended(leg, "", "the time for it was over", cannot=True)
            self._me.step("%s %s, %s" % (name, _words(size), _named(leg)), _WAITS * _WAIT[leg.backend], leg)
            where = {"leg": leg.name, "backend": leg.backend, "operation": name, "group": first, "ranks": group.ranks}
            try:
                _protocol.say(found=dict(where, **measured(group, name, size, self._numbers)))
            except (RuntimeError, NotImplementedError) as error:
                if "support" not in str(error):
                    raise
                ended(leg, name, said(error), cannot=True)  # Gloo of an older torch
        return None


def ended(leg: Leg, operation: str, why: str, cannot: bool) -> None:
    """Say that an operation, or the rest of a leg, was not measured."""
    _protocol.say(ended={"leg": leg.name, "backend": leg.backend, "operation": operation, "why": why, "cannot": cannot})


def said(error: BaseException) -> str:
    """What an error says, without where in Gloo's source it is from and what it adds for whoever reads a log."""
    words = re.sub(r"\[/\S+\.(?:cc|cpp|h):\d+\] ?", "", _protocol.last_line(error))
    return words.split(" This is typically caused")[0]


def _cases(leg: Leg, count: int) -> Iterator[Tuple[str, int]]:
    return ((name, size) for size in leg.sizes for name in leg.operations if count >= OPERATIONS[name].least)


def _named(leg: Leg) -> str:
    return "%s, %s" % (leg.backend, leg.name)


def _words(size: int) -> str:
    """``64 KiB``."""
    for unit, shift in (("GiB", 30), ("MiB", 20)):
        if size >> shift:
            return "%d %s" % (size >> shift, unit)
    return "%d KiB" % (size >> 10)
