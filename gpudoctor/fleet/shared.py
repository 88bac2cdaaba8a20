"""What hosts with the same finding have in common that others have not: a switch, an image, a driver, a kernel."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from gpudoctor.fleet.summary import Summary

CHANCE = 0.001
"""The most probable that chance alone may put so many of them in one place."""
NEARLY = 0.9
"""Share of them that must be there."""
FEWEST = 3


@dataclass(frozen=True, slots=True)
class Shared:
    """`count` of `of` hosts with a finding are in this `place` (``switch leaf4``), which has `size` hosts in all."""

    kind: str
    value: str
    count: int
    of: int
    size: int
    fact: str
    """The fact that tells the place: ``machine.switch``."""

    @property
    def words(self) -> str:
        """``all 32 on switch leaf4``; ``31 of 32 on switch leaf4``; how many hosts there have nothing, where some."""
        many = f"all {self.of}" if self.count == self.of else f"{self.count} of {self.of}"
        sound = f", as are {self.size - self.count} without it" if self.size > self.count else ""
        where = "on" if self.kind == "switch" else "with"
        return f"{many} {where} {self.kind} {self.value}{sound}"


_PLACES: Mapping[str, tuple[str, Callable[[Summary], str]]] = {
    "switch": ("machine.switch", lambda one: one.switch),
    "image": ("machine.image", lambda one: one.values.get("host.os", "")),
    "driver": ("driver.version", lambda one: one.values.get("driver.version", "")),
    "kernel": ("host.kernel", lambda one: one.values.get("host.kernel", "")),
    "GPU": ("machine.gpu", lambda one: one.gpu),
}
"""What hosts may share: the fact that tells it, and its value on a host."""


class Places:
    """All hosts that answered, by what they could have in common."""

    def __init__(self, hosts: Sequence[Summary]) -> None:
        self._hosts = {one.host: one for one in hosts if one.answered}

    @cached_property
    def _sizes(self) -> Mapping[str, Counter[str]]:
        return {kind: Counter(map(of, self._hosts.values())) for kind, (_, of) in _PLACES.items()}

    def shared(self, hosts: Collection[str]) -> Shared | None:
        """What these have in common, the least likely by chance; none where chance could have done it."""
        here = [self._hosts[name] for name in hosts if name in self._hosts]
        if len(here) < FEWEST:
            return None
        found: list[tuple[float, Shared]] = []
        for kind, (fact, of) in _PLACES.items():
            value, count = Counter(map(of, here)).most_common(1)[0]
            size = self._sizes[kind][value]
            if value and count >= NEARLY * len(here) and size < len(self._hosts):
                places = len(self._sizes[kind])  # it could have been any of them
                chance = places * _chance(count, len(here), size / len(self._hosts))
                found.append((chance, Shared(kind, value, count, len(here), size, fact)))
        best = min(found, key=lambda item: item[0], default=None)
        return best[1] if best and best[0] <= CHANCE else None


def _chance(count: int, of: int, share: float) -> float:
    """How probable it is that of so many hosts at least `count` are in a place that holds `share` of all."""
    log = math.lgamma
    return sum(
        math.exp(log(of + 1) - log(k + 1) - log(of - k + 1) + k * math.log(share) + (of - k) * math.log1p(-share))
        for k in range(count, of + 1)
    )
