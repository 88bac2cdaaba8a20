"""The roll call: who is here, and what is wrong with whoever is not."""

from __future__ import annotations

from typing import Any

from gpudoctor.job.found import RankSeen
from gpudoctor.job.meeting import SILENT, Guest, Meeting


def called(meeting: Meeting, waited: float) -> list[RankSeen]:
    """Every rank of the job; those who did not come were waited for so many seconds."""
    return [_seen(meeting, rank, waited) for rank in range(meeting.place.world)]


def _seen(meeting: Meeting, rank: int, waited: float) -> RankSeen:
    guest = meeting.guests.get(rank)
    if guest is None:
        return _missing(meeting, rank, waited)
    state, because = _state(guest)
    hello = guest.hello
    return RankSeen(
        rank=rank,
        state=state,
        host=guest.host,
        local_rank=_whole(hello.get("local_rank")),
        step=guest.step,
        because=because,
        world=_whole(hello.get("world")),
        nccl=str(guest.told.get("nccl", "")),
        seconds=guest.silent,
    )


def _missing(meeting: Meeting, rank: int, waited: float) -> RankSeen:
    place = meeting.place
    host = place.hosts[rank] if rank < len(place.hosts) else ""
    expected = f"; it belongs on {host}" if host else ""
    return RankSeen(rank, "missing", host, because=f"never came to {place.master} in {waited:.0f} s{expected}")


def _state(guest: Guest) -> tuple[str, str]:
    """Its state, and what is wrong with it."""
    if guest.ended:
        return "ended", f"on {guest.host} ended while it did: {guest.step} ({guest.ended})"
    if guest.silent > SILENT:
        return "silent", f"on {guest.host} hangs: nothing heard for {guest.silent:.0f} s, last: {guest.step}"
    if guest.leads and "failed" in guest.told:
        return "failed", f"on {guest.host}: {guest.told['failed']}"
    return "here", ""


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None
