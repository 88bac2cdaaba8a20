"""Automatic mixed precision by whichever API this torch has."""

from __future__ import annotations

from typing import Any

from ..eager._rung import Context

_BF16_SINCE = (8, 0)
"""Compute capability: CUDA C++ Programming Guide, arithmetic instructions and features by compute capability, 2026."""


def full(torch: Any) -> None:
    """Have fp32 matmuls be reckoned in fp32 from now on: a variable of NVIDIA's containers makes them TF32."""
    if hasattr(torch, "set_float32_matmul_precision"):  # torch 1.12
        torch.set_float32_matmul_precision("highest")


def autocast(torch: Any, kind: str, dtype: Any) -> Any:
    """The region in which matmuls run in `dtype` on that kind of device."""
    if hasattr(torch, "autocast"):
        return torch.autocast(kind, dtype=dtype)
    return torch.cuda.amp.autocast()  # before torch 1.10: fp16 alone


def scaler(torch: Any, kind: str) -> Any:
    """Of losses; None where this torch has none for that kind of device."""
    if hasattr(getattr(torch, "amp", None), "GradScaler"):
        return torch.amp.GradScaler(kind)
    return torch.cuda.amp.GradScaler() if kind == "cuda" else None


def native_bf16(context: Context) -> bool:
    """Whether the device multiplies bf16 itself; others do it in fp32."""
    return (
        context.on_cpu or getattr(context.torch.version, "hip", None) is not None or context.capability() >= _BF16_SINCE
    )


def half(context: Context) -> Any:
    """The 16-bit type that one trains in on this device."""
    return context.torch.bfloat16 if native_bf16(context) else context.torch.float16
