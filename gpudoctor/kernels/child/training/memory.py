"""How a device's memory holds up under training: what fits, what the allocator keeps, what is lost in fragments."""

from __future__ import annotations

import os
from typing import Any, Dict, List, NamedTuple, Tuple

from .._kernel import CannotRun, Outcome, Spec
from ..eager import Context
from . import format_bytes
from ._host import free_memory

KERNELS = (Spec("readiness.memory", "model state that fits", "M params", "16 bytes a parameter"),)

STATE = 16
"""Bytes a parameter while Adam trains it. In fp32: weight 4, gradient 4, two moments 8. In bf16 with fp32 master
weights: weight 2, gradient 2, master 4, moments 8 (Rajbhandari et al., ZeRO, 2020, section 3.1). Mixed precision saves
activations, not state."""

_SETTINGS = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
_MOST, _STEPS, _LAYERS = 1 << 30, 24, 12


class MemoryUse(NamedTuple):
    """Bytes of an allocation pattern: allocated and reserved at the peak, inactive parts of split blocks at the end."""

    allocated: int
    reserved: int
    split: int

    @property
    def lost_share(self) -> float:
        """The share of the peak reservation that no tensor used, 0 to 1."""
        return 1 - self.allocated / self.reserved if self.reserved else 0.0


def run(context: Context, _: Spec) -> Outcome:
    """Check filled blocks and measure fragmentation; value: free memory in millions of parameters of 16 bytes."""
    free = _free_bytes(context)
    per_parameter = _bytes_per_parameter(context)
    pattern = _Pattern(context)
    use, expandable = pattern.measure(), None
    if not context.on_cpu:
        expandable = _measure_expandable(context, pattern)
    fits = free / STATE / 1e6
    settings = _allocator_settings()
    return Outcome(
        value=fits,
        right=not pattern.wrong and abs(per_parameter - STATE) < 0.01 * STATE,
        differ=pattern.wrong,
        compared=pattern.compared,
        words=summary(free, per_parameter, use, pattern.wrong),
        advice=advice(use, expandable, settings),
        details={
            "free_bytes": free,
            "bytes_a_parameter": per_parameter,
            "adam_fp32_m_params": fits,
            "adam_bf16_master_fp32_m_params": fits,
            "peak_allocated_bytes": use.allocated,
            "peak_reserved_bytes": use.reserved,
            "inactive_split_bytes": use.split,
            "lost_share": use.lost_share,
            "expandable_lost_share": expandable.lost_share if expandable else None,
            "settings": settings,
        },
    )


def summary(free: float, per_parameter: float, use: MemoryUse, wrong: int) -> str:
    """Sentences on memory for training: free bytes, bytes per parameter, what steps kept and lost, wrong blocks."""
    sentences = [
        "%s are free: model, gradients and Adam of %.4g million parameters, in fp32 or in bf16 with fp32 master weights"
        " (%.4g bytes a parameter, measured), before any activation."
        % (format_bytes(free), free / STATE / 1e6, per_parameter)
    ]
    if use.reserved:
        sentences += [
            "Steps of changing length kept %s for a peak of %s: %.0f %% lost, %s of it in parts of blocks."
            % (format_bytes(use.reserved), format_bytes(use.allocated), 100 * use.lost_share, format_bytes(use.split))
        ]
    if wrong:
        sentences += ["%d blocks are wrong: they hold numbers that were not written there." % wrong]
    return " ".join(sentences)


def advice(use: MemoryUse, expandable: "MemoryUse | None", settings: str) -> str:
    """Whether to use expandable segments, by memory use without and with them (None: not measured)."""
    if "expandable_segments:True" in settings.replace(" ", ""):
        return "Segments that grow are on already; of the rest, activation checkpointing frees the most."
    if expandable is not None and use.reserved - expandable.reserved > 0.05 * use.reserved:
        return (
            "Start training with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: the same steps then kept %s instead"
            " of %s." % (format_bytes(expandable.reserved), format_bytes(use.reserved))
        )
    return (
        "Nothing to do: what the allocator keeps is used. A larger state is for shards (FSDP, ZeRO) or 8-bit moments."
    )


def _allocator_settings() -> str:
    """The value of PYTORCH_ALLOC_CONF, else of PYTORCH_CUDA_ALLOC_CONF; empty without either."""
    return next((os.environ[name] for name in _SETTINGS if os.environ.get(name)), "")


