"""One rank of a job whose other ranks are on other hosts, each started there by a gpudoctor of its own.

Asked with ``{"rank", "world", "local_rank", "host", "store": [address, port], "backend": "auto" | "gloo" | "nccl",
"level": "quick" (no collectives) | "standard" | "deep", "legs": {name: [[ranks]]} or {}, "canary": bool, "seconds",
"began": Unix time from which these count}``; what rank 0 is asked for holds for all. Rank 0 listens at the store's
port, any where that is 0, of its address alone where that is one of this host. Lines: ``{"listening": port}``;
``{"step": what, "seconds": limit, "leg", "backend"}`` before each step; ``{"note": {...}}``; ``{"via": {"leg",
"backend", "ways"}}``; ``{"found": {...}}`` for each operation and size; ``{"trained": {...}}`` for the canary's
training; ``{"ended": {"leg", "backend", "operation", "why", "cannot"}}`` for what was not measured; and at the end
``{"answer": {}}`` or ``{"why": ..., "cannot": bool}``.

What the ranks do together are legs, one after the other, each in groups side by side. A leg is a part of the way that
data take; the canary's training is one more, ``training``. ``node``: the ranks of each host among themselves (NVLink,
PCIe, shared memory). ``network``: one rank of each host, those of equal local rank together, as the rails of a fabric
are wired. ``all``: everyone. The slow fabric is the one whose leg is slow.
"""

from __future__ import annotations

import faulthandler
import os
import re
import sys
import time
import traceback
from collections import Counter
from datetime import timedelta
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .. import _ranks
from .._kernel import CannotRun, import_torch, last_line, no_memory, reserve_stdout, say
from ..training import _host, _model
from . import _canary, _nccl
from ._operations import ALIGNED_VALUES, OPERATIONS, Group, base_values, is_missing, max_over_ranks, measure
from ._store import Store, listening_addresses, listening_socket

_ANSWER_SECONDS = 2.0
"""Seconds that are kept for the answer."""
_COLLECTIVES_SECONDS = 15.0
"""Seconds that are kept for the collectives themselves where there are so many: imports take longer than these."""
PLAN_SECONDS = 10.0
"""Seconds that rank 0 has to tell its plan."""
_STORE_GRACE_SECONDS = 3.0
"""Seconds that rank 0 stays for the others once it is done."""
_SIZES: Dict[Tuple[str, str], Tuple[int, ...]] = {
    ("gloo", "standard"): (4 << 10, 1 << 20),
    ("gloo", "deep"): (4 << 10, 256 << 10, 16 << 20),
    ("nccl", "standard"): (64 << 10, 64 << 20),
    ("nccl", "deep"): (64 << 10, 1 << 20, 16 << 20, 128 << 20, 1 << 30),
}
"""Bytes, by backend and level."""
_MEMORY_FACTOR = 8
"""How many times an operation's size must be free: given, got, and NCCL's or the reference's own."""
_UNKNOWN_MEMORY = 1 << 30
"""Bytes of a host that does not say how much of its memory is free."""
_WAIT = {"gloo": 2.5, "nccl": 10.0}
"""Seconds of one wait for other ranks."""
_CONNECT = {"gloo": 5 * _WAIT["gloo"] + 2, "nccl": 40.0}
"""Seconds until a group is connected: Gloo takes five times its wait, and names nobody."""
_WAITS = 4
"""How many such waits an operation may take."""
TRAINING = "training"
"""The leg that is the canary's training."""
_TRAINING_SECONDS = 45.0
"""Seconds for its steps."""


class MemberRank:
    """This rank's number, its request, and its time limit."""

    def __init__(self, ask: Mapping[str, Any]) -> None:
        self.ask = ask
        self.rank = int(ask["rank"])
        self.world = int(ask["world"])
        seconds = float(ask["seconds"])
        late = time.time() - float(ask["began"])  # a busy machine takes seconds to start an interpreter
        self.until = time.monotonic() + seconds - min(max(late, 0.0), seconds / 2) - _ANSWER_SECONDS

    def left(self) -> float:
        """Seconds until the answer is due, at least 0."""
        return max(0.0, self.until - time.monotonic())

    def step(self, what: str, seconds: float = float("inf"), leg: Optional[Leg] = None) -> None:
        """Report the step that begins now, and how many seconds it may take."""
        where = {"leg": leg.name, "backend": leg.backend} if leg else {}
        say(step=what, seconds=min(seconds, self.left() + _ANSWER_SECONDS), **where)


