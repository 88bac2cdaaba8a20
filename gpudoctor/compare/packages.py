"""Packages that were exchanged between two moments of one machine, by the logs of its package managers."""

from __future__ import annotations

from gpudoctor.model.fact import Fact, Known, Row, listed
from gpudoctor.model.since import Since
from gpudoctor.model.snapshot import Snapshot

GROUP = "package_change"


def exchanged(a: Snapshot, b: Snapshot) -> tuple[Since, ...]:
    """What B's log has and A's has not, the newest first; empty where the two are not the log of one machine."""
    old, new = listed(a.rows(GROUP)), listed(b.rows(GROUP))
    known = {_identity(row) for row in old}
    if not isinstance(a.rows(GROUP), tuple) or (old and known.isdisjoint(map(_identity, new))):
        return ()
    oldest_kept = min((_text(row.get("time")) or "" for row in old), default="")
    fresh = [row for row in new if _identity(row) not in known]
    return tuple(_since(row) for row in fresh if (_text(row.get("time")) or "") > oldest_kept)


def _identity(row: Row) -> tuple[str | None, ...]:
    return tuple(_text(row.get(column)) for column in ("name", "time", "before", "after"))


def _since(row: Row) -> Since:
    name, before, after, time, by, user = map(_text, map(row.get, ("name", "before", "after", "time", "by", "user")))
    source = next((state.source for state in row.values() if isinstance(state, Known)), "")
    return Since(name or "?", before, after, time, f"{by} ({user})" if by and user else by or user, source)


def _text(fact: Fact | None) -> str | None:
    return str(fact.value) if isinstance(fact, Known) else None
