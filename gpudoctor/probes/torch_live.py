"""torch in the target interpreter, imported and asked in a child process: level standard."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Reason, Rows, Unread, known
from gpudoctor.core.versions import CUDNN_WIDE, NCCL_WIDE, numbered
from gpudoctor.probes.children import script
from gpudoctor.target import Answer, Target
from gpudoctor.target.protocol import (
    IDLE_SECONDS,
    WAKE_SECONDS,
    Waiting,
    answers,
    gpus_on_bus,
    patience,
    printable,
    text_rows,
)

WAITS = True
LEVEL = "standard"

IMPORT_SECONDS = patience("GPUDOCTOR_TORCH_TIMEOUT", 120.0)
"""Most seconds for ``import torch``, as long as it reads or computes: from cold network storage it takes minutes."""

CUDA_SECONDS = IMPORT_SECONDS / 2
"""Most seconds for all that follows the import: the driver's start, one context and one kernel per GPU."""

CUDA_SECONDS_EACH = min(10.0, IMPORT_SECONDS / 3)
"""And for each GPU on the bus: one that nothing keeps awake takes 1-3 s to wake, then its first kernels are loaded."""

STILL_SECONDS = min(IDLE_SECONDS, IMPORT_SECONDS)
"""Most seconds without a sign of work, in each step."""

STILL_SECONDS_EACH = min(WAKE_SECONDS, IMPORT_SECONDS / 6)
"""And for each GPU on the bus once CUDA starts: while GPUs wake, there is no sign of work."""

MOOT = {"cuda_driver.state": "hung"}
"""Where even SIGKILL does not end a process that starts CUDA, torch hangs as well: nobody waits for it to say so."""


def deadline(target: Target) -> float:
    """Time limit in seconds of the probe that imports torch, for the GPUs on this machine's bus."""
    return _child_seconds(gpus_on_bus(target)) + 10.0


def _child_seconds(gpus: int) -> float:
    """Seconds that the child that imports torch may take with that many GPUs."""
    return IMPORT_SECONDS + CUDA_SECONDS + CUDA_SECONDS_EACH * gpus


FACTS = (
    fact(
        "live.import_outcome",
        "text",
        "ok, error, crashed, hung (its process cannot be ended) or not finished (given up)",
    ),
    fact("live.import_error", "text", "the line that ends the import's traceback, or the signal that ended it"),
    fact(
        "live.last_step",
        "text",
        "the last step the child reached: start, import torch, cuda init, cudnn, nccl, kernel on GPU 0, done",
    ),
    fact(
        "live.outcome",
        "text",
        "how the child ended at its last step: done, crashed, hung, not finished or stopped (for what it printed)",
    ),
    fact("live.cuda_available", "bool", "what torch.cuda.is_available() answers"),
    fact("live.cuda_error", "text", "the error or warning that CUDA's initialisation gave"),
    fact("live.device_count", "int", "what torch.cuda.device_count() answers"),
    fact("live.arch_list", "list", "torch.cuda.get_arch_list(); empty where CUDA is unavailable"),
    fact("live.cudnn", "version", "cuDNN that torch loaded"),
    fact("live.nccl", "version", "NCCL that torch loaded"),
    column("live_gpu.name", "text", "the device's name by torch"),
    column("live_gpu.compute_capability", "version", "its compute capability by torch"),
    column("live_gpu.kernel", "text", "ok, wrong, error or not run: one small checked kernel"),
    column("live_gpu.error", "text", "the kernel's error; absent where it ran, unread where the GPU is left alone"),
)