def _free_bytes(context: Context) -> int:
    """Free bytes of the GPU, of the host's memory on a CPU; raises `CannotRun` where that is not known."""
    if context.on_cpu:
        free = free_memory()
        if not free:
            raise CannotRun("how much memory is free is not known")
        return free
    context.torch.cuda.empty_cache()
    return int(context.torch.cuda.mem_get_info(context.device)[0])


def _bytes_per_parameter(context: Context) -> float:
    """Bytes of weight, gradient and Adam's state per fp32 parameter, measured after one step."""
    torch = context.torch
    weight = torch.nn.Parameter(torch.ones(1 << 16, device=context.device))
    optimizer = torch.optim.Adam([weight])
    weight.sum().backward()
    optimizer.step()
    tensors = [weight, weight.grad, *(tensor for tensor in optimizer.state[weight].values() if torch.is_tensor(tensor))]
    return float(sum(tensor.numel() * tensor.element_size() for tensor in tensors) / weight.numel())


class _Pattern:
    """Allocations as in training on sequences of changing length; every block is filled with its own number.

    Activations are allocated layer by layer and freed in reverse, each beside a gradient; optimizer state stays.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.wrong = self.compared = 0
        self._unit = min(context.free(), _MOST if not context.on_cpu else 8 << 20) // (4 * _LAYERS)

    def measure(self) -> MemoryUse:
        """Run the pattern and return its memory use; zeros on a CPU."""
        torch, context = self.context.torch, self.context
        if context.on_cpu:
            self._steps()
            return MemoryUse(0, 0, 0)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(context.device)
        before = torch.cuda.memory_allocated(context.device)
        kept = self._steps()
        stats: Dict[str, Any] = torch.cuda.memory_stats(context.device)
        use = MemoryUse(
            *(
                int(stats[name])
                for name in ("allocated_bytes.all.peak", "reserved_bytes.all.peak", "inactive_split_bytes.all.current")
            )
        )
        kept.clear()
        self._count(torch.cuda.memory_allocated(context.device) == before, 1)
        torch.cuda.empty_cache()
        return use

    def _steps(self) -> List[Any]:
        """Run all steps and check every block; returns the blocks of optimizer state, which stay allocated."""
        state: List[Any] = []
        for step in range(_STEPS):
            length = 0.4 + 0.6 * ((step * 7) % _STEPS) / _STEPS
            live: List[Tuple[int, Any]] = [
                (number, self._new_block(length * (1 + layer % 3) / 2, number))
                for layer, number in enumerate(range(step * _LAYERS, (step + 1) * _LAYERS))
            ]
            if step == 0:
                state += [self._new_block(0.1, 100 + layer) for layer in range(_LAYERS)]
            while live:
                number, block = live.pop()
                gradient = self._new_block(length / 2, number + 1)
                self._count(self._is_filled_with(block, number) and self._is_filled_with(gradient, number + 1), 2)
                del block, gradient
        return state

    def _new_block(self, share: float, number: int) -> Any:
        """A float32 block of `share` units, filled with the number."""
        count = max(1, int(self._unit * share) // 4)
        return self.context.torch.full((count,), float(number), device=self.context.device)

    def _is_filled_with(self, block: Any, number: int) -> bool:
        """True if every value of the block is that number."""
        minimum, maximum = self.context.torch.aminmax(block)
        return float(minimum) == number == float(maximum)

    def _count(self, right: bool, count: int) -> None:
        """Count `count` comparisons, one of them as wrong unless `right`."""
        self.compared += count
        self.wrong += not right


def _measure_expandable(context: Context, pattern: _Pattern) -> "MemoryUse | None":
    """Memory use with expandable segments, which are off again afterwards; None where this torch or driver cannot
    switch them on, or the user's settings already name them.
    """
    torch = context.torch
    settings = _allocator_settings()
    set_settings = getattr(torch._C, "_accelerator_setAllocatorSettings", None)  # noqa: SLF001 - since torch 2.9
    set_settings = set_settings or getattr(torch.cuda.memory, "_set_allocator_settings", None)
    if set_settings is None or "expandable_segments" in settings:
        return None
    prefix = settings + "," if settings else ""
    try:
        set_settings(prefix + "expandable_segments:True")
        try:
            return pattern.measure()
        finally:
            torch.cuda.empty_cache()
            set_settings(prefix + "expandable_segments:False")
    except (RuntimeError, ValueError):
        return None  # not with this driver, or not with this allocator
