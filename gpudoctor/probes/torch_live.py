"""torch in the target interpreter, imported and asked in a child process: level standard."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpudoctor.model.catalog import column, fact
from gpudoctor.model.fact import Absent, Fact, Known, Rows, Unread
from gpudoctor.probes._child import script
from gpudoctor.target import Answer, Target
from gpudoctor.target.protocol import answers, patience, printable, text_rows
from gpudoctor.target.waiting import STILL, WAKING, Waiting, gpus_on_bus

WAITS = True
LEVEL = "standard"

IMPORT_SECONDS = patience("GPUDOCTOR_TORCH_TIMEOUT", 120.0)
"""Most seconds for ``import torch``, as long as it reads or computes: from cold network storage it takes minutes."""

CUDA_SECONDS = IMPORT_SECONDS / 2
"""Most seconds for all that follows the import: the driver's start, one context and one kernel per GPU."""

CUDA_SECONDS_EACH = min(10.0, IMPORT_SECONDS / 3)
"""And for each GPU on the bus: one that nothing keeps awake takes 1-3 s to wake, then its first kernels are loaded."""

STILL_SECONDS = min(STILL, IMPORT_SECONDS)
"""Most seconds without a sign of work, in each step."""

STILL_SECONDS_EACH = min(WAKING, IMPORT_SECONDS / 6)
"""And for each GPU on the bus once CUDA starts: while GPUs wake, there is no sign of work."""

MOOT = {"cuda_driver.state": "hung"}
"""Where even SIGKILL does not end a process that starts CUDA, torch hangs as well: nobody waits for it to say so."""


def deadline(target: Target) -> float:
    """Seconds for all of it on this machine."""
    return _most(gpus_on_bus(target)) + 10.0


def _most(gpus: int) -> float:
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
_TELL = 4.0
"""Seconds after which people are told what it is that takes so long."""
_MOST_GPUS = 1024
_NOISE = 4 << 20
"""Bytes that an import may print before it is stopped."""


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """What a user's first lines would meet: import, is_available, one kernel per GPU."""
    if target.python is None:
        yield from _all(Absent("there is no Python to import torch with"))
        return
    gpus = gpus_on_bus(target)
    waiting = _Waiting(target, gpus)
    argv = [target.python, *script("ask_torch.py"), f"{_most(gpus) + 60:g}"]
    try:
        answer = target.run(argv, timeout=_most(gpus) + 3.0, limit=_NOISE, watch=waiting.watch)
    except OSError as error:
        yield from _all(Unread(f"{target.python} could not be started: {error.strerror or error}"))
        return
    entries = list(answers(answer.out))[: waiting.entries if waiting.why else None]
    if any("missing" in entry for entry in entries):
        yield from _all(Absent(f"torch is not installed in {target.python}"))
        return
    live = _Live(target.python, answer, entries, waiting.why)
    yield from live.facts()
    if not live.steps:
        return  # what it printed is about our child, not about torch
    rows = text_rows(_without_frames_of_ours(answer.err), f"stderr of `import torch` in {target.python}")
    if rows:
        yield "text", rows


def _all(state: Absent | Unread) -> Iterator[tuple[str, Fact | Rows]]:
    yield from ((spec.name, state) for spec in FACTS if not spec.group)
    yield "live_gpu", state


def _without_frames_of_ours(err: str) -> str:
    """The child's stderr without the traceback lines that name the child itself."""
    return re.sub(r'^  File "[^"]*ask_torch\.py", line .*\n(?:    .*\n)?', "", err, flags=re.MULTILINE)


