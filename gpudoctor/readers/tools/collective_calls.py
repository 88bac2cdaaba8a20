"""Which collective each rank waits in when a job hangs, as torch's NCCL watchdog writes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpudoctor.model.catalog import fact
from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.model.frozen import frozen
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

FACTS = (
    fact("nccl.differing_calls", "list", "the collectives, each with its ranks, that met under one number and differ"),
    fact("nccl.differing_at", "int", "the number of these collectives, as the watchdog counts them"),
)

_WAITS = Pattern(
    r"\bRank (?P<rank>\d+)\] Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<number>\d+),"
    r" OpType=(?P<op>\w+)(?:, TensorShape=\[(?P<shape>[\d, ]*)\]|, NumelIn=(?P<size>\d+))?"
)
_GLOBAL = Pattern(r".*\[rank(\d+)\]", 2)
"""The last: a logger may have put one of its own before it."""
_ALIKE = frozenset({"ALLREDUCE", "BROADCAST", "REDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE"})
"""Collectives that every rank calls with as many elements as the others."""
_MOST = 8


@frozen
class _Call:
    """What a rank waits in, and in which line it says so. `size` are elements, or a shape; "" where none is said."""

    op: str
    size: str
    index: int

    @property
    def words(self) -> str:
        """``ALLREDUCE of 4096 elements``."""
        if not self.size:
            return self.op
        size = f"{self.size} element{'s' * (self.size != '1')}" if self.size.isdecimal() else f"shape {self.size}"
        return f"{self.op} of {size}"


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """The first number under which ranks differ, else that none do."""
    alike: tuple[_Call, ...] = ()
    for number, ranks in _by_number(paste).items():
        if len(ranks) < 2:
            continue
        calls = tuple(ranks.values())
        if not _differ(calls):
            alike = alike or calls
            continue
        source = ", ".join(paste.use(one.index) for one in calls[:_MOST])
        yield "nccl.differing_calls", Known(tuple(_told(ranks)), source)
        yield "nccl.differing_at", Known(number, source)
        return
    if alike:
        yield "nccl.differing_calls", Known((), paste.use(alike[0].index))


def _by_number(paste: Paste) -> Mapping[int, Mapping[int, _Call]]:
    """What the ranks waited in, by number, then by rank; of each rank the first, as it is what holds up the others.

    A number is left out under which two ranks of the job call themselves the same: they are of different groups.
    """
    numbers: dict[int, dict[int, _Call]] = {}
    own: dict[tuple[int, str], int] = {}
    seen: set[int] = set()
    mixed: set[int] = set()
    for index, line in paste.having("watchdog caught collective"):
        if told := _WAITS.search(line[:1000]):
            prefix = _GLOBAL.search(line[: told.start()])
            rank, number = int(prefix.group(1) if prefix else told["rank"]), int(told["number"])
            if rank in seen:
                continue
            seen.add(rank)
            if own.setdefault((number, told["rank"]), rank) != rank:
                mixed.add(number)
            one = _Call(told["op"], told["size"] or (f"[{told['shape']}]" if told["shape"] else ""), index)
            numbers.setdefault(number, {})[rank] = one
    return {number: ranks for number, ranks in numbers.items() if number not in mixed}


def _differ(calls: Sequence[_Call]) -> bool:
    ops = {one.op for one in calls}
    if "COALESCED" in ops:
        return False  # several in one: which, the line does not say
    sizes = {one.size for one in calls if one.size}
    return len(ops) > 1 or (ops <= _ALIKE and len(sizes) > 1)


def _told(ranks: Mapping[int, _Call]) -> Iterator[str]:
    """``ALLREDUCE of 4096 elements (ranks 0, 1)``; what the fewest called comes first."""
    by_words: dict[str, list[int]] = {}
    for rank, one in sorted(ranks.items()):
        by_words.setdefault(one.words, []).append(rank)
    for words, who in sorted(by_words.items(), key=lambda item: len(item[1])):
        named = ", ".join(map(str, who[:_MOST])) + (f" and {len(who) - _MOST} more" if len(who) > _MOST else "")
        yield f"{words} (rank{'s' * (len(who) > 1)} {named})"
