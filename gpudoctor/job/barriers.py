"""Failed connections, those that are alike together: ten machines that one firewall keeps out are one thing to say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from gpudoctor.fleet.names import order
from gpudoctor.job.found import LinkSeen


@dataclass(frozen=True, slots=True)
class Barrier:
    """Connections that failed alike: from several machines to one, from one to several, or between most of them."""

    links: tuple[LinkSeen, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """Who cannot connect."""
        return tuple(sorted({link.source for link in self.links}, key=order))

    @property
    def targets(self) -> tuple[str, ...]:
        """To whom."""
        return tuple(sorted({link.target for link in self.links}, key=order))

    @property
    def blamed(self) -> tuple[str, ...]:
        """The one end that all have in common; of a single connection who does not let in, unless no name was found."""
        if self.links[0].outcome == "unresolved" and len(self.sources) == 1:
            return self.sources
        ends = [names for names in (self.targets, self.sources) if len(names) == 1]
        return ends[0] if ends else ()


def barriers(links: Iterable[LinkSeen]) -> list[Barrier]:
    """Each failed connection once: with those to the same address, or with those from the same machine, if more."""
    failed = sorted((link for link in links if not link.works), key=_like)
    found: list[Barrier] = []
    for _, alike in groupby(failed, key=_like):
        same = list(alike)
        grouped = list(_grouped(same))
        found += [Barrier(tuple(same))] if _everywhere(grouped) else grouped
    return found


EVERYWHERE = 4
"""So many machines of which each is to blame for the same: it is no longer the machines, it is a setting of all."""


def _everywhere(grouped: Iterable[Barrier]) -> bool:
    """Whether there are so many, or every machine of which anything is told is to blame."""
    blamed = {host for one in grouped for host in one.blamed}
    mentioned = {host for one in grouped for host in (*one.sources, *one.targets)}
    return len(blamed) >= EVERYWHERE or (len(blamed) > 1 and blamed == mentioned)


def _like(link: LinkSeen) -> tuple[str, str, str]:
    return link.kind, link.outcome, link.used_by


def _grouped(left: list[LinkSeen]) -> Iterator[Barrier]:
    while left:
        ends = Counter(end for link in left for end in _ends(link))
        (most, _), *_ = ends.most_common(1)
        group = [link for link in left if most in _ends(link)]
        left = [link for link in left if most not in _ends(link)]
        yield Barrier(tuple(group))


def _ends(link: LinkSeen) -> tuple[tuple[str, ...], ...]:
    """Where it leads, then where it is from: of equally many the first counts."""
    return ("to", link.target, link.address), ("from", link.source)
