"""The ladder: on each device the driver alone, then torch, then what is compiled, then NCCL; kernels on each rung.

The first rung that does not hold names the layer at fault, and nothing above it is tried. Devices are climbed side by
side, as a training job uses them; what needs all of them comes last.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpudoctor.kernels import talk
from gpudoctor.kernels.specs import BELOW, FAMILIES, Placed
from gpudoctor.model.measurement import Device, Meanwhile, Measurements, Run, Step
from gpudoctor.target import Target

NODE = -1
"""Number of the "device" that stands for all GPUs together."""

Tell = Callable[[Measurements], None]
Meter = Callable[[int], Callable[[], "Meanwhile | None"]]
"""Begins to watch a device; what it returns ends that and says what was seen."""


class Ladder:
    """One climb. `cpu` runs every kernel's checks without a GPU."""

    def __init__(
        self,
        target: Target,
        devices: Sequence[Device],
        kernels: Sequence[Placed],
        tell: Tell = lambda _: None,
        stop: threading.Event | None = None,
        meter: Meter | None = None,
        cpu: bool = False,
    ) -> None:
        self._target = target
        self._devices = devices
        self._kernels = kernels
        self._tell = tell
        self._stop = stop or threading.Event()
        self._meter = meter
        self._cpu = cpu
        self._lock = threading.Lock()
        self._steps: dict[int, dict[str, Step]] = {}
        self._watched: dict[int, Callable[[], Meanwhile | None]] = {}
        self._runs = {
            (one.spec.id, device.index): Run(one.spec.id, device.index, "waiting")
            for one in kernels
            for device in self._of(one)
        }

    def climb(self) -> Measurements:
        """Run all; whatever happens to a child, every kernel ends as ran, failed or not run, and says why."""
        free = [device for device in self._devices if not device.held]
        for device in self._devices:
            if device.held:
                self._leave(device.index, f"in use by {device.held}")
        threads = [threading.Thread(target=self._device, args=(device.index,), daemon=True) for device in free]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if not self._stop.is_set():
            self._device(NODE)
        self._leave(None, "stopped before it was run")
        return self.so_far()

    def so_far(self) -> Measurements:
        """All runs as they are now."""
        with self._lock:
            runs = tuple(self._runs.values())
        kernels = tuple(one.kernel for one in self._kernels)
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return Measurements(self._target.name, kernels, tuple(self._devices), runs, at)

    def _of(self, one: Placed) -> Iterable[Device]:
        return self._devices if one.spec.scope == "gpu" else (Device(NODE, "all"),)

    def _device(self, index: int) -> None:
        scope = "node" if index == NODE else "gpu"
        for family in FAMILIES:
            kernels = [one for one in self._kernels if one.family == family and one.spec.scope == scope]
            if not kernels or self._stop.is_set():
                continue
            broken = self._broken_below(index, family)
            if broken is not None:
                self._close(index, kernels, family, f"not tried: {broken}", failed=False)
            else:
                self._rung(index, family, kernels)

    def _broken_below(self, index: int, family: str) -> str | None:
        """The message of a lower rung that does not hold."""
        steps = self._steps.get(index, {})
        below = (steps[name] for name in BELOW[family] if name in steps)
        return next((f"the rung below failed: {step.message}" for step in below if step.held is False), None)

    def _rung(self, index: int, family: str, kernels: Sequence[Placed]) -> None:
        def hear(name: str, outcome: Mapping[str, Any]) -> None:
            self._heard(index, family, name, outcome)

        heard = talk.ask(self._target, family, self._name(index), kernels, hear, self._stop.is_set)
        if self._stop.is_set():
            return
        if heard.opened is None:
            self._close(index, kernels, family, heard.closed, heard.failed)
            return
        bad = [
            name for name, one in heard.outcomes.items() if one.get("status") == "failed" or one.get("right") is False
        ]
        message = f"{bad[0]}: {heard.outcomes[bad[0]].get('because') or 'wrong values'}" if bad else ""
        self._note(index, family, Step(FAMILIES[family], not bad, message))

    def _name(self, index: int) -> str:
        if self._cpu:
            return "cpu"
        if index != NODE:
            return f"cuda:{index}"
        return "node:" + ",".join(str(device.index) for device in self._devices if not device.held)

    def _heard(self, index: int, family: str, name: str, outcome: Mapping[str, Any]) -> None:
        held = outcome.get("status") != "failed" if outcome else None
        ladder = (*self._below(index, family), Step(FAMILIES[family], held))
        if not outcome:
            if self._meter and index != NODE:
                self._watched[index] = self._meter(index)
            self._put(replace(self._runs[name, index], status="running"))
            return
        seen = self._watched.pop(index, lambda: None)()
        self._put(_run(name, index, outcome, ladder, seen))

    def _below(self, index: int, family: str) -> tuple[Step, ...]:
        steps = self._steps.get(index, {})
        return tuple(steps[name] for name in BELOW[family] if name in steps)

    def _note(self, index: int, family: str, step: Step) -> None:
        self._steps.setdefault(index, {})[family] = step

    def _close(self, index: int, kernels: Sequence[Placed], family: str, why: str, failed: bool) -> None:
        """The rung does not hold, or could not be tried."""
        step = Step(FAMILIES[family], False if failed else None, why)
        self._note(index, family, step)
        ladder = (*self._below(index, family), step)
        for one in kernels:
            self._put(Run(one.spec.id, index, "failed" if failed else "not-run", because=why, ladder=ladder))

    def _leave(self, index: int | None, why: str) -> None:
        for run in list(self._runs.values()):
            if run.status in {"waiting", "running"} and index in {None, run.gpu}:
                self._put(replace(run, status="not-run", because=why))

    def _put(self, run: Run) -> None:
        with self._lock:
            self._runs[run.kernel, run.gpu] = run
        self._tell(self.so_far())


def _run(name: str, index: int, outcome: Mapping[str, Any], ladder: tuple[Step, ...], seen: Meanwhile | None) -> Run:
    """The child's line as a run. What it says is taken for what it is, or left out."""

    def number(key: str) -> float | None:
        value = outcome.get(key)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def whole(key: str) -> int | None:
        value = number(key)
        return None if value is None else int(value)

    status, right, details = outcome.get("status"), outcome.get("right"), outcome.get("details")
    return Run(
        kernel=name,
        gpu=index,
        status="ran" if status == "ran" else "not-run" if status == "not-run" else "failed",
        value=number("value"),
        spread=number("spread"),
        right=right if isinstance(right, bool) else None,
        differ=whole("differ"),
        compared=whole("compared"),
        words=str(outcome.get("words", "")),
        advice=str(outcome.get("advice", "")),
        because=str(outcome.get("because", "")),
        details=details if isinstance(details, dict) else {},
        ladder=ladder,
        meanwhile=seen,
    )
