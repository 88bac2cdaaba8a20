"""One rank of a job whose other ranks are on other hosts, each started there by a gpudoctor of its own.

Asked with ``{"rank", "world", "local_rank", "host", "store": [address, port], "backend": "auto" | "gloo" | "nccl",
"level": "standard" | "deep", "legs": {name: [[ranks]]} or {}, "seconds"}``; what rank 0 is asked for holds for all.
Rank 0 listens at the store's port, any where that is 0. Lines: ``{"listening": port}``; ``{"step": what, "seconds":
limit, "leg", "backend"}`` before each step; ``{"note": {...}}``; ``{"via": {"leg", "backend", "ways"}}``; ``{"found":
{...}}`` for each operation and size; ``{"ended": {"leg", "backend", "operation", "why", "cannot"}}`` for what was not
measured; and at the end ``{"answer": {}}`` or ``{"why": ..., "cannot": bool}``.
"""

from __future__ import annotations

import faulthandler
import os
import re
import socket
import sys
import time
import traceback
from datetime import timedelta
from typing import Any, Iterator, Mapping, Optional, Sequence, Tuple

from .. import _protocol, _ranks
from .._kernel import CannotRun, no_memory
from . import _plan
from ._device import place, version
from ._measure import largest, measured
from ._nccl_log import MARKER
from ._operations import OPERATIONS, Group, base
from ._sockets import listens_at
from ._store import Store, listening

_WAIT = {"gloo": 2.5, "nccl": 10.0}
"""Seconds of one wait for other ranks. Gloo takes five times as many to connect, and names nobody."""
_CONNECT = {"gloo": 5 * _WAIT["gloo"] + 2, "nccl": 40.0}
_ANSWER = 2.0
"""Seconds that are kept for the answer."""
_REST = 15.0
"""Seconds that are kept for the collectives themselves where there are so many: imports take longer than these."""
_LINGER = 3.0
"""Seconds that rank 0 stays for the others once it is done."""
_EACH = 32


class Me:
    """What this rank knows of itself, and how long it has."""

    def __init__(self, ask: Mapping[str, Any]) -> None:
        self.ask = ask
        self.rank = int(ask["rank"])
        self.world = int(ask["world"])
        self.until = time.monotonic() + float(ask["seconds"]) - _ANSWER

    def left(self) -> float:
        """Seconds until the answer is due."""
        return max(0.0, self.until - time.monotonic())

    def step(self, what: str, seconds: float = 1e9, leg: Optional[_plan.Leg] = None) -> None:
        """Say what is done next, and how long it may take."""
        where = {"leg": leg.name, "backend": leg.backend} if leg else {}
        _protocol.say(step=what, seconds=min(seconds, self.left() + _ANSWER), **where)


def main(ask: Mapping[str, Any]) -> None:
    """Be one rank: say what was measured, or why nothing was."""
    _ranks.end_with(os.getppid())
    _protocol.begin()
    faulthandler.enable()
    try:
        _member(Me(ask))
    except CannotRun as error:
        _protocol.say(why=str(error), cannot=True)
    except BaseException as error:  # whatever it is, it is this rank's answer
        why = _why(error)
        traceback.print_exc()
        _protocol.say(why="failed: " + why, cannot=no_memory(why))
    sys.stderr.flush()
    os._exit(0)  # a crash while libraries are torn down is no symptom of the patient


def _member(me: Me) -> None:
    address, port = me.ask["store"]
    listener = None if me.rank else listening(port)
    if listener:
        port = listener.getsockname()[1]
        _protocol.say(listening=port)
    me.step("import torch")
    torch = _imported()
    store = _joined(torch, me, address, port, listener)
    here = place(torch, me.ask)
    _protocol.say(note=dict(version(torch, here), torch=str(torch.__version__), device=here.device))
    try:
        me.step("wait for all ranks")
        left = me.left()
        places = [_plan.Place(*fields) for fields in store.gathered(here.told, max(left / 2, left - _REST))]
        legs = _plan.planned(places, me.ask) if not me.rank else None
        if not me.rank and _plan.without(places):
            _ended(_plan.Leg("all", "nccl", (), (), ()), "", _plan.without(places), cannot=True)
        legs = _plan.from_json(store.told("plan", legs, _CONNECT["gloo"]))
        _walk(torch, me, store, legs, here.device)
        _protocol.say(answer={})
    finally:
        store.leave(_LINGER)


