"""One process, DataParallel and DistributedDataParallel: the same gradients, and how much faster than one device."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from .. import _ranks
from .._kernel import CannotRun, Outcome, Spec
from ..collective import _nccl
from ..eager._rung import Context
from . import _replicas

KERNELS = (
    Spec(
        "readiness.parallel",
        "DDP on all devices",
        "%",
        "50 M parameters, fp32",
        seconds=100.0,
        scope="node",
    ),
)
_PATIENCE = 45.0
"""Seconds for the ranks of one way."""
_CPU_RANKS = 2
_ON_CPU = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def run(context: Context, _: Spec) -> Outcome:
    """Each way in processes of its own, so that none finds the contexts or the memory of another."""
    count = _CPU_RANKS if context.on_cpu else len(context.devices)
    if count < 2:
        raise CannotRun("it needs two GPUs that nobody uses")
    _replicas.require(context.torch, context.on_cpu)
    (alone,) = _way(context, "alone", 1, count)
    ranks = _way(context, "together", count, count)
    found = figures(alone, ranks)
    wrong = [one for one in (alone, *ranks) for name in one if name.endswith("_differ") and one[name]]
    return Outcome(
        value=found["efficiency"],
        right=not wrong,
        differ=_total((alone, *ranks), "_differ"),
        compared=_total((alone, *ranks), "_compared"),
        words=words(found, count, told_wrong(alone, ranks, ["GPU %d" % number for number in context.numbers])),
        advice=advice(found),
        details=dict(found, devices=count),
    )


def figures(alone: Dict[str, Any], ranks: List[Dict[str, Any]]) -> Dict[str, float]:
    """Samples a second of each way, and what the last makes of its devices, in % of as many times one."""
    ddp, apart = (sum(one[name] for one in ranks) for name in ("ddp", "apart"))
    whole = len(ranks) * alone["one"]
    return {
        "one": alone["one"],
        "data_parallel": alone["data_parallel"],
        "ddp": ddp,
        "without_exchange": apart,
        "efficiency": 100 * ddp / whole,
        "efficiency_without_exchange": 100 * apart / whole,
    }


def told_wrong(alone: Dict[str, Any], ranks: List[Dict[str, Any]], names: Sequence[str] = ()) -> str:
    """Which way gives other gradients than float64, on which rank; `names` are those of their devices."""
    found = []
    for way, name in (("one", "one device"), ("data_parallel", "DataParallel")):
        if alone[way + "_differ"]:
            found.append("by %s %s" % (name, alone[way + "_words"]))
    for at, one in enumerate(ranks):
        if one["ddp_differ"]:
            where = names[at] if names else "rank %d" % at
            found.append("by DistributedDataParallel on %s %s" % (where, one["ddp_words"]))
    return "; ".join(found)


def words(found: Dict[str, float], count: int, wrong: str) -> str:
    """What the figures mean, and whether the gradients are those of one process."""
    same = "Gradients are wrong: " + wrong if wrong else "All three give the gradients of one batch in float64"
    return (
        "%s. One device trains %.0f samples/s, DataParallel on %d %.0f, DistributedDataParallel %.0f: %.0f %% of %d"
        " times one." % (same, found["one"], count, found["data_parallel"], found["ddp"], found["efficiency"], count)
    )


def advice(found: Dict[str, float]) -> str:
    """From samples a second of each way and what the gradients' exchange takes of it."""
    said = []
    if found["ddp"] > found["data_parallel"]:
        said.append("Use DistributedDataParallel, one process a GPU (torchrun), not DataParallel.")
    lost = 100 - found["efficiency"]
    exchange = found["efficiency_without_exchange"] - found["efficiency"]
    if lost >= 15:
        said.append(_EXCHANGE if exchange >= lost / 2 else _SHARED)
    return " ".join(said) or "Nothing to do."


_EXCHANGE = (
    "The exchange of gradients takes most of what is lost: larger batches or accumulation with no_sync(), gradients"
    " in bf16 (register_comm_hook(None, bf16_compress_hook)); gpudoctor bench --kernel nccl measures the links."
)
_SHARED = (
    "Most is lost without any exchange: the devices share what each needs. Look at CPU cores per process"
    " (OMP_NUM_THREADS), power and clocks with all GPUs busy, and the PCIe switches they share."
)


def _way(context: Context, way: str, ranks: int, devices: int) -> List[Dict[str, Any]]:
    ask = {"way": way, "devices": devices, "cpu": context.on_cpu, "seed": context.seed}
    environ = _ON_CPU if context.on_cpu else _nccl.ENVIRON
    ends = _ranks.together(_replicas.__name__, ranks, ask, _PATIENCE, environ)
    bad = _ranks.faults(ends)
    if ranks > 1 and not context.on_cpu and bad:
        raise _nccl.failure(bad)
    return _ranks.answers(ends)


def _total(told: Any, suffix: str) -> int:
    return sum(value for one in told for name, value in one.items() if name.endswith(suffix))