def main(ask: Mapping[str, Any]) -> None:
    """Run this rank's process: report what was measured or why nothing was, then exit with status 0."""
    _ranks.die_with_parent(os.getppid())
    reserve_stdout()
    faulthandler.enable()
    try:
        _take_part(MemberRank(ask))
    except CannotRun as error:
        say(why=str(error), cannot=True)
    except BaseException as error:  # whatever it is, it is this rank's answer
        traceback.print_exc()
        why = reason(error)
        say(why="failed: " + why, cannot=no_memory(why))
    sys.stderr.flush()
    os._exit(0)  # a crash while libraries are torn down is no symptom of the patient


def _take_part(me: MemberRank) -> None:
    """Open (rank 0) or reach the job's store, run the plan and report the end; leaves the store in any case."""
    address, port = me.ask["store"]
    listener = None
    if not me.rank:
        me.step("listen at port %d" % port)
        listener = listening_socket(address, port)
        port = listener.getsockname()[1]
        say(listening=port)
    me.step("import torch")
    torch = _import_torch()
    me.step("store at %s port %d" % (address, port))
    store = Store(torch, address, port, me.rank, me.world, me.until, listener)
    try:
        _run_plan(torch, me, store)
        say(answer={})
    finally:
        store.leave(_STORE_GRACE_SECONDS)


def _run_plan(torch: Any, me: MemberRank, store: Store) -> None:
    """Report this rank's device, exchange places with all ranks, and run the legs that rank 0 plans."""
    device, place = device_and_place(torch, me.ask)
    say(note={"torch": str(torch.__version__), "device": device})
    if device != "cpu":
        say(note={"nccl": _nccl.version(torch)})
    me.step("wait for all ranks")
    left = me.left()
    places = [Place(*fields) for fields in store.gather(place, max(left / 2, left - _COLLECTIVES_SECONDS))]
    plan = None
    if not me.rank:
        plan = make_plan(places, me.ask)
        lacking = missing_gpu_message(places, me.ask["backend"])
        if lacking:
            report_unmeasured(Leg("all", "nccl", (), (), ()), "", lacking, cannot=True)
    LegRunner(torch, me, store, device).run_legs(plan_from_json(store.from_rank_0("plan", plan, PLAN_SECONDS)))


def _import_torch() -> Any:
    """torch, limited to one CPU thread; raises `CannotRun` if it or torch.distributed is missing."""
    torch = import_torch()
    if not torch.distributed.is_available():
        raise CannotRun("torch %s is built without torch.distributed" % torch.__version__)
    torch.set_num_threads(1)
    return torch


# ---- What this rank has to work with ----


class Place(NamedTuple):
    """Host and local rank of a rank, and the bytes that are free on its host and its GPU."""

    rank: int
    host: str
    local_rank: int
    memory: int
    gpu_memory: int = 0
    """0 where the rank has no GPU that NCCL could use."""
    no_gpu: str = ""
    """Why it has none."""


def device_and_place(torch: Any, ask: Mapping[str, Any]) -> Tuple[str, Place]:
    """This rank's device, ``cuda:3`` or ``cpu``, and its place; creates a CUDA context only where NCCL may be used."""
    rank, host, local = int(ask["rank"]), str(ask["host"]), int(ask["local_rank"])
    on_host = Place(rank, host, local, _host.free_memory() or _UNKNOWN_MEMORY)
    why = "Gloo was asked for" if ask["backend"] == "gloo" else _why_no_gpu(torch, local)
    number = local if not why and torch.cuda.device_count() > 1 else 0
    if not why:
        try:
            torch.cuda.set_device(number)
            free = int(torch.cuda.mem_get_info(number)[0])
        except RuntimeError as error:  # the others hear of it, and need not wait
            why = last_line(error)
    if why:
        return "cpu", on_host._replace(no_gpu=why)
    return "cuda:%d" % number, on_host._replace(gpu_memory=free)


def _why_no_gpu(torch: Any, local_rank: int) -> str:
    """Why this rank has no GPU that NCCL could use; empty if it has one."""
    if not torch.distributed.is_nccl_available():
        return "torch %s is built without NCCL" % torch.__version__
    count = torch.cuda.device_count()
    if not count:
        return "torch %s sees no GPU" % torch.__version__
    if 1 < count <= local_rank:
        return "local rank %d has no GPU: %d are visible" % (local_rank, count)
    return ""


# ---- The plan, which rank 0 makes for all ----


class Leg(NamedTuple):
    """One leg: groups of ranks (in group order) that work side by side, with backend, operations and sizes in bytes."""

    name: str
    backend: str
    groups: Sequence[Sequence[int]]
    operations: Sequence[str]
    sizes: Sequence[int]


