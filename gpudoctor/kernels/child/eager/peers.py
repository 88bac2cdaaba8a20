"""Copies between GPUs, each way between each two: GB/s, whether they go direct, and whether every word arrives."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Sequence, Tuple

from .._kernel import CannotRun, Outcome, Spec
from . import Context
from ._check import Judged
from .copies import WORD, compare_words, merge_verdicts, random_words

KERNELS = (Spec("peer.copy", "GPU to GPU", "GB/s", "64 MiB, each way between each two", seconds=120.0, scope="node"),)
_SIZE, _SIZE_CPU = 64 << 20, 1 << 20


class PeerCopy(NamedTuple):
    """Result of one direction between two devices: GB/s, whether peer access is direct, and the verdict on the data."""

    rate: float
    direct: bool
    judged: Judged


def run(context: Context, _: Spec) -> Outcome:
    """Time and check copies between all pairs of GPUs, both ways; value: the slowest, GB/s. `CannotRun` for one."""
    places = _numbered_devices(context)
    if len(places) < 2:
        raise CannotRun("needs two GPUs that nobody uses")
    size = _SIZE_CPU if context.on_cpu else _SIZE
    copies: Dict[str, PeerCopy] = {}
    for number, source in places:
        sent = random_words(context, size, salt=31 + number)
        source_copy = sent.to(source)
        for target_number, target in places:
            if target_number != number:
                copies["%d-%d" % (number, target_number)] = _measure_copy(context, sent, source_copy, target)
    return outcome(copies)


def outcome(copies: Dict[str, PeerCopy]) -> Outcome:
    """All directions, named ``0-1``, as one outcome; value: the lowest GB/s; details: rates, direct and wrong ones."""
    verdict = Judged(0, 0)
    for copy in copies.values():
        verdict = merge_verdicts(verdict, copy.judged)
    wrong_directions = [name for name, copy in copies.items() if copy.judged.differ]
    details: Dict[str, Any] = {
        "rates": {name: round(copy.rate, 2) for name, copy in copies.items()},
        "direct": [name for name, copy in copies.items() if copy.direct],
        "wrong": wrong_directions,
    }
    verdict_fields = verdict.outcome()
    if wrong_directions:
        verdict_fields["words"] += "; wrong on the way %s" % ", ".join(
            name.replace("-", " to ") for name in wrong_directions
        )
    return Outcome(value=min(copy.rate for copy in copies.values()), details=details, **verdict_fields)


def _numbered_devices(context: Context) -> Sequence[Tuple[int, Any]]:
    """(number, torch device) of each GPU; on a CPU the same device twice."""
    if context.on_cpu:
        return [(0, context.device), (1, context.device)]
    return [(number, context.torch.device("cuda", at)) for at, number in zip(context.devices, context.numbers)]


def _measure_copy(context: Context, sent: Any, source_copy: Any, target: Any) -> PeerCopy:
    """Time and check a copy of `source_copy` to the device `target`, against `sent` on the host."""
    torch, source = context.torch, source_copy.device
    target_copy = torch.zeros(sent.numel(), dtype=sent.dtype, device=target)
    clock = Context(torch, str(source), context.seed)
    series = clock.seconds(lambda: target_copy.copy_(source_copy, non_blocking=True), least=0.1)
    direct = context.on_cpu or bool(torch.cuda.can_device_access_peer(source, target))
    return PeerCopy(sent.numel() * WORD / min(series) / 1e9, direct, compare_words(target_copy, sent))
