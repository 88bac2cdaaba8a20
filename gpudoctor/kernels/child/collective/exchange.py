"""Collective operations between the GPUs of this node: every value right, and how fast."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from .._kernel import CannotRun, Outcome, Spec
from .._ranks import End, faults
from . import Context, _nccl
from ._operations import OPERATIONS, bandwidths

_PREFIX = "nccl."
KERNELS = tuple(
    Spec(_PREFIX + name, "NCCL " + operation.title, "GB/s", "128 MiB", seconds=90.0, scope="node")
    for name, operation in OPERATIONS.items()
)


def run(context: Context, spec: Spec) -> Outcome:
    """Check and time one collective over the node's GPUs; value: bus bandwidth in GB/s at the largest size.

    Raises `CannotRun` for too few GPUs or an operation that torch lacks, and what `why` returns where ranks failed.
    """
    name, count = spec.id[len(_PREFIX) :], len(context.devices)
    if count < OPERATIONS[name].least:
        raise CannotRun("needs two GPUs")
    ends = context.ends()
    if not all(name in end.notes for end in ends):
        raise why(ends, name)
    results = [end.notes[name] for end in ends]
    if isinstance(results[0], str):
        raise CannotRun(results[0])
    return outcome(name, results, context.nccl())


def outcome(name: str, ranks: List[List[Dict[str, Any]]], nccl: Mapping[str, Any]) -> Outcome:
    """The outcome of an operation from every rank's results at each size; no value for a single rank."""
    sizes = [by_rank[0]["size"] for by_rank in zip(*ranks)]
    rates = [
        bandwidths(name, len(ranks), size, [rank[at]["seconds"] for rank in ranks]) for at, size in enumerate(sizes)
    ]
    differ, compared = (sum(result[key] for rank in ranks for result in rank) for key in ("differ", "compared"))
    words = [
        "rank %d: %d of %d values are wrong, the first at %d"
        % (at, result["differ"], result["compared"], result["first"])
        for at, rank in enumerate(ranks)
        for result in rank
        if result["differ"]
    ]
    if len(ranks) == 1:
        words.append("one GPU: NCCL starts and reduces, and no link was tested")
    details = {"ranks": len(ranks), "bytes": sizes}
    details.update({key + "_gb_s": [round(rate[key], 3) for rate in rates] for key in ("algbw", "busbw")})
    return Outcome(
        value=rates[-1]["busbw"] if len(ranks) > 1 else None,
        right=differ == 0,
        differ=differ,
        compared=compared,
        words="; ".join(words),
        details=dict(details, **nccl),
    )


def why(ends: List[End], name: str) -> Exception:
    """The exception to raise where not all ranks completed that operation; `CannotRun` if an earlier one failed."""
    reached = [other for other in OPERATIONS if all(other in end.notes for end in ends)]
    failed = next(other for other in OPERATIONS if other not in reached)
    because = _nccl.failure(faults(ends))
    if name != failed and not isinstance(because, CannotRun):
        return CannotRun("not tried: %s before it failed" % OPERATIONS[failed].title)
    return because
