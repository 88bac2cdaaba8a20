"""One rung on one device: children that run its kernels, what they said, and what became of those that ended early.

A kernel that does not return within its seconds, or that takes its process along, costs itself; the next child goes on
with those after it. What is given up is not run: it fails only where even SIGKILL does not end its process. Whatever a
child prints is taken for what it is, or left out.
"""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.kernels.place import program as program  # by this name tests lay out another
from gpudoctor.kernels.specs import Placed
from gpudoctor.target import Answer, Target
from gpudoctor.target.child import MARK
from gpudoctor.target.protocol import answers, patience, printable
from gpudoctor.target.waiting import STILL, WAKING, Waiting, gpus_on_bus

OPENING = patience("GPUDOCTOR_KERNEL_TIMEOUT", 120.0)
"""Most seconds until a rung is open, as long as its child reads or computes: the import of torch from cold storage, the
driver's start, a context. For each GPU that may have to wake there are `WAKING` more.
"""

_NOISE = 8 << 20
_MOST_CHILDREN = 4
"""Children for one rung and device: what ends so many of them is the device's own affair."""
_SLACK = 5.0
_ON_CPU = 10
"""A kernel's seconds are those that a GPU needs at most; on the CPU it has so many times as long."""
_OOM_KILLS = "oom_kill "
"""The line of /proc/vmstat that counts what Linux's OOM killer ended, in containers too."""

Hear = Callable[[str, Mapping[str, Any]], None]
"""Told of each kernel by its id: ``{}`` when it begins, its outcome when it is over."""
Halt = Callable[[], str]
"""Why to end now, empty as long as there is no reason; asked a few times a second."""


@dataclass(frozen=True, slots=True)
class Question:
    """What to run: the folder of a rung, the device as the child knows it, and variables of its environment."""

    family: str
    device: str
    kernels: Sequence[Placed]
    env: Mapping[str, str] = field(default_factory=dict)
    together: Sequence[int] = ()
    """Of the ``node`` the GPUs that the child sees, as CUDA numbers them outside of it."""


@dataclass(slots=True)
class Heard:
    """What became of a rung on a device."""

    opened: bool = False
    closed: str = ""
    """Why it did not open."""
    failed: bool = False
    """Whether that is a failure, not merely something that is not there."""
    outcomes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    unfinished: str = ""
    """The first kernel that was given up, and why."""


def ask(target: Target, question: Question, hear: Hear, halt: Halt) -> Heard:
    """Run these kernels, in as many children as it takes. Where it is halted, those that are left have no outcome."""
    heard = Heard()
    left = {one.spec.id: one for one in question.kernels}

    def over(name: str, outcome: Mapping[str, Any]) -> None:
        del left[name]
        heard.outcomes[name] = outcome
        hear(name, outcome)

    before = ""
    for _ in range(_MOST_CHILDREN):
        child = _Child(left, _ON_CPU if question.device == "cpu" else 1, over, hear, halt)
        child.run(target, question)
        heard.opened = heard.opened or child.opened
        heard.unfinished = heard.unfinished or child.unfinished
        if not left or halt():
            return heard
        if not child.opened:
            heard.closed, heard.failed = child.closed, child.failed
            if heard.opened:
                _give_up(left, over, f"it opened before {before}, and not again: {child.closed}", child.failed)
            return heard
        before = child.last or before
    _give_up(left, over, f"{_MOST_CHILDREN} processes ended before its turn came", failed=False)
    return heard


def _give_up(left: Mapping[str, Placed], over: Hear, because: str, failed: bool) -> None:
    for name in tuple(left):
        over(name, {"status": "failed" if failed else "not-run", "because": because})


