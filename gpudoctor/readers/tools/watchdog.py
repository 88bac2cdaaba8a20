"""What torch's NCCL watchdog says when a job hangs: how many collectives each rank has called, and which it awaits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Absent, Fact, Known, Rows
from gpudoctor.core.frozen import frozen
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

FACTS = (
    fact("nccl.ranks_behind", "list", "ranks that have called fewer collectives than the others wait for"),
    fact("nccl.behind_at", "int", "collectives that the slowest rank has called, as the watchdog counts them"),
    fact("nccl.ahead_at", "int", "collectives that the rank furthest ahead has called"),
    fact("nccl.ranks_counted", "int", "ranks of which the watchdog's counts are in the text"),
    fact("nccl.differing_calls", "list", "the collectives, each with its ranks, that met under one number and differ"),
    fact("nccl.differing_at", "int", "the number of these collectives, as the watchdog counts them"),
    fact("nccl.differing_group", "text", "the process group of these collectives; absent where the lines name none"),
)

_COUNTS = Pattern(
    r"(?i)\[(?P<group>[^][]*?)\bRank (?P<rank>\d+)\].*?last enqueued(?: NCCL)? work: (?P<called>-?\d+),"
    r" last completed(?: NCCL)? work: (?P<done>-?\d+)"
)
_GLOBAL = Pattern(r"(?i).*\[rank(\d+)\]")
"""The last: a logger may have put one of its own before it."""


@frozen
class _RankProgress:
    """Collectives that a rank of a process group has enqueued and completed, and the line that says so."""

    called: int
    done: int
    index: int


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Facts of ranks that called fewer collectives, and of calls that met and differ, from torch's NCCL watchdog."""
    yield from _ranks_behind(paste)
    yield from _differing_calls(paste)


def _global_rank(line: str, report: re.Match[str]) -> str:
    """The rank in the job by the line's prefix ``[rank3]``, else that in its group, from the report's match."""
    prefix = _GLOBAL.search(line[: report.start()])
    return prefix[1] if prefix else report["rank"]


