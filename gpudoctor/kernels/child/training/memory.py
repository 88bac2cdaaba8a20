"""How a device's memory holds up under training: what fits, what the allocator keeps, what is lost in fragments."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

from .._kernel import Outcome, Spec
from ._host import free_memory
from ._rung import Context
from ._words import size

KERNELS = (Spec("readiness.memory", "model state that fits", "M params", "16 bytes a parameter"),)

STATE = 16
"""Bytes a parameter while Adam trains it. In fp32: weight 4, gradient 4, two moments 8. In bf16 with fp32 master
weights: weight 2, gradient 2, master 4, moments 8 (Rajbhandari et al., ZeRO, 2020, section 3.1). Mixed precision saves
activations, not state."""

_SETTINGS = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
_MOST, _STEPS, _LAYERS = 1 << 30, 24, 12


class Held(NamedTuple):
    """Bytes in a pattern of training: in use and kept at its peak, and at its end in parts of blocks in use."""

    allocated: int
    reserved: int
    split: int

    @property
    def lost(self) -> float:
        """The share of what was kept at the peak that no tensor used."""
        return 1 - self.allocated / self.reserved if self.reserved else 0.0


def run(context: Context, _: Spec) -> Outcome:
    """A parameter's bytes are counted; a pattern of allocations, each with its own number in it, shows what is lost."""
    free = _free(context)
    each = _bytes_a_parameter(context)
    pattern = _Pattern(context)
    held, segments = pattern.held(), None
    if not context.on_cpu:
        segments = _expandable(context, pattern)
    fits = free / STATE / 1e6
    settings = _settings()
    return Outcome(
        value=fits,
        right=not pattern.wrong and abs(each - STATE) < 0.01 * STATE,
        differ=pattern.wrong,
        compared=pattern.compared,
        words=words(free, each, held, pattern.wrong),
        advice=advice(held, segments, settings),
        details={
            "free_bytes": free,
            "bytes_a_parameter": each,
            "adam_fp32_m_params": fits,
            "adam_bf16_master_fp32_m_params": fits,
            "peak_allocated_bytes": held.allocated,
            "peak_reserved_bytes": held.reserved,
            "inactive_split_bytes": held.split,
            "lost_share": held.lost,
            "expandable_lost_share": segments.lost if segments else None,
            "settings": settings,
        },
    )


def words(free: float, each: float, held: Held, wrong: int) -> str:
    """What the figures mean: free bytes, bytes a parameter, what a pattern held, blocks with numbers of others."""
    said = [
        "%s are free: model, gradients and Adam of %.4g million parameters, in fp32 or in bf16 with fp32 master weights"
        " (%.4g bytes a parameter, measured), before any activation." % (size(free), free / STATE / 1e6, each)
    ]
    if held.reserved:
        said += [
            "Steps of changing length kept %s for a peak of %s: %.0f %% lost, %s of it in parts of blocks."
            % (size(held.reserved), size(held.allocated), 100 * held.lost, size(held.split))
        ]
    if wrong:
        said += ["%d blocks are wrong: they hold numbers that were not written there." % wrong]
    return " ".join(said)


def advice(held: Held, expandable: "Held | None", settings: str) -> str:
    """From what a pattern lost with blocks of fixed size and with segments that grow, and the allocator's settings."""
    if "expandable_segments:True" in settings.replace(" ", ""):
        return "Segments that grow are on already; of the rest, activation checkpointing frees the most."
    if expandable is not None and held.reserved - expandable.reserved > 0.05 * held.reserved:
        return (
            "Start training with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: the same steps then kept %s instead"
            " of %s." % (size(expandable.reserved), size(held.reserved))
        )
    return (
        "Nothing to do: what the allocator keeps is used. A larger state is for shards (FSDP, ZeRO) or 8-bit moments."
    )


def _settings() -> str:
    """Of torch's allocator, as the environment gives them."""
    return next((os.environ[name] for name in _SETTINGS if os.environ.get(name)), "")


