"""The ladder: on each device the driver alone, then torch, then what is compiled, then NCCL; kernels on each rung.

The lowest rung on which something fails is the layer at fault, and every run above it says so. Above a rung that does
not open, or on which nothing is right, nothing is tried. Devices are climbed side by side, as a training job uses them;
what needs all of them comes last, and sees those alone that nobody uses and that got so far.
`measurements` reads back from facts what was measured: the inverse of `facts.rows`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast, get_args

from gpudoctor.core import system
from gpudoctor.core.document import is_number
from gpudoctor.core.fact import Absent, Json, Reason, Row, Unread, known, listed, text_of, value_of, value_to_json
from gpudoctor.core.measurement import Device, Expected, Kernel, Meanwhile, Measurements, Run, Rung, Step
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.kernels import specs
from gpudoctor.kernels.facts import MEANWHILE_FIELDS
from gpudoctor.kernels.runner import Question, ask, failure_message, is_unfinished, run_from_outcome, status_of
from gpudoctor.kernels.specs import BELOW, FAMILIES, KernelEntry
from gpudoctor.target import Target

NODE = -1
"""Number of the "device" that stands for all GPUs together."""

OnChange = Callable[[Measurements], None]
Meter = Callable[[str, int], Callable[[], "Meanwhile | None"]]
"""Begins to watch a device while that kernel runs there; what it returns ends that and says what was seen."""

_LAST = 1.5
"""Seconds to wait for children that were told to end."""


class Ladder:
    """One run of kernels over the rungs of all devices.

    `cpu` runs every kernel's checks without a GPU; `budget` limits the seconds; `tell` is called with all runs before
    the first begins and after every change, `meter` with each kernel that begins on a GPU; setting `stop` ends the run;
    kernels of level soak work for `work` seconds.
    """

    def __init__(
        self,
        target: Target,
        devices: Sequence[Device],
        kernels: Sequence[KernelEntry],
        tell: OnChange = lambda _: None,
        stop: threading.Event | None = None,
        meter: Meter | None = None,
        cpu: bool = False,
        budget: float = float("inf"),
        work: float = 0.0,
    ) -> None:
        self._target = target
        self._devices = devices
        self._kernels = kernels
        self._tell = tell
        self._stop = stop or threading.Event()
        self._meter = meter
        self._cpu = cpu
        self._budget = budget
        self._work = work
        self._deadline = time.monotonic() + budget
        self._lock, self._tell_lock = threading.Lock(), threading.Lock()
        self._steps: dict[int, dict[str, Step]] = {device.index: {} for device in (*devices, Device(NODE, ""))}
        self._stop_reasons: dict[int, str] = {}
        """Of a device on which nothing more is tried: why."""
        self._meters: dict[int, Callable[[], Meanwhile | None]] = {}
        numbers = {"gpu": [device.index for device in devices], "node": [NODE] if devices else []}
        self._runs = {
            (kernel.spec.id, index): Run(kernel.spec.id, index, "waiting")
            for kernel in kernels
            for index in numbers[kernel.spec.scope]
        }

    def climb(self) -> Measurements:
        """Run all kernels; returns them, each ran, failed or not-run with a reason, whatever happens to a child.

        On Ctrl-C the children are ended, and it is raised again.
        """
        self._tell(self.so_far())
        for device in self._devices:
            if device.held:
                self._stop_reasons[device.index] = f"in use by {device.held}"
                self._skip_remaining(device.index, self._stop_reasons[device.index])
        free = [device.index for device in self._devices if not device.held]
        threads = [threading.Thread(target=self._run_device, args=(index,), daemon=True) for index in free]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if self._devices:
                self._run_node()
        except BaseException:  # Ctrl-C, or the end of the program: the children go first
            self._stop.set()
            until = time.monotonic() + _LAST
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))
            raise
        self._finish()
        return self.so_far()

    def so_far(self) -> Measurements:
        """All runs in their present state, stamped with the time in UTC."""
        with self._lock:
            runs = tuple(self._runs.values())
        kernels = tuple(kernel.kernel for kernel in self._kernels)
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return Measurements(self._target.name, kernels, tuple(self._devices), runs, at)

    def _halt_reason(self) -> str:
        """Why to stop now: stopped, or the budget is spent; empty to go on."""
        if self._stop.is_set():
            return "stopped"
        return f"the {self._budget:g} s for kernels were over" if time.monotonic() > self._deadline else ""

    def _run_node(self) -> None:
        """Run the kernels of scope ``node`` on all fit GPUs; not run where none is fit, or a UUID is unknown."""
        fit = self._fit_devices()
        if not fit:
            first = self._devices[0].index
            self._skip_remaining(NODE, f"no GPU is left for it: GPU {first}: {self._stop_reasons[first]}")
        elif not self._cpu and not all(device.uuid for device in fit):
            self._skip_remaining(NODE, "CUDA cannot be told which GPUs it may use: their UUIDs are not known")
        elif not self._halt_reason():
            self._run_device(NODE)

    def _fit_devices(self) -> list[Device]:
        """Devices that no other process uses, and on which no rung that others stand on failed."""
        return [device for device in self._devices if device.index not in self._stop_reasons]

    def _run_device(self, index: int) -> None:
        """Run the rungs of one device (or `NODE`) in order; an exception marks its remaining runs as not run."""
        scope = "node" if index == NODE else "gpu"
        try:
            for family in FAMILIES:
                kernels = [kernel for kernel in self._kernels if kernel.family == family and kernel.spec.scope == scope]
                if kernels and self._halt_reason():
                    return
                if kernels and index in self._stop_reasons:
                    step = Step(FAMILIES[family], None, f"not tried: {self._stop_reasons[index]}")
                    self._close_rung(index, family, kernels, step)
                elif kernels:
                    self._run_rung(index, family, kernels)
        except Exception as error:  # a fault of ours on one device must not cost the others
            self._skip_remaining(index, f"gpudoctor itself failed: {type(error).__name__}: {error}")

    def _run_rung(self, index: int, family: str, kernels: Sequence[KernelEntry]) -> None:
        """Run one rung's kernels on a device and record whether it holds; if none is right, bar the rungs above it."""
        rung = FAMILIES[family]
        device = "cpu" if self._cpu else "node" if index == NODE else f"cuda:{index}"
        together = self._fit_devices() if index == NODE and not self._cpu else []
        question = Question(
            family,
            device,
            kernels,
            self._child_env(index),
            [device.index for device in together],
            self._work,
        )
        result = ask(self._target, question, partial(self._on_kernel, index, family), self._halt_reason)
        if not result.opened and not result.closed:
            return  # halted
        if not result.opened:
            step = Step(rung, False if result.failed else None, result.closed)
            self._close_rung(index, family, kernels, step)
            if result.failed and _is_below_others(family):
                self._stop_reasons[index] = f"the rung below it, {rung}, does not hold: {result.closed}"
            return
        bad = [message for name, outcome in result.outcomes.items() if (message := failure_message(name, outcome))]
        right = [
            name
            for name, outcome in result.outcomes.items()
            if status_of(outcome) == "ran" and not failure_message(name, outcome)
        ]
        held = False if bad else None if result.unfinished else True
        why = bad[0] if bad else result.unfinished
        self._steps[index][family] = Step(rung, held, why)
        if why and not right and index != NODE and _is_below_others(family):
            self._stop_reasons[index] = f"on the rung below it, {rung}, nothing is right: {why}"

    def _child_env(self, index: int) -> dict[str, str]:
        """Environment variables for a device's child: for `NODE` which GPUs are visible, else its share of CPU threads.

        Empty for a run on the CPU, for a single GPU, and where OMP_NUM_THREADS is set.
        """
        if self._cpu:
            return {}
        if index == NODE:
            return {"CUDA_VISIBLE_DEVICES": ",".join(device.uuid for device in self._fit_devices())}
        if len(self._devices) < 2 or "OMP_NUM_THREADS" in self._target.environ:
            return {}
        return {"OMP_NUM_THREADS": str(max(1, system.usable_cores() // len(self._devices)))}

    def _on_kernel(self, index: int, family: str, name: str, outcome: Mapping[str, Any]) -> None:
        """Record that a kernel began (empty `outcome`) or ended with that outcome; starts and ends its meter."""
        if not outcome:
            if self._meter and index != NODE:
                self._meters[index] = self._meter(name, index)
            self._store(replace(self._runs[name, index], status="running"))
            return
        bad = failure_message(name, outcome)
        held = None if status_of(outcome) == "not-run" else not bad
        why = f"{name}: {outcome['because']}" if is_unfinished(outcome) else bad
        ladder = (*self._steps_below(index, family), Step(FAMILIES[family], held, why))
        meanwhile = self._meters.pop(index, lambda: None)()
        self._store(run_from_outcome(name, index, outcome, ladder, meanwhile))

    def _steps_below(self, index: int, family: str) -> Iterator[Step]:
        """Yield the recorded steps of the rungs that this one stands on, the lowest first."""
        steps = self._steps[index]
        yield from (steps[name] for name in BELOW[family] if name in steps)

    def _close_rung(self, index: int, family: str, kernels: Sequence[KernelEntry], step: Step) -> None:
        """Record `step` for a rung that failed to open or was not tried, and end its kernels accordingly."""
        self._steps[index][family] = step
        ladder = (*self._steps_below(index, family), step)
        status = "failed" if step.held is False else "not-run"
        for kernel in kernels:
            self._store(Run(kernel.spec.id, index, status, because=step.message, ladder=ladder))  # type: ignore[arg-type]

    def _skip_remaining(self, index: int, why: str) -> None:
        """Mark every kernel of the device that has not ended as not run, because of `why`."""
        for run in list(self._runs.values()):
            if run.gpu == index and run.status in {"waiting", "running"}:
                self._store(replace(run, status="not-run", because=why))

    def _finish(self) -> None:
        """Mark all kernels that have not ended as not run: the ladder was halted."""
        why = self._halt_reason() or "no message came from it"
        for run in list(self._runs.values()):
            if run.status in {"waiting", "running"}:
                when = "while it ran" if run.status == "running" else "before its turn came"
                self._store(replace(run, status="not-run", because=f"{why} {when}"))

    def _store(self, run: Run) -> None:
        """Replace a run by its new state and report all of them."""
        with self._lock:
            self._runs[run.kernel, run.gpu] = run
        with self._tell_lock:  # one after the other, so that the last one told is the newest
            self._tell(self.so_far())


def _is_below_others(family: str) -> bool:
    """True if the kernels of another folder of ``child`` are tried only once those of `family` hold, by `BELOW`."""
    return any(family in below for below in BELOW.values())


def measurements(snapshot: Snapshot) -> Measurements | None:
    """Measurements rebuilt from a snapshot's rows of ``measured`` and ``rung``; None if there are none."""
    rows = snapshot.rows("measured")
    if not isinstance(rows, tuple) or not rows:
        return None
    kernels: dict[str, Kernel] = {}
    devices: dict[int, Device] = {}
    ladders = _ladders(snapshot)
    runs = []
    for row in rows:
        values = {name: value_to_json(state.value) for name, fact in row.items() if (state := known(fact))}
        kernel, gpu = _kernel_from_row(values), _device_number(row)
        kernels[kernel.id] = kernel
        name, because = str(values.get("device", "")), str(values.get("because", ""))
        if gpu != NODE and gpu not in devices:
            value = row.get("value")
            in_use = isinstance(value, Unread) and value.reason is Reason.IN_USE
            held = because.removeprefix("in use by ") if in_use else ""
            devices[gpu] = Device(gpu, name, held)
        ladder = ladders.get(gpu, ())
        at = next((at for at, step in enumerate(ladder, 1) if step.rung == kernel.rung), 0)
        run = run_from_outcome(kernel.id, gpu, values, ladder[:at], _meanwhile(row))
        runs.append(replace(run, expected=_expected(values)))
    return Measurements(snapshot.target.name, tuple(kernels.values()), tuple(devices.values()), tuple(runs))


def _kernel_from_row(values: Mapping[str, Json]) -> Kernel:
    """The kernel of a row; title and size by its id, or the id itself if unknown here; unit as recorded."""
    name, unit, rung = (str(values.get(key, "")) for key in ("kernel", "unit", "rung"))
    known = next((entry.kernel for entry in specs.all_kernels() if entry.spec.id == name), None)
    own_rung: Rung = cast(Rung, rung) if rung in get_args(Rung) else "torch"
    if known is None:
        return Kernel(name, name, unit, rung=own_rung)
    return Kernel(name, known.title, unit or known.unit, known.size, known.level, own_rung)


def _expected(values: Mapping[str, Json]) -> Expected | None:
    """The recorded expected rate from the tables; None unless value and limit are positive numbers."""
    value, limit = (values[name] if is_number(values.get(name)) else None for name in ("expected", "limit"))
    if not isinstance(value, (int, float)) or not isinstance(limit, (int, float)) or min(value, limit) <= 0:
        return None
    return Expected(value, "table", limit, value / limit, source=str(values.get("expected_from", "")))


def _device_number(row: Row) -> int:
    """CUDA's number of the row's device; `NODE` where it is absent."""
    index = value_of(row.get("gpu"))
    return index if isinstance(index, int) else NODE


def _ladders(snapshot: Snapshot) -> dict[int, tuple[Step, ...]]:
    """Steps of each device by its number, from the rows of ``rung``; the lowest rung first."""
    rows = snapshot.rows("rung")
    ladders: dict[int, dict[Rung, Step]] = {}
    for row in listed(rows):
        name, held, message = (row.get(column) for column in ("name", "held", "message"))
        if value_of(name) in get_args(Rung):
            rung = cast(Rung, value_of(name))
            passed = value_of(held)
            why = text_of(message) if known(message) else held.why if isinstance(held, Unread) else ""
            steps = ladders.setdefault(_device_number(row), {})
            steps[rung] = Step(rung, passed if isinstance(passed, bool) else None, why)
    return {gpu: tuple(steps[rung] for rung in get_args(Rung) if rung in steps) for gpu, steps in ladders.items()}


def _meanwhile(row: Row) -> Meanwhile | None:
    """What NVML reported while the kernel ran, from a row of ``measured``; None if nothing is known."""
    values = {field: state.value for name, field in MEANWHILE_FIELDS.items() if (state := known(row.get(name)))}
    values.update(
        {
            field: ()
            for name, field in MEANWHILE_FIELDS.items()
            if isinstance(row.get(name), Absent) and field == "reasons"
        }
    )
    return Meanwhile(**values) if values else None  # type: ignore[arg-type]