class _Waiting:
    """How long the child is waited for, step by step, and telling people what it is waited for."""

    def __init__(self, target: Target, gpus: int) -> None:
        self._target, self._gpus = target, gpus
        self._rule = Waiting(IMPORT_SECONDS, min(STILL_SECONDS, IMPORT_SECONDS))
        self._step = "start"
        self.entries = 0
        """Answers until it was given up; the signal that it then gets may well end what it waits in."""

    @property
    def why(self) -> str:
        return self._rule.why

    def watch(self, line: str | None) -> bool:
        for entry in answers(line) if line and not self.why else ():
            self.entries += 1
            if type(pid := entry.get("pid")) is int:
                self._rule.pid = pid
            if self._step in _IMPORT and "step" in entry and entry["step"] not in _IMPORT:
                most = CUDA_SECONDS + CUDA_SECONDS_EACH * self._gpus
                self._rule.begin(most, min(STILL_SECONDS, most) + STILL_SECONDS_EACH * self._gpus)
            self._step = str(entry.get("step", self._step))
        if self._step == "done":
            self._target.listener("torch_live", "")
        elif line is None and self._rule.seconds > _TELL:
            self._target.listener("torch_live", f"torch: {self._step}, {self._rule.seconds:.0f} s")
        return self._rule(line)


