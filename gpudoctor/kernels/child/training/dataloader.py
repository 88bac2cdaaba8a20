"""How fast batches can be had from a DataLoader, with how many workers, and what limits it."""

from __future__ import annotations

import re
import time
from typing import Any, Dict, List, Optional, Sequence

from .._kernel import Outcome, Spec
from . import _guard
from ._host import Host, host
from ._loader import Sweep, Tried, counts
from ._rung import Context
from ._words import size

KERNELS = (
    Spec("readiness.dataloader", "DataLoader at its best", "batches/s", "32 pictures of 150 kB", "deep", 60.0, "node"),
)

_SIDE, _BATCH = 224, 32
_SIDE_CPU, _BATCH_CPU = 64, 16
_SECONDS = 6.0
"""After which no further setting is tried."""
_ALIKE = 0.1
"""Rates that differ by less are the same, and the cheaper setting is taken."""
_BUSY = 0.8


def run(context: Context, _: Spec) -> Outcome:
    """Workers by fork, doubled; then the other start methods with one worker, then a longer queue."""
    sweep = Sweep(context.torch, *((_SIDE_CPU, _BATCH_CPU) if context.on_cpu else (_SIDE, _BATCH)))
    here = host()
    with _guard.guarded():
        tried = _swept(sweep, here)
    best = best_of(tried)
    return Outcome(
        value=best.rate,
        right=None if not sweep.compared else not sweep.wrong,
        differ=sweep.wrong if sweep.compared else None,
        compared=sweep.compared or None,
        words=words(tried, best, here, sweep.item_seconds),
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
    for method in ("forkserver", "spawn"):
        if time.monotonic() < until or tried[-1].error:
            tried.append(sweep.tried(method, 1))
    best = best_of(tried)
    if best.workers and time.monotonic() < until:
        tried.append(sweep.tried(best.method, best.workers, 2 * best.prefetch))
    return tried


def best_of(tried: Sequence[Tried]) -> Tried:
    """The cheapest of the fastest: fewer workers where more win nothing."""
    fastest = max(one.rate for one in tried)
    return min(
        (one for one in tried if one.rate >= (1 - _ALIKE) * fastest), key=lambda one: (one.workers, one.prefetch)
    )


def words(tried: Sequence[Tried], best: Tried, here: Host, item: float) -> str:
    """What was seen, the setting that is best first."""
    each = ", ".join("%d: %.4g" % (one.workers, one.rate) for one in tried if one.method in ("", "fork") and one.rate)
    starts = ", ".join("%s %.2f s" % (one.method, one.start) for one in _one_worker(tried))
    failed = "".join(" %s: %s." % (one.name, one.error.rstrip(".")) for one in tried if one.error)
    return (
        "%.4g batches/s with %s (batches/s by workers: %s), an item takes %.2f ms, its workers keep %.1f of %.4g cores"
        " busy. The first batch of one worker comes after: %s.%s"
        % (best.rate, best.name, each, 1e3 * item, best.cores, here.usable, starts or "not tried", failed)
    )


def _one_worker(tried: Sequence[Tried]) -> List[Tried]:
    return [one for one in tried if one.workers == 1 and one.prefetch == 2 and one.rate]


def advice(tried: Sequence[Tried], here: Host) -> str:
    """From all settings that were tried and the cores of this machine: what limits loading, and what to set."""
    error = next((one.error for one in tried if one.error), "")
    best = best_of(tried)
    said = _of_error(error, here) or _of_cores(tried, best, here)
    return "Use num_workers=%d%s. %s" % (best.workers, ", persistent_workers=True" if best.workers else "", said)


def _of_error(error: str, here: Host) -> Optional[str]:
    """What a worker's last words call for."""
    if re.search("/dev/shm|shared memory|Bus error|SIGBUS|No space left|torch_[0-9]+_", error):
        return (
            "Workers hand over batches in /dev/shm, which holds %s: start the container with --shm-size=8g or --ipc=host"
            " (Kubernetes: an emptyDir of medium Memory there), or lower num_workers and prefetch_factor."
            % size(here.shm_size)
        )
    if "re-initialize CUDA" in error:
        return (
            "The dataset uses CUDA, which no forked worker can: keep tensors on the CPU until the batch is there, or"
            " pass multiprocessing_context='spawn'."
        )
    if re.search("Too many open files|ancdata", error):
        return (
            "Each shared tensor is an open file: raise ulimit -n, or"
            " torch.multiprocessing.set_sharing_strategy('file_system')."
        )
    if re.search("Killed|out of memory|Cannot allocate", error):
        return "A worker was killed for memory: use fewer, or raise the memory limit of the job."
    return "Workers fail here: %s." % error.rstrip(".") if error else None


def _of_cores(tried: Sequence[Tried], best: Tried, here: Host) -> str:
    """What limits loading where every worker lives."""
    alone = next((one.rate for one in tried if not one.workers), 0.0)
    most = max(tried, key=lambda one: one.workers)
    if not best.workers:
        if most.cores >= _BUSY * here.usable and here.usable < here.cores:
            return "More workers win nothing. " + _of_quota(here)
        return "Workers win nothing on this dataset."
    if max(best.cores, most.cores) >= _BUSY * here.usable:
        if here.usable < here.cores:
            return "The CPU is the limit. " + _of_quota(here)
        return "The CPU is the limit, all %d cores are busy: prepare data ahead, or decode on the GPU." % here.cores
    if best.workers == most.workers and best.rate > 1.5 * alone:
        return "Items wait more than they reckon (storage, network): more workers than cores still help, try twice as many."
    return "Beyond that, the main process is the limit: send fewer and larger tensors."


def _of_quota(here: Host) -> str:
    limits = []
    if here.affinity < here.cores:
        limits.append("the CPU affinity allows %d" % here.affinity)
    if here.quota is not None and here.quota < here.cores:
        limits.append("the CPU quota of the cgroup pays for %.3g" % here.quota)
    return "Of %d cores %s: raise that (--cpus, --cpuset-cpus, Slurm --cpus-per-task, Kubernetes limits.cpu)." % (
        here.cores,
        " and ".join(limits),
    )


def _details(tried: Sequence[Tried], best: Tried, here: Host) -> Dict[str, Any]:
    return {
        "best_workers": best.workers,
        "best_method": best.method or "none",
        "best_prefetch": best.prefetch,
        "settings": [one.name + ", prefetch %d" % one.prefetch for one in tried],
        "batches_per_s": [one.rate for one in tried],
        "first_batch_s": [one.start for one in tried],
        "cores_busy": [one.cores for one in tried],
        "errors": [one.error for one in tried],
        "cores": here.cores,
        "cores_affinity": here.affinity,
        "cores_quota": here.quota,
        "shm_bytes": here.shm_size,
        "shm_free_bytes": here.shm_free,
    }
