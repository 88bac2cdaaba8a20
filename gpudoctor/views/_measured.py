"""Words for measurements: which GPUs, which kernels, and a figure in few columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpudoctor.model.measurement import Kernel, Measurements, Rung

RUNGS: Mapping[Rung, str] = {
    "driver": "Driver alone",
    "torch": "torch",
    "triton": "Triton and torch.compile",
    "nccl": "NCCL",
    "training": "Training readiness",
    "jax": "JAX",
    "tensorflow": "TensorFlow",
}
WHOLE = 3
"""Kernels of a rung that are named as one."""


def figure(value: float) -> str:
    """Three digits in at most five characters: ``4e-05``, ``0.195``, ``54.1``, ``712``, ``12.3k``."""
    size = abs(value)
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= unit * 0.9995:
            scaled = value / (1e3 if name == "k" else unit)
            return f"{scaled:.0f}{name}" if abs(scaled) >= 100 else f"{scaled:.1f}{name}"
    if size < 0.01:
        return f"{value:.0e}" if size else "0"
    return f"{value:.{3 if size < 1 else 2 if size < 10 else 1 if size < 100 else 0}f}"


def gpus(found: Measurements, numbers: Iterable[int]) -> str:
    """``GPU 5``, ``GPUs 0-3 and 6``, ``all GPUs``; empty where there is but one device."""
    wanted = sorted(set(numbers) & {device.index for device in found.devices})
    if not wanted or len(found.devices) < 2:
        return ""
    if len(wanted) == len(found.devices):
        return "all GPUs"
    parts: list[str] = []
    for number in wanted:
        first, _, last = parts[-1].partition("-") if parts else ("", "", "")
        if parts and int(last or first) == number - 1:
            parts[-1] = f"{first}-{number}"
        else:
            parts.append(str(number))
    head = "GPU" if parts == [str(wanted[0])] else "GPUs"
    return f"{head} {', '.join(parts)}"


def names(found: Measurements, ids: Iterable[str]) -> str:
    """The titles of those kernels, as one where it is a whole rung on each GPU, or on all together."""
    wanted = set(ids)
    parts: list[str] = []
    for rung, title in RUNGS.items():
        for together in (False, True):
            of = [one for one in found.kernels if one.rung == rung and _together(found, one) == together]
            some = [kernel.title for kernel in of if kernel.id in wanted]
            parts += [f"{title} ({len(of)} kernels)"] if len(some) == len(of) >= WHOLE else some
    return "; ".join(parts)


def _together(found: Measurements, kernel: Kernel) -> bool:
    return any(run.gpu < 0 for run in found.of(kernel.id))
