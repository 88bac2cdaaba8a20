"""What torch's NCCL watchdog says of each rank when a job hangs: how many collectives it has called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.core.frozen import frozen
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
class _RankProgress:
    """Collectives that a rank of a process group has enqueued and completed, and the line that says so."""

    called: int
    done: int
    index: int


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """The ranks behind the others in the first process group where they differ; an empty list where none do.

    Nothing where fewer than two ranks are reported.
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
    """Each process group's progress by rank; of one rank the last report.

    Groups that share a name are left out: in them two ranks of the job use the same number.
    """
    groups: dict[str, dict[int, _RankProgress]] = {}
    global_ranks: dict[tuple[str, str], str] = {}
    ambiguous_groups: set[str] = set()
    for index, line in paste.having("last enqueued"):
        if report := _COUNTS.search(line[:1000]):
            group, local = report["group"].strip(), report["rank"]
            prefix = _GLOBAL.search(line[: report.start()])
            rank = prefix.group(1) if prefix else local
            if global_ranks.setdefault((group, local), rank) != rank:
                ambiguous_groups.add(group)
            progress = _RankProgress(int(report["called"]), int(report["done"]), index)
            groups.setdefault(group, {})[int(rank)] = progress
    for group, ranks in groups.items():
        if group not in ambiguous_groups:
            yield ranks
