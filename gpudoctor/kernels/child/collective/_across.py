"""One rank of a job whose other ranks are on other hosts, each started there by a gpudoctor of its own.

Asked with ``{"rank", "world", "local_rank", "host", "store": [address, port], "backend": "auto" | "gloo" | "nccl",
"level": "standard" | "deep", "legs": {name: [[ranks]]} or {}, "seconds"}``; what rank 0 is asked for holds for all.
Rank 0 listens at the store's port, any where that is 0, of its address alone where that is one of this host. Lines:
``{"listening": port}``; ``{"step": what, "seconds": limit, "leg", "backend"}`` before each step; ``{"note": {...}}``;
``{"via": {"leg", "backend", "ways"}}``; ``{"found": {...}}`` for each operation and size; ``{"ended": {"leg",
"backend", "operation", "why", "cannot"}}`` for what was not measured; and at the end ``{"answer": {}}`` or ``{"why":
..., "cannot": bool}``.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time
import traceback
from typing import Any, Mapping, Optional

from .. import _protocol, _ranks
from .._kernel import CannotRun, no_memory
from . import _plan
from ._device import place, version
from ._legs import PLAN, Walk, ended, said
from ._store import Store, listening

_ANSWER = 2.0
"""Seconds that are kept for the answer."""
_REST = 15.0
"""Seconds that are kept for the collectives themselves where there are so many: imports take longer than these."""
_LINGER = 3.0
"""Seconds that rank 0 stays for the others once it is done."""


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

    def step(self, what: str, seconds: float = float("inf"), leg: Optional[_plan.Leg] = None) -> None:
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
        traceback.print_exc()
        why = said(error)
        _protocol.say(why="failed: " + why, cannot=no_memory(why))
    sys.stderr.flush()
    os._exit(0)  # a crash while libraries are torn down is no symptom of the patient


def _member(me: Me) -> None:
    address, port = me.ask["store"]
    listener = None
    if not me.rank:
        me.step("listen at port %d" % port)
        listener = listening(address, port)
        port = listener.getsockname()[1]
        _protocol.say(listening=port)
    me.step("import torch")
    torch = _imported()
    me.step("store at %s port %d" % (address, port))
    store = Store(torch, address, port, me.rank, me.world, me.until, listener)
    try:
        _together(torch, me, store)
        _protocol.say(answer={})
    finally:
        store.leave(_LINGER)


def _together(torch: Any, me: Me, store: Store) -> None:
    """Say where this rank is and what it has, hear what rank 0 plans for all, and do it."""
    here = place(torch, me.ask)
    _protocol.say(note=dict(version(torch, here), torch=str(torch.__version__), device=here.device))
    me.step("wait for all ranks")
    left = me.left()
    places = [_plan.Place(*fields) for fields in store.gathered(here.told, max(left / 2, left - _REST))]
    plan = None
    if not me.rank:
        plan = _plan.planned(places, me.ask)
        lacking = _plan.without(places, me.ask["backend"])
        if lacking:
            ended(_plan.Leg("all", "nccl", (), (), ()), "", lacking, cannot=True)
    Walk(torch, me, store, here.device).through(_plan.from_json(store.told("plan", plan, PLAN)))


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
