"""One child that runs kernels of one rung on one device: what it said, and at what step it ended if it did not finish.

A kernel that does not return within its seconds ends its child; the next child goes on with those after it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpudoctor.kernels.specs import Placed
from gpudoctor.probes._child import answers, patience, printable
from gpudoctor.target import Answer, Target

OPENING = patience("GPUDOCTOR_KERNEL_TIMEOUT", 45.0)
"""Seconds until a rung is open: the import of torch from cold storage, the driver's start, a context."""

_NOISE = 8 << 20
_MOST_CHILDREN = 4
"""Children for one rung and device: what kills so many of them is the device's own affair."""

Hear = Callable[[str, Mapping[str, Any]], None]
"""Told of each kernel by its id: ``{}`` when it begins, its outcome when it is over."""


@dataclass(slots=True)
class Heard:
    """What became of a rung on a device."""

    opened: Mapping[str, Any] | None = None
    closed: str = ""
    """Why the rung does not hold, or could not be tried."""
    failed: bool = False
    """Whether that is a failure, not merely something that is not there."""
    outcomes: dict[str, Mapping[str, Any]] = field(default_factory=dict)


def program() -> str:
    """The child's file, as an interpreter takes it."""
    return str(Path(__file__).with_name("child") / "__main__.py")


def ask(
    target: Target,
    family: str,
    device: str,
    kernels: Sequence[Placed],
    hear: Hear,
    stopped: Callable[[], bool],
    devices: Sequence[int] = (),
) -> Heard:
    """Run these kernels, in as many children as it takes. On the ``node`` they may use `devices`, by their numbers."""
    heard = Heard()
    left = {one.spec.id: one for one in kernels}
    for _ in range(_MOST_CHILDREN):
        child = _Child(heard, left, hear, stopped)
        child.run(target, family, device, devices)
        if not left or stopped() or heard.opened is None:
            return heard
    for name in left:
        _give_up(heard, hear, name, f"{_MOST_CHILDREN} children before it did not come to an end")
    return heard


def _give_up(heard: Heard, hear: Hear, name: str, because: str, status: str = "not-run") -> None:
    heard.outcomes[name] = {"status": status, "because": because}
    hear(name, heard.outcomes[name])


class _Child:
    """One conversation. Kernels that are over leave `left`."""

    def __init__(self, heard: Heard, left: dict[str, Placed], hear: Hear, stopped: Callable[[], bool]) -> None:
        self.heard, self.left, self.hear, self.stopped = heard, left, hear, stopped
        self.step = ""
        self.until = float("inf")
        self.late = False
        self.done = False

    def run(self, target: Target, family: str, device: str, devices: Sequence[int]) -> None:
        """Ask, and take in what comes until it ends."""
        python = sys.executable if family == "driver" else target.python
        if python is None:
            self.heard.closed = "there is no Python to run it with"
            return
        wanted: dict[str, object] = {"family": family, "device": device, "kernels": list(self.left), "seed": 1}
        if devices:
            wanted["devices"] = list(devices)
        self.until = time.monotonic() + OPENING
        whole = OPENING + sum(one.spec.seconds for one in self.left.values())
        try:
            answer = target.run([python, program(), json.dumps(wanted)], timeout=whole, limit=_NOISE, watch=self._hear)
        except OSError as error:
            self.heard.closed = f"{python} could not be started: {error.strerror or error}"
            return
        if not self.done and not self.stopped():
            self._ended(answer)

    def _hear(self, line: str | None) -> bool:
        for entry in answers(line) if line else ():
            self._take(entry)
        self.late = time.monotonic() > self.until
        return not self.late and not self.stopped()

    def _take(self, entry: Mapping[str, Any]) -> None:
        if "opened" in entry:
            self.heard.opened = entry["opened"]
        elif "closed" in entry:
            self.heard.closed, self.heard.failed, self.done = (
                printable(entry["closed"], 600),
                bool(entry["failed"]),
                True,
            )
        elif "step" in entry and entry["step"] in self.left:
            self.step = str(entry["step"])
            self.until = time.monotonic() + self.left[self.step].spec.seconds
            self.hear(self.step, {})
        elif "kernel" in entry and entry["kernel"] in self.left:
            name = str(entry["kernel"])
            del self.left[name]
            self.step = ""
            self.heard.outcomes[name] = entry
            self.hear(name, entry)
        elif "done" in entry:
            self.done = True

    def _ended(self, answer: Answer) -> None:
        """It ended in the middle: of that kernel, or before the rung was open."""
        how = self._how(answer)
        if self.heard.opened is None:
            self.heard.closed, self.heard.failed = how, True
        elif self.step:
            del self.left[self.step]
            _give_up(self.heard, self.hear, self.step, how, "failed")

    def _how(self, answer: Answer) -> str:
        if self.late:
            limit = self.left[self.step].spec.seconds if self.step else OPENING
            return f"it did not come to an end within {limit:g} s"
        last = (answer.err.strip().splitlines() or [""])[-1]
        how = f"its process ended: {answer.how}"
        if answer.status == -9:
            how += "; Linux's OOM killer ends processes so: see dmesg"
        return printable(f"{how}; {last}" if last and (answer.status or 0) > 0 else how)