def _free(context: Context) -> int:
    if context.on_cpu:
        return free_memory()
    context.torch.cuda.empty_cache()
    return int(context.torch.cuda.mem_get_info(context.device)[0])


def _bytes_a_parameter(context: Context) -> float:
    """After one step of Adam on one weight in fp32: weight, gradient and all state, counted tensor by tensor."""
    torch = context.torch
    weight = torch.nn.Parameter(torch.ones(1 << 16, device=context.device))
    optimizer = torch.optim.Adam([weight])
    weight.sum().backward()
    optimizer.step()
    tensors = [weight, weight.grad, *(one for one in optimizer.state[weight].values() if torch.is_tensor(one))]
    return float(sum(one.numel() * one.element_size() for one in tensors) / weight.numel())


class _Pattern:
    """Steps as of training on sequences of changing length: activations layer by layer, freed in reverse with a
    gradient beside each, and optimizer state that stays. Every block is filled with its own number."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.wrong = self.compared = 0
        self._unit = min(context.free(), _MOST if not context.on_cpu else 8 << 20) // (4 * _LAYERS)

    def held(self) -> Held:
        """Run it, and say what was held."""
        torch, context = self.context.torch, self.context
        if context.on_cpu:
            self._steps()
            return Held(0, 0, 0)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(context.device)
        before = torch.cuda.memory_allocated(context.device)
        kept = self._steps()
        stats: Dict[str, Any] = torch.cuda.memory_stats(context.device)
        found = Held(
            *(
                int(stats[name])
                for name in ("allocated_bytes.all.peak", "reserved_bytes.all.peak", "inactive_split_bytes.all.current")
            )
        )
        kept.clear()
        self._judge(torch.cuda.memory_allocated(context.device) == before, 1)
        torch.cuda.empty_cache()
        return found

    def _steps(self) -> List[Any]:
        state: List[Any] = []
        for step in range(_STEPS):
            length = 0.4 + 0.6 * ((step * 7) % _STEPS) / _STEPS
            live: List[Tuple[int, Any]] = [
                (number, self._block(length * (1 + layer % 3) / 2, number)) for layer, number in self._numbers(step)
            ]
            if step == 0:
                state += [self._block(0.1, 100 + layer) for layer in range(_LAYERS)]
            while live:
                number, block = live.pop()
                gradient = self._block(length / 2, number + 1)
                self._judge(self._all(block, number) and self._all(gradient, number + 1), 2)
                del block, gradient
        return state

    def _numbers(self, step: int) -> Iterator[Tuple[int, int]]:
        return ((layer, step * _LAYERS + layer) for layer in range(_LAYERS))

    def _block(self, share: float, number: int) -> Any:
        count = max(1, int(self._unit * share) // 4)
        return self.context.torch.full((count,), float(number), device=self.context.device)

    def _all(self, block: Any, number: int) -> bool:
        """Whether every value is that number: its least and its most are."""
        least, most = self.context.torch.aminmax(block)
        return float(least) == number == float(most)

    def _judge(self, right: bool, count: int) -> None:
        self.compared += count
        self.wrong += not right


def _expandable(context: Context, pattern: _Pattern) -> "Held | None":
    """The same steps with segments that grow, where this torch can be told so while it runs."""
    torch = context.torch
    settings = _settings()
    tell = getattr(torch._C, "_accelerator_setAllocatorSettings", None)  # noqa: SLF001 - since torch 2.9
    tell = tell or getattr(torch.cuda.memory, "_set_allocator_settings", None)
    if tell is None or "expandable_segments" in settings:
        return None
    joined = settings + "," if settings else ""
    try:
        tell(joined + "expandable_segments:True")
        try:
            return pattern.held()
        finally:
            torch.cuda.empty_cache()
            tell(joined + "expandable_segments:False")
    except (RuntimeError, ValueError):
        return None  # not with this driver, or not with this allocator
