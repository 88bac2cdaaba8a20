"""The ladder: on each device the driver alone, then torch, then what is compiled, then NCCL; kernels on each rung.

The lowest rung on which something fails is the layer at fault, and every run above it says so. Above a rung that does
not open, or on which nothing is right, nothing is tried. Devices are climbed side by side, as a training job uses them;
what needs all of them comes last, and sees those alone that nobody uses and that got so far.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpudoctor.kernels.outcome import is_unfinished, run_of, status_of, trouble
from gpudoctor.kernels.specs import BELOW, FAMILIES, Placed
from gpudoctor.kernels.talk import Question, ask
from gpudoctor.model.measurement import Device, Meanwhile, Measurements, Run, Step
from gpudoctor.target import Target

NODE = -1
"""Number of the "device" that stands for all GPUs together."""

Tell = Callable[[Measurements], None]
Meter = Callable[[str, int], Callable[[], "Meanwhile | None"]]
"""Begins to watch a device while that kernel runs there; what it returns ends that and says what was seen."""

_LAST = 1.5
"""Seconds to wait for children that were told to end."""


class Ladder:
    """One climb. `cpu` runs every kernel's checks without a GPU; `budget` is the most seconds that it may take."""

    def __init__(
        self,
        target: Target,
        devices: Sequence[Device],
        kernels: Sequence[Placed],
        tell: Tell = lambda _: None,
        stop: threading.Event | None = None,
        meter: Meter | None = None,
        cpu: bool = False,
        budget: float = float("inf"),
    ) -> None:
        self._target = target
        self._devices = devices
        self._kernels = kernels
        self._tell = tell
        self._stop = stop or threading.Event()
        self._meter = meter
        self._cpu = cpu
        self._budget = budget
        self._until = time.monotonic() + budget
        self._lock, self._telling = threading.Lock(), threading.Lock()
        self._steps: dict[int, dict[str, Step]] = {device.index: {} for device in (*devices, Device(NODE, ""))}
        self._ends: dict[int, str] = {}
        """Of a device on which nothing more is tried: why."""
        self._watched: dict[int, Callable[[], Meanwhile | None]] = {}
        self._runs = {
            (one.spec.id, index): Run(one.spec.id, index, "waiting") for one in kernels for index in self._places(one)
        }

    def climb(self) -> Measurements:
        """Run all; whatever happens to a child, every kernel ends as ran, failed or not run, and says why."""
        for device in self._devices:
            if device.held:
                self._ends[device.index] = f"in use by {device.held}"
                self._leave(device.index, self._ends[device.index])
        free = [device.index for device in self._devices if not device.held]
        threads = [threading.Thread(target=self._fenced, args=(index,), daemon=True) for index in free]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if self._devices:
                self._node()
        except BaseException:  # Ctrl-C, or the end of the program: the children go first
            self._stop.set()
            until = time.monotonic() + _LAST
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))
            raise
        self._end()
        return self.so_far()

    def so_far(self) -> Measurements:
        """All runs as they are now."""
        with self._lock:
            runs = tuple(self._runs.values())
        kernels = tuple(one.kernel for one in self._kernels)
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return Measurements(self._target.name, kernels, tuple(self._devices), runs, at)

    def _places(self, one: Placed) -> list[int]:
        if one.spec.scope == "gpu":
            return [device.index for device in self._devices]
        return [NODE] if self._devices else []

    def _halt(self) -> str:
        if self._stop.is_set():
            return "stopped"
        return f"the {self._budget:g} s for kernels were over" if time.monotonic() > self._until else ""

    def _fenced(self, index: int) -> None:
        try:
            self._device(index)
        except Exception as error:  # a fault of ours on one device must not cost the others
            self._leave(index, f"gpudoctor itself failed: {type(error).__name__}: {error}")

    def _node(self) -> None:
        """What needs all devices, on those that are fit for it."""
        fit = self._fit()
        if not fit:
            self._leave(NODE, f"no GPU is left for it: GPU {self._devices[0].index}: {next(iter(self._ends.values()))}")
        elif not self._cpu and not all(device.uuid for device in fit):
            self._leave(NODE, "CUDA cannot be told which GPUs it may use: their UUIDs are not known")
        elif not self._halt():
            self._fenced(NODE)

    def _fit(self) -> list[Device]:
        """Those that nobody uses, and that torch works on as far as it was tried."""
        return [device for device in self._devices if device.index not in self._ends]

    def _device(self, index: int) -> None:
        """Rung over rung."""
        scope = "node" if index == NODE else "gpu"
        for family in FAMILIES:
            kernels = [one for one in self._kernels if one.family == family and one.spec.scope == scope]
            if not kernels:
                continue
            if self._halt():
                return
            if index in self._ends:
                self._close(index, family, kernels, Step(FAMILIES[family], None, f"not tried: {self._ends[index]}"))
            else:
                self._rung(index, family, kernels)

    def _rung(self, index: int, family: str, kernels: Sequence[Placed]) -> None:
        rung = FAMILIES[family]

        def hear(name: str, outcome: Mapping[str, Any]) -> None:
            self._heard(index, family, name, outcome)

        together = self._fit() if index == NODE and not self._cpu else []
        question = Question(family, self._name(index), kernels, self._env(index), [one.index for one in together])
        heard = ask(self._target, question, hear, self._halt)
        if not heard.opened and not heard.closed:
            return  # halted
        if not heard.opened:
            step = Step(rung, False if heard.failed else None, heard.closed)
            self._close(index, family, kernels, step)
            if heard.failed and _is_below_others(family):
                self._ends[index] = f"the rung below it, {rung}, does not hold: {heard.closed}"
            return
        bad = [said for name, outcome in heard.outcomes.items() if (said := trouble(name, outcome))]
        right = [name for name, said in heard.outcomes.items() if status_of(said) == "ran" and not trouble(name, said)]
        held = False if bad else None if heard.unfinished else True
        why = bad[0] if bad else heard.unfinished
        self._steps[index][family] = Step(rung, held, why)
        if why and not right and index != NODE and _is_below_others(family):
            self._ends[index] = f"on the rung below it, {rung}, nothing is right: {why}"

    def _name(self, index: int) -> str:
        if self._cpu:
            return "cpu"
        return "node" if index == NODE else f"cuda:{index}"

    def _env(self, index: int) -> dict[str, str]:
        """A fair share of the CPU for each of several devices; for all together nothing but those that are fit."""
        if self._cpu:
            return {}
        if index == NODE:
            return {"CUDA_VISIBLE_DEVICES": ",".join(device.uuid for device in self._fit())}
        if len(self._devices) < 2 or "OMP_NUM_THREADS" in self._target.environ:
            return {}
        return {"OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // len(self._devices)))}

    def _heard(self, index: int, family: str, name: str, outcome: Mapping[str, Any]) -> None:
        """A kernel began, or is over."""
        if not outcome:
            if self._meter and index != NODE:
                self._watched[index] = self._meter(name, index)
            self._put(replace(self._runs[name, index], status="running"))
            return
        bad = trouble(name, outcome)
        held = None if status_of(outcome) == "not-run" else not bad
        why = f"{name}: {outcome['because']}" if is_unfinished(outcome) else bad
        ladder = (*self._below(index, family), Step(FAMILIES[family], held, why))
        seen = self._watched.pop(index, lambda: None)()
        self._put(run_of(name, index, outcome, ladder, seen))

    def _below(self, index: int, family: str) -> Iterator[Step]:
        steps = self._steps[index]
        yield from (steps[name] for name in BELOW[family] if name in steps)

    def _close(self, index: int, family: str, kernels: Sequence[Placed], step: Step) -> None:
        """The rung does not hold, or could not be tried."""
        self._steps[index][family] = step
        ladder = (*self._below(index, family), step)
        status = "failed" if step.held is False else "not-run"
        for one in kernels:
            self._put(Run(one.spec.id, index, status, because=step.message, ladder=ladder))  # type: ignore[arg-type]

    def _leave(self, index: int, why: str) -> None:
        """Nothing is run on it, because of that."""
        for run in list(self._runs.values()):
            if run.gpu == index and run.status in {"waiting", "running"}:
                self._put(replace(run, status="not-run", because=why))

    def _end(self) -> None:
        """Whatever is not over by now is not run: it was halted."""
        why = self._halt() or "nothing was heard of it"
        for run in list(self._runs.values()):
            if run.status in {"waiting", "running"}:
                when = "while it ran" if run.status == "running" else "before its turn came"
                self._put(replace(run, status="not-run", because=f"{why} {when}"))

    def _put(self, run: Run) -> None:
        with self._lock:
            self._runs[run.kernel, run.gpu] = run
        with self._telling:  # one after the other, so that the last one told is the newest
            self._tell(self.so_far())


def _is_below_others(family: str) -> bool:
    return any(family in below for below in BELOW.values())
