"""The children that ask NVML and their answers: where one hangs or crashes, another asks the rest without that call."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, TypeAlias

from gpudoctor.core.fact import Absent, Fact, Known, Reason, Unread, Value
from gpudoctor.core.frozen import field, frozen, mutable
from gpudoctor.probes._nvml.values import MALFORMED_ERRORS, Reading
from gpudoctor.probes.children import CHILDREN, script
from gpudoctor.target import Answer, Target, Watch
from gpudoctor.target.protocol import MARK, answers, patience, printable

Entry: TypeAlias = dict[str, Any]

HANDLE = "nvmlDeviceGetHandleByIndex"
_FIELDS = "nvmlDeviceGetFieldValues"
_INVALID, _NOT_SUPPORTED, _FUNCTION_NOT_FOUND, LOST, RESET_REQUIRED = 2, 3, 13, 15, 16
_OF_TWO = ("nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor")
_GONE = (9, 18)
"""Driver not loaded, driver and library of different versions: about NVML as a whole, whichever call is answered so."""
_SILENT = ("hung", "asleep")
"""States of a fault that leave a GPU without further answers."""
NOT_REPORTED = Absent("this GPU does not report it")
TOO_OLD = "the driver's NVML is too old to tell"


@frozen
class Failure:
    """An NVML call that failed: its return code and message; `code` None for an exception in the Python binding."""

    code: int | None
    text: str

    @property
    def why(self) -> str:
        """The reason as text: ``NVML: GPU is lost (code 15)``; `TOO_OLD` if the library lacks the function."""
        if self.code == _FUNCTION_NOT_FOUND:
            return TOO_OLD
        return f"NVML: {self.text}" + ("" if self.code is None else f" (code {self.code})")


@frozen
class Fault:
    """A call that never returned: the child hung, crashed, was too slow, or left out a GPU that is asleep.

    `state` is hung, crashed, slow or asleep; `why` the full reason; `gpu` None for a call about the machine.
    """

    gpu: int | None
    call: str
    state: str
    why: str

    @property
    def function(self) -> str:
        """The call's function name, without its arguments."""
        return self.call.partition("(")[0]


