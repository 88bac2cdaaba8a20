"""Dumps of torch's flight recorder as JSON, one of each rank: which rank is behind, and calls that differ.

Each is ``torch._C._distributed_c10d._dump_nccl_trace_json()``, or what ``/handler/dump_nccl_trace_json`` answers; the
rank stands in the name of its file, in the line above: ``nccl_trace_rank_3``. Dumps are written when a job hangs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.core.frozen import frozen
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 8
FACTS = (
    fact("nccl.ranks_short", "list", "ranks that have completed fewer collectives than others that called as many"),
    fact("nccl.short_at", "int", "how many the slowest of them has completed"),
)

_RANK = Pattern(r"(?i)rank[_ ]?(\d{1,6})\b")
_ALIKE = frozenset({"all_reduce", "broadcast", "reduce", "_all_gather_base", "_reduce_scatter_base"})
"""Collectives that every rank calls with as many elements as the others."""
_WORLD = "0"
"""The process group of all ranks, as the recorder numbers them."""


@frozen
class Dump:
    """One rank's dump: what it enqueued and completed in the group of all ranks, and its calls there by number.

    A call is its words, ``all_reduce of [[4096]]``, and the types of its inputs, ``Float``; these are empty where ranks
    may differ in them.
    """

    enqueued: int
    completed: int
    calls: Mapping[int, tuple[str, str]]
    source: str


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Facts of ranks behind and of differing collectives, from the NCCL flight-recorder dumps of two ranks or more."""
    yield from compared(dict(_rank_dumps(paste)) if '"pg_status"' in paste.text else {})


def compared(dumps: Mapping[int, Dump]) -> Iterator[tuple[str, Fact]]:
    """Facts of ranks behind and of differing collectives by the flight-recorder dumps; nothing of fewer than two."""
    if len(dumps) > 1:
        yield from _behind(dumps)
        yield from _differing(dumps)


def dump_of(document: Mapping[str, object], source: str) -> Dump | None:
    """The `Dump` in a document of NCCL's flight recorder; None where it lacks the counts of the group of all ranks."""
    status = document.get("pg_status")
    world = status.get(_WORLD) if isinstance(status, Mapping) else None
    if not isinstance(world, Mapping):
        return None
    enqueued, completed = (_number(world.get(f"last_{name}_collective")) for name in ("enqueued", "completed"))
    if enqueued is None or completed is None:
        return None
    return Dump(enqueued, completed, dict(_calls(document.get("entries"))), source)


def _rank_dumps(paste: Paste) -> Iterator[tuple[int, Dump]]:
    """Rank and dump per flight-recorder JSON object whose rank the last line above it names; marks them as placed."""
    for first, last, document in paste.documents:
        above = next(
            (paste.lines[at] for at in range(first - 1, max(-1, first - 4), -1) if paste.lines[at].strip()), ""
        )
        rank = _RANK.search(above)
        if rank and dump_of(document, "") and (dump := dump_of(document, paste.use(first, last))):
            yield int(rank[1]), dump


def _number(value: object) -> int | None:
    """The integer in a status field, which torch writes as text; None for none.

    Source: FlightRecorder.hpp, getPgStatusMap, read 2026-11.
    """
    if isinstance(value, str) and len(value) < 20 and value.removeprefix("-").isdecimal():
        return int(value)
    return value if isinstance(value, int) else None


def _calls(entries: object) -> Iterator[tuple[int, tuple[str, str]]]:
    """Sequence number, name and types of each collective of all ranks in a dump's entries; point-to-point is left out.

    With input sizes (``all_reduce of [[4096]]``) and types only for collectives that need the same ones on all ranks,
    else the types are empty.
    """
    for entry in entries if isinstance(entries, list) else ():
        group = entry.get("process_group") if isinstance(entry, dict) else None
        if not isinstance(group, list) or str(group[:1]) != str([_WORLD]):
            continue
        number, name = entry.get("collective_seq_id"), str(entry.get("profiling_name", "")).partition(":")[2]
        if isinstance(number, int) and name and not entry.get("is_p2p"):
            sizes, types = (str(entry.get(f"input_{what}", ""))[:60] for what in ("sizes", "dtypes"))
            alike = name in _ALIKE and sizes
            yield number, (f"{name} of {sizes}", types.strip("[]").replace("'", "")) if alike else (name, "")


def _behind(dumps: Mapping[int, Dump]) -> Iterator[tuple[str, Fact]]:
    """nccl.ranks_behind: ranks that completed all they called while ranks ahead wait in the next collective.

    With nccl.behind_at, nccl.ahead_at and nccl.ranks_counted. nccl.ranks_short and nccl.short_at: without such ranks,
    those that called as many as the furthest but completed fewest. The lists are empty where there are none.
    """
    ahead = max(dump.enqueued for dump in dumps.values())
    stuck = {dump.completed for dump in dumps.values() if dump.enqueued == ahead and dump.completed < ahead}
    behind = {rank: dump for rank, dump in dumps.items() if dump.enqueued == dump.completed and dump.enqueued in stuck}
    source = ", ".join(dict.fromkeys(dump.source for dump in list(dumps.values())[:4]))
    yield "nccl.ranks_behind", Known(tuple(str(rank) for rank in sorted(behind)), source)
    yield "nccl.ahead_at", Known(ahead, source)
    yield "nccl.ranks_counted", Known(len(dumps), source)
    if behind:
        yield "nccl.behind_at", Known(min(dump.enqueued for dump in behind.values()), source)
    slowest = min(stuck, default=ahead)
    some = slowest < ahead and len({dump.completed for dump in dumps.values()}) > 1 and not behind
    short = {rank for rank, dump in dumps.items() if (dump.enqueued, dump.completed) == (ahead, slowest)}
    yield "nccl.ranks_short", Known(tuple(str(rank) for rank in sorted(short)) if some else (), source)
    if some:
        yield "nccl.short_at", Known(slowest, source)


def _differing(dumps: Mapping[int, Dump]) -> Iterator[tuple[str, Fact]]:
    """nccl.differing_calls, _at and _group: the first sequence number at which ranks called different collectives.

    Or one collective with other sizes or types. Nothing where all agree.
    """
    source = ", ".join(dict.fromkeys(dump.source for dump in list(dumps.values())[:4]))
    for number in sorted({number for dump in dumps.values() for number in dump.calls}):
        by_call: dict[tuple[str, str], list[int]] = {}
        for rank, dump in sorted(dumps.items()):
            if number in dump.calls:
                by_call.setdefault(dump.calls[number], []).append(rank)
        if len(by_call) > 1:
            typed = len({call for call, _ in by_call}) < len(by_call)
            calls = sorted(by_call.items(), key=lambda item: len(item[1]))
            yield (
                "nccl.differing_calls",
                Known(tuple(_call_words(*call, ranks, typed) for call, ranks in calls), source),
            )
            yield "nccl.differing_at", Known(number, source)
            yield "nccl.differing_group", Known("all ranks", source)
            return


def _call_words(call: str, types: str, ranks: Sequence[int], typed: bool) -> str:
    """``all_reduce of [[4096]] Float (ranks 0, 1)``, at most eight ranks; the types only where `typed`."""
    named = f"{call} {types}" if typed and types else call
    return f"{named} (rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks[:8]))})"
