"""What was measured, as facts: saved, read back and judged like any other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Reason, Row, Unread, Value, value_from_json
from gpudoctor.core.frozen import replace
from gpudoctor.core.snapshot import Snapshot

if TYPE_CHECKING:  # what a probe declares must be known at once, by every start
    from gpudoctor.core.measurement import Kernel, Meanwhile, Measurements, Run

SOURCE = "gpudoctor bench"

FACTS = (
    column("measured.kernel", "text", "what was measured, such as matmul.bf16, copy.device"),
    column("measured.gpu", "int", "CUDA's number of the device; absent where all of them took part"),
    column("measured.device", "text", "its name; CPU where no GPU was measured"),
    column("measured.rung", "text", "driver, torch, triton, nccl, training, jax or tensorflow"),
    column("measured.status", "text", "ran, failed or not-run"),
    column("measured.value", "float", "what was measured, in the kernel's unit"),
    column("measured.unit", "text", "TFLOP/s, GB/s, µs, ..."),
    column("measured.spread", "float", "half the distance between the fastest and the slowest series, as a share"),
    column("measured.right", "bool", "whether the values are those of an independent reference"),
    column("measured.differ", "int", "how many values are not"),
    column("measured.compared", "int", "of how many"),
    column("measured.agrees", "bool", "whether its result is bit for bit that of most GPUs of its name"),
    column("measured.words", "text", "what else is known of the difference, or what the figure means"),
    column("measured.because", "text", "why it failed or did not run"),
    column("measured.advice", "text", "what to do, as follows from the figure"),
    column("measured.details", "map", "further figures by name"),
    column("measured.sm_clock_mhz", "float", "SM clock while it ran", "MHz"),
    column("measured.sm_clock_max_mhz", "float", "highest SM clock", "MHz"),
    column("measured.power_w", "float", "power drawn while it ran", "W"),
    column("measured.power_limit_w", "float", "power limit in force", "W"),
    column("measured.temperature_c", "float", "core temperature while it ran", "degrees C"),
    column("measured.throttle_reasons", "list", "what held the clocks down while it ran"),
    column("measured.link_generation", "float", "PCIe generation while it ran"),
    column("measured.link_width", "float", "PCIe lanes while it ran"),
    column("measured.utilization", "float", "the most that it was busy while it ran", "%"),
    column("measured.ecc_corrected", "float", "memory errors that ECC repaired while it ran"),
    column("measured.ecc_uncorrected", "float", "memory errors that ECC could not repair while it ran"),
    column("measured.seconds", "float", "time over which these and the next counters were read", "s"),
    column("measured.pcie_replays", "float", "PCIe packets sent again while it ran"),
    column("measured.nvlink_crc", "float", "packets with CRC errors on the GPU's NVLinks while it ran"),
    column("measured.nvlink_replays", "float", "packets sent again on its NVLinks while it ran"),
    column("measured.nvlink_failures", "float", "times that NVLinks were trained again or passed errors on meanwhile"),
    column("measured.limit", "float", "the most that its clock, multiprocessors, memory or link allow, in that unit"),
    column("measured.expected", "float", "what a sound GPU like this one reaches at least"),
    column("measured.expected_from", "text", "how that is reckoned"),
    column("measured.siblings", "float", "the median of the other GPUs of that name"),
    column("rate.kernel", "text", "the kernel that is farthest below; absent where a report tells the rate"),
    column("rate.of", "text", "what is measured: compute, memory, host link, GPU link, latency or other"),
    column("rate.against", "text", "what rate.others is: expected (by its own limits) or siblings"),
    column("rate.share", "float", "the rate as a share of that; 1 is as it should be, less is slower"),
    column("rate.spread", "float", "half the distance between its fastest and its slowest series, as a share"),
    column("rate.also", "list", "other kernels that are below: matmul.fp16 (52 %)"),
    column("rate.expected_from", "text", "how the expected rate is reckoned"),
    column("rate.name", "text", "the GPU's name"),
    column("rate.uuid", "text", "its UUID"),
    column("rate.address", "text", "its PCI address"),
    column("best.gpu", "int", "index of a GPU whose rate was measured here before"),
    column("best.uuid", "text", "its UUID"),
    column("best.name", "text", "its name"),
    column("best.kernel", "text", "what was measured"),
    column("best.value", "float", "the rate now, in the kernel's unit"),
    column("best.unit", "text", "TFLOP/s, GB/s, ..."),
    column("best.best", "float", "the best before at the same clock, under the same driver or else the last one"),
    column("best.share", "float", "the rate now as a share of that, its own spread allowed for"),
    column("best.date", "text", "when that was, in UTC: 2026-10-02"),
    column("best.changed", "list", "versions that differ since: driver 570.124.06 -> 580.95.05, BIOS, VBIOS, ..."),
    column(
        "gpu.tf32_gain",
        "float",
        "how many times faster than fp32 it multiplies in TF32, where it should be twice and more",
    ),
    column("live_gpu.index", "int", "CUDA's number of the device"),
    column("live_gpu.uuid", "text", "its UUID"),
    column("live_gpu.address", "text", "its PCI address"),
    column("live_gpu.wrong", "list", "kernels of the driver and of torch that were wrong on it and not on every GPU"),
    column("live_gpu.wrong_words", "text", "what is known of the wrong values of the first of them"),
    fact("live.peers_wrong", "text", "what is known of words that arrive changed when one GPU copies them to another"),
    fact("live.wrong_everywhere", "list", "kernels that were wrong on every GPU, and are no fault of a GPU"),
    column("gpu.at_work", "text", "the kernel that it worked on when NVML read its clock, power and load"),
    column("gpu.ecc_uncorrected_at_work", "int", "memory errors that ECC could not repair while kernels ran"),
    column("gpu.ecc_corrected_at_work", "int", "memory errors that ECC repaired while kernels ran"),
    column("gpu.seconds_at_work", "float", "time over which the counters of errors were read while kernels ran", "s"),
    column("gpu.pcie_replays_at_work", "int", "PCIe packets sent again while kernels ran"),
    column("gpu.nvlink_crc_at_work", "int", "packets with CRC errors on its NVLinks while kernels ran"),
    column("gpu.nvlink_replays_at_work", "int", "packets sent again on its NVLinks while kernels ran"),
    column("gpu.nvlink_failures_at_work", "int", "times that NVLinks were trained again or passed errors on meanwhile"),
    column("memory_fault.gpu", "int", "CUDA's number of the device"),
    column("memory_fault.device", "text", "its name; CPU where the host's memory was tested"),
    column("memory_fault.uuid", "text", "its UUID"),
    column("memory_fault.address", "text", "its PCI address"),
    column(
        "memory_fault.kind",
        "text",
        "stuck, leaking (lost in a wait), disturbed (by another word), or once (wrong, and right when tried again)",
    ),
    column("memory_fault.places", "list", "addresses and bits of such words, at most 32: 0x7f2a00000018 bit 3"),
    column("memory_fault.first", "text", "the first of them"),
    column("memory_fault.count", "int", "how many they are"),
    column("memory_fault.words", "int", "wrong words of all kinds together, at most 4096; 32 of them are told apart"),
    fact("soak.seconds", "float", "how long the machine was worked hard", "s"),
    fact("soak.planned_seconds", "float", "how long it was to be", "s"),
    fact("soak.rounds", "int", "rounds of kernels that were begun"),
    fact("soak.ended_by", "text", "the signal that ended it before its time"),
    column("rung.gpu", "int", "CUDA's number of the device; absent where all of them took part"),
    column("rung.name", "text", "driver, torch, triton, nccl, training, jax or tensorflow"),
    column("rung.held", "bool", "whether everything on it that ran was right; unread where nothing on it was tried"),
    column("rung.lowest", "bool", "whether it is the first on its GPU that does not hold"),
    column("rung.uuid", "text", "UUID of the GPU"),
    column("rung.address", "text", "PCI address of the GPU"),
    column("rung.message", "text", "the first thing that failed"),
    column(
        "collective.leg", "text", "node (within each host), network (one rank a host), all, or a name that was given"
    ),
    column("collective.backend", "text", "gloo or nccl"),
    column(
        "collective.operation", "text", "all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, send_receive"
    ),
    column("collective.state", "text", "measured, failed, or not-measured where that says nothing against the links"),
    column("collective.bytes", "int", "size of the operation, as nccl-tests counts it"),
    column("collective.ranks", "int", "ranks that took part, in all groups of the leg together"),
    column("collective.groups", "int", "groups of the leg, which work side by side"),
    column("collective.algbw", "float", "algorithm bandwidth of the slowest group", "GB/s"),
    column("collective.busbw", "float", "bus bandwidth of the slowest group, by nccl-tests' formulas", "GB/s"),
    column("collective.usual", "float", "bus bandwidth of the median group", "GB/s"),
    column("collective.right", "bool", "whether every value is right on every rank"),
    column("collective.slowest", "int", "the rank that took longest, of the slowest group"),
    column("collective.host", "text", "the host of that rank"),
    column("collective.ratio", "float", "how many times as long as the median rank it took"),
    column("collective.culprits", "list", "ranks that have wrong values, or that failed, the likeliest cause first"),
    column("collective.hosts", "list", "their hosts, each once"),
    column(
        "collective.via", "list", "how the data went: interface and address of Gloo, P2P/CUMEM, NET/IB/GDRDMA of NCCL"
    ),
    column("collective.words", "text", "who failed or has wrong values, and how"),
    column("collective.advice", "text", "what to do about what NCCL says"),
    column("canary.rank", "int", "a rank of the job that trained some steps of a small transformer"),
    column("canary.host", "text", "its host"),
    column("canary.hosts", "list", "the same, as what a finding is about"),
    column("canary.device", "text", "cpu or cuda:N of that rank"),
    column("canary.backend", "text", "gloo or nccl"),
    column("canary.dtype", "text", "in what its products were computed: bfloat16, float16 or float32"),
    column("canary.own_ms", "float", "a step without exchange; on a CPU in processor time", "ms"),
    column("canary.usual_ms", "float", "the median of the other ranks' own steps", "ms"),
    column("canary.ratio", "float", "how many times as long as theirs its own step takes"),
    column("canary.step_ms", "float", "a step with exchange of all gradients", "ms"),
    column("canary.exchange_ms", "float", "an all-reduce of all gradients by itself", "ms"),
    column(
        "canary.products_ms", "float", "what the operations of a step take at the measured rate of its products", "ms"
    ),
    column("canary.reach", "float", "products and exchange one after the other, as a share of the step"),
    column("canary.samples", "int", "sequences that it trains in a step"),
    column("canary.loss", "float", "the loss of its last step"),
)

_MAY_BE_NONE = {"because", "words", "advice", "details", "gpu", "unit", "agrees"}


def rows(measurements: Measurements) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Rows of the fact group ``measured``, one a run that has ended, and of ``rung``, one for each rung and device."""
    kernels = {kernel.id: kernel for kernel in measurements.kernels}
    runs = [run for run in measurements.runs if run.status not in {"waiting", "running"}]
    agreement = _agreement(measurements, runs)
    measured = (
        dict(_run_columns(measurements, kernels[run.kernel], run, agreement.get((run.kernel, run.gpu)))) for run in runs
    )
    return tuple(measured), tuple(_rung_rows(runs))


