"""What small kernels measured on each GPU: how fast, against what, and whether the answer was right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Literal, cast

from gpudoctor.model.document import brief
from gpudoctor.model.fact import Json
from gpudoctor.model.frozen import field, frozen, replace

SCHEMA = "gpudoctor-kernels/1"
SLOW = 0.9
"""Share of what the tables expect below which a run counts as slow, its fastest repetition included."""
_BESIDE = {"compute": 0.75, "memory": 0.9, "latency": 0.5}
"""The same of the median of its siblings, by `kind`; of others 0.7. The pages gpu.slow and gpu.copies-slow say why."""
TIMES = frozenset({"ns", "µs", "ms", "s"})
"""Units of which less is better."""
FEWEST_SIBLINGS = 3
"""GPUs to compare with: a median of fewer says nothing."""

Status = Literal["waiting", "running", "ran", "failed", "not-run"]
Rung = Literal["driver", "torch", "triton", "nccl", "training", "jax", "tensorflow"]
"""What a kernel stands on, the lowest first; ``training``: a training loop on torch."""
Level = Literal["standard", "deep"]
State = Literal["wrong", "failed", "slow", "unjudged", "sound", "waiting", "running"]
"""What to think of a run, the worst first."""


@frozen
class Kernel:
    """One measurement: ``matmul.bf16``. A rate is the better the more it is, a time the less."""

    id: str
    title: str
    unit: str
    """``TFLOP/s``, ``GB/s``, ``µs``; anything else is a figure that is not compared: ``workers``, ``%``."""
    size: str = ""
    """What is reckoned or moved: ``8192³``, ``1 GiB``."""
    level: Level = "standard"
    rung: Rung = "torch"
    """What it stands on."""

    @property
    def less_is_better(self) -> bool:
        """Whether it is a time."""
        return self.unit in TIMES

    @property
    def comparable(self) -> bool:
        """Whether more or less of it is better, so that GPUs of one name can be compared."""
        return self.less_is_better or self.unit.endswith("/s")


@frozen
class Device:
    """A GPU by its number; `held` says who uses it (``pid 41207, train.py``), which leaves it unmeasured."""

    index: int
    name: str
    held: str = ""
    uuid: str = ""


@frozen
class Expected:
    """What a sound GPU of its kind does here, and how that is known."""

    value: float
    how: Literal["table", "siblings"]
    limit: float | None = None
    """What the maker says is the most."""
    fraction: float | None = None
    """The share of the limit that a sound one achieves."""
    words: str = ""
    source: str = ""
    """Where limit and fraction are from, with the date."""


@frozen
class Step:
    """A rung of the ladder: whether it holds; None where it was not tried, or given up."""

    rung: Rung
    held: bool | None
    message: str = ""


@frozen
class Meanwhile:
    """The GPU while the kernel ran. `reasons` are NVML's clock-event reasons."""

    sm_clock_mhz: float | None = None
    max_sm_clock_mhz: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    reasons: tuple[str, ...] = ()
    link_generation: float | None = None
    link_width: float | None = None
    utilization: float | None = None
    """The most of any sample: below 50 none was taken while it worked, and the clock is one of rest."""
    ecc_corrected: float | None = None
    """Errors of the memory that were counted anew while it ran."""
    ecc_uncorrected: float | None = None


@frozen
class Run:
    """One kernel on one GPU."""

    kernel: str
    gpu: int
    status: Status
    value: float | None = None
    spread: float | None = None
    """Half the distance between the fastest and the slowest repetition, as a share of the value."""
    expected: Expected | None = None
    right: bool | None = None
    """Whether the answer is that of the reference; None where it was not compared."""
    differ: int | None = None
    """How many values are not those of the reference, of how many `compared`."""
    compared: int | None = None
    words: str = ""
    """What else is known of the difference, or what the figure means, in sentences."""
    because: str = ""
    """Why it did not run, or failed."""
    ladder: tuple[Step, ...] = ()
    meanwhile: Meanwhile | None = None
    advice: str = ""
    """What to do, as follows from the figure."""
    details: Mapping[str, Json] = field(default_factory=dict)
    """Further figures by name."""

    @property
    def broken(self) -> Step | None:
        """The rung that failed."""
        return next((step for step in self.ladder if step.held is False), None)


