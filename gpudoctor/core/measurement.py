"""What small kernels measured on each GPU: how fast, against what, and whether the answer was right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Literal, cast

from gpudoctor.core.diagnosis import Finding, Verdict, verdict_of
from gpudoctor.core.document import object_from_json, object_to_json, open_document
from gpudoctor.core.fact import Json
from gpudoctor.core.frozen import field, frozen, replace

SCHEMA = "gpudoctor-kernels/1"
SLOW_SHARE = 0.9
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


def median(numbers: Iterable[float]) -> float:
    """The median, as `statistics.median` without loading its module; raises `IndexError` for no numbers."""
    ranked = sorted(numbers)
    middle = len(ranked) // 2
    return ranked[middle] if len(ranked) % 2 else (ranked[middle - 1] + ranked[middle]) / 2


@frozen
class Kernel:
    """One measurement kernel, as ``matmul.bf16``; higher rates and lower times are better."""

    id: str
    title: str
    unit: str = ""
    """``TFLOP/s``, ``GB/s``, ``µs``; anything else is a figure that is not compared: ``workers``, ``%``."""
    size: str = ""
    """What is reckoned or moved: ``8192³``, ``1 GiB``."""
    level: Level = "standard"
    rung: Rung = "torch"
    """What it stands on."""

    @property
    def less_is_better(self) -> bool:
        """Whether its unit is a time."""
        return self.unit in TIMES

    @property
    def comparable(self) -> bool:
        """Whether its unit is a time or ends with ``/s``: then GPUs of one name can be compared."""
        return self.less_is_better or self.unit.endswith("/s")


@frozen
class Device:
    """A GPU by index; `held` names the process that uses it (``pid 41207, train.py``), which leaves it unmeasured."""

    index: int
    name: str = ""
    held: str = ""
    uuid: str = ""


@frozen
class Expected:
    """The value expected of a sound GPU, from the tables or from its siblings."""

    value: float
    how: Literal["table", "siblings"] = "table"
    limit: float | None = None
    """What the maker says is the most."""
    fraction: float | None = None
    """The share of the limit that a sound one achieves."""
    words: str = ""
    source: str = ""
    """Where limit and fraction are from, with the date."""


@frozen
class Step:
    """One rung of the ladder: whether it works; None where it was not tried, or given up."""

    rung: Rung
    held: bool | None
    message: str = ""


@frozen
class Meanwhile:
    """The GPU's clocks, power, temperature and link while the kernel ran; `reasons` are NVML's clock-event reasons."""

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
    seconds: float | None = None
    """Between the first and the last reading of the counters."""
    pcie_replays: float | None = None
    nvlink_crc: float | None = None
    nvlink_replays: float | None = None
    nvlink_failures: float | None = None


COUNTERS = {
    "ecc_corrected": "memory errors repaired",
    "ecc_uncorrected": "uncorrectable memory errors",
    "pcie_replays": "PCIe packets sent again",
    "nvlink_crc": "NVLink CRC errors",
    "nvlink_replays": "NVLink packets sent again",
    "nvlink_failures": "NVLink recoveries and failures",
}
"""Counters of errors whose gain is taken while a kernel or a command runs, by their names in `sample.GPU`, in words."""


def gain(readings: Iterable[float]) -> float:
    """Total increase of a counter over its readings; a decrease (reset or wrap) counts as 0."""
    rise, last = 0.0, None
    for reading in readings:
        rise += max(0.0, reading - last) if last is not None else 0.0
        last = reading
    return rise


@frozen
class Run:
    """One kernel's result on one GPU."""

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
        """The first rung of its ladder that does not work; None where none failed."""
        return next((step for step in self.ladder if step.held is False), None)


