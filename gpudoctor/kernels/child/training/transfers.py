"""Tensors and models to the device and back, bit for bit, and how fast a model gets there."""

from __future__ import annotations

import copy
import time
from typing import Any, Dict, Iterator, List, Tuple

from .._kernel import Outcome, Spec
from ..eager import Context
from ..eager._check import Judged, bits, judge_mask
from . import format_bytes, format_rate
from .pinned import pin

KERNELS = (Spec("readiness.transfers", "model to the device", "GB/s", "352 MB in 72 tensors"),)

DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "complex64"),
    *("int64", "int32", "int16", "int8", "uint8", "bool"),
)
_WIDTH, _WIDTH_CPU = 1024, 128
_BLOCKS = 12
_SIDE = 96
_ROUNDS = 3


def run(context: Context, _: Spec) -> Outcome:
    """Check every type and layout to the device and back, bit for bit; value: GB/s of a model to the device."""
    model = _mixed_model(context)
    total = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    context.need(3 * total)
    verdicts = [same_bits(context.torch, there.cpu(), tensor) for tensor, there in _copies(context)]
    verdicts += _check_state(context, model)
    to_device, back = _rates(context, model, total)
    block = _block_rate(context, total)
    wrong = next((verdict for verdict in verdicts if verdict.differ), Judged(0, 0))
    return Outcome(
        value=to_device / 1e9,
        right=not wrong.differ,
        differ=sum(verdict.differ for verdict in verdicts),
        compared=sum(verdict.compared for verdict in verdicts),
        words="%s in %d tensors reach the device at %s and come back at %s; one block, pinned, goes at %s.%s"
        % (
            format_bytes(total),
            len(model.state_dict()),
            format_rate(to_device),
            format_rate(back),
            format_rate(block),
            " " * bool(wrong.words) + wrong.words,
        ),
        advice="Nothing to do: on a CPU nothing travels." if context.on_cpu else advice(to_device, block),
        details={"to_device_gb_s": to_device / 1e9, "to_host_gb_s": back / 1e9, "one_block_gb_s": block / 1e9},
    )


def advice(model: float, block: float) -> str:
    """How to bring a model to the device, by bytes a second of its tensors and of one pinned block of its size."""
    if model >= 0.5 * block:
        return "Nothing to do."
    return (
        "Most of the link is lost between tensors: build the model on the device (with torch.device('cuda'):), or load"
        " its checkpoint there (torch.load(..., map_location='cuda', mmap=True), load_state_dict(..., assign=True))."
    )


def _mixed_model(context: Context) -> Any:
    """Blocks of three layers; in every second block the last layer is in bf16."""
    torch = context.torch
    width = _WIDTH_CPU if context.on_cpu else _WIDTH
    blocks = []
    for at in range(_BLOCKS):
        blocks += [torch.nn.LayerNorm(width), torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)]
        if at % 2:
            blocks[-1] = blocks[-1].to(torch.bfloat16)
    return torch.nn.Sequential(*blocks)


def _copies(context: Context) -> Iterator[Tuple[Any, Any]]:
    """Yield tensors of random bits, NaNs among them, in all types and layouts, each with its copy on the device."""
    for salt, name in enumerate(DTYPES):
        whole = _random_bits(context, name, salt)
        layouts = [whole, whole.t(), whole[1:, ::3], whole[:1].expand(8, -1), whole[5, 7], whole[:0]]
        layouts.append(whole.view(4, 4, 24, 24).to(memory_format=context.torch.channels_last))
        for layout in layouts:
            yield layout, layout.to(context.device, copy=True)
        if not context.on_cpu:
            yield whole, pin(whole).to(context.device, non_blocking=True)


def _random_bits(context: Context, name: str, salt: int) -> Any:
    """Random bits as a tensor of that type, 96 columns wide."""
    torch = context.torch
    dtype = getattr(torch, name)
    limit = 2 if dtype == torch.bool else 256
    width = _SIDE * torch.empty(0, dtype=dtype).element_size()
    return torch.randint(0, limit, (_SIDE, width), generator=context.generator(salt), dtype=torch.uint8).view(dtype)


def same_bits(torch: Any, result: Any, reference: Any) -> Judged:
    """Compare values bit by bit: NaN with equal bits is equal, -0.0 differs from 0.0; other shape or type is wrong."""
    if result.shape != reference.shape or result.dtype != reference.dtype:
        return Judged(1, 1)
    return judge_mask(bits(torch, result) != bits(torch, reference))


def _check_state(context: Context, model: Any) -> List[Judged]:
    """Verdicts on each tensor of the model, sent by state_dict and by ``.to`` and brought back."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    moved = copy.deepcopy(model).to(context.device)
    moved.load_state_dict({name: tensor.to(context.device) for name, tensor in state.items()})
    back = moved.to("cpu").state_dict()
    return [same_bits(context.torch, back[name], state[name]) for name in state]


def _rates(context: Context, model: Any, total: int) -> Tuple[float, float]:
    """Bytes a second to the device and back, tensor by tensor as ``Module.to`` sends them; the best of three."""
    state = model.state_dict()
    to_device, back = [], []
    for _ in range(_ROUNDS):
        moved, seconds = _timed_move(context, state, context.device)
        to_device.append(seconds)
        back.append(_timed_move(context, moved, "cpu")[1])
    return total / min(to_device), total / min(back)


def _timed_move(context: Context, state: Dict[str, Any], device: Any) -> Tuple[Dict[str, Any], float]:
    """The tensors copied to `device`, and the seconds that it took."""
    context.synchronize()
    began = time.perf_counter()
    moved = {name: tensor.to(device, copy=True) for name, tensor in state.items()}
    context.synchronize()
    return moved, max(time.perf_counter() - began, 1e-9)


def _block_rate(context: Context, total: int) -> float:
    """Bytes a second at which one block of `total` bytes, pinned for a GPU, is copied to the device."""
    torch = context.torch
    block = torch.zeros(total, dtype=torch.uint8)
    block = block if context.on_cpu else pin(block)
    on_device = torch.empty(total, dtype=torch.uint8, device=context.device)
    return total / max(
        min(context.seconds(lambda: on_device.copy_(block, non_blocking=True), least=0.05, rounds=3)), 1e-9
    )