@mutable
class Replies:
    """Answers by GPU (None is the machine) and call, of one child or of several that went on where one ended."""

    answers: dict[int | None, dict[str, Any]] = field(default_factory=dict)
    failures: dict[int | None, dict[str, Failure]] = field(default_factory=dict)
    numbers: dict[tuple[int | None, str], int] = field(default_factory=dict)
    """The full length of a list that was printed in part."""
    returned: set[tuple[int | None, str]] = field(default_factory=set)
    """Calls that returned: silence about them means NOT_SUPPORTED."""
    slowest: tuple[float, str] = (0.0, "")
    """Seconds of the slowest call that did return, and its name."""
    faults: list[Fault] = field(default_factory=list)
    broken: str = ""
    """How the child ended, where it did so by itself before its time."""
    stuck: int | None = None
    """Process id of a child that waits in the kernel and did not end when it was killed."""
    done: bool = False
    source: str = "NVML"

    def add_output(self, answer: Answer) -> tuple[int | None, str] | None:
        """Add the answers, failures and GPUs that did not open in a child's output.

        Returns the (GPU, call) that the child was in when it ended, None if it was in none.
        """
        current: tuple[int | None, str] | None = None
        for entry in _parse_entries(answer.out):
            gpu = entry.get("gpu")
            if "ask" in entry:
                if current:
                    self.returned.add(current)
                current = gpu, str(entry["ask"])
            elif "slow" in entry:
                self.slowest = max(self.slowest, (float(entry["seconds"]), str(entry["slow"])))
            elif "unopened" in entry and not self.why_silent(gpu):
                why = f"GPU {gpu} had not woken after {float(entry['unopened']):g} s (--wait waits longer)"
                self.faults.append(Fault(gpu, HANDLE, "hung", why))
            elif "done" in entry:
                self.done, current = True, None
            elif "is" in entry:
                self.answers.setdefault(gpu, {}).setdefault(entry["call"], entry["is"])
                if "of" in entry:
                    self.numbers[gpu, entry["call"]] = int(entry["of"])
            elif "text" in entry:
                failure = Failure(entry["code"], printable(entry["text"]))
                self.failures.setdefault(gpu, {}).setdefault(entry["call"], failure)
        return current

    def raw_answer(self, gpu: int | None, call: str) -> Any:
        """The raw answer to a call, also if it is stored under a shorter name of the call; None if there is none."""
        known = self.answers.get(gpu, {})
        if call in known:
            return known[call]
        return next((known[name] for name in _lookup_names(call) if name in known), None)

    def fact(self, gpu: int | None, call: str, read: Reading) -> Fact:
        """The answer parsed by `read`, as a fact: known, absent if the GPU does not report it, else unread."""
        raw = self.raw_answer(gpu, call)
        if raw is None:
            return self.reason_unanswered(gpu, call)
        try:
            value: Value = read(raw)
        except MALFORMED_ERRORS:
            return Unread(
                f"NVML answered {printable(json.dumps(raw), 80)}, which makes no sense", reason=Reason.MALFORMED
            )
        return NOT_REPORTED if value is None else Known(value, self.source)

    def reason_unanswered(self, gpu: int | None, call: str) -> Absent | Unread:
        """Why a call has no answer: absent if it returned without one or is unsupported, else unread with the cause."""
        known = self.failures.get(gpu, {})
        failure = next((known[name] for name in _lookup_names(call) if name in known), None)
        if failure and failure.code != _NOT_SUPPORTED:
            unknown_field = failure.code == _INVALID and call.startswith(_FIELDS)
            return Unread(TOO_OLD if unknown_field else failure.why, reason=Reason.NVML_FAILED)
        if batch := known.get(_FIELDS) if call.startswith(_FIELDS) else None:
            return Unread(batch.why, reason=Reason.NVML_FAILED)
        call_key = _FIELDS if call.startswith(_FIELDS) else call
        for fault in (fault for fault in self.faults if fault.gpu == gpu):
            if fault.call == call_key or (fault.state in _SILENT and (gpu, call_key) not in self.returned):
                return Unread(fault.why, reason=self.ending_reason)
        if error := self.error(gpu):
            return Unread(f"NVML: {error}", reason=Reason.NVML_FAILED)
        if failure or self.done or (gpu, call_key) in self.returned:
            same = next((fault for fault in self.faults if fault.function == call_key.partition("(")[0]), None)
            return Unread(same.why) if same and (gpu, call_key) not in self.returned else NOT_REPORTED
        return self.unread_rest

    def failure(self, gpu: int | None) -> Failure | None:
        """The error that keeps this GPU from answering: no handle, GPU lost, or reset required; None if it answers."""
        known = self.failures.get(gpu, {}) if gpu is not None else {}
        open_failure = known.get(HANDLE)
        own_failures = (failure for call, failure in known.items() if not call.startswith(_OF_TWO))
        return open_failure or next(
            (candidate for candidate in own_failures if candidate.code in (LOST, RESET_REQUIRED)), None
        )

    def error(self, gpu: int | None) -> str:
        """The message of the error that keeps this GPU from answering (`failure`); empty if it answers."""
        failure = self.failure(gpu)
        return failure.text if failure else ""

    def why_silent(self, gpu: int | None) -> str:
        """Why this GPU gives no further answers (hung, asleep, or `error`); empty if it answers."""
        hung = next((fault.why for fault in self.faults if fault.gpu == gpu and fault.state in _SILENT), "")
        error = self.error(gpu)
        return hung or (f"NVML: {error}" if error else "")

    @property
    def driver_lost(self) -> Failure | None:
        """The failure that shows the driver was unloaded or replaced after NVML had started; None if there is none."""
        return next(
            (candidate for known in self.failures.values() for candidate in known.values() if candidate.code in _GONE),
            None,
        )

    @property
    def timed_out(self) -> bool:
        """True if a call of NVML hung or was too slow."""
        return any(fault.state in {"hung", "slow"} for fault in self.faults)

    @property
    def unanswered(self) -> str:
        """Reasons of the calls that hung or were too slow, separated by semicolons; empty if there are none."""
        return "; ".join(dict.fromkeys(fault.why for fault in self.faults if fault.state in {"hung", "slow"}))

    @property
    def started(self) -> bool:
        """True if NVML was initialised, by its answer or that of a later call."""
        return "nvmlInit" in self.answers.get(None, {}) or self.done or bool(self.answers.get(0))

    @property
    def ending_reason(self) -> Reason:
        """TIMED_OUT if a call hung or was too slow, else NVML_FAILED."""
        return Reason.TIMED_OUT if self.timed_out else Reason.NVML_FAILED

    @property
    def unread_rest(self) -> Unread:
        """`ending` as an `Unread`, for everything that was not asked any more."""
        return Unread(self.ending, reason=self.ending_reason)

    @property
    def ending(self) -> str:
        """Why there are no further answers: NVML did not load or start, else all faults and how the child broke."""
        failed = {} if self.started else self.failures.get(None, {})
        for call in ("library", "nvmlInit"):
            if call in failed:
                return f"NVML: {failed[call].text}"
        why = [fault.why for fault in self.faults] + [self.broken] * bool(self.broken)
        return "; then ".join(dict.fromkeys(why)) or "NVML was not asked"


