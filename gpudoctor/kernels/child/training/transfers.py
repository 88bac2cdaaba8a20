"""Tensors and models to the device and back, bit for bit, and how fast a model gets there."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

from .._kernel import Outcome, Spec
from ..eager._check import Judged, bits, judged
from ._rung import Context
from ._words import rate, size
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
    """Every dtype in every layout, then a model as a state_dict and as a module."""
    model = _model(context)
    total = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    context.need(3 * total)
    found = [_round_trip(context, tensor, send) for tensor, send in _cases(context)]
    found += _state(context, model)
    there, back = _rates(context, model, total)
    best = _one_block(context, total)
    wrong = next((one for one in found if one.differ), Judged(0, 0))
    return Outcome(
        value=there / 1e9,
        right=not wrong.differ,
        differ=sum(one.differ for one in found),
        compared=sum(one.compared for one in found),
        words="%s in %d tensors reach the device at %s and come back at %s; one block, pinned, goes at %s.%s"
        % (
            size(total),
            len(model.state_dict()),
            rate(there),
            rate(back),
            rate(best),
            " " * bool(wrong.words) + wrong.words,
        ),
        advice="Nothing to do: on a CPU nothing travels." if context.on_cpu else advice(there, best),
        details={"to_device_gb_s": there / 1e9, "to_host_gb_s": back / 1e9, "one_block_gb_s": best / 1e9},
    )


def advice(model: float, block: float) -> str:
    """From what a model reaches and what one pinned block of its size does, in bytes a second."""
    if model >= 0.5 * block:
        return "Nothing to do."
    return (
        "Most of the link is lost between tensors: build the model on the device (with torch.device('cuda'):), or load"
        " its checkpoint there (torch.load(..., map_location='cuda', mmap=True), load_state_dict(..., assign=True))."
    )


def _model(context: Context) -> Any:
    """Of weights in every second block as they are stored by a model that was trained in bf16."""
    torch = context.torch
    width = _WIDTH_CPU if context.on_cpu else _WIDTH
    blocks = []
    for at in range(_BLOCKS):
        blocks += [torch.nn.LayerNorm(width), torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)]
        if at % 2:
            blocks[-1] = blocks[-1].to(torch.bfloat16)
    return torch.nn.Sequential(*blocks)


def _cases(context: Context) -> Iterator[Tuple[Any, Callable[[Any], Any]]]:
    """A tensor of random bits, NaNs among them, and how it is sent."""

    def plainly(tensor: Any) -> Any:
        return tensor.to(context.device, copy=True)

    for salt, name in enumerate(DTYPES):
        whole = _bits(context, name, salt)
        for layout in (whole, whole.t(), whole[1:, ::3], whole[:1].expand(8, -1), whole[5, 7], whole[:0]):
            yield layout, plainly
        yield whole.view(4, 4, 24, 24).to(memory_format=context.torch.channels_last), plainly
        if not context.on_cpu:
            yield pin(whole), lambda tensor: tensor.to(context.device, non_blocking=True)


def _bits(context: Context, name: str, salt: int) -> Any:
    torch = context.torch
    dtype = getattr(torch, name)
    most = 2 if dtype == torch.bool else 256
    width = _SIDE * torch.empty(0, dtype=dtype).element_size()
    return torch.randint(0, most, (_SIDE, width), generator=context.generator(salt), dtype=torch.uint8).view(dtype)


def _round_trip(context: Context, tensor: Any, send: Callable[[Any], Any]) -> Judged:
    there = send(tensor)
    context.synchronize()
    return same_bits(context.torch, there.cpu(), tensor)


def same_bits(torch: Any, result: Any, reference: Any) -> Judged:
    """Every value as it lies in memory: NaN is what it was, and -0.0 is not 0.0."""
    if result.shape != reference.shape or result.dtype != reference.dtype:
        return Judged(1, 1)
    return judged(bits(torch, result) != bits(torch, reference))


def _state(context: Context, model: Any) -> List[Judged]:
    """The model by its state_dict and by ``.to``, both back again."""
    import copy

    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    moved = copy.deepcopy(model).to(context.device)
    moved.load_state_dict({name: tensor.to(context.device) for name, tensor in state.items()})
    back = moved.to("cpu").state_dict()
    return [same_bits(context.torch, back[name], state[name]) for name in state]


def _rates(context: Context, model: Any, total: int) -> Tuple[float, float]:
    """Bytes a second to the device and back, each tensor by itself as ``Module.to`` sends them; the best round."""
    state = model.state_dict()
    there, back = [], []
    for _ in range(_ROUNDS):
        moved, seconds = _timed(context, state, context.device)
        there.append(seconds)
        back.append(_timed(context, moved, "cpu")[1])
    return total / min(there), total / min(back)


def _timed(context: Context, state: Dict[str, Any], device: Any) -> Tuple[Dict[str, Any], float]:
    context.synchronize()
    began = time.perf_counter()
    moved = {name: tensor.to(device, copy=True) for name, tensor in state.items()}
    context.synchronize()
    return moved, max(time.perf_counter() - began, 1e-9)


def _one_block(context: Context, total: int) -> float:
    """Bytes a second of one pinned block as large as the model."""
    torch = context.torch
    block = torch.zeros(total, dtype=torch.uint8)
    block = block if context.on_cpu else pin(block)
    there = torch.empty(total, dtype=torch.uint8, device=context.device)
    return total / max(min(context.seconds(lambda: there.copy_(block, non_blocking=True), least=0.05, rounds=3)), 1e-9)
