"""Pairs of hosts in cells and words: how fast each way is, and whose fault a slow one looks like."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.model.fleet import Suspect
from gpudoctor.model.pairwise import Pair, Pairwise
from gpudoctor.model.rule import Severity
from gpudoctor.views.tui.widgets.prose import GAP, Block, plain
from gpudoctor.views.tui.words.cells import ITSELF, Mark, share, unread, wrong

GOOD = 0.9
"""Share of the expected bandwidth from which a pair is as it should be."""


def mark(pair: Pair) -> Mark:
    """A way between two as a cell."""
    if pair.source == pair.target:
        return ITSELF
    if pair.wrong:
        return wrong(pair.words)
    return unread(pair.words) if pair.ratio is None else share(pair.ratio, good=GOOD)


def suspects(pairwise: Pairwise) -> Iterator[Suspect]:
    """A row and column that are bad together are the host, one bad cell is the link."""
    bad = {
        (source, target): pair
        for source in pairwise.names
        for target in pairwise.names
        if (pair := pairwise.pair(source, target)).wrong or (pair.ratio is not None and pair.ratio < GOOD)
    }
    hosts = []
    for name in pairwise.names:
        ways = list(_ways(pairwise, name))
        if len(ways) > 2 and sum((pair.source, pair.target) in bad for pair in ways) > len(ways) / 2:
            hosts.append(name)
            yield _host_suspect(name, ways)
    links = {frozenset(way) for way in bad if not set(way) & set(hosts)}
    for link in sorted(map(sorted, links)):
        pairs = [bad[way] for way in (tuple(link), tuple(reversed(link))) if way in bad]
        yield _link_suspect(link, pairs)


def _ways(pairwise: Pairwise, name: str) -> Iterator[Pair]:
    """The measured ways from and to it."""
    for other in pairwise.names:
        for pair in (pairwise.pair(name, other), pairwise.pair(other, name)) if other != name else ():
            if pair.measured is not None:
                yield pair


def _host_suspect(name: str, ways: Sequence[Pair]) -> Suspect:
    ratios = sorted(pair.ratio for pair in ways if pair.ratio is not None)
    middle = ratios[len(ratios) // 2]
    title = f"most pairs with {name} are slow, the middle one at {middle * 100:.0f} %: the host, not a link"
    return Suspect("host", (name,), "warning", "possible", title)


def _link_suspect(link: Sequence[str], pairs: Sequence[Pair]) -> Suspect:
    ratios = [pair.ratio for pair in pairs if pair.ratio is not None]
    a_way = f"at {min(ratios) * 100:.0f} %" if ratios else "with wrong data"
    title = f"{link[0]} and {link[1]} alone, {a_way}; both are sound with others: the link, not a host"
    severity: Severity = "error" if any(pair.wrong for pair in pairs) else "warning"
    return Suspect("link", tuple(link), severity, "possible", title)


def blocks(pairwise: Pairwise, source: str, target: str) -> Iterator[Block]:
    """A way, the way back, and whose fault it looks like."""
    if source == target:
        yield Block(plain(f"{source} itself"))
        return
    for pair in (pairwise.pair(source, target), pairwise.pair(target, source)):
        yield Block(plain(_way(pair, pairwise.unit)), plain(f"{pair.source} → {pair.target}", "bold"), 22)
    yield GAP
    for name in (source, target):
        ways = list(_ways(pairwise, name))
        slow = sum(pair.wrong or (pair.ratio or 0) < GOOD for pair in ways)
        fault = "  ← the host, not one link" if len(ways) > 2 and slow > len(ways) / 2 else ""
        text = f"{slow} of {len(ways)} way{'s' if len(ways) != 1 else ''} below {GOOD * 100:.0f} %{fault}"
        yield Block(plain(text, "bold" if fault else ""), plain(name), 22)


def _way(pair: Pair, unit: str) -> str:
    if pair.ratio is None:
        return f"not measured{f': {pair.words}' if pair.words else ''}"
    said = f"{pair.measured:g} of {pair.expected:g} {unit}, {pair.ratio * 100:.0f} %"
    return f"{'WRONG DATA: ' if pair.wrong else ''}{said}{f'; {pair.words}' if pair.words else ''}"