def measured(snapshot: Snapshot, measurements: Measurements) -> Snapshot:
    """A copy of the snapshot with the measurements as rows of ``measured`` and ``rung``.

    Without devices both are Absent where CUDA lists no GPU, else as the group ``cuda_device`` is.
    """
    if not measurements.devices:
        why = snapshot.rows("cuda_device")
        none = Absent("CUDA lists no GPU") if isinstance(why, tuple) else why
        return replace(snapshot, groups={**snapshot.groups, "measured": none, "rung": none})
    runs, rungs = rows(measurements)
    return replace(snapshot, groups={**snapshot.groups, "measured": runs, "rung": rungs})


def _agreement(measurements: Measurements, runs: Sequence[Run]) -> dict[tuple[str, int], bool]:
    """By (kernel, GPU): whether most GPUs of its name have the same result digest; no entry for a lone GPU.

    Only runs that compared equally many values are compared: where memory is short, matrices are smaller.
    """
    names = {device.index: device.name for device in measurements.devices}
    digests = {
        (run.kernel, run.gpu): (run.kernel, names[run.gpu], run.compared, str(run.details["digest"]))
        for run in runs
        if run.gpu in names and "digest" in run.details
    }
    alike = Counter(digests.values())
    siblings = Counter(digest[:-1] for digest in digests.values())
    return {
        key: 2 * alike[digest] > siblings[digest[:-1]] for key, digest in digests.items() if siblings[digest[:-1]] > 1
    }


