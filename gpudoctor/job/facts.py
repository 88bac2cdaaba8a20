"""What the meeting found, as facts: `gpudoctor.cluster` says what each means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpudoctor.job.barriers import Barrier, barriers
from gpudoctor.job.found import Found, LinkSeen, RankSeen
from gpudoctor.job.pairing.pairs import Direction, Pair
from gpudoctor.job.pairing.suspect import Suspect
from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread, Value

SOURCE = "the ranks' meeting"
_PAIRS = "measured in pairs"


def facts(found: Found) -> dict[str, Fact]:
    """The facts of the job as a whole."""
    place = found.place
    worlds = sorted({rank.world for rank in found.ranks if rank.world is not None})
    versions = sorted({rank.nccl for rank in found.ranks if rank.nccl})
    hosts = found.hosts
    return {
        "job.launcher": Known(place.launcher, "environment"),
        "job.world": Known(place.world, "environment"),
        "job.came": Known(sum(rank.came for rank in found.ranks), SOURCE),
        "job.hosts": Known(tuple(hosts), SOURCE),
        "job.master": Known(place.master, "environment"),
        "job.port": Known(place.port, "environment") if place.port else Absent("the environment names none"),
        "job.port_taken": Known(found.taken, "bind") if found.taken else Absent("nobody else listens on it"),
        "job.nccl_versions": Known(tuple(versions), SOURCE) if versions else Unread("no rank told its NCCL"),
        "job.worlds": Known(tuple(map(str, worlds)), SOURCE) if worlds else Unread("no rank came"),
        "job.clock_skew_ms": _skew(found),
        "job.clock_host": Known(found.skew_host, _PAIRS) if found.skew_host else Unread("no clocks were compared"),
        "job.checked": Known(found.checked, "asked for"),
        "job.backend": Known(found.backend, SOURCE) if found.backend else Unread("no machine told its GPUs"),
        "job.cut": Known(found.cut, SOURCE) if found.cut else Absent("it came to its end"),
        "job.seconds": Known(round(found.seconds, 2), SOURCE),
    }


def groups(found: Found) -> dict[str, Rows]:
    """The facts of each rank, of each connection and of each measurement."""
    met = bool(found.ranks)
    return {
        "rank": tuple(map(_rank, found.ranks)) if met else Unread("the ranks did not meet"),
        "link": tuple(map(_link, found.links)),
        "barrier": tuple(map(_barrier, barriers(found.links))),
        "flow": tuple(row for pair in found.pairs for row in _flows(pair, found)),
        "suspect": tuple(map(_suspect, found.suspects)),
        "collective": found.collective,
    }


def _skew(found: Found) -> Fact:
    if found.skew_ms is None:
        return Unread("no clocks were compared")
    return Known(round(found.skew_ms, 1), _PAIRS)


def _rank(rank: RankSeen) -> Row:
    return {
        "rank": Known(rank.rank, SOURCE),
        "host": Known(rank.host, SOURCE) if rank.host else Absent("the launcher does not tell"),
        "hosts": Known((rank.host,), SOURCE) if rank.host and rank.blames else Absent("it is not one machine's fault"),
        "local_rank": _known(rank.local_rank, "it never came"),
        "state": Known(rank.state, SOURCE),
        "step": Known(rank.step, SOURCE) if rank.step else Absent("it said none"),
        "because": Known(rank.because, SOURCE) if rank.because else Absent("nothing is wrong with it"),
        "world": _known(rank.world, "it never came"),
        "nccl": Known(rank.nccl, SOURCE) if rank.nccl else Unread("it did not tell"),
        "seconds": _known(None if rank.seconds is None else round(rank.seconds, 1), "it never came"),
    }


def _link(link: LinkSeen) -> Row:
    return {
        **_texts(link.source, source="source"),
        **_texts(link.target, source="target"),
        **_where(link.kind, link.used_by, link.address, link.port, link.interface, link.outcome, link.words),
        "ms": _known(link.ms, "no connection"),
    }


def _texts(value: str, source: str) -> dict[str, Fact]:
    return {source: Known(value, SOURCE)}


def _barrier(one: Barrier) -> Row:
    link = one.links[0]
    return {
        "sources": Known(one.sources, SOURCE),
        "targets": Known(one.targets, SOURCE),
        "hosts": Known(one.blamed, SOURCE) if one.blamed else Absent("it is not one machine"),
        "count": Known(len(one.links), SOURCE),
        "announced": Known(f"{link.address} of {link.interface}" if link.address else "no address", SOURCE),
        **_where(link.kind, link.used_by, link.address, link.port, link.interface, link.outcome, link.words),
    }


def _where(kind: str, used_by: str, address: str, port: int, interface: str, outcome: str, words: str) -> Row:
    return {
        "kind": Known(kind, SOURCE),
        "used_by": Known(used_by, SOURCE),
        "address": Known(address, SOURCE) if address else Absent("it announces none"),
        "port": Known(port, SOURCE) if port else Absent("none was tried"),
        "interface": Known(interface, SOURCE) if interface else Absent("not told"),
        "outcome": Known(outcome, "connect"),
        "words": Known(words, "connect"),
    }


def _flows(pair: Pair, found: Found) -> Iterator[Row]:
    for source, target, way in pair.ways:
        if way.gbps is not None or way.stalled_above is not None:
            flow = found.flows.get((source, target)) or found.flows.get((target, source)) or {}
            yield _flow(source, target, pair, way, flow)


def _flow(source: str, target: str, pair: Pair, way: Direction, flow: Mapping[str, object]) -> Row:
    mtu = flow.get("mtu")
    return {
        "source": Known(source, _PAIRS),
        "target": Known(target, _PAIRS),
        "round": Known(pair.round, _PAIRS),
        "gbps": _known(None if way.gbps is None else round(way.gbps, 3), "nothing arrived"),
        "ms": _known(None if pair.ms is None else round(pair.ms, 3), "not measured"),
        "resent": Known(round(way.resent / way.sent, 4), "TCP_INFO")
        if way.sent
        else Unread("the kernel does not tell"),
        "stalled_above": _absent_or(way.stalled_above, "all sizes pass"),
        "mtu": _known(mtu if isinstance(mtu, int) else None, "the kernel does not tell"),
    }


def _suspect(one: Suspect) -> Row:
    return {
        "kind": Known(one.kind, _PAIRS),
        "names": Known(one.names, _PAIRS),
        "hosts": Absent("it is a switch") if one.kind == "switch" else Known(one.names, _PAIRS),
        "way": Known(one.way, _PAIRS),
        "measure": Known(one.measure, _PAIRS),
        "value": _known(_rounded(one.value), "nothing arrived"),
        "usual": _known(_rounded(one.usual), "nothing to compare with"),
        "share": _known(_rounded(one.share), "nothing to compare with"),
        "pairs": Known(one.pairs, _PAIRS),
        "words": Known(one.words, _PAIRS),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _known(value: Value | None, why: str) -> Fact:
    return Unread(why) if value is None else Known(value, SOURCE)


def _absent_or(value: int | None, why: str) -> Fact:
    return Absent(why) if value is None else Known(value, _PAIRS)
