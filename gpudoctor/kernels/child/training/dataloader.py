"""How fast batches can be had from a DataLoader, with how many workers, and what limits it."""

from __future__ import annotations

import math
import os
import re
import sys
import time
from typing import Any, Dict, List, Sequence

from .._kernel import CannotRun, Outcome, Spec
from . import MAX_SOCKET_PATH, SOCKET_SUFFIX, TrainingContext, format_bytes
from ._dataset import DATASET_VARIABLE
from ._host import Host, read_host
from ._loader import LoaderResult, LoaderSweep, worker_cleanup, worker_counts

KERNELS = (
    Spec("readiness.dataloader", "DataLoader at its best", "batches/s", "32 pictures of 150 kB", "deep", 90.0, "node"),
)
_SIDE, _BATCH = 224, 32
_SIDE_CPU, _BATCH_CPU = 96, 16
_SECONDS, _SECONDS_TO_START = 6.0, 3.0
"""After which no further number of workers is tried, and no further way to start them."""
SAME_RATE = 0.1
"""Rates that differ by less are the same, and the cheaper setting is taken."""
CPU_BOUND = 0.8
"""The share of the usable cores that workers want where the CPU is the limit."""
SATURATED = 0.9
"""The share of the usable cores from which on more workers find none."""
OTHERS_MATTER = 0.25
"""The share of the cores from which on other programs matter."""


def run(context: TrainingContext, _: Spec) -> Outcome:
    """Sweep DataLoader settings; value: batches/s of the best one.

    Raises `CannotRun` for an unusable dataset, and on Windows, where workers start in one way alone.
    """
    if sys.platform == "win32":
        raise CannotRun("DataLoader settings are not measured on Windows")
    side, batch = (_SIDE_CPU, _BATCH_CPU) if context.on_cpu else (_SIDE, _BATCH)
    try:
        sweep = LoaderSweep(context.torch, side, batch)
    except Exception as error:  # the user's own dataset may raise whatever it likes
        raise CannotRun(
            "the dataset has no first item, or no length: %s: %s" % (type(error).__name__, error)
        ) from error
    host = read_host(context.original_temp)
    with worker_cleanup():
        results = _try_settings(sweep, host)
    best = best_result(results, host)
    return Outcome(
        value=best.rate,
        right=not sweep.wrong if sweep.compared else None,
        differ=sweep.wrong if sweep.compared else None,
        compared=sweep.compared or None,
        words=summary(results, host, sweep.item_seconds),
        advice=advice(results, host),
        details=_details(results, best, host),
    )


def _try_settings(sweep: LoaderSweep, host: Host) -> List[LoaderResult]:
    """Results by setting, time-limited: fork with growing workers, other methods with one, a longer queue."""
    until = time.monotonic() + _SECONDS
    results: List[LoaderResult] = []
    for workers in worker_counts(host):
        results.append(sweep.try_setting("fork", workers))
        if results[-1].error or time.monotonic() > until:
            break
    until = max(until, time.monotonic() + _SECONDS_TO_START)
    for method in ("forkserver", "spawn"):
        if other_start_may_help(results[-1]) or (not results[-1].error and time.monotonic() < until):
            results.append(sweep.try_setting(method, 1))
    best = best_result(results, host)
    if best.workers and time.monotonic() < until:
        results.append(sweep.try_setting(best.method, best.workers, 2 * best.prefetch))
    return results


def summary(results: Sequence[LoaderResult], host: Host, item: float) -> str:
    """Sentences on DataLoader settings: the best, rates, starts, errors; `item`: seconds of one without workers."""
    best = best_result(results, host)
    rates = ", ".join(
        "%d: %.4g" % (result.workers, result.rate)
        for result in results
        if result.method in ("", "fork") and result.rate
    )
    starts = ["%s %.2f s" % (result.method, result.start) for result in results if result.workers == 1 and result.rate]
    busy = ", keeping %.1f of %.3g cores busy" % (best.cores, host.usable) if best.workers else ""
    sentences = ["Best with %s%s (batches/s by number of workers: %s)." % (best.name, busy, rates)]
    ours = (
        ""
        if os.environ.get(DATASET_VARIABLE)
        else ", a picture as unpacked from a file (%s=module:callable sweeps your own)," % DATASET_VARIABLE
    )
    sentences += ["An item%s takes %.2f ms." % (ours, 1e3 * item)]
    if starts:
        sentences += ["First batch of one worker: %s." % ", ".join(starts)]
    return " ".join(
        sentences + ["With %s: %s." % (result.name, result.error.rstrip(".")) for result in results if result.error]
    )


def _details(results: Sequence[LoaderResult], best: LoaderResult, host: Host) -> Dict[str, Any]:
    """The outcome's details: the best setting, lists with an entry for each tried, the host's cores and /dev/shm."""
    return {
        "best_workers": best.workers,
        "best_method": best.method or "none",
        "best_prefetch": best.prefetch,
        "settings": [
            "%s, prefetch %d" % (result.name, result.prefetch) if result.workers else result.name for result in results
        ],
        "batches_per_s": [result.rate for result in results],
        "first_batch_s": [result.start for result in results],
        "cores_busy": [result.cores for result in results],
        "cores_wanted": [result.wanted for result in results],
        "cores_of_others": [result.others for result in results],
        "errors": [result.error for result in results],
        "cores": host.cores,
        "cores_affinity": host.affinity,
        "cores_quota": host.quota,
        "shm_bytes": host.shm_size,
        "shm_free_bytes": host.shm_free,
    }


# ---- What limits it, from the settings that were tried, and what to set ----