def _run_columns(
    measurements: Measurements, kernel: Kernel, run: Run, agrees: bool | None
) -> Iterator[tuple[str, Fact]]:
    """Yield name and fact of each column of a run's row of ``measured``. Unknown ones are Absent if the run ran, or if
    they may be none (such as ``because``); else Unread.
    """
    device = measurements.device(run.gpu)
    in_use = run.status == "not-run" and device is not None and bool(device.held)
    reason = Reason.IN_USE if in_use else Reason.UNSPECIFIED
    unknown: Fact = Unread(run.because or "the kernel does not say", reason=reason)
    columns: dict[str, Value | None] = {
        "kernel": run.kernel,
        "gpu": run.gpu if run.gpu >= 0 else None,
        "device": device.name if device else None,
        "rung": kernel.rung,
        "status": run.status,
        "value": run.value,
        "unit": kernel.unit or None,
        "spread": run.spread,
        "right": run.right,
        "differ": run.differ,
        "compared": run.compared,
        "agrees": agrees,
        "words": run.words or None,
        "because": run.because or None,
        "advice": run.advice or None,
        "details": value_from_json(run.details) if run.details else None,
    }
    for name, value in columns.items():
        if value is not None:
            yield name, Known(value, SOURCE)
        else:
            yield name, Absent("none") if name in _MAY_BE_NONE or run.status == "ran" else unknown
    yield from _meanwhile_columns(run.meanwhile)