_COLUMNS = tuple(spec.name.partition(".")[2] for spec in FACTS if spec.group)
_KINDS: Mapping[str, tuple[type, ...]] = {
    "cuda_available": (bool,),
    "device_count": (int,),
    "arch_list": (list,),
    "cudnn": (int,),
    "nccl": (int, list),
}
"""What torch's answers are made of; a torch that says anything else is not to be taken at its word."""
_IMPORT = ("start", "import torch")
_TELL_SECONDS = 4.0
"""Seconds after which people are told what it is that takes so long."""
_MOST_GPUS = 1024
_MOST_OUTPUT_BYTES = 4 << 20
"""Bytes that an import may print before it is stopped."""


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the ``live`` facts and the group ``live_gpu``, from a child that imports torch and runs a kernel per GPU.

    Also the group ``text`` with what the import printed to stderr. Absent without Python or torch, unread if the child
    cannot be started.
    """
    if target.python is None:
        yield from _every_fact_as(Absent("there is no Python to import torch with"))
        return
    gpus = gpus_on_bus(target)
    waiting = _ImportWatch(target, gpus)
    argv = [target.python, *script("ask_torch.py"), f"{_child_seconds(gpus) + 60:g}"]
    try:
        answer = target.run(argv, timeout=_child_seconds(gpus) + 3.0, limit=_MOST_OUTPUT_BYTES, watch=waiting.watch)
    except OSError as error:
        yield from _every_fact_as(Unread(f"{target.python} could not be started: {error.strerror or error}"))
        return
    entries = list(answers(answer.out))[: waiting.entries if waiting.why else None]
    if any("missing" in entry for entry in entries):
        yield from _every_fact_as(Absent(f"torch is not installed in {target.python}"))
        return
    live = _LiveAnswers(target.python, answer, entries, waiting.why)
    yield from live.facts()
    if not live.steps:
        return  # what it printed is about our child, not about torch
    rows = text_rows(_without_frames_of_ours(answer.err), f"stderr of `import torch` in {target.python}")
    if rows:
        yield "text", rows


def _every_fact_as(state: Absent | Unread) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields every ``live`` fact and the group ``live_gpu``, all with the same state."""
    yield from ((spec.name, state) for spec in FACTS if not spec.group)
    yield "live_gpu", state


def _without_frames_of_ours(err: str) -> str:
    """The child's stderr without the traceback lines that name the child script itself."""
    return re.sub(r'^  File "[^"]*ask_torch\.py", line .*\n(?:    .*\n)?', "", err, flags=re.MULTILINE)


class _ImportWatch:
    """Decides, step by step, how long to wait for the child, and reports progress to the target's listener."""

    def __init__(self, target: Target, gpus: int) -> None:
        self._target, self._gpus = target, gpus
        self._waiting = Waiting(IMPORT_SECONDS, STILL_SECONDS)
        self._step = "start"
        self.entries = 0
        """Answers until it was given up; the signal that it then gets may well end what it waits in."""

    @property
    def why(self) -> str:
        """Why the child was given up; empty if it was not."""
        return self._waiting.why

    def watch(self, line: str | None) -> bool:
        """Handle a line of the child's output (None: time passed without one); False means that it is given up.

        A step that takes long is reported to the target's listener.
        """
        for entry in answers(line) if line and not self.why else ():
            self.entries += 1
            if type(pid := entry.get("pid")) is int:
                self._waiting.pid = pid
            if self._step in _IMPORT and "step" in entry and entry["step"] not in _IMPORT:
                most = CUDA_SECONDS + CUDA_SECONDS_EACH * self._gpus
                self._waiting.begin(most, min(STILL_SECONDS, most) + STILL_SECONDS_EACH * self._gpus)
            self._step = str(entry.get("step", self._step))
        if self._step == "done":
            self._target.listener("torch_live", "")
        elif line is None and self._waiting.seconds > _TELL_SECONDS:
            self._target.listener("torch_live", f"torch: {self._step}, {self._waiting.seconds:.0f} s")
        return self._waiting(line)


