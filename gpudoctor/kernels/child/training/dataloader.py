"""How fast batches can be had from a DataLoader, with how many workers, and what limits it."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Sequence

from .._kernel import CannotRun, Outcome, Spec
from . import _guard
from ._dataset import OWN
from ._host import Host, host
from ._limit import advice, best_of, start_matters
from ._loader import Sweep, Tried, counts
from ._rung import Room

KERNELS = (
    Spec("readiness.dataloader", "DataLoader at its best", "batches/s", "32 pictures of 150 kB", "deep", 90.0, "node"),
)

_SIDE, _BATCH = 224, 32
_SIDE_CPU, _BATCH_CPU = 96, 16
_SECONDS, _SECONDS_TO_START = 6.0, 3.0
"""After which no further number of workers is tried, and no further way to start them."""


def run(context: Room, _: Spec) -> Outcome:
    """Workers by fork, doubled; then the other start methods with one worker; then a longer queue."""
    side, batch = (_SIDE_CPU, _BATCH_CPU) if context.on_cpu else (_SIDE, _BATCH)
    try:
        sweep = Sweep(context.torch, side, batch)
    except Exception as error:  # the user's own dataset may raise whatever it likes
        raise CannotRun(
            "the dataset has no first item, or no length: %s: %s" % (type(error).__name__, error)
        ) from error
    here = host(context.usual)
    with _guard.guarded():
        tried = _swept(sweep, here)
    best = best_of(tried, here)
    return Outcome(
        value=best.rate,
        right=not sweep.wrong if sweep.compared else None,
        differ=sweep.wrong if sweep.compared else None,
        compared=sweep.compared or None,
        words=words(tried, here, sweep.item_seconds),
        advice=advice(tried, here),
        details=_details(tried, best, here),
    )


def _swept(sweep: Sweep, here: Host) -> List[Tried]:
    until = time.monotonic() + _SECONDS
    tried: List[Tried] = []
    for workers in counts(here):
        tried.append(sweep.tried("fork", workers))
        if tried[-1].error or time.monotonic() > until:
            break
    until = max(until, time.monotonic() + _SECONDS_TO_START)
    for method in ("forkserver", "spawn"):
        if start_matters(tried[-1]) or (not tried[-1].error and time.monotonic() < until):
            tried.append(sweep.tried(method, 1))
    best = best_of(tried, here)
    if best.workers and time.monotonic() < until:
        tried.append(sweep.tried(best.method, best.workers, 2 * best.prefetch))
    return tried


def words(tried: Sequence[Tried], here: Host, item: float) -> str:
    """What was seen, the best first; `item` is the seconds of one item in the main process."""
    best = best_of(tried, here)
    rates = ", ".join("%d: %.4g" % (one.workers, one.rate) for one in tried if one.method in ("", "fork") and one.rate)
    starts = ["%s %.2f s" % (one.method, one.start) for one in tried if one.workers == 1 and one.rate]
    busy = ", keeping %.1f of %.3g cores busy" % (best.cores, here.usable) if best.workers else ""
    said = ["Best with %s%s (batches/s by number of workers: %s)." % (best.name, busy, rates)]
    ours = (
        "" if os.environ.get(OWN) else ", a picture as unpacked from a file (%s=module:callable sweeps your own)," % OWN
    )
    said += ["An item%s takes %.2f ms." % (ours, 1e3 * item)]
    if starts:
        said += ["First batch of one worker: %s." % ", ".join(starts)]
    return " ".join(said + ["With %s: %s." % (one.name, one.error.rstrip(".")) for one in tried if one.error])


def _details(tried: Sequence[Tried], best: Tried, here: Host) -> Dict[str, Any]:
    return {
        "best_workers": best.workers,
        "best_method": best.method or "none",
        "best_prefetch": best.prefetch,
        "settings": ["%s, prefetch %d" % (one.name, one.prefetch) if one.workers else one.name for one in tried],
        "batches_per_s": [one.rate for one in tried],
        "first_batch_s": [one.start for one in tried],
        "cores_busy": [one.cores for one in tried],
        "cores_wanted": [one.wanted for one in tried],
        "cores_of_others": [one.others for one in tried],
        "errors": [one.error for one in tried],
        "cores": here.cores,
        "cores_affinity": here.affinity,
        "cores_quota": here.quota,
        "shm_bytes": here.shm_size,
        "shm_free_bytes": here.shm_free,
    }
