"""torch.distributed over ranks of one machine, with limits on every wait."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, List

from ._ranks import Me

ARRIVE = 30.0
"""Seconds that ranks wait for each other before they begin: each imports torch first."""


def joined(torch: Any, me: Me, backend: str, seconds: float) -> Any:
    """torch.distributed with a group of all ranks (``gloo``, ``nccl``), in which no wait is longer than `seconds`."""
    everyones(torch, me, "here", "")
    me.step("init_process_group")
    torch.distributed.init_process_group(
        backend,
        store=torch.distributed.PrefixStore("group", _store(torch, me)),
        rank=me.rank,
        world_size=me.count,
        timeout=timedelta(seconds=seconds),
    )
    return torch.distributed


def everyones(torch: Any, me: Me, name: str, value: str) -> List[str]:
    """What each rank gave under that name, by rank; waits for all of them. Needs no group."""
    me.step("wait for all ranks")
    store = _store(torch, me)
    store.set("%s-%d" % (name, me.rank), value)
    return [store.get("%s-%d" % (name, rank)).decode() for rank in range(me.count)]


def _store(torch: Any, me: Me) -> Any:
    store = torch.distributed.FileStore(me.store, -1)  # -1: the file is not removed with its last user
    store.set_timeout(timedelta(seconds=ARRIVE))
    return store