def make_plan(places: Sequence[Place], ask: Mapping[str, Any]) -> List[Leg]:
    """The legs of a job for the request's backend, level and legs; first, for ``auto`` on GPUs and usual legs, a short
    one of Gloo, and at the end the canary's if it is asked for.

    Empty if NCCL is asked for and a rank has no GPU; a leg without a size that fits into memory is left out.
    """
    given: Dict[str, List[List[int]]] = ask.get("legs") or {}
    groups = given or legs(places)
    on_gpus = ask["backend"] != "gloo" and all(place.gpu_memory for place in places)
    if ask["backend"] == "nccl" and not on_gpus:
        return []
    planned_legs = []
    if ask["backend"] == "auto" and on_gpus and not given and len(places) > 1 and ask["level"] != "quick":
        planned_legs.append(_tcp_leg(places, ask["level"]))
    backend = "nccl" if on_gpus else "gloo"
    sizes = [
        size
        for size in _SIZES.get((backend, ask["level"]), ())
        if _MEMORY_FACTOR * size <= _bytes_per_rank(places, on_gpus)
    ]
    for name, ranks in groups.items():
        operations = [operation for operation in OPERATIONS if max(map(len, ranks)) >= OPERATIONS[operation].least]
        planned_legs.append(Leg(name, backend, ranks, operations, sizes))
    if ask.get("canary"):
        planned_legs += _training_leg(places, backend)
    return [leg for leg in planned_legs if leg.sizes]


def _training_leg(places: Sequence[Place], backend: str) -> List[Leg]:
    """The canary's leg over all ranks, as a list; its one size is the sequences of a step, as many as fit.

    Empty, and reported as not measured, where none fits.
    """
    on_gpus = backend == "nccl"
    try:
        size = _model.fit_samples(
            _model.TIMED if on_gpus else _model.TIMED_CPU, _bytes_per_rank(places, on_gpus) // _MEMORY_FACTOR
        )
    except CannotRun as error:
        report_unmeasured(Leg(TRAINING, backend, (), (), ()), "", str(error), cannot=True)
        return []
    return [Leg(TRAINING, backend, [[place.rank for place in places]], [_canary.OPERATION], [size.samples])]


def legs(places: Sequence[Place]) -> Dict[str, List[List[int]]]:
    """Groups of ranks by leg: ``node``, ``network``, ``all``; without groups of one rank, unless the job has only one.
    A leg without groups, or with those of an earlier leg, is left out.
    """
    by_host: Dict[str, List[int]] = {}
    by_local: Dict[int, List[int]] = {}
    for place in places:
        by_host.setdefault(place.host, []).append(place.rank)
        by_local.setdefault(place.local_rank, []).append(place.rank)
    legs_by_name: Dict[str, List[List[int]]] = {}
    for name, groups in (
        ("node", list(by_host.values())),
        ("network", list(by_local.values()) if len(by_host) > 1 else []),
        ("all", [[place.rank for place in places]]),
    ):
        wide = [ranks for ranks in groups if len(ranks) > 1 or len(places) == 1]
        if wide and wide not in legs_by_name.values():
            legs_by_name[name] = wide
    return legs_by_name


def missing_gpu_message(places: Sequence[Place], backend: str) -> str:
    """The first rank without a GPU and why, if others have one or NCCL was asked for; else empty."""
    lacking = [place for place in places if not place.gpu_memory]
    if not lacking or backend == "gloo" or (backend == "auto" and len(lacking) == len(places)):
        return ""
    return "rank %d (host %s): %s" % (lacking[0].rank, lacking[0].host, lacking[0].no_gpu)


