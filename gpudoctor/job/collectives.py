"""Collectives over the job's ranks by torch.distributed: each rank asks a child of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpudoctor.job.guest import Guest
from gpudoctor.job.meeting import Meeting
from gpudoctor.job.wire import Message
from gpudoctor.kernels.across import Across
from gpudoctor.model.fact import Rows, Unread

_IMPORT = 15.0
"""Seconds that rank 0's child has to start and listen; it imports torch later."""
_SLACK = 3.0


def measured(meeting: Meeting, level: str, seconds: float, shut: bool) -> list[Across] | str:
    """What each rank answered, or why nobody was asked. `shut`: some machines do not reach each other."""
    here = meeting.here
    if [guest.rank for guest in here] != list(range(meeting.place.world)):
        return "not every rank is here: a collective would wait for the others"
    if shut:
        return "some machines do not reach each other: a collective would hang"
    task: Message = {"task": "collective", "level": level, "seconds": seconds}
    first = here[0]
    address = _address(meeting, first)
    began = meeting.give({first.rank: {**task, "store": [address, 0]}})
    meeting.until(lambda: "store" in first.reports or bool(first.ended) or bool(began[0] in first.answers), _IMPORT)
    store = first.reports.get("store")
    if not isinstance(store, int):
        answers = meeting.answers(began, 0.5)
    else:
        others = meeting.give({guest.rank: {**task, "store": [address or first.host, store]} for guest in here[1:]})
        answers = {**meeting.answers(others, seconds + _SLACK), **meeting.answers(began, _SLACK)}
    return [_answer(guest, answers.get(guest.rank, {})) for guest in here if guest.rank in answers or store]


def _answer(guest: Guest, message: Mapping[str, Any]) -> Across:
    """What it said; of a rank that did not, the step at which it was heard last."""
    if isinstance(raw := message.get("across"), dict):
        return Across.from_json(raw)
    why = str(message.get("because") or guest.ended or "did not come to an end")
    return Across(guest.rank, guest.host, int(guest.hello.get("local_rank") or 0), why=why, step=guest.step)


def _address(meeting: Meeting, first: Guest) -> str:
    """Where rank 0's machine listens for NCCL or Gloo, as the others shall for the store; empty where nobody told."""
    ears = (ear for guest in meeting.leaders if guest.host == first.host for ear in guest.hello.get("ears", ()))
    return next((str(ear["address"]) for ear in ears if ear.get("port")), "")


def rows(found: list[Across] | str) -> Rows:
    """The group ``collective``."""
    from gpudoctor.kernels.across import facts_of

    if isinstance(found, str):
        return Unread(found)
    return facts_of(found) or Unread(_why_none(found))


def _why_none(found: list[Across]) -> str:
    """Of a rank that could not take part rather than of one that waited for it."""
    failed = sorted((answer for answer in found if answer.why), key=lambda answer: (not answer.cannot, answer.rank))
    return f"rank {failed[0].rank} on {failed[0].host}: {failed[0].why}" if failed else "no rank measured anything"


def part(rank: int, world: int, local_rank: int, host: str, python: str | None) -> Callable[..., Message]:
    """This rank's part, as a task; `does` and `tell` are the member's."""

    def run(message: Mapping[str, Any], does: Callable[[str], None], tell: Callable[..., None]) -> Message:
        from gpudoctor.kernels import across
        from gpudoctor.target.local import Local

        address, port = message["store"]
        level = str(message["level"])
        answer = across.run(
            Local(level, python),
            across.Member(rank, world, local_rank, host, (str(address), int(port))),
            level=level,
            seconds=float(message["seconds"]),
            tell=lambda step: does(f"collective: {step}"),
            listening=lambda port: tell(store=port),
        )
        does("waiting for the others")
        return {"across": answer.to_json()}

    return run
