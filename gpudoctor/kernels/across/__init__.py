"""Collectives over the hosts of a job: each rank asks a child of its own, and what all of them say becomes facts.

`run` is one rank's part, `Across` what came of it, `facts_of` what follows from those of all ranks.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpudoctor.kernels.across.answer import Across as Across
from gpudoctor.kernels.across.answer import Ended, Found, Via, several
from gpudoctor.kernels.across.facts import facts_of as facts_of
from gpudoctor.kernels.child._rank import gave_up
from gpudoctor.kernels.child.collective import _nccl, _nccl_log
from gpudoctor.kernels.place import program as program  # by this name tests lay out another
from gpudoctor.target import Answer, Target
from gpudoctor.target.child import MARK
from gpudoctor.target.protocol import answers, printable

# ---- One rank's part ----
# A child in the interpreter being diagnosed, heard live, and ended in time.

_NOISE = 8 << 20
_SLACK = 1.0
"""Seconds that a child may be late with its next word."""


@dataclass(frozen=True, slots=True)
class Member:
    """Who this rank is, and where the job's store is: rank 0 listens there, at any port where that is 0."""

    rank: int
    world: int
    local_rank: int
    host: str
    store: tuple[str, int]


def run(
    target: Target,
    me: Member,
    backend: str = "auto",
    level: str = "standard",
    seconds: float = 40.0,
    legs: Mapping[str, Sequence[Sequence[int]]] | None = None,
    tell: Callable[[str], None] = lambda _: None,
    listening: Callable[[int], None] = lambda _: None,
    halt: Callable[[], str] = str,
) -> Across:
    """Take part in the job's collectives for at most so many seconds; whatever happens, there is an answer.

    `backend` is ``gloo``, ``nccl``, or ``auto``: NCCL where every rank has a GPU, and a little of Gloo beside it.
    What rank 0 is given of `backend`, `level` and `legs` (groups of ranks by name, instead of the usual ones) holds
    for all. `tell` hears each step as it begins; `listening` hears rank 0's port, before torch is imported; `halt` is
    asked a few times a second and says why to end now, empty as long as there is no reason.
    """
    ask = {
        "entry": "collective._across",
        "rank": me.rank,
        "world": me.world,
        "local_rank": me.local_rank,
        "host": me.host,
        "store": list(me.store),
        "backend": backend,
        "level": level,
        "legs": {name: [list(ranks) for ranks in groups] for name, groups in (legs or {}).items()},
        "seconds": seconds,
    }
    return _Child(me, tell, listening, halt).run(target, ask, seconds)


class _Child:
    def __init__(
        self, me: Member, tell: Callable[[str], None], listening: Callable[[int], None], halt: Callable[[], str]
    ) -> None:
        self._me, self._tell, self._listening, self._halt = me, tell, listening, halt
        self._said: list[Mapping[str, Any]] = []
        self._steps: list[str] = []
        self._notes: dict[str, Any] = {}
        self._last: Mapping[str, Any] = {}
        self._until = float("inf")
        self._halted = ""

    def run(self, target: Target, ask: Mapping[str, Any], seconds: float) -> Across:
        began = time.monotonic()
        if target.python is None:
            return self._across(began, "there is no Python to run it with", cannot=True)
        env = {**_nccl.TELLING, MARK: secrets.token_hex(8)}
        try:
            answer = target.run(
                [target.python, program(), json.dumps(ask)], seconds, env, limit=_NOISE, watch=self._listen
            )
        except OSError as error:
            return self._across(began, f"{target.python} could not be started: {error.strerror or error}", cannot=True)
        if "answer" in self._last:
            return self._across(began, "", err=answer.err)
        if "why" in self._last:
            return self._across(began, str(self._last["why"]), self._last.get("cannot") is True, answer.err)
        return self._across(began, self._halted or _how(answer), bool(self._halted), answer.err)

    def _listen(self, line: str | None) -> bool:
        """Take in a line; whether the child may go on."""
        for entry in answers(line) if line else ():
            self._take(entry)
        self._halted = self._halted or self._halt()
        return not self._halted and time.monotonic() <= self._until

    def _take(self, entry: Mapping[str, Any]) -> None:
        if "answer" in entry or "why" in entry:
            self._last = self._last or entry
        elif isinstance(step := entry.get("step"), str):
            limit = entry.get("seconds")
            self._until = time.monotonic() + _SLACK + (limit if isinstance(limit, (int, float)) else 0.0)
            self._steps.append(printable(step))
            self._notes.update({name: entry.get(name, "") for name in ("leg", "backend")})
            self._tell(self._steps[-1])
        elif isinstance(port := entry.get("listening"), int):
            self._listening(port)
        elif isinstance(notes := entry.get("note"), dict):
            self._notes.update(notes)
        elif isinstance(ended := entry.get("ended"), dict):
            self._said.append(
                {"ended": {**ended, "step": self._steps[-1] if self._steps else "", "steps": len(self._steps)}}
            )
        else:
            self._said.append(entry)

    def _across(self, began: float, why: str, cannot: bool = False, err: str = "") -> Across:
        log = _nccl_log.read(err)
        known = Across.from_json({**self._notes, **log, "warned": _nccl.warning(err)})
        return replace(
            known,
            rank=self._me.rank,
            host=self._me.host,
            local_rank=self._me.local_rank,
            found=several(Found, self._all("found")),
            ended=several(Ended, self._all("ended")),
            via=several(Via, [*self._all("via"), *log.get("via", ())]),
            why=printable(why, 600),
            cannot=cannot,
            step=self._steps[-1] if self._steps else "",
            steps=len(self._steps),
            seconds=time.monotonic() - began,
        )

    def _all(self, key: str) -> list[Any]:
        return [said[key] for said in self._said if key in said]


def _how(answer: Answer) -> str:
    """What became of a child that did not say its last word."""
    if answer.status is None and not answer.cut:
        return "did not come to an end" + (f"; {answer.how}" if answer.stuck else "")
    if gave_up(answer.status, answer.err):
        return f"failed: {gave_up(answer.status, answer.err)}"
    lines = [line.strip() for line in answer.err.splitlines() if line.strip()]
    last = f": {lines[-1][:300]}" if lines and (answer.status or 0) > 0 else ""
    return f"{'was ' if (answer.status or 0) < 0 or answer.cut else 'ended with '}{answer.how}{last}"
