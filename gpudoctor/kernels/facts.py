"""What was measured, as facts: saved, read back and judged like any other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpudoctor.model.catalog import column, fact
from gpudoctor.model.fact import Absent, Fact, Known, Row, Unread, Value
from gpudoctor.model.measurement import Kernel, Measurements, Run

SOURCE = "gpudoctor bench"

FACTS = (
    column("measured.kernel", "text", "what was measured: matmul.bf16, copy.device"),
    column("measured.gpu", "int", "CUDA's number of the device; absent where all of them took part"),
    column("measured.device", "text", "its name; CPU where no GPU was measured"),
    column("measured.rung", "text", "what the kernel stands on: driver, torch, triton or nccl"),
    column("measured.status", "text", "ran, failed or not-run"),
    column("measured.value", "float", "what was measured, in the kernel's unit"),
    column("measured.unit", "text", "TFLOP/s, GB/s, µs, ..."),
    column("measured.spread", "float", "half the distance between the fastest and the slowest series, as a share"),
    column("measured.right", "bool", "whether the values are those of an independent reference"),
    column("measured.differ", "int", "how many values are not"),
    column("measured.compared", "int", "of how many"),
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
    column("measured.limit", "float", "the most that its clock, multiprocessors, memory or link allow, in that unit"),
    column("measured.expected", "float", "what a sound GPU like this one reaches at least"),
    column("measured.expected_from", "text", "how that is reckoned"),
    column("measured.siblings", "float", "the median of the other GPUs of that name"),
    column("rate.kernel", "text", "the kernel that is farthest below; absent where a report tells the rate"),
    column("rate.of", "text", "what is measured: compute, memory, host link, latency or other"),
    column("rate.against", "text", "what rate.others is: expected (by its own limits) or siblings"),
    column("rate.share", "float", "the rate as a share of that; 1 is as it should be, less is slower"),
    column("rate.also", "list", "other kernels that are below: matmul.fp16 (52 %)"),
    column("rate.expected_from", "text", "how the expected rate is reckoned"),
    column("rate.name", "text", "the GPU's name"),
    column("rate.uuid", "text", "its UUID"),
    column("rate.address", "text", "its PCI address"),
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
    fact("live.wrong_everywhere", "list", "kernels that were wrong on every GPU, of two or more"),
    column("gpu.at_work", "text", "the kernel that it worked on when NVML read its clock, power and load"),
    column("gpu.ecc_uncorrected_at_work", "int", "memory errors that ECC could not repair while kernels ran"),
    column("gpu.ecc_corrected_at_work", "int", "memory errors that ECC repaired while kernels ran"),
    column("rung.gpu", "int", "CUDA's number of the device; absent where all of them took part"),
    column("rung.name", "text", "driver, torch, triton or nccl"),
    column("rung.held", "bool", "whether everything on it ran and was right; unread where it was not tried"),
    column("rung.lowest", "bool", "whether it is the first on its GPU that does not hold"),
    column("rung.uuid", "text", "UUID of the GPU"),
    column("rung.address", "text", "PCI address of the GPU"),
    column("rung.message", "text", "the first thing that failed"),
)

_MAY_BE_NONE = {"because", "words", "advice", "details", "gpu", "unit"}


def rows(found: Measurements) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """The groups ``measured`` and ``rung``; what has not been run yet is left out."""
    kernels = {kernel.id: kernel for kernel in found.kernels}
    runs = [run for run in found.runs if run.status not in {"waiting", "running"}]
    return tuple(dict(_run(found, kernels[run.kernel], run)) for run in runs), tuple(_rungs(runs))


def _run(found: Measurements, kernel: Kernel, run: Run) -> Iterator[tuple[str, Fact]]:
    unknown: Fact = Unread(run.because or "the kernel does not say")
    device = found.device(run.gpu)
    said: dict[str, Value | None] = {
        "kernel": run.kernel,
        "gpu": run.gpu if run.gpu >= 0 else None,
        "device": device.name if device else None,
        "rung": run.ladder[-1].rung if run.ladder else None,
        "status": run.status,
        "value": run.value,
        "unit": kernel.unit or None,
        "spread": run.spread,
        "right": run.right,
        "differ": run.differ,
        "compared": run.compared,
        "words": run.words or None,
        "because": run.because or None,
        "advice": run.advice or None,
        "details": run.details or None,  # type: ignore[dict-item]
    }
    for name, value in said.items():
        if value is not None:
            yield name, Known(value, SOURCE)
        else:
            yield name, Absent("none") if name in _MAY_BE_NONE or run.status == "ran" else unknown
    yield from _meanwhile(run)


def _meanwhile(run: Run) -> Iterator[tuple[str, Fact]]:
    seen = run.meanwhile
    names: Mapping[str, Value | None] = {
        "sm_clock_mhz": seen.sm_clock_mhz if seen else None,
        "sm_clock_max_mhz": seen.max_sm_clock_mhz if seen else None,
        "power_w": seen.power_w if seen else None,
        "power_limit_w": seen.power_limit_w if seen else None,
        "temperature_c": seen.temperature_c if seen else None,
        "throttle_reasons": seen.reasons if seen else None,
        "link_generation": seen.link_generation if seen else None,
        "link_width": seen.link_width if seen else None,
        "utilization": seen.utilization if seen else None,
        "ecc_corrected": seen.ecc_corrected if seen else None,
        "ecc_uncorrected": seen.ecc_uncorrected if seen else None,
    }
    for name, value in names.items():
        yield name, Known(value, "NVML") if value is not None else Unread("NVML was not read while it ran")


def _rungs(runs: list[Run]) -> Iterator[Row]:
    """Each rung of each device once: held where no kernel on it failed, and one ran."""
    seen: dict[tuple[int, str], Row] = {}
    for run in runs:
        for step in run.ladder:
            key = run.gpu, step.rung
            before = seen.get(key)
            if before and isinstance(before["held"], Known) and (not before["held"].value or step.held is not False):
                continue
            seen[key] = {
                "gpu": Known(run.gpu, SOURCE) if run.gpu >= 0 else Absent("all of them"),
                "name": Known(step.rung, SOURCE),
                "held": Unread(step.message or "not tried") if step.held is None else Known(step.held, SOURCE),
                "message": Known(step.message, SOURCE) if step.message else Absent("none"),
            }
    yield from seen.values()