def _imported() -> Any:
    try:
        import torch  # type: ignore[import-not-found,unused-ignore]
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise CannotRun("torch is not installed in this interpreter") from None
    if not torch.distributed.is_available():
        raise CannotRun("torch %s is built without torch.distributed" % torch.__version__)
    torch.set_num_threads(1)
    return torch


def _joined(torch: Any, me: Me, address: str, port: int, listener: Optional[socket.socket]) -> Store:
    me.step("store at %s port %d" % (address, port))
    return Store(torch, address, port, me.rank, me.world, me.until, listener)


def _walk(torch: Any, me: Me, store: Store, legs: Sequence[_plan.Leg], device: str) -> None:
    """One leg after the other, all ranks together; one that fails on some ranks keeps nobody from the next."""
    numbers = base(torch, max([_EACH * me.world, *(size // 4 for leg in legs for size in leg.sizes)]))
    patience = me.left() / 2
    for at, leg in enumerate(legs):
        me.step("wait for all ranks: %s, %s" % (leg.backend, leg.name), leg=leg)
        store.meet("%d" % at, patience)
        patience = _CONNECT[leg.backend] * 1.5
        group = _plan.group_of(leg, me.rank)
        if not group:
            continue
        until = time.monotonic() + me.left() / (len(legs) - at)
        try:
            _leg(torch, me, store, leg, group, device if leg.backend == "nccl" else "cpu", numbers, until)
        except Exception as error:
            traceback.print_exc()
            why = _why(error)
            _ended(leg, "", why, cannot=no_memory(why))
            store.failed()


def _leg(
    torch: Any,
    me: Me,
    store: Store,
    leg: _plan.Leg,
    ranks: Tuple[int, ...],
    device: str,
    numbers: Any,
    until: float,
) -> None:
    """This rank's part in one group of a leg. The group is torch's default one while it lasts."""
    dist = torch.distributed
    place = "%s, %s" % (leg.backend, leg.name)
    me.step("init_process_group " + place, _CONNECT[leg.backend], leg)
    os.write(2, ("\n%s%s %s\n" % (MARKER, leg.backend, leg.name)).encode())
    mine = dist.PrefixStore("%s-%s-%d" % (leg.backend, leg.name, ranks[0]), store.torchs)
    wait = timedelta(seconds=_WAIT[leg.backend])
    dist.init_process_group(leg.backend, store=mine, rank=ranks.index(me.rank), world_size=len(ranks), timeout=wait)
    try:
        group = Group(torch, dist, ranks.index(me.rank), len(ranks), torch.device(device))
        me.step("first collective " + place, _CONNECT[leg.backend], leg)
        largest(group, 0.0)
        if leg.backend == "gloo":
            _protocol.say(via={"leg": leg.name, "backend": leg.backend, "ways": listens_at()})
        for name, size in _sweep(leg, len(ranks)):
            if largest(group, float(time.monotonic() > until)):
                return _ended(leg, "", "the time for it was over", cannot=True)
            me.step("%s %s, %s" % (name, _words(size), place), 4 * _WAIT[leg.backend], leg)
            _one(leg, group, ranks, name, size, numbers)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _one(leg: _plan.Leg, group: Group, ranks: Tuple[int, ...], name: str, size: int, numbers: Any) -> None:
    where = {"leg": leg.name, "backend": leg.backend, "operation": name, "group": ranks[0], "ranks": len(ranks)}
    try:
        _protocol.say(found=dict(where, **measured(group, name, size, numbers)))
    except (RuntimeError, NotImplementedError) as error:
        if "support" not in str(error):
            raise
        _ended(leg, name, _why(error), cannot=True)  # Gloo of an older torch


def _sweep(leg: _plan.Leg, count: int) -> Iterator[Tuple[str, int]]:
    """Every operation at the smallest size first: where time is short, each has something."""
    for size in leg.sizes:
        for name in leg.operations:
            if count >= OPERATIONS[name].least:
                yield name, size


def _ended(leg: _plan.Leg, operation: str, why: str, cannot: bool) -> None:
    _protocol.say(ended={"leg": leg.name, "backend": leg.backend, "operation": operation, "why": why, "cannot": cannot})


def _why(error: BaseException) -> str:
    """What an error says, without where in Gloo's source it is from and what it adds for whoever reads a log."""
    said = re.sub(r"\[/\S+\.(?:cc|cpp|h):\d+\] ?", "", _protocol.last_line(error))
    return said.split(" This is typically caused")[0]


def _words(size: int) -> str:
    """``64 KiB``."""
    for unit, shift in (("GiB", 30), ("MiB", 20)):
        if size >> shift:
            return "%d %s" % (size >> shift, unit)
    return "%d KiB" % (size >> 10)
