"""Runs one rung on one device in child processes; reads what they say, and accounts for those that ended early.

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
from math import isfinite
from typing import Any

from gpudoctor.core.fact import Json
from gpudoctor.core.measurement import Meanwhile, Run, Status, Step
from gpudoctor.kernels.specs import KernelEntry
from gpudoctor.kernels.specs import program as program  # by this name tests lay out another
from gpudoctor.target import Answer, Target
from gpudoctor.target.child import MARK
from gpudoctor.target.protocol import IDLE_SECONDS, WAKE_SECONDS, Waiting, answers, gpus_on_bus, patience, printable

OPENING = patience("GPUDOCTOR_KERNEL_TIMEOUT", 120.0)
"""Most seconds until a rung is open, as long as its child reads or computes: the import of torch from cold storage, the
driver's start, a context. For each GPU that may have to wake there are `WAKE_SECONDS` more.
"""
_OUTPUT_LIMIT = 8 << 20
_MOST_CHILDREN = 4
"""Children for one rung and device: what ends so many of them is the device's own affair."""
_SLACK = 5.0
_ON_CPU = 10
"""A kernel's seconds are those that a GPU needs at most; on the CPU it has so many times as long."""
_OOM_KILLS = "oom_kill "
"""The line of /proc/vmstat that counts what Linux's OOM killer ended, in containers too."""
_MAX_TEXT = 2000
_MOST_DETAILS = 200
_MAX_DEPTH = 3
OnKernel = Callable[[str, Mapping[str, Any]], None]
"""Called with each kernel's id: ``{}`` when it begins, its outcome when it is over."""
Halt = Callable[[], str]
"""Why to end now, empty as long as there is no reason; asked a few times a second."""


@dataclass(frozen=True, slots=True)
class Question:
    """One rung to run on one device: folder name, device as the child knows it, kernels, environment of the child."""

    family: str
    device: str
    kernels: Sequence[KernelEntry]
    env: Mapping[str, str] = field(default_factory=dict)
    together: Sequence[int] = ()
    """Of the ``node`` the GPUs that the child sees, as CUDA numbers them outside of it."""
    work: float = 0.0
    """Seconds that each kernel of level soak works."""


@dataclass(slots=True)
class RungResult:
    """Result of a rung on a device: whether it opened, and the last protocol entry of each kernel by id."""

    opened: bool = False
    closed: str = ""
    """Why it did not open."""
    failed: bool = False
    """Whether that is a failure, not merely something that is not there."""
    outcomes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    unfinished: str = ""
    """The first kernel that was given up, and why."""


def ask(target: Target, question: Question, on_kernel: OnKernel, halt: Halt) -> RungResult:
    """Run the question's kernels in up to four children one after another; returns their outcomes by id.

    A kernel that ends its child costs itself; the next child continues after it. Where `halt` gives a reason, the
    kernels that are left have no outcome.
    """
    result = RungResult()
    left = {kernel.spec.id: kernel for kernel in question.kernels}

    def on_over(name: str, outcome: Mapping[str, Any]) -> None:
        """Record the outcome of a kernel that has ended."""
        del left[name]
        result.outcomes[name] = outcome
        on_kernel(name, outcome)

    before = ""
    for _ in range(_MOST_CHILDREN):
        child = _RungChild(left, question, on_over, on_kernel, halt)
        child.run(target)
        result.opened = result.opened or child.opened
        result.unfinished = result.unfinished or child.unfinished
        if not left or halt():
            return result
        if not child.opened:
            result.closed, result.failed = child.closed, child.failed
            if result.opened:
                _report_left(left, on_over, f"it opened before {before}, and not again: {child.closed}", child.failed)
            return result
        before = child.last or before
    _report_left(left, on_over, f"{_MOST_CHILDREN} processes ended before its turn came", failed=False)
    return result


def _report_left(left: Mapping[str, KernelEntry], on_over: OnKernel, because: str, failed: bool) -> None:
    """Report each kernel that is left as failed, or else not run, because of `because`."""
    for name in tuple(left):
        on_over(name, {"status": "failed" if failed else "not-run", "because": because})