def _bytes_per_rank(places: Sequence[Place], on_gpus: bool) -> int:
    """Bytes that every rank has free: the least share of a host's memory, on GPUs also of GPU memory."""
    sharing = Counter(place.host for place in places)
    least = min(place.memory // sharing[place.host] for place in places)
    return min(least, *(place.gpu_memory for place in places)) if on_gpus else least


def _tcp_leg(places: Sequence[Place], level: str) -> Leg:
    """A short Gloo leg over one rank of each host (all ranks on a lone host): whether processes meet by plain TCP."""
    first: Dict[str, int] = {}
    for place in places:
        first.setdefault(place.host, place.rank)
    ranks = list(first.values()) if len(first) > 1 else [place.rank for place in places]
    return Leg("network" if len(first) > 1 else "node", "gloo", [ranks], ["all_reduce"], _SIZES["gloo", level][:2])


def plan_from_json(raw: Sequence[Any]) -> List[Leg]:
    """The legs from the lists that the store holds."""
    return [Leg(*fields) for fields in raw]


def group_of(leg: Leg, rank: int) -> Tuple[int, ...]:
    """The ranks of the leg's group that this rank is in; empty if it is in none."""
    return next((tuple(ranks) for ranks in leg.groups if rank in ranks), ())


# ---- One leg after the other, each in a process group of its own; what is measured is said at once ----


class LegRunner:
    """Runs the legs on one rank, with what they share: torch, store, device, reference values."""

    def __init__(self, torch: Any, me: MemberRank, store: Store, device: str) -> None:
        self._torch = torch
        self._me = me
        self._store = store
        self._device = device
        self._numbers: Any = None

    def run_legs(self, legs: Sequence[Leg]) -> None:
        """Run all legs in order, waiting for all ranks before each; a failed leg is reported and the next is tried."""
        largest_size = max((size for leg in legs if leg.name != TRAINING for size in leg.sizes), default=0)
        self._numbers = base_values(self._torch, largest_size // 4 + ALIGNED_VALUES * self._me.world)
        patience = self._me.left() / 2
        for at, leg in enumerate(legs):
            self._me.step("wait for all ranks: " + _leg_label(leg), leg=leg)
            self._store.barrier("leg-%d" % at, patience)
            patience = _CONNECT[leg.backend] + _WAIT[leg.backend] * _WAITS
            ranks = group_of(leg, self._me.rank)
            if not ranks:
                continue
            try:
                self._run_leg(leg, ranks, time.monotonic() + self._me.left() / (len(legs) - at))
            except Exception as error:
                traceback.print_exc()
                report_unmeasured(leg, "", reason(error), cannot=no_memory(reason(error)))
                self._store.report_failure("leg-%d" % (at + 1))

    def _run_leg(self, leg: Leg, ranks: Tuple[int, ...], until: float) -> None:
        """Run this rank's part in its group of a leg, in a process group that exists only for the leg."""
        self._me.step("init_process_group " + _leg_label(leg), _CONNECT[leg.backend], leg)
        os.write(2, ("\n%s%s %s\n" % (_nccl.MARKER, leg.backend, leg.name)).encode())
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
            group = Group(self._torch, dist, rank, len(ranks), device)
            if leg.name == TRAINING:
                self._train(leg, group)
            else:
                self._run_operations(leg, group, ranks[0], until)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()

    def _train(self, leg: Leg, group: Group) -> None:
        """Run this rank's part in the canary's training and report its times."""
        self._me.step("%s %s" % (_canary.OPERATION, _leg_label(leg)), _CONNECT[leg.backend] + _TRAINING_SECONDS, leg)
        gpu = "" if group.device.type == "cpu" else self._torch.cuda.get_device_name(group.device)
        say(trained=dict(_canary.train(group, leg.sizes[0]), backend=leg.backend, gpu=gpu))

    def _run_operations(self, leg: Leg, group: Group, first: int, until: float) -> None:
        """Measure and report every operation, all of them at the smallest size first, until any rank is past `until`.

        An operation that torch's back end lacks is reported as not measured.
        """
        self._me.step("first collective " + _leg_label(leg), _CONNECT[leg.backend], leg)
        max_over_ranks(group, 0.0)
        if leg.backend == "gloo":
            say(via={"leg": leg.name, "backend": leg.backend, "ways": listening_addresses(self._store.listens)})
        for name, size in (
            (name, size) for size in leg.sizes for name in leg.operations if group.ranks >= OPERATIONS[name].least
        ):
            if max_over_ranks(group, float(time.monotonic() > until)):
                return report_unmeasured(leg, "", "the time for it was over", cannot=True)
            self._me.step("%s %s, %s" % (name, _size_label(size), _leg_label(leg)), _WAITS * _WAIT[leg.backend], leg)
            where = {"leg": leg.name, "backend": leg.backend, "operation": name, "group": first, "ranks": group.ranks}
            try:
                say(found=dict(where, **measure(group, name, size, self._numbers)))
            except RuntimeError as error:
                if not is_missing(error):
                    raise
                report_unmeasured(leg, name, reason(error), cannot=True)
        return None


def report_unmeasured(leg: Leg, operation: str, why: str, cannot: bool) -> None:
    """Report that an operation, or the rest of a leg (empty `operation`), was not measured, and why; `cannot`: that is
    no evidence against the links.
    """
    say(
        ended={
            "leg": leg.name,
            "backend": leg.backend,
            "operation": operation,
            "why": why,
            "cannot": cannot,
        }
    )


def reason(error: BaseException) -> str:
    """Type and message of the error on one line, without Gloo's source position and hints for log readers."""
    text = re.sub(r"\[/\S+\.(?:cc|cpp|h):\d+\] ?", "", last_line(error))
    return text.split(" This is typically caused")[0]


def _leg_label(leg: Leg) -> str:
    """Backend and name of a leg: ``nccl, network``."""
    return "%s, %s" % (leg.backend, leg.name)


def _size_label(size: int) -> str:
    """Bytes as ``64 KiB``, in MiB or GiB from one of these on; rounded down."""
    for unit, shift in (("GiB", 30), ("MiB", 20)):
        if size >> shift:
            return "%d %s" % (size >> shift, unit)
    return "%d KiB" % (size >> 10)
