"""What torch's NCCL watchdog says of each rank when a job hangs: how many collectives it has called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpudoctor.model.catalog import fact
from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.model.frozen import frozen
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

FACTS = (
    fact("nccl.ranks_behind", "list", "ranks that have called fewer collectives than the others wait for"),
    fact("nccl.behind_at", "int", "collectives that the slowest rank has called, as the watchdog counts them"),
    fact("nccl.ahead_at", "int", "collectives that the rank furthest ahead has called"),
    fact("nccl.ranks_counted", "int", "ranks of which the watchdog's counts are in the text"),
)

_COUNTS = Pattern(
    r"\[(?P<group>[^][]*?)\bRank (?P<rank>\d+)\].*?last enqueued(?: NCCL)? work: (?P<called>-?\d+),"
    r" last completed(?: NCCL)? work: (?P<done>-?\d+)",
    2,
)
_GLOBAL = Pattern(r".*\[rank(\d+)\]", 2)
"""The last: a logger may have put one of its own before it."""


@frozen
class _Count:
    """Of one rank in one process group: what it has called and completed, and in which line it says so."""

    called: int
    done: int
    index: int


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """The first process group in which ranks differ, else that none do."""
    alike: tuple[_Count, ...] = ()
    for ranks in _groups(paste):
        if len(ranks) < 2:
            continue
        ahead = max(ranks.values(), key=lambda one: one.called)
        waits = max(count.done for count in ranks.values()) + 1
        behind = {rank: one for rank, one in ranks.items() if one.called < waits or one.called <= ahead.called - 2}
        if not behind or len(behind) == len(ranks):
            alike = alike or tuple(ranks.values())
            continue
        slowest = min(behind.values(), key=lambda one: one.called)
        names = tuple(str(rank) for rank in sorted(behind))
        yield "nccl.ranks_behind", Known(names, paste.use(slowest.index))
        yield "nccl.behind_at", Known(max(0, slowest.called), paste.use(slowest.index))
        yield "nccl.ahead_at", Known(ahead.called, paste.use(ahead.index))
        yield "nccl.ranks_counted", Known(len(ranks), ", ".join(paste.use(one.index) for one in ranks.values()))
        return
    if alike:
        yield "nccl.ranks_behind", Known((), paste.use(alike[0].index))


def _groups(paste: Paste) -> Iterator[Mapping[int, _Count]]:
    """The counts of each process group, by rank; of one rank the last.

    Subgroups that share a name are left out: there two ranks of the job call themselves by the same number.
    """
    groups: dict[str, dict[int, _Count]] = {}
    called: dict[tuple[str, str], str] = {}
    mixed: set[str] = set()
    for index, line in paste.having("last enqueued"):
        if told := _COUNTS.search(line[:1000]):
            group, local = told["group"].strip(), told["rank"]
            prefix = _GLOBAL.search(line[: told.start()])
            rank = prefix.group(1) if prefix else local
            if called.setdefault((group, local), rank) != rank:
                mixed.add(group)
            one = _Count(int(told["called"]), int(told["done"]), index)
            groups.setdefault(group, {})[int(rank)] = one
    for group, ranks in groups.items():
        if group not in mixed:
            yield ranks