class _Live:
    """The child's lines and its end, as facts; `why` it was given up, if it was."""

    def __init__(self, python: str, answer: Answer, entries: Sequence[Mapping[str, Any]], why: str = "") -> None:
        self.answer = answer
        self.why = why
        self.source = f"torch in {python}"
        self.entries = entries
        self.said = {entry["name"]: entry for entry in entries if isinstance(entry.get("name"), str)}
        self.steps = [str(entry["step"]) for entry in entries if "step" in entry]
        self.outcome = self._outcome()
        self.end = self._end()

    def facts(self) -> Iterator[tuple[str, Fact | Rows]]:
        """Every declared fact."""
        yield "live.last_step", Known(self.steps[-1], self.source) if self.steps else Unread(self.end)
        yield "live.outcome", Known(self.outcome, self.source) if self.outcome else Unread(self.end)
        yield from self._import()
        for name in ("cuda_available", "device_count"):
            yield f"live.{name}", self._told(name)
        yield "live.arch_list", self._told("arch_list")
        yield "live.cuda_error", self._cuda_error()
        yield "live.cudnn", self._version("cudnn", _cudnn)
        yield "live.nccl", self._version("nccl", _nccl)
        yield "live_gpu", self._gpus()

    def _outcome(self) -> str:
        """Empty where the child could not even start."""
        if "done" in self.steps or "error" in self.said.get("import", {}):
            return "done"
        if not self.steps:
            return ""
        if self.answer.stuck is not None:
            return "hung"
        if self.why or (self.answer.status is None and not self.answer.cut):
            return "not finished"
        return "stopped" if self.answer.status is None else "crashed"

    def _end(self) -> str:
        """The same in words, for the facts that the child could not tell any more."""
        if self.outcome == "done":
            return "the import of torch failed"
        if not self.steps:
            last = (self.answer.err.strip().splitlines() or [""])[-1]
            return printable(f"the child that imports torch did not start: {self.answer.how} {last}".strip())
        step = self.steps[-1]
        if self.outcome in {"hung", "not finished"}:
            left = f"; {self.answer.how}" if self.answer.stuck else ""
            return f"`{step}` was {self.why or f'given up after {self.answer.seconds:.0f} s'}{left}"
        if self.outcome == "stopped":
            return f"`{step}` was stopped: it printed more than {_NOISE >> 20} MB"
        how = "ended the process" if self.answer.status is not None and self.answer.status >= 0 else "crashed"
        return f"`{step}` {how}: {self.answer.how}"

    def _import(self) -> Iterator[tuple[str, Fact]]:
        entry = self.said.get("import", {})
        error: Fact
        if "value" in entry:
            state, error = "ok", Absent("the import succeeded")
        elif "error" in entry:
            state, error = "error", Known(printable(entry["error"], 600), self.source)
        elif self.outcome == "crashed":
            state, error = self.outcome, Known(self.end, self.source)
        elif self.outcome in {"hung", "not finished"}:  # by storage, for all we know
            state, error = self.outcome, Unread(self.end)
        else:
            yield from (("live.import_outcome", Unread(self.end)), ("live.import_error", Unread(self.end)))
            return
        yield "live.import_outcome", Known(state, self.source)
        yield "live.import_error", error

    def _told(self, name: str) -> Fact:
        entry = self.said.get(name)
        if entry is None:
            built = self.said.get("built_for", {"value": True})
            if "value" in built and built["value"] is None:
                return Absent("this torch is built without CUDA")
            return Unread(self.end)
        if "error" in entry:
            return Unread(printable(entry["error"]))
        value: Any = entry.get("value")
        if value is None:
            return Absent(f"this torch is built without {name}")
        plain = not isinstance(value, list) or not any(isinstance(item, (list, dict)) for item in value)
        if not plain or type(value) not in _KINDS.get(name, (str,)):
            return Unread(f"torch answered {printable(value, 60)} for {name}")
        return Known(tuple(value) if isinstance(value, list) else value, self.source)

    def _version(self, name: str, spell: Any) -> Fact:
        told = self._told(name)
        return Known(spell(told.value), told.source) if isinstance(told, Known) else told

    def _cuda_error(self) -> Fact:
        warning, error = self.said.get("cuda_warning"), self.said.get("cuda_error")
        if warning:
            return Known(printable(warning["value"], 600), self.source)
        if error:
            return Known(printable(error["error"], 600), self.source)
        if self.steps[-1:] == ["cuda init"] and self.outcome in {"hung", "crashed"}:
            return Known(self.end, self.source)  # to be hung takes a process that even SIGKILL does not end
        if "cudnn" in self.steps and isinstance(self._told("arch_list"), Known):
            return Absent("CUDA was initialised without a word")
        return self._told("cuda_error")

    def _gpus(self) -> Rows:
        count = self._told("device_count")
        if not isinstance(count, Known):
            return count
        available = self.said.get("cuda_available", {}).get("value")
        if not isinstance(count.value, int) or count.value <= 0 or available is False:
            return Absent("torch sees no CUDA device")
        if count.value > _MOST_GPUS:
            return Unread(f"torch says that it sees {printable(count.value, 60)} devices")
        rows: list[dict[str, Fact]] = [self._blank(index) for index in range(count.value)]
        for entry in self.entries:
            if type(number := entry.get("gpu")) is int and 0 <= number < len(rows):
                row = rows[number]
                row.update({key: Known(_text(entry[key]), self.source) for key in _COLUMNS if key in entry})
                if "left_alone" in entry:
                    row["error"] = Unread(_text(entry["left_alone"]))
                if entry.get("kernel") in {"ok", "wrong"}:
                    row["error"] = Absent("the kernel ran")
        return tuple(rows)

    def _blank(self, index: int) -> dict[str, Fact]:
        """A GPU before its answers: not run, or the one at which the child ended."""
        row: dict[str, Fact] = dict.fromkeys(_COLUMNS, Unread(self.end))
        row["kernel"] = Known("not run", self.source)
        if self.steps[-1:] == [f"kernel on GPU {index}"]:
            if self.outcome in {"hung", "crashed"}:
                row.update(kernel=Known("error", self.source), error=Known(self.end, self.source))
            elif self.outcome == "not finished":
                row["kernel"] = Unread(self.end)
        return row


def _text(raw: object) -> str:
    return printable(raw, 600)


def _cudnn(number: Any) -> str:
    """90100 is 9.1.0 and 8902 is 8.9.2: cuDNN counted in thousands until 8, in ten thousands since."""
    major, rest = divmod(int(number), 10000 if int(number) >= 90000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _nccl(raw: Any) -> str:
    """``(2, 21, 5)``; torch before 1.9 gave 2708 for 2.7.8."""
    if isinstance(raw, tuple):
        return ".".join(str(part) for part in raw)
    major, rest = divmod(int(raw), 10000 if int(raw) >= 20000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"