def _parse_entries(out: str) -> Iterator[Entry]:
    """The child's marked lines as JSON objects, parsed in one go if possible, else line by line without broken ones."""
    lines = [line[len(MARK) :] for line in out.split("\n") if line.startswith(MARK)]
    try:
        yield from json.loads(f"[{','.join(lines)}]")
    except ValueError:
        yield from answers(out)


@lru_cache(maxsize=4096)
def _lookup_names(call: str) -> tuple[str, ...]:
    """Names under which a child or a recording may store the call, the most specific first: ``f(3)``, ``f``.

    For two arguments ``f(3,0)``, ``f(*,0)``, ``f(3,*)``, ``f(3)``, ``f``. Cached.
    """
    return tuple(_iter_lookup_names(call))


def _iter_lookup_names(call: str) -> Iterator[str]:
    """Yields the call's name, then its more general forms: ``f(3,0)``, ``f(*,0)``, ``f(3,*)``, ``f(3)``, ``f``."""
    yield call
    name, mark, rest = call.partition("(")
    if mark:
        first, comma, last = rest[:-1].partition(",")
        if comma:
            yield f"{name}(*,{last})"
            yield f"{name}({first},*)"
            yield f"{name}({first})"
        yield name


def mapping(raw: object) -> Mapping[str, Any]:
    """The answer if it is a mapping, else an empty one."""
    return raw if isinstance(raw, Mapping) else {}


# ---- Running the children ----

_ALONE = {"LD_PRELOAD": ""}
"""NVML is asked without what the session preloads: that is about its own programs."""
SECONDS = patience("GPUDOCTOR_NVML_TIMEOUT", 5.0)
"""Seconds for each GPU to open, or to answer. NVML needs milliseconds where the driver stays loaded; without
persistence mode each GPU takes 1 to 3 s to open, one after the other; 6.6 s were seen with confidential computing.
"""

QUICK_WAIT_SECONDS = 30.0
"""Seconds that GPUs may take to open at level quick, where `Target.wait` says nothing else."""

_MOST_OUTPUT_BYTES = 8 << 20
"""Bytes that a child may print; sixteen GPUs of eighteen links need a tenth of it."""
_LEAST_SECONDS = 0.25
"""Seconds below which another child is not worth starting."""


@frozen
class Limits:
    """Time limits in seconds: for all GPUs to open, for all calls after that, and for one call to return."""

    opening: float
    asking: float
    call: float

    @property
    def whole(self) -> float:
        """Seconds for all children that ask NVML together: `opening` and `asking`."""
        return self.opening + self.asking


