"""What the children that ask NVML told, and where one hung or crashed: one answer, absence or excuse a question."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from gpudoctor.model.fact import Absent, Fact, Known, Unread, Value
from gpudoctor.model.frozen import field, frozen, mutable
from gpudoctor.probes._nvml.words import ODD, Reading
from gpudoctor.target import Answer
from gpudoctor.target.protocol import MARK, answers, printable

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
    """A call that NVML answered with a return code; without one it failed in the binding."""

    code: int | None
    text: str

    @property
    def why(self) -> str:
        if self.code == _FUNCTION_NOT_FOUND:
            return TOO_OLD
        return f"NVML: {self.text}" + ("" if self.code is None else f" (code {self.code})")


@frozen
class Fault:
    """The call in which a child hung, crashed, or ran out of time for slowness, or that was not made because the GPU is
    asleep: `state` says which, `why` in full.
    """

    gpu: int | None
    call: str
    state: str
    why: str

    @property
    def function(self) -> str:
        return self.call.partition("(")[0]


@mutable
class Told:
    """Answers by GPU (None is the machine) and call, of one child or of several that went on where one ended."""

    answers: dict[int | None, dict[str, Any]] = field(default_factory=dict)
    failures: dict[int | None, dict[str, Failure]] = field(default_factory=dict)
    numbers: dict[tuple[int | None, str], int] = field(default_factory=dict)
    """How many entries a list would have that is told in part."""
    asked: set[tuple[int | None, str]] = field(default_factory=set)
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

    def hear(self, answer: Answer) -> tuple[int | None, str] | None:
        """Take in what a child said; the call that it was in when it ended, None where there was none."""
        current: tuple[int | None, str] | None = None
        for entry in _entries(answer.out):
            gpu = entry.get("gpu")
            if "ask" in entry:
                if current:
                    self.asked.add(current)
                current = gpu, str(entry["ask"])
            elif "slow" in entry:
                self.slowest = max(self.slowest, (float(entry["seconds"]), str(entry["slow"])))
            elif "unopened" in entry and not self.silent(gpu):
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

    def answered(self, gpu: int | None, call: str) -> Any:
        """The answer as told, None where there is none."""
        known = self.answers.get(gpu, {})
        if call in known:
            return known[call]
        return next((known[name] for name in _names(call) if name in known), None)

    def fact(self, gpu: int | None, call: str, read: Reading) -> Fact:
        """The answer as a fact: known, absent where the GPU has none to give, else unread and why."""
        raw = self.answered(gpu, call)
        if raw is None:
            return self.without(gpu, call)
        try:
            value: Value = read(raw)
        except ODD:
            return Unread(f"NVML answered {printable(json.dumps(raw), 80)}, which makes no sense")
        return NOT_REPORTED if value is None else Known(value, self.source)

    def without(self, gpu: int | None, call: str) -> Absent | Unread:
        """Why there is no answer."""
        known = self.failures.get(gpu, {})
        failure = next((known[name] for name in _names(call) if name in known), None)
        if failure and failure.code != _NOT_SUPPORTED:
            unknown_field = failure.code == _INVALID and call.startswith(_FIELDS)
            return Unread(TOO_OLD if unknown_field else failure.why)
        if batch := known.get(_FIELDS) if call.startswith(_FIELDS) else None:
            return Unread(batch.why)
        asked = _FIELDS if call.startswith(_FIELDS) else call
        for fault in (fault for fault in self.faults if fault.gpu == gpu):
            if fault.call == asked or (fault.state in _SILENT and (gpu, asked) not in self.asked):
                return Unread(fault.why)
        if error := self.error(gpu):
            return Unread(f"NVML: {error}")
        if failure or self.done or (gpu, asked) in self.asked:
            same = next((fault for fault in self.faults if fault.function == asked.partition("(")[0]), None)
            return Unread(same.why) if same and (gpu, asked) not in self.asked else NOT_REPORTED
        return Unread(self.ending)

    def failure(self, gpu: int | None) -> Failure | None:
        """What keeps this GPU from answering: no handle, or an answer that it is lost or has to be reset."""
        known = self.failures.get(gpu, {}) if gpu is not None else {}
        opened = known.get(HANDLE)
        own = (failure for call, failure in known.items() if not call.startswith(_OF_TWO))
        return opened or next((one for one in own if one.code in (LOST, RESET_REQUIRED)), None)

    def error(self, gpu: int | None) -> str:
        """`failure` in NVML's words; empty where there is none."""
        failure = self.failure(gpu)
        return failure.text if failure else ""

    def silent(self, gpu: int | None) -> str:
        """Why this GPU is not asked any more, by us or by NVML; empty where it is."""
        hung = next((fault.why for fault in self.faults if fault.gpu == gpu and fault.state in _SILENT), "")
        error = self.error(gpu)
        return hung or (f"NVML: {error}" if error else "")

    @property
    def lost(self) -> Failure | None:
        """The answer by which the driver was gone, or another one, after NVML had started; None where it stayed."""
        return next((one for known in self.failures.values() for one in known.values() if one.code in _GONE), None)

    @property
    def late(self) -> bool:
        """Whether NVML, or a GPU, did not answer in time."""
        return any(fault.state in {"hung", "slow"} for fault in self.faults)

    @property
    def unanswered(self) -> str:
        """What did not answer in time, each with the time it was given; empty where all did."""
        return "; ".join(dict.fromkeys(fault.why for fault in self.faults if fault.state in {"hung", "slow"}))

    @property
    def started(self) -> bool:
        """Whether NVML was initialised."""
        return "nvmlInit" in self.answers.get(None, {}) or self.done or bool(self.answers.get(0))

    @property
    def ending(self) -> str:
        """Why there is nothing more than what was told."""
        failed = {} if self.started else self.failures.get(None, {})
        for call in ("library", "nvmlInit"):
            if call in failed:
                return f"NVML: {failed[call].text}"
        why = [fault.why for fault in self.faults] + [self.broken] * bool(self.broken)
        return "; then ".join(dict.fromkeys(why)) or "NVML was not asked"


def _entries(out: str) -> Iterator[Entry]:
    """The child's lines; read at once, which is faster, where none was cut short."""
    lines = [line[len(MARK) :] for line in out.split("\n") if line.startswith(MARK)]
    try:
        yield from json.loads(f"[{','.join(lines)}]")
    except ValueError:
        yield from answers(out)


@lru_cache(maxsize=4096)
def _names(call: str) -> tuple[str, ...]:
    """The call as a child or a record may name it: ``f(3,0)``, ``f(*,0)``, ``f(3,*)``, ``f(3)``, ``f``."""
    return tuple(_names_of(call))


def _names_of(call: str) -> Iterator[str]:
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
    """An answer that should be an object; empty where it is none."""
    return raw if isinstance(raw, Mapping) else {}
