"""The roll call: who is here, and what is wrong with whoever is not."""

from __future__ import annotations

from typing import Any

from gpudoctor.job.found import RankSeen
from gpudoctor.job.guest import TERMINATED, Guest
from gpudoctor.job.meeting import SILENT, Meeting
from gpudoctor.version import __version__


def called(meeting: Meeting, waited: float | None) -> list[RankSeen]:
    """Every rank of the job, and any other that came; those who did not were waited for so many seconds, or None
    where the check was cut short before they had their time.
    """
    ranks = sorted({*range(meeting.place.world), *meeting.guests})
    return [_seen(meeting, rank, waited) for rank in ranks]


def _seen(meeting: Meeting, rank: int, waited: float | None) -> RankSeen:
    guest = meeting.guests.get(rank)
    if guest is None:
        return _missing(meeting, rank, waited)
    state, because = _state(guest, meeting.stop.is_set())
    if others := meeting.twice.get(rank):
        state, because = "twice", f"came more than once: from {' and from '.join(others)}"
    hello = guest.hello
    return RankSeen(
        rank=rank,
        state=state,
        host=guest.host,
        local_rank=_whole(hello.get("local_rank")),
        step=guest.step,
        because=because,
        world=_whole(hello.get("world")),
        nccl=str(guest.reports.get("nccl", "")),
        seconds=guest.silent,
        blames=state != "twice" and TERMINATED not in guest.reports,
    )


def _missing(meeting: Meeting, rank: int, waited: float | None) -> RankSeen:
    place = meeting.place
    host = place.hosts[rank] if rank < len(place.hosts) else ""
    if waited is None:
        return RankSeen(rank, "awaited", host, because="had not come yet when the check was cut short")
    if why := meeting.unproven.get(rank):  # which is nobody's proof: it may change words, and blames no machine
        return RankSeen(rank, "missing", host, because=f"was turned away: {why}", blames=False)
    expected = f"; it belongs on {host}" if host else ""
    return RankSeen(rank, "missing", host, because=f"never came to {place.master} in {waited:.0f} s{expected}")


def _state(guest: Guest, cut: bool) -> tuple[str, str]:
    """Its state, and what is wrong with it; `cut`: the hub itself was told to end."""
    if guest.ended and TERMINATED in guest.reports:
        if cut:  # so were we all
            return "here", ""
        return "ended", f"on {guest.host} was told to end while it did: {guest.step}"
    if guest.ended:
        return "ended", f"on {guest.host} ended while it did: {guest.step} ({guest.ended})"
    if guest.silent > SILENT:
        return "silent", f"on {guest.host} hangs: nothing heard for {guest.silent:.0f} s, last: {guest.step}"
    if guest.refused:
        version = guest.hello.get("version")
        other = f" (gpudoctor {version}, and {__version__} here)" if version != __version__ else ""
        return "failed", f"on {guest.host} could not do its part: {guest.refused}{other}"
    if guest.leads and "failed" in guest.reports:
        return "failed", f"on {guest.host}: {guest.reports['failed']}"
    return "here", ""


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None
