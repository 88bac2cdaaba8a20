"""Copies in the GPU's memory, and between it and the host: GB/s, and whether every word arrives.

What is sent are random words of 64 bits, so that no two places hold the same.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import Any, Iterator, Set, Tuple

from .._kernel import Outcome, Spec
from . import Context, median_and_spread
from ._check import Judged, judge_mask

if sys.platform != "win32":
    import fcntl

KERNELS = (
    Spec("copy.device", "copy in GPU memory", "GB/s", "512 MiB, read and written", seconds=30.0),
    Spec("copy.to", "host to GPU", "GB/s", "256 MiB, pinned", seconds=120.0),
    Spec("copy.from", "GPU to host", "GB/s", "256 MiB, pinned", seconds=120.0),
)
_BLOCK, _BLOCK_CPU = 256 << 20, 2 << 20
"""Bytes of the pattern; a copy in GPU memory moves two such blocks, four times the largest L2 cache."""
WORD = 8
"""Bytes of an int64."""
_LOCK_SECONDS = 60.0
"""Seconds to wait for one's turn: eight GPUs of two seconds each, four times over."""


def run(context: Context, spec: Spec) -> Outcome:
    """Time and check a copy in GPU memory, to it or from it, by the kernel's id; value: GB/s."""
    if spec.id == "copy.device":
        return _device_copy(context)
    return _host_copy(context, to_device=spec.id == "copy.to")


def _device_copy(context: Context) -> Outcome:
    """Time and check a copy within GPU memory; GB/s count each byte twice, read and written."""
    size = _BLOCK_CPU if context.on_cpu else _BLOCK
    context.need(6 * size)  # the two halves, the source made of them, the target
    sent = [random_words(context, size, salt) for salt in (11, 12)]
    source = context.torch.cat([half.to(context.device) for half in sent])
    target = context.torch.zeros_like(source)
    once, spread = median_and_spread(context.seconds(lambda: target.copy_(source), least=0.5))
    first, second = target.chunk(2)
    judge_mask = merge_verdicts(compare_words(first, sent[0]), compare_words(second, sent[1]))
    return Outcome(value=4 * size / once / 1e9, spread=spread, **judge_mask.outcome())


def _host_copy(context: Context, to_device: bool) -> Outcome:
    """Time and check a copy between host and GPU, one way: GB/s with page-locked memory, of pageable as a detail.

    GPUs take turns: what is measured is this GPU's own link, not its share of what all of them get at once.
    """
    size = _BLOCK_CPU if context.on_cpu else _BLOCK
    context.need(2 * size)
    sent = random_words(context, size, 13)
    buffer = context.torch.zeros(size // WORD, dtype=sent.dtype, device=context.device)
    with on_nearby_cpus(context) as cpus, exclusive_turn() as turn:
        rate, spread, judge_mask = _timed_copy(context, sent, buffer, pinned(context, size // WORD), to_device)
        pageable, _, other = _timed_copy(context, sent, buffer, context.torch.zeros_like(sent), to_device)
    details = {"pageable": round(pageable, 2), "alone": turn, "near": cpus}
    return Outcome(value=rate, spread=spread, details=details, **merge_verdicts(judge_mask, other).outcome())


def _timed_copy(context: Context, sent: Any, buffer: Any, host: Any, to_device: bool) -> Tuple[float, float, Judged]:
    """GB/s of the copy between `host` and `buffer`, its spread, and the verdict on what arrived."""
    source, target = (host, buffer) if to_device else (buffer, host)
    source.copy_(sent)
    target.zero_()
    once, spread = median_and_spread(context.seconds(lambda: target.copy_(source, non_blocking=True), least=0.4))
    return sent.numel() * WORD / once / 1e9, spread, compare_words(target, sent)


# ---- What is sent, and whether it arrives ----


def random_words(context: Any, size: int, salt: int) -> Any:
    """`size` bytes of random int64 words in pageable host memory."""
    torch = context.torch
    low, high = -(2**63), 2**63 - 1
    return torch.randint(low, high, (size // WORD,), dtype=torch.int64, generator=context.generator(salt))


def pinned(context: Any, count: int) -> Any:
    """An uninitialised tensor of `count` int64 in page-locked host memory; on a CPU in ordinary memory."""
    torch = context.torch
    if context.on_cpu:
        return torch.empty(count, dtype=torch.int64)
    with torch.cuda.device(context.device):  # page-locked by this GPU's context: no other GPU is touched
        return torch.empty(count, dtype=torch.int64, pin_memory=True)


def compare_words(received: Any, sent: Any) -> Judged:
    """The verdict on every word of `received` (any device) against what was sent."""
    return judge_mask(received.detach().cpu() != sent)


def merge_verdicts(first: Judged, second: Judged) -> Judged:
    """Two verdicts as one: counts add up, the first wrong index is that of the first part with one."""
    return Judged(first.differ + second.differ, first.compared + second.compared, first.first or second.first)


# ---- Where and when a copy is measured: on processors near the GPU, and while no other GPU of ours copies ----


@contextmanager
def exclusive_turn() -> Iterator[bool]:
    """A context that holds a file lock which one child holds at a time; yields whether it was had.

    False after 60 s, where there are no locks, and on Windows.
    """
    if sys.platform == "win32":
        yield False
        return
    try:
        turn = os.open(__file__, os.O_RDONLY)
    except OSError:
        yield False
        return
    try:
        yield _wait_for_lock(turn)
    finally:
        os.close(turn)


def _wait_for_lock(turn: int) -> bool:
    """True once the file lock is held; False after 60 s, or where the file system has no locks."""
    until = time.monotonic() + _LOCK_SECONDS
    while time.monotonic() < until:
        try:
            if sys.platform != "win32":
                fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        except OSError:  # a file system without locks
            return False
        else:
            return True
    return False


@contextmanager
def on_nearby_cpus(context: Any) -> Iterator[bool]:
    """A context that runs on the processors beside the GPU; yields False where these are unknown or not allowed."""
    if sys.platform == "win32":
        yield False
        return
    before = os.sched_getaffinity(0)
    wanted = before & _nearby_cpus(context)
    if not wanted:
        yield False
        return
    os.sched_setaffinity(0, wanted)
    try:
        yield True
    finally:
        os.sched_setaffinity(0, before)


def _nearby_cpus(context: Any) -> Set[int]:
    """Numbers of the processors of the GPU's NUMA node; empty if unknown."""
    if context.on_cpu:
        return set()
    device = context.torch.cuda.get_device_properties(context.device)
    try:
        address = "%04x:%02x:%02x.0" % (device.pci_domain_id, device.pci_bus_id, device.pci_device_id)
        with open("/sys/bus/pci/devices/%s/local_cpulist" % address) as file:
            return parse_cpu_list(file.read())
    except (AttributeError, OSError, ValueError):  # an older torch, no sysfs
        return set()


def parse_cpu_list(text: str) -> Set[int]:
    """``0-3,8`` as {0, 1, 2, 3, 8}; raises `ValueError` for other text."""
    processors: Set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        processors.update(range(int(first), int(last or first) + 1))
    return processors