@frozen(slots=False)
class Measurements:
    """All of them; while they are made, those that still wait are there, too."""

    target: str
    kernels: tuple[Kernel, ...]
    devices: tuple[Device, ...]
    runs: tuple[Run, ...]
    at: str = ""
    """When they were made, as ISO 8601."""

    @cached_property
    def _runs(self) -> dict[str, dict[int, Run]]:
        runs: dict[str, dict[int, Run]] = {}
        for run in self.runs:
            runs.setdefault(run.kernel, {})[run.gpu] = run
        return runs

    @cached_property
    def _kernels(self) -> dict[str, Kernel]:
        return {kernel.id: kernel for kernel in self.kernels}

    @cached_property
    def _devices(self) -> dict[int, Device]:
        return {device.index: device for device in self.devices}

    @cached_property
    def _medians(self) -> dict[tuple[str, str], Expected]:
        """Of each kernel and name of GPU that enough were measured of."""
        from statistics import median  # brings decimals and fractions along

        names = {device.index: device.name for device in self.devices}
        values: dict[tuple[str, str], list[float]] = {}
        for run in self.runs:
            kernel = self._kernels.get(run.kernel)
            if kernel and kernel.comparable and run.value is not None and run.gpu in names:
                values.setdefault((run.kernel, names[run.gpu]), []).append(run.value)
        return {
            key: Expected(median(found), "siblings", words=f"the median of {len(found)} GPUs of this name")
            for key, found in values.items()
            if len(found) >= FEWEST_SIBLINGS
        }

    def run(self, kernel: str, gpu: int) -> Run | None:
        """That kernel on that GPU."""
        return self._runs.get(kernel, {}).get(gpu)

    def of(self, kernel: str) -> list[Run]:
        """That kernel on every GPU."""
        return list(self._runs.get(kernel, {}).values())

    def device(self, gpu: int) -> Device | None:
        """The GPU of that number."""
        return self._devices.get(gpu)

    def called(self, gpu: int) -> str:
        """``GPU 3``; ``all GPUs`` where all took part, ``CPU`` where none was measured."""
        if self.devices and self.devices[0].name == "CPU":
            return "CPU"
        return f"GPU {gpu}" if gpu >= 0 else "all GPUs"

    def expected(self, run: Run) -> Expected | None:
        """What was to be expected: from the tables, else the median of its siblings of the same name."""
        device = self.device(run.gpu)
        return run.expected or (self._medians.get((run.kernel, device.name)) if device else None)

    def ratio(self, run: Run) -> float | None:
        """Its value as a share of the expected one, 1 being as expected and less being slower; None if not known."""
        expected = self.expected(run)
        kernel = self._kernels.get(run.kernel)
        if expected is None or run.value is None or min(expected.value, run.value) <= 0:
            return None
        return expected.value / run.value if kernel and kernel.less_is_better else run.value / expected.value

    def state(self, run: Run) -> State:
        """What to think of it. A wrong answer is worse than a slow one."""
        if run.status == "waiting" or run.status == "running":
            return run.status
        if run.right is False:
            return "wrong"
        if run.status == "failed":
            return "failed"
        if run.status == "not-run":
            return "unjudged"
        ratio, expected, kernel = self.ratio(run), self.expected(run), self._kernels.get(run.kernel)
        if ratio is None or expected is None:
            return "unjudged" if run.right is None else "sound"
        least = slow_below(kind(run.kernel, kernel.unit if kernel else ""), expected.how)
        return "slow" if ratio * (1 + (run.spread or 0)) < least else "sound"

    def kernel(self, name: str) -> Kernel | None:
        """The kernel of that id."""
        return self._kernels.get(name)

    def merged(self, newer: Measurements) -> Measurements:
        """These, with what is newer in place of what was measured before."""
        kernels = {kernel.id: kernel for kernel in (*self.kernels, *newer.kernels)}
        devices = {device.index: device for device in (*self.devices, *newer.devices)}
        runs = {(run.kernel, run.gpu): run for run in (*self.runs, *newer.runs)}
        return replace(
            newer, kernels=tuple(kernels.values()), devices=tuple(devices.values()), runs=tuple(runs.values())
        )

    def to_json(self) -> dict[str, Json]:
        """A document that `measurement_json.from_json` takes back."""
        document = {
            "schema": SCHEMA,
            "target": self.target,
            "at": self.at,
            "kernels": [brief(vars_of(kernel)) for kernel in self.kernels],
            "devices": [brief(vars_of(device)) for device in self.devices],
            "runs": [_run_to_json(run) for run in self.runs],
        }
        return cast("dict[str, Json]", document)


def kind(kernel: str, unit: str) -> str:
    """What a kernel measures: compute, memory, host link, latency or other."""
    if unit.endswith("OP/s"):
        return "compute"
    if kernel == "copy.device" or kernel.startswith("memory."):
        return "memory"
    if kernel in ("copy.to", "copy.from"):
        return "host link"
    return "latency" if unit in TIMES else "other"


def slow_below(of: str, how: str) -> float:
    """Share of what it is held to, by the ``table`` or its ``siblings``, below which that kind of run is slow."""
    return SLOW if how == "table" else _BESIDE.get(of, 0.7)


def vars_of(noun: object) -> Mapping[str, object]:
    """The fields of a flat frozen dataclass, tuples as lists."""
    names: Iterable[str] = type(noun).__dataclass_fields__  # type: ignore[attr-defined]
    values = {name: getattr(noun, name) for name in names}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _run_to_json(run: Run) -> dict[str, object]:
    return brief(
        {
            **vars_of(run),
            "expected": run.expected and brief(vars_of(run.expected)),
            "ladder": [brief(vars_of(step)) for step in run.ladder],
            "meanwhile": run.meanwhile and brief(vars_of(run.meanwhile)),
        }
    )