class _RungChild:
    """One child process of a rung. `on_over` is called for each kernel that has ended, and removes it from `left`."""

    def __init__(
        self, left: Mapping[str, KernelEntry], question: Question, on_over: OnKernel, on_kernel: OnKernel, halt: Halt
    ) -> None:
        self._left, self._question = left, question
        self._on_over, self._on_kernel, self._halt = on_over, on_kernel, halt
        self.opened = self.failed = False
        self.closed = self.last = self.unfinished = ""
        """Why the rung did not open; the kernel that began last; the one that was given up, and why."""
        self._step = ""
        self._deadline = 0.0
        self._opening = Waiting(OPENING)

    def run(self, target: Target) -> None:
        """Start the child and handle its lines until it ends; results are in attributes and `on_over` calls."""
        question = self._question
        is_driver = question.family == "driver"
        python = sys.executable if is_driver else target.python
        if python is None:
            self.closed = "there is no Python to run it with"
            return
        request = {
            "family": question.family,
            "device": question.device,
            "kernels": list(self._left),
            "numbers": list(question.together),
            "seed": 1,
            "work": question.work,
        }
        env = {**question.env, MARK: secrets.token_hex(8)}
        waking = WAKE_SECONDS * gpus_on_bus(target)
        whole = OPENING + waking + _SLACK + sum(self._seconds(name) + _SLACK for name in self._left)
        kills = _oom_kills(target)
        self._opening.begin(OPENING + waking, min(IDLE_SECONDS, OPENING) + waking)
        try:
            argv = [python, *(("-E", "-s") if is_driver else ()), program(), json.dumps(request)]
            answer = target.run(argv, timeout=whole, env=env, limit=_OUTPUT_LIMIT, watch=self._handle_line)
        except OSError as error:
            self.closed = f"{python} could not be started: {error.strerror or error}"
            return
        if not self.closed and not self._halt():
            self._account_for_early_end(answer, _oom_kills(target) > kills)

    def _handle_line(self, line: str | None) -> bool:
        """Process a line of the child's output (None: only time passed); False to end it: halted, closed or overdue."""
        for entry in answers(line) if line else ():
            self._handle_entry(entry)
        goes_on = time.monotonic() <= self._deadline if self.opened else self._opening(line)
        return goes_on and not self._halt() and not self.closed

    def _handle_entry(self, entry: Mapping[str, Any]) -> None:
        """Act on one protocol entry: pid, opened, closed, a kernel's begin (sets the deadline) or its outcome."""
        if type(pid := entry.get("pid")) is int and not self.opened:
            self._opening.pid = pid
        elif self._opening.why:
            return  # it has been given up, and what it waited in was broken off for it to say where it is
        elif "closed" in entry and not self.opened:
            self.closed = printable(" ".join(str(entry["closed"]).split()), 600) or "it does not say why"
            self.failed = entry.get("failed") is not False
        elif "opened" in entry:
            self.opened = True
            self._deadline = time.monotonic() + _SLACK
        elif self.opened and (name := self._pending_kernel(entry, "step")):
            self._step = self.last = name
            self._deadline = time.monotonic() + self._seconds(name)
            self._on_kernel(name, {})
        elif self.opened and (name := self._pending_kernel(entry, "kernel")):
            self._step = ""
            self._deadline = time.monotonic() + _SLACK
            self._on_over(name, entry)

    def _seconds(self, name: str) -> float:
        """Seconds that a kernel may take: its own, ten times as many on the CPU, and the time that it is to work."""
        spec = self._left[name].spec
        own = spec.seconds * (_ON_CPU if self._question.device == "cpu" else 1)
        return own + self._question.work if spec.level == "soak" else own

    def _pending_kernel(self, entry: Mapping[str, Any], key: str) -> str:
        """The kernel id under `key` of an entry; empty if it was not asked for, or is already over."""
        name = entry.get(key)
        return name if isinstance(name, str) and name in self._left else ""

    def _account_for_early_end(self, answer: Answer, out_of_memory: bool) -> None:
        """Record why the child ended early: as the kernel's outcome, or as why the rung did not open."""
        memory = out_of_memory and answer.status == -9
        late = bool(self._opening.why) or (answer.status is None and not answer.cut)
        how = (
            "Linux's OOM killer ended it: no host memory is free for it"
            if memory
            else self._early_end_message(answer, late)
        )
        failed = not memory and (not late or answer.stuck is not None)
        if not self.opened:
            self.closed, self.failed = how, failed
        elif self._step:
            self.unfinished = f"{self._step}: {how}" if late and not failed else ""
            details = {"details": {"unfinished": True}} if self.unfinished else {}
            self._on_over(self._step, {"status": "failed" if failed else "not-run", "because": how, **details})

    def _early_end_message(self, answer: Answer, late: bool) -> str:
        """How the child ended: time limit exceeded (`late`), output cut, or exit or signal with last error line."""
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
    """How many processes Linux's OOM killer has ended since boot (/proc/vmstat); 0 if unreadable."""
    try:
        lines = target.read("/proc/vmstat").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(_OOM_KILLS)), 0)


