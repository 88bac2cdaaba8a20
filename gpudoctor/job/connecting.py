"""Who reaches whom: the job's own port as each machine saw it when it came, then machines to each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpudoctor.job.found import LinkSeen
from gpudoctor.job.guest import Guest
from gpudoctor.job.meeting import Meeting

ALL_OF = 16
"""Machines up to which each connects to all others."""


def to_the_hub(meeting: Meeting) -> Iterator[LinkSeen]:
    """How the job's own port looks from each machine; from the hub's only whether the name leads anywhere."""
    place = meeting.place
    for guest in meeting.leaders:
        for way in guest.hello.get("ways", ()):
            outcome = str(way["outcome"])
            blind = guest.host == place.host and outcome not in {"unresolved", "unroutable"}
            if way["port"] == place.port and not way["stranger"] and not blind:
                yield LinkSeen(
                    source=guest.host,
                    target=place.master if outcome == "unresolved" else place.host,
                    kind="rendezvous",
                    outcome=outcome,
                    words=str(way["words"]),
                    used_by="rendezvous",
                    address=place.master,
                    port=place.port,
                )


def to_each_other(meeting: Meeting, leaders: Sequence[Guest], seconds: float) -> list[LinkSeen]:
    """Each connects to the addresses that others would announce, all at the same time."""
    known: list[LinkSeen] = []
    tried: dict[int, list[LinkSeen]] = {}
    for source, target in _in_turn(leaders):
        for ear in target.hello.get("ears", ()):
            link = _announced(source.host, target.host, ear)
            (known if link.outcome else tried.setdefault(source.rank, [])).append(link)
    asked = {
        rank: {"task": "reach", "to": [{"address": one.address, "port": one.port} for one in links]}
        for rank, links in tried.items()
    }
    for rank, answer in meeting.ask(asked, seconds).items():
        known += [_outcome(link, reply) for link, reply in zip(tried[rank], answer.get("links", ()), strict=False)]
    return known


def _in_turn(ring: Sequence[Guest]) -> Iterator[tuple[Guest, Guest]]:
    """Who connects to whom: few machines each to all others, many each to those 1, 2, 4, 8, ... places on."""
    count = len(ring)
    steps = range(1, count) if count <= ALL_OF else [1 << power for power in range((count - 1).bit_length())]
    for at, one in enumerate(ring):
        for step in steps:
            yield one, ring[(at + step) % count]


def _announced(source: str, target: str, ear: Mapping[str, Any]) -> LinkSeen:
    """What is known before it is tried: a loopback or no address at all cannot be reached from elsewhere."""
    outcome, words = "", ""
    if ear.get("loopback"):
        outcome, words = "loopback", str(ear.get("because") or "a loopback leads nowhere from elsewhere")
    elif not ear.get("port"):
        outcome = "failed" if ear.get("address") else "nowhere"
        words = str(ear.get("because") or "it does not listen")
    return LinkSeen(
        source=source,
        target=target,
        kind="peer",
        outcome=outcome,
        words=words,
        used_by=", ".join(ear.get("used_by", ())),
        address=str(ear.get("address", "")),
        port=int(ear.get("port") or 0),
        interface=str(ear.get("interface", "")),
    )


def _outcome(link: LinkSeen, reply: Mapping[str, Any]) -> LinkSeen:
    words = str(reply.get("words", "it did not say"))
    return replace(link, outcome=str(reply.get("outcome", "failed")), words=words, ms=reply.get("ms"))
