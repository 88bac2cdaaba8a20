"""What the ranks of a job do together: legs, one after the other, each in groups side by side.

A leg is a part of the way that data take. ``node``: the ranks of each host among themselves (NVLink, PCIe, shared
memory). ``network``: one rank of each host, those of equal local rank together, as the rails of a fabric are wired.
``all``: everyone. The slow fabric is the one whose leg is slow.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from ._operations import OPERATIONS

_SIZES = {
    ("gloo", "standard"): (4 << 10, 1 << 20),
    ("gloo", "deep"): (4 << 10, 256 << 10, 16 << 20),
    ("nccl", "standard"): (64 << 10, 64 << 20),
    ("nccl", "deep"): (64 << 10, 1 << 20, 16 << 20, 128 << 20, 1 << 30),
}
"""Bytes, by backend and level."""
_ROOM = 8
"""How many times an operation's size must be free: given, got, and NCCL's or the reference's own."""


class Place(NamedTuple):
    """Where a rank is, and how many bytes are free on its host and on its GPU."""

    rank: int
    host: str
    local_rank: int
    memory: int
    gpu_memory: int = 0
    """0 where the rank has no GPU that NCCL could use."""
    no_gpu: str = ""
    """Why it has none."""


class Leg(NamedTuple):
    """`groups` are ranks of the job, in the order of their ranks in the group."""

    name: str
    backend: str
    groups: Sequence[Sequence[int]]
    operations: Sequence[str]
    sizes: Sequence[int]


def planned(places: Sequence[Place], ask: Mapping[str, Any]) -> List[Leg]:
    """The legs of a job, by `ask`: backend (``auto``, ``gloo``, ``nccl``), level, and legs where they are given."""
    given: Dict[str, List[List[int]]] = ask.get("legs") or {}
    groups = given or legs(places)
    on_gpus = ask["backend"] != "gloo" and all(one.gpu_memory for one in places)
    if ask["backend"] == "nccl" and not on_gpus:
        return []
    found = []
    if ask["backend"] == "auto" and on_gpus and not given and len(places) > 1:
        found.append(_cheap(places, ask["level"]))
    backend = "nccl" if on_gpus else "gloo"
    sizes = [size for size in _SIZES[backend, ask["level"]] if _ROOM * size <= _room(places, on_gpus)]
    for name, ranks in groups.items():
        operations = [one for one in OPERATIONS if max(map(len, ranks)) >= OPERATIONS[one].least]
        found.append(Leg(name, backend, ranks, operations, sizes))
    return [leg for leg in found if leg.sizes]


def legs(places: Sequence[Place]) -> Dict[str, List[List[int]]]:
    """``node``, ``network`` and ``all``, without those that are the same as one before."""
    by_host: Dict[str, List[int]] = {}
    by_local: Dict[int, List[int]] = {}
    for one in places:
        by_host.setdefault(one.host, []).append(one.rank)
        by_local.setdefault(one.local_rank, []).append(one.rank)
    found: Dict[str, List[List[int]]] = {}
    for name, groups in (
        ("node", list(by_host.values())),
        ("network", list(by_local.values()) if len(by_host) > 1 else []),
        ("all", [[one.rank for one in places]]),
    ):
        wide = [ranks for ranks in groups if len(ranks) > 1 or len(places) == 1]
        if wide and wide not in found.values():
            found[name] = wide
    return found


def without(places: Sequence[Place], backend: str) -> str:
    """The first rank that has no GPU, and why, where others have one or NCCL was asked for."""
    lacking = [one for one in places if not one.gpu_memory]
    if not lacking or backend == "gloo" or (backend == "auto" and len(lacking) == len(places)):
        return ""
    return "rank %d (host %s): %s" % (lacking[0].rank, lacking[0].host, lacking[0].no_gpu)


def _room(places: Sequence[Place], on_gpus: bool) -> int:
    """Bytes that every rank has: of its host its share, for the reference is reckoned there, and of its GPU."""
    sharing = Counter(one.host for one in places)
    least = min(one.memory // sharing[one.host] for one in places)
    return min(least, *(one.gpu_memory for one in places)) if on_gpus else least


def _cheap(places: Sequence[Place], level: str) -> Leg:
    """Whether processes of different hosts meet at all, by plain TCP: what torch itself needs before any GPU works."""
    first: Dict[str, int] = {}
    for one in places:
        first.setdefault(one.host, one.rank)
    ranks = list(first.values()) if len(first) > 1 else [one.rank for one in places]
    return Leg("network" if len(first) > 1 else "node", "gloo", [ranks], ["all_reduce"], _SIZES["gloo", level][:2])


def from_json(raw: Sequence[Any]) -> List[Leg]:
    """The plan as the store holds it."""
    return [Leg(*fields) for fields in raw]


def group_of(leg: Leg, rank: int) -> Tuple[int, ...]:
    """The group of that rank; empty where it has no part in the leg."""
    return next((tuple(ranks) for ranks in leg.groups if rank in ranks), ())