class _Child:
    """One conversation. `over` is told of each kernel that has come to an end, which takes it from `left`."""

    def __init__(self, left: Mapping[str, Placed], times: int, over: Hear, hear: Hear, halt: Halt) -> None:
        self._left, self._times, self._over, self._hear, self._halt = left, times, over, hear, halt
        self.opened = self.failed = False
        self.closed = self.last = self.unfinished = ""
        """Why the rung did not open; the kernel that began last; the one that was given up, and why."""
        self._step = ""
        self._until = 0.0
        self._opening = Waiting(OPENING)

    def run(self, target: Target, question: Question) -> None:
        """Ask, and take in what comes until it ends."""
        own = question.family == "driver"
        python = sys.executable if own else target.python
        if python is None:
            self.closed = "there is no Python to run it with"
            return
        wanted = {
            "family": question.family,
            "device": question.device,
            "kernels": list(self._left),
            "numbers": list(question.together),
            "seed": 1,
        }
        env = {**question.env, MARK: secrets.token_hex(8)}
        waking = WAKING * gpus_on_bus(target)
        whole = OPENING + waking + _SLACK + sum(self._seconds(name) + _SLACK for name in self._left)
        kills = _oom_kills(target)
        self._opening.begin(OPENING + waking, min(STILL, OPENING) + waking)
        try:
            argv = [python, *(("-E", "-s") if own else ()), program(), json.dumps(wanted)]
            answer = target.run(argv, timeout=whole, env=env, limit=_NOISE, watch=self._listen)
        except OSError as error:
            self.closed = f"{python} could not be started: {error.strerror or error}"
            return
        if not self.closed and not self._halt():
            self._ended(answer, _oom_kills(target) > kills)

    def _listen(self, line: str | None) -> bool:
        """Take in a line; whether the child may go on."""
        for entry in answers(line) if line else ():
            self._take(entry)
        goes_on = time.monotonic() <= self._until if self.opened else self._opening(line)
        return goes_on and not self._halt() and not self.closed

    def _take(self, entry: Mapping[str, Any]) -> None:
        if type(pid := entry.get("pid")) is int and not self.opened:
            self._opening.pid = pid
        elif self._opening.why:
            return  # it has been given up, and what it waited in was broken off for it to say where it is
        elif "closed" in entry and not self.opened:
            self.closed = printable(" ".join(str(entry["closed"]).split()), 600) or "it does not say why"
            self.failed = entry.get("failed") is not False
        elif "opened" in entry:
            self.opened = True
            self._until = time.monotonic() + _SLACK
        elif self.opened and (name := self._meant(entry, "step")):
            self._step = self.last = name
            self._until = time.monotonic() + self._seconds(name)
            self._hear(name, {})
        elif self.opened and (name := self._meant(entry, "kernel")):
            self._step = ""
            self._until = time.monotonic() + _SLACK
            self._over(name, entry)

    def _seconds(self, name: str) -> float:
        return self._left[name].spec.seconds * self._times

    def _meant(self, entry: Mapping[str, Any], key: str) -> str:
        """The kernel that an entry is about; empty for one that nobody asked for, or that is over already."""
        name = entry.get(key)
        return name if isinstance(name, str) and name in self._left else ""

    def _ended(self, answer: Answer, out_of_memory: bool) -> None:
        """It ended early: in a kernel, or before the rung was open."""
        memory = out_of_memory and answer.status == -9
        late = bool(self._opening.why) or (answer.status is None and not answer.cut)
        how = "Linux's OOM killer ended it: no host memory is free for it" if memory else self._how(answer, late)
        failed = not memory and (not late or answer.stuck is not None)
        if not self.opened:
            self.closed, self.failed = how, failed
        elif self._step:
            self.unfinished = f"{self._step}: {how}" if late and not failed else ""
            details = {"details": {"unfinished": True}} if self.unfinished else {}
            self._over(self._step, {"status": "failed" if failed else "not-run", "because": how, **details})

    def _how(self, answer: Answer, late: bool) -> str:
        if late:
            limit = self._seconds(self._step) if self._step else _SLACK
            how = f"it did not come to an end within {limit:g} s" if self.opened else self._opening.why
            return (how or answer.how) + (f"; {answer.how}" if answer.stuck else "")
        if answer.cut:
            return f"its process was {answer.how}"
        last = (answer.err.strip().splitlines() or [""])[-1] if answer.status else ""
        how = f"its process ended before it: {answer.how}"
        return printable(f"{how}; {last}" if last and (answer.status or 0) > 0 else how)


def _oom_kills(target: Target) -> int:
    """How many processes Linux's OOM killer has ended since the machine started."""
    try:
        lines = target.read("/proc/vmstat").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(_OOM_KILLS)), 0)
