"""Copies between GPUs, each way between each two: GB/s, whether they go direct, and whether every word arrives."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Sequence, Tuple

from .._kernel import CannotRun, Outcome, Spec
from ._check import Judged
from ._pattern import WORD, arrived, both, words
from ._rung import Context

KERNELS = (Spec("peer.copy", "GPU to GPU", "GB/s", "64 MiB, each way between each two", seconds=120.0, scope="node"),)
_SIZE, _SIZE_CPU = 64 << 20, 1 << 20


class Way(NamedTuple):
    """One direction between two devices."""

    rate: float
    direct: bool
    judged: Judged


def run(context: Context, _: Spec) -> Outcome:
    """The value is that of the slowest way."""
    places = _places(context)
    if len(places) < 2:
        raise CannotRun("needs two GPUs that nobody uses")
    size = _SIZE_CPU if context.on_cpu else _SIZE
    ways: Dict[str, Way] = {}
    for number, source in places:
        sent = words(context, size, salt=31 + number)
        there = sent.to(source)
        for other, target in places:
            if other != number:
                ways["%d-%d" % (number, other)] = _way(context, sent, there, target)
    return outcome(ways)


def outcome(ways: Dict[str, Way]) -> Outcome:
    """All ways together, by names such as ``0-1``."""
    judged = Judged(0, 0)
    for way in ways.values():
        judged = both(judged, way.judged)
    wrong = [name for name, way in ways.items() if way.judged.differ]
    details: Dict[str, Any] = {
        "rates": {name: round(way.rate, 2) for name, way in ways.items()},
        "direct": [name for name, way in ways.items() if way.direct],
        "wrong": wrong,
    }
    told = judged.outcome()
    if wrong:
        told["words"] += "; wrong on the way %s" % ", ".join(name.replace("-", " to ") for name in wrong)
    return Outcome(value=min(way.rate for way in ways.values()), details=details, **told)


def _places(context: Context) -> Sequence[Tuple[int, Any]]:
    """The devices by their numbers; on a CPU two that are the same memory."""
    if context.on_cpu:
        return [(0, context.device), (1, context.device)]
    return [(number, context.torch.device("cuda", at)) for at, number in zip(context.devices, context.numbers)]


def _way(context: Context, sent: Any, there: Any, target: Any) -> Way:
    """Timed on the source's stream: torch enqueues the copy there and lets it wait for the target's."""
    torch, source = context.torch, there.device
    here = torch.zeros(sent.numel(), dtype=sent.dtype, device=target)
    clock = Context(torch, str(source), context.seed)
    series = clock.seconds(lambda: here.copy_(there, non_blocking=True), least=0.1)
    direct = context.on_cpu or bool(torch.cuda.can_device_access_peer(source, target))
    return Way(sent.numel() * WORD / min(series) / 1e9, direct, arrived(here, sent))