def best_result(results: Sequence[LoaderResult], host: Host) -> LoaderResult:
    """The cheapest of the fastest DataLoader settings that need no more workers than use up all cores.

    Where fork works, only forked workers and none at all count: other start methods load no faster once started.
    """
    forked = [result for result in results if result.method == "fork" and result.rate]
    candidates = [result for result in results if not result.workers or result in forked or not forked]
    max_workers = min(
        (result.workers for result in candidates if result.wanted >= SATURATED * host.usable), default=math.inf
    )
    candidates = [result for result in candidates if result.workers <= max_workers]
    fastest = max(result.rate for result in candidates)
    return min(
        (result for result in candidates if result.rate >= (1 - SAME_RATE) * fastest),
        key=lambda result: (result.workers, result.prefetch),
    )


def other_start_may_help(result: LoaderResult) -> bool:
    """True if the worker failed for CUDA used after a fork, or hung when forked: another start method may help."""
    return _CUDA in result.error or (_HUNG in result.error and result.method == "fork")


def advice(results: Sequence[LoaderResult], host: Host) -> str:
    """The DataLoader setting to use, what limits it or why workers failed, and warnings on TMPDIR and other load."""
    best = best_result(results, host)
    setting = "Use num_workers=%d." % best.workers
    if best.workers:
        setting = "Use num_workers=%d, prefetch_factor=%d, persistent_workers=True" % (best.workers, best.prefetch)
        setting += " (else each epoch begins %.2f s late)." % best.start
    limit = error_advice(results, host) if any(result.error for result in results) else limit_advice(results, host)
    return " ".join(
        part for part in (long_tmpdir_advice(host.temporary), setting, limit, other_load_advice(results, host)) if part
    )


def long_tmpdir_advice(folder: str) -> str:
    """What to do where the temporary folder's path is too long for a worker's socket; else empty."""
    if len((folder + SOCKET_SUFFIX).encode()) <= MAX_SOCKET_PATH:
        return ""
    return (
        "TMPDIR is too long: a worker's socket there needs a path of more than %d bytes, and a DataLoader with workers"
        " waits for it for ever. Set TMPDIR=/tmp." % MAX_SOCKET_PATH
    )


def error_advice(results: Sequence[LoaderResult], host: Host) -> str:
    """What to do about the first worker error; names another start method that works; `StopIteration` without any."""
    error = next(result.error for result in results if result.error)
    if re.search(_SHM, error):
        return (
            "Workers hand over batches in /dev/shm, which holds %s: start the container with --shm-size=8g or"
            " --ipc=host (Kubernetes: an emptyDir with medium: Memory there), or lower num_workers and prefetch_factor."
            % format_bytes(host.shm_size)
        )
    cause = next((cause for cause in _OF_ERRORS if re.search(cause, error)), "")
    text = _OF_ERRORS.get(cause) or "Workers fail here: %s" % error.rstrip(".")
    other = next((result.method for result in results if result.rate and result.method not in ("", "fork")), "")
    if other and cause in (_CUDA, _HUNG):
        text += "; multiprocessing_context='%s' does work" % other
    return text + "."


_SHM = "/dev/shm|shared memory|Bus error|No space left|torch_[0-9]+_"
_CUDA, _HUNG = "re-initialize CUDA", "timed out"
_OF_ERRORS = {
    _CUDA: "The dataset uses CUDA, which no worker can that was forked after CUDA's start: keep tensors on the CPU"
    " until the batch is there",
    _HUNG: "A worker hung: it waits for data that do not come, or for a lock that some thread held while it was forked",
    "Too many open files|ancdata": "Each shared tensor is an open file: raise ulimit -n, or call"
    " torch.multiprocessing.set_sharing_strategy('file_system')",
    "signal: Killed|out of memory|Cannot allocate memory|MemoryError": "A worker was killed, as Linux does where memory"
    " ends: use fewer workers, or raise the job's memory limit",
}
"""What the last words of a worker call for."""


def other_load_advice(results: Sequence[LoaderResult], host: Host) -> str:
    """A warning where other programs kept a quarter of the cores or more busy meanwhile; else empty."""
    others = max(result.others for result in results)
    if others < OTHERS_MATTER * host.cores:
        return ""
    return "Other programs kept up to %.1f of %d cores busy meanwhile; without them, measure again." % (
        others,
        host.cores,
    )


def limit_advice(results: Sequence[LoaderResult], host: Host) -> str:
    """A sentence on what limits the rate, CPU, storage or the main process, where no worker failed."""
    best, most_workers = best_result(results, host), max(results, key=lambda result: result.workers)
    alone = next((result.rate for result in results if not result.workers), 0.0)
    if max(result.wanted for result in results) >= CPU_BOUND * host.usable:
        if host.usable < host.cores:
            return "The CPU is the limit, and more workers do not help: " + _quota_advice(host)
        if best.workers:
            return "The CPU is the limit, all %d cores are busy: prepare data ahead, or decode on the GPU." % host.cores
    if not best.workers:
        return "Workers win nothing with these items on this machine."
    if best.workers == most_workers.workers and best.rate > 1.5 * alone:
        return "The cores are not busy: items wait for storage or network, and more workers still help: try %d." % (
            2 * best.workers
        )
    return "Beyond that the main process is the limit: send fewer and larger tensors."


def _quota_advice(host: Host) -> str:
    """How affinity and cgroup limit the cores, and how to raise that."""
    limits = []
    if host.affinity < host.cores:
        limits.append("its affinity allows %d" % host.affinity)
    if host.quota is not None and host.quota < host.cores:
        limits.append("its cgroup's CPU quota pays for %.3g" % host.quota)
    return "of %d cores %s. Raise that: --cpus, --cpuset-cpus, Slurm --cpus-per-task, Kubernetes limits.cpu." % (
        host.cores,
        " and ".join(limits),
    )
