"""Dumps of torch's flight recorder as JSON, one of each rank: which rank is behind, and calls that differ.

Each is ``torch._C._distributed_c10d._dump_nccl_trace_json()``, or what ``/handler/dump_nccl_trace_json`` answers; the
rank stands in the name of its file, in the line above: ``nccl_trace_rank_3``. Dumps are written when a job hangs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.core.frozen import frozen
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 8
FACTS = ()

_RANK = Pattern(r"rank[_ ]?(\d{1,6})\b", 2)
_ALIKE = frozenset({"all_reduce", "broadcast", "reduce", "_all_gather_base", "_reduce_scatter_base"})
"""Collectives that every rank calls with as many elements as the others."""
_WORLD = "0"
"""The process group of all ranks, as the recorder numbers them."""


@frozen
class _Dump:
    """One rank's dump: what it enqueued and completed in the group of all ranks, and its calls there by number."""

    enqueued: int
    completed: int
    calls: Mapping[int, str]
    source: str


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Ranks behind the others, or else the first collective in which ranks differ; nothing of fewer than two ranks."""
    dumps = dict(_dumps(paste)) if '"pg_status"' in paste.text else {}
    if len(dumps) > 1:
        yield from _behind(dumps)
        yield from _differing(dumps)


def _dumps(paste: Paste) -> Iterator[tuple[int, _Dump]]:
    """Rank and dump for each JSON object of the flight recorder that has a rank in the line above."""
    for first, last, document in paste.documents:
        status = document.get("pg_status")
        world = status.get(_WORLD) if isinstance(status, dict) else None
        above = next(
            (paste.lines[at] for at in range(first - 1, max(-1, first - 4), -1) if paste.lines[at].strip()), ""
        )
        rank = _RANK.search(above)
        if rank and isinstance(world, dict):
            enqueued, completed = (_number(world.get(f"last_{name}_collective")) for name in ("enqueued", "completed"))
            if enqueued is not None and completed is not None:
                calls = dict(_calls(document.get("entries")))
                yield int(rank[1]), _Dump(enqueued, completed, calls, paste.use(first, last))


def _number(value: object) -> int | None:
    """The number, which torch writes as text here (FlightRecorder.hpp, getPgStatusMap, read 2026-11); None for none."""
    if isinstance(value, str) and len(value) < 20 and value.removeprefix("-").isdecimal():
        return int(value)
    return value if isinstance(value, int) else None


def _calls(entries: object) -> Iterator[tuple[int, str]]:
    """Sequence number and words of each collective in the group of all ranks: ``all_reduce of [[4096]]``."""
    for entry in entries if isinstance(entries, list) else ():
        group = entry.get("process_group") if isinstance(entry, dict) else None
        if not isinstance(group, list) or str(group[:1]) != str([_WORLD]):
            continue
        number, name = entry.get("collective_seq_id"), str(entry.get("profiling_name", "")).partition(":")[2]
        if isinstance(number, int) and name and not entry.get("is_p2p"):
            sizes = str(entry.get("input_sizes", ""))[:60]
            yield number, f"{name} of {sizes}" if name in _ALIKE and sizes else name


def _behind(dumps: Mapping[int, _Dump]) -> Iterator[tuple[str, Fact]]:
    """The ranks that have completed all that they called, while others wait in the very next collective."""
    ahead = max(dump.enqueued for dump in dumps.values())
    stuck = {dump.completed for dump in dumps.values() if dump.enqueued == ahead and dump.completed < ahead}
    behind = {rank: dump for rank, dump in dumps.items() if dump.enqueued == dump.completed and dump.enqueued in stuck}
    source = ", ".join(dump.source for dump in list(dumps.values())[:4])
    yield "nccl.ranks_behind", Known(tuple(str(rank) for rank in sorted(behind)), source)
    yield "nccl.ahead_at", Known(ahead, source)
    yield "nccl.ranks_counted", Known(len(dumps), source)
    if behind:
        yield "nccl.behind_at", Known(min(dump.enqueued for dump in behind.values()), source)


def _differing(dumps: Mapping[int, _Dump]) -> Iterator[tuple[str, Fact]]:
    """The first number under which ranks called different collectives, or one alike on all with different sizes."""
    for number in sorted({number for dump in dumps.values() for number in dump.calls}):
        by_call: dict[str, list[int]] = {}
        for rank, dump in sorted(dumps.items()):
            if number in dump.calls:
                by_call.setdefault(dump.calls[number], []).append(rank)
        if len(by_call) > 1:
            calls = sorted(by_call.items(), key=lambda item: len(item[1]))
            words = [f"{call} (rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks[:8]))})" for call, ranks in calls]
            source = ", ".join(dumps[ranks[0]].source for ranks in by_call.values())
            yield "nccl.differing_calls", Known(tuple(words), source)
            yield "nccl.differing_at", Known(number, source)
            return