# ---- What a child says of a kernel, as a run: each thing of the kind that it must be, or left out ----


def run_from_outcome(
    kernel: str, gpu: int, outcome: Mapping[str, Any], ladder: tuple[Step, ...], meanwhile: Meanwhile | None
) -> Run:
    """A kernel's protocol entry as a `Run`; values of the wrong type count as None or empty."""
    right, details = outcome.get("right"), _bounded_json(outcome.get("details"))
    return Run(
        kernel=kernel,
        gpu=gpu,
        status=status_of(outcome),
        value=as_number(outcome.get("value")),
        spread=as_number(outcome.get("spread")),
        right=right if isinstance(right, bool) else None,
        differ=as_int(outcome.get("differ")),
        compared=as_int(outcome.get("compared")),
        words=_one_line(outcome.get("words")),
        advice=_one_line(outcome.get("advice")),
        because=_one_line(outcome.get("because")),
        details=details if isinstance(details, dict) else {},
        ladder=ladder,
        meanwhile=meanwhile,
    )


def status_of(outcome: Mapping[str, Any]) -> Status:
    """The outcome's status: ``ran`` or ``not-run``; anything else counts as ``failed``."""
    status = outcome.get("status")
    return "ran" if status == "ran" else "not-run" if status == "not-run" else "failed"


def failure_message(kernel: str, outcome: Mapping[str, Any]) -> str:
    """Why a kernel failed or is wrong, ``matmul.fp16: 3 of 4096 values are wrong``; empty if right or not run."""
    if status_of(outcome) == "failed":
        return f"{kernel}: {_one_line(outcome.get('because')) or 'it does not say why'}"
    wrong = status_of(outcome) == "ran" and outcome.get("right") is False
    return f"{kernel}: {_one_line(outcome.get('words')) or 'wrong values'}" if wrong else ""


def is_unfinished(outcome: Mapping[str, Any]) -> bool:
    """True if the kernel was given up at its time limit: it may be slow, or hang."""
    details = outcome.get("details")
    return status_of(outcome) == "not-run" and isinstance(details, Mapping) and details.get("unfinished") is True


def as_number(value: object) -> float | None:
    """The value as a float if it is a number below 1e300 in size, no bool and no NaN; else None."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300
    return float(value) if fits else None  # type: ignore[arg-type]


def as_int(value: object) -> int | None:
    """The value if it is an int, not a bool, that fits into 64 bits with its sign; otherwise None."""
    return value if type(value) is int and abs(value) < 1 << 63 else None


def _one_line(value: object) -> str:
    """A child's text on one printable line without secrets, cut to `_MAX_TEXT` characters; empty for other types."""
    return printable(" ".join(value.split()), _MAX_TEXT) if isinstance(value, str) else ""


def _bounded_json(value: object, depth: int = 0) -> Json:
    """The value as JSON: NaN and infinity as None, 200 items a level at most, empty below 3 levels, texts cut."""
    if isinstance(value, Mapping):
        items = list(value.items())[:_MOST_DETAILS] if depth < _MAX_DEPTH else []
        return {printable(key, 80): _bounded_json(item, depth + 1) for key, item in items}
    if isinstance(value, list):
        return [_bounded_json(item, depth + 1) for item in value[:_MOST_DETAILS]] if depth < _MAX_DEPTH else []
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, (bool, int, float)) or value is None:
        return value
    return printable(value, _MAX_TEXT)
