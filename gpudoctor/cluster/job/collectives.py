"""Collectives over the job's ranks by torch.distributed: each rank asks a child of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpudoctor.cluster.job.meeting import Guest, Meeting
from gpudoctor.cluster.job.wire import Message
from gpudoctor.core.fact import Rows, Unread
from gpudoctor.kernels import across
from gpudoctor.kernels.across import Across
from gpudoctor.target.local import Local

_IMPORT = 15.0
"""Seconds that rank 0's child has to start and listen; it imports torch later."""
_SLACK = 3.0


def run_collective(meeting: Meeting, level: str, seconds: float, unreachable: bool) -> list[Across] | str:
    """Result of a collective for each rank, or as text the reason why none was run.
    Not run unless every rank is connected and, by `unreachable`, all machines reach each other. `seconds` limits it.
    """
    here = meeting.here
    if [guest.rank for guest in here] != list(range(meeting.place.world)):
        return "not every rank is here: a collective would wait for the others"
    if unreachable:
        return "some machines do not reach each other: a collective would hang"
    task: Message = {"task": "collective", "level": level, "seconds": seconds}
    first = here[0]
    address = _rendezvous_address(meeting, first)
    began = meeting.give({first.rank: {**task, "store": [address, 0]}})
    meeting.wait_until(
        lambda: "store" in first.reports or bool(first.ended) or bool(began[0] in first.answers), _IMPORT
    )
    store = first.reports.get("store")
    if not isinstance(store, int):
        answers = meeting.collect_answers(began, 0.5)
    else:
        others = meeting.give({guest.rank: {**task, "store": [address or first.host, store]} for guest in here[1:]})
        answers = {**meeting.collect_answers(others, seconds + _SLACK), **meeting.collect_answers(began, _SLACK)}
    return [_result_of(guest, answers.get(guest.rank, {})) for guest in here if guest.rank in answers or store]


def _result_of(guest: Guest, message: Mapping[str, Any]) -> Across:
    """A rank's result from its answer; without one, a failed result with the reason and its last known step."""
    if isinstance(raw := message.get("across"), dict):
        return Across.from_json(raw)
    why = str(message.get("because") or guest.ended or "did not come to an end")
    return Across(guest.rank, guest.host, int(guest.hello.get("local_rank") or 0), why=why, step=guest.step)


def _rendezvous_address(meeting: Meeting, first: Guest) -> str:
    """Address at which rank 0's machine announced a listener for NCCL or Gloo; ``""`` if it announced none."""
    ears = (ear for guest in meeting.leaders if guest.host == first.host for ear in guest.hello.get("ears", ()))
    return next((str(ear["address"]) for ear in ears if ear.get("port")), "")


def rows(results: list[Across] | str) -> Rows:
    """Rows of the group ``collective``; Unread with the reason if nothing was measured."""
    if isinstance(results, str):
        return Unread(results)
    return across.collective_rows(results) or Unread(_failure_reason(results))


def _failure_reason(results: list[Across]) -> str:
    """First failure as text; a rank that could not take part comes before those that only waited for it."""
    failed = sorted((answer for answer in results if answer.why), key=lambda answer: (not answer.cannot, answer.rank))
    return f"rank {failed[0].rank} on {failed[0].host}: {failed[0].why}" if failed else "no rank measured anything"


def rank_task(rank: int, world: int, local_rank: int, host: str, python: str | None) -> Callable[..., Message]:
    """Task function for this rank's part in a collective.
    Called with the hub's message it runs the collective, reports its steps by `set_step` and its store's port by
    `tell`, and returns ``{"across": result as JSON}``.
    """

    def run(message: Mapping[str, Any], set_step: Callable[[str], None], tell: Callable[..., None]) -> Message:
        """Run the collective that the message describes: ``{"across": result as JSON}``."""
        address, port = message["store"]
        level = str(message["level"])
        answer = across.run(
            Local(level, python),
            across.Member(rank, world, local_rank, host, (str(address), int(port))),
            level=level,
            seconds=float(message["seconds"]),
            tell=lambda step: set_step(f"collective: {step}"),
            listening=lambda port: tell(store=port),
        )
        set_step("waiting for the others")
        return {"across": answer.to_json()}

    return run
