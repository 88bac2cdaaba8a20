"""What limits a DataLoader, from the settings that were tried, and what to set."""

from __future__ import annotations

import math
import re
from typing import Sequence

from ._host import Host
from ._loader import Tried
from ._rung import MOST_SOCKET, SOCKET
from ._words import size

ALIKE = 0.1
"""Rates that differ by less are the same, and the cheaper setting is taken."""
BUSY = 0.8
"""The share of the usable cores that workers want where the CPU is the limit."""
ALL = 0.9
"""The share of the usable cores from which on more workers find none."""
OTHERS = 0.25
"""The share of the cores from which on other programs matter."""

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


def best_of(tried: Sequence[Tried], here: Host) -> Tried:
    """The cheapest of the fastest: fewer workers and a shorter queue where more win nothing.

    Of forked ones where these live: once they have started, others load no faster. And of no more than want all the
    cores: where these load faster still, it is with time that they take from other programs.
    """
    forked = [one for one in tried if one.method == "fork" and one.rate]
    among = [one for one in tried if not one.workers or one in forked or not forked]
    enough = min((one.workers for one in among if one.wanted >= ALL * here.usable), default=math.inf)
    among = [one for one in among if one.workers <= enough]
    fastest = max(one.rate for one in among)
    return min((one for one in among if one.rate >= (1 - ALIKE) * fastest), key=lambda one: (one.workers, one.prefetch))


def advice(tried: Sequence[Tried], here: Host) -> str:
    """The setting to use, and what else would help."""
    best = best_of(tried, here)
    setting = "Use num_workers=%d." % best.workers
    if best.workers:
        setting = "Use num_workers=%d, prefetch_factor=%d, persistent_workers=True" % (best.workers, best.prefetch)
        setting += " (else each epoch begins %.2f s late)." % best.start
    limit = of_error(tried, here) if any(one.error for one in tried) else of_cores(tried, here)
    return " ".join(part for part in (temporary(here.temporary), setting, limit, of_others(tried, here)) if part)


def temporary(folder: str) -> str:
    """What to do about a folder for temporary files in which no worker can have its socket; empty where it can."""
    if len((folder + SOCKET).encode()) <= MOST_SOCKET:
        return ""
    return (
        "TMPDIR is too long: a worker's socket there needs a path of more than %d bytes, and a DataLoader with workers"
        " waits for it for ever. Set TMPDIR=/tmp." % MOST_SOCKET
    )


def of_error(tried: Sequence[Tried], here: Host) -> str:
    """From what the first worker died of, and whether those by another start method live."""
    error = next(one.error for one in tried if one.error)
    if re.search(_SHM, error):
        return (
            "Workers hand over batches in /dev/shm, which holds %s: start the container with --shm-size=8g or"
            " --ipc=host (Kubernetes: an emptyDir with medium: Memory there), or lower num_workers and prefetch_factor."
            % size(here.shm_size)
        )
    cause = next((cause for cause in _OF_ERRORS if re.search(cause, error)), "")
    said = _OF_ERRORS.get(cause) or "Workers fail here: %s" % error.rstrip(".")
    other = next((one.method for one in tried if one.rate and one.method not in ("", "fork")), "")
    if other and cause in (_CUDA, _HUNG):
        said += "; multiprocessing_context='%s' does work" % other
    return said + "."


def start_matters(one: Tried) -> bool:
    """Whether workers that are started in another way may live where this one died."""
    return _CUDA in one.error or (_HUNG in one.error and one.method == "fork")


def of_others(tried: Sequence[Tried], here: Host) -> str:
    """From the cores that were not ours."""
    others = max(one.others for one in tried)
    if others < OTHERS * here.cores:
        return ""
    return "Other programs kept up to %.1f of %d cores busy meanwhile; without them, measure again." % (
        others,
        here.cores,
    )


def of_cores(tried: Sequence[Tried], here: Host) -> str:
    """From the rates, where no worker died."""
    best, most = best_of(tried, here), max(tried, key=lambda one: one.workers)
    alone = next((one.rate for one in tried if not one.workers), 0.0)
    if max(one.wanted for one in tried) >= BUSY * here.usable:
        if here.usable < here.cores:
            return "The CPU is the limit, and more workers do not help: " + _quota(here)
        if best.workers:
            return "The CPU is the limit, all %d cores are busy: prepare data ahead, or decode on the GPU." % here.cores
    if not best.workers:
        return "Workers win nothing with these items on this machine."
    if best.workers == most.workers and best.rate > 1.5 * alone:
        return "The cores are not busy: items wait for storage or network, and more workers still help: try %d." % (
            2 * best.workers
        )
    return "Beyond that the main process is the limit: send fewer and larger tensors."


def _quota(here: Host) -> str:
    limits = []
    if here.affinity < here.cores:
        limits.append("its affinity allows %d" % here.affinity)
    if here.quota is not None and here.quota < here.cores:
        limits.append("its cgroup's CPU quota pays for %.3g" % here.quota)
    return "of %d cores %s. Raise that: --cpus, --cpuset-cpus, Slurm --cpus-per-task, Kubernetes limits.cpu." % (
        here.cores,
        " and ".join(limits),
    )