def limits(target: Target, gpus: int, seconds: float = SECONDS) -> Limits:
    """Time limits of the children that ask NVML, for a machine with `gpus` GPUs and `seconds` for each.

    Opening may take the target's ``wait`` if that is set; if not, at level quick at most `QUICK_WAIT_SECONDS`.
    """
    opening = max(6, 1 + gpus) * seconds
    if target.wait is not None:
        opening = target.wait
    elif target.level == "quick":
        opening = min(QUICK_WAIT_SECONDS, 6 * seconds)
    return Limits(opening, (4 + gpus) * seconds, 2 * seconds)


@frozen
class NvmlRequest:
    """What the children shall do: open all GPUs, or only those in `awake` (index and PCI address).

    `asleep`: index and reason of GPUs that are not opened.
    """

    limits: Limits
    awake: Sequence[tuple[int, str]] | None = None
    asleep: Mapping[int, str] = field(default_factory=dict)
    unprivileged: bool = False
    """Whether they give up the right to load kernel modules and to make device files."""


def ask_nvml(target: Target, request: NvmlRequest) -> Replies:
    """Run children that ask NVML until all is answered, the time is up, or leaving out a faulty call does not help.

    Returns the answers of all of them; `broken` says why no child could be started, or how one ended by itself.
    """
    replies = Replies(faults=[Fault(gpu, HANDLE, "asleep", why) for gpu, why in request.asleep.items()])
    argv = child_argv("ask_nvml.py")
    if not argv:
        replies.broken = "the package nvidia-ml-py is not installed beside gpudoctor"
        return replies
    until = time.monotonic() + request.limits.whole
    left_out: list[tuple[int | None, str]] = []
    while not replies.done:
        left = until - time.monotonic()
        options = {
            "left_out": left_out,
            "seconds": min(request.limits.opening, left),
            "awake": request.awake,
            "unprivileged": request.unprivileged,
        }
        argv_now, watch = [*argv, json.dumps(options)], _progress_watch(target, request.limits.opening)
        try:
            answer = target.run(
                argv_now, left, _ALONE, limit=_MOST_OUTPUT_BYTES, silence=request.limits.call, watch=watch
            )
        except OSError as error:
            replies.broken = f"the child that asks NVML could not be started: {error.strerror or error}"
            break
        fault = _merge_answer(replies, answer, left, request.limits.call)
        left_out += [
            (late.gpu, "*") for late in replies.faults if late.call == HANDLE and (late.gpu, "*") not in left_out
        ]
        if (
            not fault
            or until - time.monotonic() < _LEAST_SECONDS
            or not _exclude_fault(left_out, replies.faults, fault)
        ):
            break
    target.listener("nvml", "")
    return replies


def child_argv(name: str, *more: str) -> list[str]:
    """Command line that runs the child script `name` with our own interpreter; empty if nvidia-ml-py is missing.

    `more`: further arguments of the script.
    """
    spec = find_spec("pynvml")
    if not spec or not spec.origin:
        return []
    folder = os.path.dirname(spec.origin)  # noqa: PTH120 - inside a zip file it is no folder to pathlib either
    if spec.submodule_search_locations:  # the older binding of that name is a package
        folder = os.path.dirname(folder)  # noqa: PTH120
    return [sys.executable, "-I", "-S", *script(name), str(CHILDREN), folder, *more]