class _LiveAnswers:
    """The child's output and its end as facts. `why`: the reason it was given up, empty if it was not."""

    def __init__(self, python: str, answer: Answer, entries: Sequence[Mapping[str, Any]], why: str = "") -> None:
        self.answer = answer
        self.why = why
        self.source = f"torch in {python}"
        self.entries = entries
        self.answers_by_name = {entry["name"]: entry for entry in entries if isinstance(entry.get("name"), str)}
        self.steps = [str(entry["step"]) for entry in entries if "step" in entry]
        self.outcome = self._outcome()
        self.ending = self._describe_ending()
        self.unread_rest = Unread(self.ending, reason=self._reason())

    def facts(self) -> Iterator[tuple[str, Fact | Rows]]:
        """Yields every ``live`` fact and the group ``live_gpu``."""
        yield "live.last_step", Known(self.steps[-1], self.source) if self.steps else self.unread_rest
        yield "live.outcome", Known(self.outcome, self.source) if self.outcome else self.unread_rest
        yield from self._import_facts()
        for name in ("cuda_available", "device_count"):
            yield f"live.{name}", self._answer_fact(name)
        yield "live.arch_list", self._answer_fact("arch_list")
        yield "live.cuda_error", self._cuda_error()
        yield "live.cudnn", self._version_fact("cudnn", lambda number: numbered(number, CUDNN_WIDE))
        yield "live.nccl", self._version_fact("nccl", _nccl_version)
        yield "live_gpu", self._gpu_rows()

    def _outcome(self) -> str:
        """done (also if the import raised), hung, not finished, stopped or crashed; empty if it did not start."""
        if "done" in self.steps or "error" in self.answers_by_name.get("import", {}):
            return "done"
        if not self.steps:
            return ""
        if self.answer.stuck is not None:
            return "hung"
        if self.why or (self.answer.status is None and not self.answer.cut):
            return "not finished"
        return "stopped" if self.answer.status is None else "crashed"

    def _reason(self) -> Reason:
        """The `Reason` of facts that the child did not report: TORCH_FAILED, TIMED_OUT or CRASHED."""
        if self.outcome == "done":
            return Reason.TORCH_FAILED
        return Reason.TIMED_OUT if self.outcome in {"hung", "not finished"} else Reason.CRASHED

    def _describe_ending(self) -> str:
        """How the child ended, as text for the facts that it did not report."""
        if self.outcome == "done":
            return "the import of torch failed"
        if not self.steps:
            how = f"{self.answer.how} {self.answer.complaint}".strip()
            return printable(f"the child that imports torch did not start: {how}")
        step = self.steps[-1]
        if self.outcome in {"hung", "not finished"}:
            left = f"; {self.answer.how}" if self.answer.stuck else ""
            return f"`{step}` was {self.why or f'given up after {self.answer.seconds:.0f} s'}{left}"
        if self.outcome == "stopped":
            return f"`{step}` was stopped: it printed more than {_MOST_OUTPUT_BYTES >> 20} MB"
        how = "ended the process" if self.answer.status is not None and self.answer.status >= 0 else "crashed"
        return f"`{step}` {how}: {self.answer.how}"

    def _import_facts(self) -> Iterator[tuple[str, Fact]]:
        """Yields `live.import_outcome` (ok, error, crashed, hung or not finished) and `live.import_error`.

        The error is absent if the import succeeded, unread if it hung or did not finish; both are unread if the child
        did not start, or was stopped for what it printed.
        """
        entry = self.answers_by_name.get("import", {})
        error: Fact
        if "value" in entry:
            state, error = "ok", Absent("the import succeeded")
        elif "error" in entry:
            state, error = "error", Known(printable(entry["error"], 600), self.source)
        elif self.outcome == "crashed":
            state, error = self.outcome, Known(self.ending, self.source)
        elif self.outcome in {"hung", "not finished"}:  # by storage, for all we know
            state, error = self.outcome, self.unread_rest
        else:
            yield from (("live.import_outcome", self.unread_rest), ("live.import_error", self.unread_rest))
            return
        yield "live.import_outcome", Known(state, self.source)
        yield "live.import_error", error

    def _answer_fact(self, name: str) -> Fact:
        """torch's answer of that name; absent if this torch is built without it.

        Unread if the call raised, the answer has the wrong type, or the child ended before it.
        """
        entry = self.answers_by_name.get(name)
        if entry is None:
            built = self.answers_by_name.get("built_for", {"value": True})
            if "value" in built and built["value"] is None:
                return Absent("this torch is built without CUDA")
            return self.unread_rest
        if "error" in entry:
            return Unread(printable(entry["error"]))
        value: Any = entry.get("value")
        if value is None:
            return Absent(f"this torch is built without {name}")
        plain = not isinstance(value, list) or not any(isinstance(item, (list, dict)) for item in value)
        if not plain or type(value) not in _KINDS.get(name, (str,)):
            return Unread(f"torch answered {printable(value, 60)} for {name}")
        return Known(tuple(value) if isinstance(value, list) else value, self.source)

    def _version_fact(self, name: str, format_version: Any) -> Fact:
        """torch's answer of that name through `format_version`; absent or unread as the answer is."""
        answer = self._answer_fact(name)
        return Known(format_version(answer.value), answer.source) if isinstance(answer, Known) else answer

    def _cuda_error(self) -> Fact:
        """The warning or error of CUDA's initialisation, or that it crashed or hung; absent if it went without one."""
        warning, error = self.answers_by_name.get("cuda_warning"), self.answers_by_name.get("cuda_error")
        if warning:
            return Known(printable(warning["value"], 600), self.source)
        if error:
            return Known(printable(error["error"], 600), self.source)
        if self.steps[-1:] == ["cuda init"] and self.outcome in {"hung", "crashed"}:
            return Known(self.ending, self.source)  # to be hung takes a process that even SIGKILL does not end
        if "cudnn" in self.steps and known(self._answer_fact("arch_list")):
            return Absent("CUDA was initialised without a word")
        return self._answer_fact("cuda_error")

    def _gpu_rows(self) -> Rows:
        """A row of ``live_gpu`` per device torch counts; absent if it sees none, unread if not known or absurd."""
        count = self._answer_fact("device_count")
        if not isinstance(count, Known):
            return count
        available = self.answers_by_name.get("cuda_available", {}).get("value")
        if not isinstance(count.value, int) or count.value <= 0 or available is False:
            return Absent("torch sees no CUDA device")
        if count.value > _MOST_GPUS:
            return Unread(f"torch says that it sees {printable(count.value, 60)} devices")
        rows: list[dict[str, Fact]] = [self._initial_row(index) for index in range(count.value)]
        for entry in self.entries:
            if type(number := entry.get("gpu")) is int and 0 <= number < len(rows):
                row = rows[number]
                row.update({key: Known(_text(entry[key]), self.source) for key in _COLUMNS if key in entry})
                if "left_alone" in entry:
                    row["error"] = Unread(_text(entry["left_alone"]))
                if entry.get("kernel") in {"ok", "wrong"}:
                    row["error"] = Absent("the kernel ran")
        return tuple(rows)

    def _initial_row(self, index: int) -> dict[str, Fact]:
        """A GPU's row before its answers are filled in: the kernel is "not run", other columns unread.

        If the child ended at this GPU, its kernel is "error" (it hung or crashed) or unread (not finished).
        """
        row: dict[str, Fact] = dict.fromkeys(_COLUMNS, self.unread_rest)
        row["kernel"] = Known("not run", self.source)
        if self.steps[-1:] == [f"kernel on GPU {index}"]:
            if self.outcome in {"hung", "crashed"}:
                row.update(kernel=Known("error", self.source), error=Known(self.ending, self.source))
            elif self.outcome == "not finished":
                row["kernel"] = self.unread_rest
        return row


def _text(raw: object) -> str:
    """The value as printable text of at most 600 characters."""
    return printable(raw, 600)


def _nccl_version(raw: Any) -> str:
    """NCCL's version as text: ``(2, 21, 5)`` is 2.21.5; the number of torch before 1.9, 2708, is 2.7.8."""
    if isinstance(raw, tuple):
        return ".".join(str(part) for part in raw)
    return numbered(raw, NCCL_WIDE)