@frozen(slots=False)
class Measurements:
    """All kernels, devices and runs of a benchmark, those still waiting included."""

    target: str
    kernels: tuple[Kernel, ...] = ()
    devices: tuple[Device, ...] = ()
    runs: tuple[Run, ...] = ()
    at: str = ""
    """When they were made, as ISO 8601."""

    @cached_property
    def _runs(self) -> dict[str, dict[int, Run]]:
        """Runs by kernel id and GPU index."""
        runs: dict[str, dict[int, Run]] = {}
        for run in self.runs:
            runs.setdefault(run.kernel, {})[run.gpu] = run
        return runs

    @cached_property
    def _kernels(self) -> dict[str, Kernel]:
        """Kernels by id."""
        return {kernel.id: kernel for kernel in self.kernels}

    @cached_property
    def _devices(self) -> dict[int, Device]:
        """Devices by index."""
        return {device.index: device for device in self.devices}

    @cached_property
    def _medians(self) -> dict[tuple[str, str], Expected]:
        """Median by kernel id and GPU name, of comparable kernels with a value from `FEWEST_SIBLINGS` GPUs or more."""
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
        """The run of that kernel on that GPU; None where there is none."""
        return self._runs.get(kernel, {}).get(gpu)

    def of(self, kernel: str) -> list[Run]:
        """All runs of that kernel."""
        return list(self._runs.get(kernel, {}).values())

    def device(self, gpu: int) -> Device | None:
        """The GPU of that index; None where there is none."""
        return self._devices.get(gpu)

    def called(self, gpu: int) -> str:
        """Name for display: ``GPU 3``; ``all GPUs`` for a negative index, ``CPU`` where no GPU was measured."""
        if self.devices and self.devices[0].name == "CPU":
            return "CPU"
        return f"GPU {gpu}" if gpu >= 0 else "all GPUs"

    def expected(self, run: Run) -> Expected | None:
        """What was expected of the run: by the tables, else its siblings' median; None where neither is known."""
        device = self.device(run.gpu)
        return run.expected or (self._medians.get((run.kernel, device.name)) if device else None)

    def ratio(self, run: Run) -> float | None:
        """How fast the run was, relative to `expected`: 1 is as expected, less is slower, also for kernels measured in
        time.

        None where either value is missing or not above 0.
        """
        expected = self.expected(run)
        kernel = self._kernels.get(run.kernel)
        if expected is None or run.value is None or min(expected.value, run.value) <= 0:
            return None
        return expected.value / run.value if kernel and kernel.less_is_better else run.value / expected.value

    def state(self, run: Run) -> State:
        """How the run is judged: its status while waiting or running, ``wrong`` (its answer), ``failed`` or ``slow``.

        ``unjudged`` where it did not run, or has neither an answer nor a speed to compare; else ``sound``.
        """
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
        threshold = slow_below(kind(run.kernel, kernel.unit if kernel else ""), expected.how)
        return "slow" if ratio * (1 + (run.spread or 0)) < threshold else "sound"

    def kernel(self, name: str) -> Kernel | None:
        """The kernel of that id; None where there is none."""
        return self._kernels.get(name)

    def merged(self, newer: Measurements) -> Measurements:
        """Both, a newer run in place of one of the same kernel and GPU; target and time are those of the newer."""
        kernels = {kernel.id: kernel for kernel in (*self.kernels, *newer.kernels)}
        devices = {device.index: device for device in (*self.devices, *newer.devices)}
        runs = {(run.kernel, run.gpu): run for run in (*self.runs, *newer.runs)}
        return replace(
            newer, kernels=tuple(kernels.values()), devices=tuple(devices.values()), runs=tuple(runs.values())
        )

    def to_json(self) -> dict[str, Json]:
        """The document ``gpudoctor-kernels/1`` (target, at, kernels, devices, runs), which `from_json` reads."""
        lists = {
            name: [object_to_json(item, sparse=True) for item in getattr(self, name)]
            for name in ("kernels", "devices", "runs")
        }
        return cast("dict[str, Json]", {"schema": SCHEMA, "target": self.target, "at": self.at, **lists})


def kind(kernel: str, unit: str) -> str:
    """Kind of a kernel by its id and unit: ``compute``, ``memory``, ``host link``, ``latency`` or ``other``."""
    if unit.endswith("OP/s"):
        return "compute"
    if kernel == "copy.device" or kernel.startswith("memory."):
        return "memory"
    if kernel in ("copy.to", "copy.from"):
        return "host link"
    return "latency" if unit in TIMES else "other"


def slow_below(kernel_kind: str, reference: str) -> float:
    """Share of the reference (``table`` or ``siblings``) below which a run of that kind of kernel is slow."""
    return SLOW_SHARE if reference == "table" else _BESIDE.get(kernel_kind, 0.7)


def from_json(raw: object) -> Measurements:
    """The inverse of `Measurements.to_json`; raises `DocumentError`."""
    return object_from_json(Measurements, {"target": "", **open_document(raw, SCHEMA)})


def meanwhile_from_json(raw: object) -> Meanwhile | None:
    """The GPU's state while a kernel ran, from JSON; None for null; raises `DocumentError`."""
    return None if raw is None else object_from_json(Meanwhile, raw)


# ---- Kernels that were run, and what the rules that read their results say ----


@frozen
class Bench:
    """A benchmark's measurements, verdict and findings; `because` says why nothing could be measured, else empty."""

    found: Measurements
    verdict: Verdict
    findings: tuple[Finding, ...]
    because: str = ""

    def to_json(self) -> dict[str, Json]:
        """The document of the measurements with ``verdict`` and ``findings`` added, and ``because`` where not empty."""
        more: dict[str, object] = {
            "verdict": self.verdict,
            "findings": [finding.to_json() for finding in self.findings],
            **({"because": self.because} if self.because else {}),
        }
        return {**self.found.to_json(), **cast("dict[str, Json]", more)}


def bench_verdict(found: Measurements, findings: Sequence[Finding]) -> Verdict:
    """Broken for a wrong value, failed kernel or error; unknown if nothing ran or one was given up.

    Else impaired by any warning, or sound.
    """
    if {found.state(run) for run in found.runs} & {"wrong", "failed"}:
        return "broken"
    given_up = any(run.status == "not-run" and run.details.get("unfinished") for run in found.runs)
    return verdict_of(findings, known=not given_up and any(run.status == "ran" for run in found.runs))