def _progress_watch(target: Target, opening: float) -> Watch:
    """A `Watch` that reports GPUs that are waking, and a slow start of NVML, to the target's listener.

    It ends the child (False) if NVML takes longer than `opening` seconds to start, or all is done while a GPU never
    opened.
    """
    unopened = False

    def watch(line: str | None) -> bool:
        """Report what a line of the child's output says of waking GPUs or a slow start; False ends the child."""
        nonlocal unopened
        if not line or not any(word in line for word in ('"waking"', '"starting"', '"unopened"', '"opened"', '"done"')):
            return True
        for entry in answers(line):
            if "waking" in entry:
                words = f"GPU {entry['waking']} of {entry['of']} is waking, {entry['seconds']:.0f} s"
                target.listener("nvml", words)
            elif "starting" in entry:
                target.listener("nvml", f"NVML is starting, {entry['seconds']:.0f} s")
                if entry["seconds"] > opening:
                    return False
            elif "opened" in entry:
                target.listener("nvml", "")
            unopened = unopened or "unopened" in entry
            if "done" in entry and unopened:
                return False
        return True

    return watch


def _merge_answer(replies: Replies, answer: Answer, seconds: float, call_seconds: float) -> Fault | None:
    """Merge one child's output into `replies`; returns the fault in which it ended.

    None if the child finished, NVML could not start, or the child failed by itself (`replies.broken`).
    `seconds`: its time limit; `call_seconds`: the limit for one call.
    """
    current = replies.add_output(answer)
    if answer.stuck is not None:
        replies.stuck = answer.stuck
    if "nvmlInit" in replies.failures.get(None, {}) or "library" in replies.failures.get(None, {}) or replies.done:
        return None
    gpu, call = current or (None, "")
    name = call.partition("(")[0] if call != "library" else "the load of the library"
    call_label = name if gpu is None else f"{name} of GPU {gpu}"
    if call and answer.status is None and not answer.cut:
        state, why = _classify_timeout(replies, call_label, answer, seconds, call_seconds)
    elif call and answer.status is not None and answer.status < 0:
        state, why = "crashed", f"{call_label} crashed: {answer.how}"
    else:
        ended = f"the child that asks NVML ended at {call or 'its start'}: {answer.how} {answer.complaint}"
        replies.broken = printable(ended.strip())
        return None
    fault = Fault(gpu, call, state, why)
    replies.faults.append(fault)
    return fault


def _classify_timeout(
    replies: Replies, call_label: str, answer: Answer, seconds: float, call_seconds: float
) -> tuple[str, str]:
    """State and reason (text) for a child that was stopped at its time limit.

    hung if NVML did not start or one call took more than `call_seconds`; slow if many calls used up `seconds`.
    """
    left = f" (pid {answer.stuck} cannot be stopped and is left behind)" if answer.stuck else ""
    if not replies.started or call_label == "nvmlDeviceGetCount":  # no GPU is open yet: it had their time to open
        return "hung", f"{call_label} did not return within {answer.seconds:.0f} s{left}"
    if answer.seconds < seconds:
        return "hung", f"{call_label} did not return within {call_seconds:g} s{left}"
    slowest = f", {replies.slowest[1]} alone {replies.slowest[0]:.1f} s" if replies.slowest[1] else ""
    calls = f"{len(replies.returned)} calls took {seconds:.2g} s{slowest}"
    return "slow", f"NVML is slow: {calls}; the time was up at {call_label}{left}"


def _exclude_fault(left_out: list[tuple[int | None, str]], faults: list[Fault], fault: Fault) -> bool:
    """Add to `left_out` the call at fault, all of a GPU that hangs, or a function that fails again, for every GPU.

    `faults` are all so far, this one included; `left_out` pairs a GPU (None: every one) with a function (``*``: all).

    False if leaving something out cannot help: NVML is slow, does not start, or fails again all the same.
    """
    same_faults = [
        candidate for candidate in faults if (candidate.function, candidate.state) == (fault.function, fault.state)
    ]
    if fault.state == "slow" or fault.function in ("nvmlInit", "library") or len(same_faults) > 2:
        return False
    if len(same_faults) == 2:
        if same_faults[0].gpu == fault.gpu:
            return False
        left_out[:] = [candidate for candidate in left_out if candidate[0] != same_faults[0].gpu]
        left_out.append((None, fault.function))
    elif fault.gpu is None:
        left_out.append((None, fault.function))
    else:
        left_out.append((fault.gpu, "*" if fault.state == "hung" else fault.call))
    return True