MEANWHILE_FIELDS: Mapping[str, str] = {
    "sm_clock_mhz": "sm_clock_mhz",
    "sm_clock_max_mhz": "max_sm_clock_mhz",
    "power_w": "power_w",
    "power_limit_w": "power_limit_w",
    "temperature_c": "temperature_c",
    "throttle_reasons": "reasons",
    "link_generation": "link_generation",
    "link_width": "link_width",
    "utilization": "utilization",
    "ecc_corrected": "ecc_corrected",
    "ecc_uncorrected": "ecc_uncorrected",
    "seconds": "seconds",
    "pcie_replays": "pcie_replays",
    "nvlink_crc": "nvlink_crc",
    "nvlink_replays": "nvlink_replays",
    "nvlink_failures": "nvlink_failures",
}
"""Columns, and the fields of `Meanwhile` that they hold."""


def _meanwhile_columns(meanwhile: Meanwhile | None) -> Iterator[tuple[str, Fact]]:
    """Yield name and fact of each column that NVML gives while a kernel runs, such as clocks; else Unread."""
    for name, field in MEANWHILE_FIELDS.items():
        value: Value | None = getattr(meanwhile, field) if meanwhile else None
        yield name, Known(value, "NVML") if value is not None else Unread("NVML was not read while it ran")


def _severity(held: bool | None, message: str) -> int:
    """Rank of what a run says of a rung: 0 not tried (`held` None, no message), 1 held, 2 given up, 3 failed."""
    if held is None:
        return 2 if message else 0
    return 1 if held else 3


def _rung_rows(runs: Sequence[Run]) -> Iterator[Row]:
    """Yield a row (gpu, name, held, message) of each device's rungs, by the first run with the gravest result: failed,
    else given up, else held, else not tried.
    """
    by_rung: dict[tuple[int, str], tuple[bool | None, str]] = {}
    for run in runs:
        for step in run.ladder:
            at, answer = (run.gpu, step.rung), (step.held, step.message)
            if at not in by_rung or _severity(*answer) > _severity(*by_rung[at]):
                by_rung[at] = answer
    for (gpu, rung), (held, message) in by_rung.items():
        yield {
            "gpu": Known(gpu, SOURCE) if gpu >= 0 else Absent("all of them"),
            "name": Known(rung, SOURCE),
            "held": Unread(message or "not tried") if held is None else Known(held, SOURCE),
            "message": Known(message, SOURCE) if message else Absent("none"),
        }
