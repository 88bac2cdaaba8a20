"""What all ranks say of their collectives, as facts: how fast each leg is, whether values are right, who is slow.

Some ranks may be missing, and each may have come less far than the others: what was heard counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from gpudoctor.kernels.across.answer import Across, Ended, Found
from gpudoctor.kernels.child._rank import End
from gpudoctor.kernels.child._ranks import faults, waited
from gpudoctor.kernels.child.collective import _nccl
from gpudoctor.kernels.child.collective._operations import OPERATIONS, bandwidths
from gpudoctor.model.fact import Absent, Fact, Known, Row, Unread, Value

SOURCE = "torch.distributed"
_NAMED = 3
"""Ranks that a sentence names."""

Heard = tuple[Across, Found]


def facts_of(answers: Sequence[Across]) -> tuple[Row, ...]:
    """The group ``collective``: a row for each leg, operation and size measured, and for each leg that failed."""
    heard: dict[tuple[object, ...], list[Heard]] = {}
    for answer in answers:
        for found in answer.found:
            if found.operation in OPERATIONS and found.size > 0 and found.ranks > 0:
                heard.setdefault((found.backend, found.leg, found.operation, found.size), []).append((answer, found))
    rows = [_measured(several) for several in heard.values()]
    rows += [_failed(*leg, answers) for leg in _legs_that_failed(answers)]
    rows += [_not_measured(one) for one in dict.fromkeys(_left_out(answers))]
    return tuple(rows)


def _measured(heard: Sequence[Heard]) -> Row:
    """One operation at one size over all groups of a leg."""
    one = heard[0][1]
    groups: dict[int, list[Found]] = {}
    for _, found in heard:
        groups.setdefault(found.group, []).append(found)
    rates = {number: _rates(group) for number, group in groups.items()}
    worst = min(rates, key=lambda number: rates[number]["algbw"])
    slowest, longest = max((item for item in heard if item[1].group == worst), key=lambda item: item[1].alone)
    wrong = [(answer, found) for answer, found in heard if found.differ]
    expected = sum(group[0].ranks for group in groups.values())
    return {
        **_where(one),
        **_known(
            state="measured",
            operation=one.operation,
            bytes=one.size,
            ranks=len(heard),
            groups=len(groups),
            algbw=rates[worst]["algbw"],
            slowest=slowest.rank,
            host=slowest.host,
            ratio=longest.alone / max(1e-9, median(found.alone for _, found in heard)),
            via=_ways(one, [answer for answer, _ in heard]),
        ),
        **_bus([rate["busbw"] for rate in rates.values()], one.ranks),
        "right": Known(not wrong, SOURCE) if wrong or len(heard) == expected else _unheard(len(heard), expected),
        **_blamed([answer for answer, _ in wrong], "; ".join(_wrong(*item) for item in wrong[:_NAMED])),
        "advice": Absent("none"),
    }


def _rates(group: Sequence[Found]) -> dict[str, float]:
    one = group[0]
    return bandwidths(one.operation, one.ranks, one.size, [max(found.seconds, 1e-9) for found in group])


def _bus(rates: Sequence[float], ranks: int) -> dict[str, Fact]:
    if ranks == 1:
        return dict.fromkeys(("busbw", "usual"), Absent("one rank: no link was tested"))
    return _known(busbw=min(rates), usual=median(rates))


def _failed(backend: str, leg: str, answers: Sequence[Across]) -> Row:
    """A leg that some ranks did not come to the end of."""
    ends = {end.rank: end for answer in answers if (end := _end(answer, backend, leg))}
    by_rank = {answer.rank: answer for answer in answers}
    bad = faults(list(ends.values()))
    step = bad[0].step.split(" ")[0]
    warned = next((f"NCCL: {one.warned}" for end in bad if (one := by_rank[end.rank]).warned), "")
    named = [f"{end.words} (host {by_rank[end.rank].host})" for end in bad[:_NAMED]]
    more = f"and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
    words = "; ".join(filter(None, [warned if backend == "nccl" else "", *named, more]))
    unknown = Unread("it failed")
    return {
        "leg": Known(leg, SOURCE),
        "backend": Known(backend, SOURCE),
        "state": Known("failed", SOURCE),
        "operation": Known(step, SOURCE) if step in OPERATIONS else Absent("it failed before the first"),
        **dict.fromkeys(("bytes", "algbw", "busbw", "usual", "right", "ratio"), unknown),
        **dict.fromkeys(("slowest", "host"), Absent("nobody came to the end")),
        **_known(ranks=len(ends), via=_ways_of(leg, backend, answers)),
        "groups": unknown,
        **_blamed([by_rank[end.rank] for end in bad if not waited(end)] or [by_rank[end.rank] for end in bad], words),
        "advice": Known(_nccl.advice(words, between_hosts=leg == "network"), SOURCE)
        if backend == "nccl"
        else Absent("none"),
    }


def _not_measured(one: Ended) -> Row:
    because = Absent(one.why)
    rest = ("bytes", "ranks", "groups", "algbw", "busbw", "usual", "right", "slowest", "host", "ratio", "via")
    return {
        "leg": Known(one.leg, SOURCE),
        "backend": Known(one.backend, SOURCE),
        "state": Known("not-measured", SOURCE),
        "operation": Known(one.operation, SOURCE) if one.operation else Absent("all that were left"),
        **dict.fromkeys(rest, because),
        **_blamed([], one.why),
        "advice": Absent("none"),
    }


def _legs_that_failed(answers: Iterable[Across]) -> list[tuple[str, str]]:
    """Backend and name of each, in the order in which they were tried."""
    legs = [(one.backend, one.leg) for answer in answers for one in answer.ended if not one.cannot]
    legs += [(answer.backend, answer.leg) for answer in answers if answer.why and not answer.cannot and answer.leg]
    return list(dict.fromkeys(legs))


def _end(answer: Across, backend: str, leg: str) -> End | None:
    """What became of that rank in that leg, where it failed."""
    mine = [one for one in answer.ended if (one.backend, one.leg, one.cannot) == (backend, leg, False)]
    if mine:
        return End(answer.rank, why=f"failed: {mine[0].why}", step=mine[0].step, steps=mine[0].steps)
    if answer.why and not answer.cannot and (answer.backend, answer.leg) == (backend, leg):
        return End(answer.rank, why=answer.why, step=answer.step, steps=answer.steps)
    return None


def _left_out(answers: Iterable[Across]) -> Iterator[Ended]:
    for answer in answers:
        for one in answer.ended:
            if one.cannot:
                yield Ended(one.leg, one.backend, one.operation, one.why, cannot=True)


def _where(one: Found) -> Row:
    return _known(leg=one.leg, backend=one.backend)


def _known(**values: Value) -> dict[str, Fact]:
    return {name: Known(value, SOURCE) for name, value in values.items()}


def _blamed(culprits: Sequence[Across], words: str) -> dict[str, Fact]:
    if not culprits:
        return {
            **dict.fromkeys(("culprits", "hosts"), Absent("none")),
            "words": Known(words, SOURCE) if words else Absent("none"),
        }
    return _known(
        culprits=tuple(one.rank for one in culprits),
        hosts=tuple(dict.fromkeys(one.host for one in culprits)),
        words=words,
    )


def _wrong(answer: Across, found: Found) -> str:
    verb = "is" if found.differ == 1 else "are"
    return f"rank {answer.rank} (host {answer.host}): {found.differ} of {found.compared} values {verb} wrong"


def _unheard(heard: int, expected: int) -> Unread:
    return Unread(f"{heard} of {expected} ranks answered")


def _ways(one: Found, answers: Sequence[Across]) -> tuple[str, ...]:
    return _ways_of(one.leg, one.backend, answers)


def _ways_of(leg: str, backend: str, answers: Iterable[Across]) -> tuple[str, ...]:
    """How the data of a leg went, over all ranks."""
    found = (
        way for answer in answers for via in answer.via if (via.leg, via.backend) == (leg, backend) for way in via.ways
    )
    return tuple(sorted(set(found)))