def _ranks_behind(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """nccl.ranks_behind, .behind_at, .ahead_at, .ranks_counted of the first process group in which some ranks, not all,
    are behind: they called no more than any rank has completed, or at least two fewer than the one furthest ahead.

    An empty nccl.ranks_behind alone where no group has such ranks; nothing where fewer than two ranks are reported.
    """
    level_ranks: tuple[_RankProgress, ...] = ()
    for ranks in _progress_by_group(paste):
        if len(ranks) < 2:
            continue
        ahead = max(ranks.values(), key=lambda progress: progress.called)
        awaited = max(count.done for count in ranks.values()) + 1
        behind = {
            rank: progress
            for rank, progress in ranks.items()
            if progress.called < awaited or progress.called <= ahead.called - 2
        }
        if not behind or len(behind) == len(ranks):
            level_ranks = level_ranks or tuple(ranks.values())
            continue
        slowest = min(behind.values(), key=lambda progress: progress.called)
        names = tuple(str(rank) for rank in sorted(behind))
        yield "nccl.ranks_behind", Known(names, paste.use(slowest.index))
        yield "nccl.behind_at", Known(max(0, slowest.called), paste.use(slowest.index))
        yield "nccl.ahead_at", Known(ahead.called, paste.use(ahead.index))
        yield (
            "nccl.ranks_counted",
            Known(len(ranks), ", ".join(paste.use(progress.index) for progress in ranks.values())),
        )
        return
    if level_ranks:
        yield "nccl.ranks_behind", Known((), paste.use(level_ranks[0].index))


def _progress_by_group(paste: Paste) -> Iterator[Mapping[int, _RankProgress]]:
    """Each process group's progress by rank, from the watchdog's "last enqueued" lines; of one rank the last.

    Groups that share a name are left out: in them two ranks of the job use the same number.
    """
    groups: dict[str, dict[int, _RankProgress]] = {}
    global_ranks: dict[tuple[str, str], str] = {}
    ambiguous_groups: set[str] = set()
    for index, line in paste.having("last enqueued"):
        if report := _COUNTS.search(line[:1000]):
            group, local = report["group"].strip(), report["rank"]
            rank = _global_rank(line, report)
            if global_ranks.setdefault((group, local), rank) != rank:
                ambiguous_groups.add(group)
            progress = _RankProgress(int(report["called"]), int(report["done"]), index)
            groups.setdefault(group, {})[int(rank)] = progress
    for group, ranks in groups.items():
        if group not in ambiguous_groups:
            yield ranks


_WAITS = Pattern(
    r"(?:\[(?P<group>[^][\n]{0,80}?) ?)?\bRank (?P<rank>\d+)\] Watchdog caught"
    r" collective operation timeout: WorkNCCL\(SeqNum=(?P<number>\d+),"
    r" OpType=(?P<op>\w+)(?:, TensorShape=\[(?P<shape>[\d, ]*)\]|, NumelIn=(?P<size>\d+))?"
)
_ALIKE = frozenset({"ALLREDUCE", "BROADCAST", "REDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE"})
"""Collectives that every rank calls with as many elements as the others."""
_MOST_ROWS = 8


@frozen
class _PendingCall:
    """The collective in which a rank waits, and the line that says so.

    `size` is the number of elements or a shape; empty where the watchdog gives none.
    """

    op: str
    size: str
    index: int

    @property
    def description(self) -> str:
        """The operation and its size: ``ALLREDUCE of 4096 elements``; only the operation where no size is known."""
        if not self.size:
            return self.op
        size = f"{self.size} element{'s' * (self.size != '1')}" if self.size.isdecimal() else f"shape {self.size}"
        return f"{self.op} of {size}"


def _differing_calls(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """nccl.differing_calls, _at and _group: the first sequence number at which ranks wait in different collectives.

    The group is absent where the lines name none. An empty nccl.differing_calls alone where all agree; nothing where
    fewer than two ranks are reported.
    """
    agreeing_calls: tuple[_PendingCall, ...] = ()
    for (group, number), ranks in _calls_by_number(paste).items():
        if len(ranks) < 2:
            continue
        calls = tuple(ranks.values())
        if not _calls_differ(calls):
            agreeing_calls = agreeing_calls or calls
            continue
        source = ", ".join(paste.use(call.index) for call in calls[:_MOST_ROWS])
        yield "nccl.differing_calls", Known(tuple(_calls_by_ranks(ranks)), source)
        yield "nccl.differing_at", Known(number, source)
        yield "nccl.differing_group", Known(group, source) if group else Absent("the watchdog's lines name none")
        return
    if agreeing_calls:
        yield "nccl.differing_calls", Known((), paste.use(agreeing_calls[0].index))


_Number = tuple[str, int]
"""A process group (empty where the line names none), and the sequence number of a collective in it."""


def _calls_by_number(paste: Paste) -> Mapping[_Number, Mapping[int, _PendingCall]]:
    """The first reported call of each rank, by process group and sequence number, then rank.

    A number under which two ranks of the job use the same group rank is left out: they are of different groups.
    """
    numbers: dict[_Number, dict[int, _PendingCall]] = {}
    rank_by_local_number: dict[tuple[_Number, str], int] = {}
    ranks_read: set[int] = set()
    ambiguous_numbers: set[_Number] = set()
    for index, line in paste.having("watchdog caught collective"):
        if timeout := _WAITS.search(line[:1000]):
            rank, number = int(_global_rank(line, timeout)), (timeout["group"] or "", int(timeout["number"]))
            if rank in ranks_read:
                continue
            ranks_read.add(rank)
            if rank_by_local_number.setdefault((number, timeout["rank"]), rank) != rank:
                ambiguous_numbers.add(number)
            call = _PendingCall(
                timeout["op"], timeout["size"] or (f"[{timeout['shape']}]" if timeout["shape"] else ""), index
            )
            numbers.setdefault(number, {})[rank] = call
    return {number: ranks for number, ranks in numbers.items() if number not in ambiguous_numbers}


def _calls_differ(calls: Sequence[_PendingCall]) -> bool:
    """Whether the calls are different collectives, or one that needs equal sizes with different sizes.

    False if one is COALESCED, which does not tell what it holds.
    """
    ops = {call.op for call in calls}
    if "COALESCED" in ops:
        return False  # several in one: which, the line does not say
    sizes = {call.size for call in calls if call.size}
    return len(ops) > 1 or (ops <= _ALIKE and len(sizes) > 1)


def _calls_by_ranks(ranks: Mapping[int, _PendingCall]) -> Iterator[str]:
    """``ALLREDUCE of 4096 elements (ranks 0, 1)`` for each distinct call, that of the fewest ranks first."""
    by_words: dict[str, list[int]] = {}
    for rank, call in sorted(ranks.items()):
        by_words.setdefault(call.description, []).append(rank)
    for description, members in sorted(by_words.items(), key=lambda item: len(item[1])):
        rank_list = ", ".join(map(str, members[:_MOST_ROWS])) + (
            f" and {len(members) - _MOST_ROWS} more" if len(members) > _MOST_ROWS else ""
        )
        yield f"{description} (rank{'s' * (len(members) > 1)} {rank_list})"
