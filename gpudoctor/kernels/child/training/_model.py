"""What the training measurements train: a transformer, a small network of whole numbers, and in which precision.

The loss and gradients of the network of whole numbers are exact in float32 in whatever order they are summed: weights,
inputs and goals are whole numbers, all sums stay below 2**24, and the mean divides by powers of two alone. So however a
batch is cut up, over steps, processes or devices, its gradients are the same to the last bit.
"""

from __future__ import annotations

import copy
from typing import Any, Callable, List, NamedTuple, Tuple

from .._kernel import CannotRun
from ..eager import Context
from ..eager._check import Judged, exact


class Size(NamedTuple):
    """Shape of a transformer and its batch."""

    width: int
    layers: int
    heads: int
    samples: int
    tokens: int
    """Per sample."""


SMALL = Size(width=32, layers=2, heads=2, samples=32, tokens=8)
"""What float64 on the CPU checks."""
TIMED = Size(width=1024, layers=4, heads=16, samples=32, tokens=128)
"""50 million parameters, 1.2 TFLOP a step: large enough that a GPU is not waiting for its launches."""
TIMED_CPU = Size(width=64, layers=2, heads=2, samples=16, tokens=16)
_ROUNDINGS, _ROUNDINGS_16_BIT = 32, 8
"""How many units of rounding the gradients of a small transformer may be apart in norm; one or less is usual on a CPU.
In fp32 a GPU multiplies attention as three tf32 products, rounding about twice as far, and adds in more orders."""
_KEPT = 26
"""Activations of a layer that a step keeps or makes meanwhile, in tensors of samples × tokens × width."""


def bytes_needed(size: Size) -> int:
    """Approximate bytes of a training step in fp32: weights, gradients, two optimizer moments, and activations."""
    parameters = 12 * size.width**2 * size.layers
    activations = _KEPT * size.layers * size.samples * size.tokens * size.width
    return 4 * (4 * parameters + activations)


def fit_samples(size: Size, free: int) -> Size:
    """The size with its samples halved until `free` bytes suffice; raises `CannotRun` below four samples."""
    if bytes_needed(size) <= free:
        return size
    if size.samples < 8:
        raise CannotRun("%d MiB are needed and %d MiB may be taken" % (bytes_needed(size) >> 20, free >> 20))
    return fit_samples(size._replace(samples=size.samples // 2), free)


def timed_size(context: Context) -> Size:
    """The size for timing on this device, fitted into its free memory."""
    return TIMED_CPU if context.on_cpu else fit_samples(TIMED, context.free())


def transformer(torch: Any, size: Size, device: Any = "cpu") -> Any:
    """Encoder layers in float32 without dropout, so that gradients are reproducible."""
    return torch.nn.Sequential(
        *(
            torch.nn.TransformerEncoderLayer(
                size.width, size.heads, 4 * size.width, 0.0, "gelu", batch_first=True, device=device
            )
            for _ in range(size.layers)
        )
    )


def language_model(torch: Any, size: Size, vocabulary: int, device: Any) -> Any:
    """An embedding, a transformer and a linear layer: from token numbers to logits over the vocabulary."""
    embedding = torch.nn.Embedding(vocabulary, size.width, device=device)
    logits = torch.nn.Linear(size.width, vocabulary, device=device)
    return torch.nn.Sequential(embedding, transformer(torch, size, device), logits)


def batch(torch: Any, size: Size, generator: Any) -> Tuple[Any, Any]:
    """Random inputs and goals of shape (samples, tokens, width), on the CPU in float32."""
    shape = (size.samples, size.tokens, size.width)
    return torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)


def small_problem(context: Context) -> Tuple[Any, Any, Any]:
    """A small transformer with inputs and goals, the same for the same seed; on the CPU in float32."""
    context.torch.manual_seed(context.seed)
    network = transformer(context.torch, SMALL)
    return (network, *batch(context.torch, SMALL, context.generator(3)))


def loss(outputs: Any, goals: Any) -> Any:
    """The mean squared error, as a scalar tensor."""
    return ((outputs - goals) ** 2).mean()


def reference(network: Any, inputs: Any, goals: Any, criterion: Callable[[Any, Any], Any] = loss) -> List[Any]:
    """Gradients of the whole batch by `criterion`, computed by a copy of the network in float64 on the CPU."""
    twin = copy.deepcopy(network).double().cpu()
    criterion(twin(inputs.double()), goals.double()).backward()
    return gradients(twin)


def gradients(network: Any) -> List[Any]:
    """The gradients of all parameters; raises `RuntimeError` where one has none."""
    gradients_found = [parameter.grad for parameter in network.parameters()]
    if any(gradient is None for gradient in gradients_found):
        raise RuntimeError("%d of %d parameters have no gradient" % (gradients_found.count(None), len(gradients_found)))
    return gradients_found


def gradient_distance(torch: Any, ours: List[Any], wanted: List[Any]) -> Tuple[float, float]:
    """The norm of the difference as a share of the wanted gradients' norm, and their cosine; NaN for NaN."""
    left, right = (torch.cat([tensor.detach().cpu().double().flatten() for tensor in side]) for side in (ours, wanted))
    apart = (left - right).norm() / right.norm()
    cosine = torch.dot(left, right) / (left.norm() * right.norm())
    return float(apart), float(cosine)


def gradient_bound(torch: Any, dtype: Any) -> float:
    """The largest acceptable distance (`gradient_distance`, a share of the norm) of gradients computed in `dtype`."""
    kind = torch.finfo(dtype)
    return (_ROUNDINGS if kind.bits > 16 else _ROUNDINGS_16_BIT) * float(kind.eps)


def step(network: Any, optimizer: Any, inputs: Any, goals: Any) -> None:
    """Train one step by the mean squared error, in the network's own type."""
    optimizer.zero_grad()
    loss(network(inputs), goals).backward()
    optimizer.step()


# ---- A network of whole numbers ----


WIDTH = 256
"""Every sum stays fifty times below 2**24 at this width; a test reckons that anew."""
SAMPLES = 16
"""Of one replica. A power of two, as the mean divides by it."""
_NEAR = 2.0**-20


def exact_network(torch: Any, generator: Any) -> Any:
    """Two linear layers with a ReLU, with weights -1, 0 or 1; on the CPU in float32."""
    made = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape, generator=generator))
    return made


def exact_batch(torch: Any, generator: Any, replicas: int) -> Tuple[Any, Any]:
    """Whole-number inputs and goals for `replicas` replicas of 16 samples, on the CPU in float32."""
    inputs, goals = (
        torch.randint(-limit, limit + 1, (SAMPLES * replicas, WIDTH), generator=generator).float() for limit in (1, 4)
    )
    return inputs, goals


def exact_loss(outputs: Any, goals: Any) -> Any:
    """Half the squared error, averaged over the samples, as a scalar tensor."""
    return ((outputs - goals) ** 2).sum() / (2 * goals.shape[0])


def check_gradients(torch: Any, network: Any, wanted: List[Any], replicas: int = 1) -> Judged:
    """The verdict on the network's gradients against `wanted`, exactly.

    Where they are averaged over a number of replicas that is no power of two, that division rounds: then to 2**-20 of
    the largest.
    """
    ours, theirs = (_flatten(torch, side) for side in (gradients(network), wanted))
    if replicas & (replicas - 1):
        near = (ours - theirs).abs() <= _NEAR * theirs.abs().max()
        ours = torch.where(near, theirs, ours)
    return exact(torch, ours, theirs)


def _flatten(torch: Any, tensors: List[Any]) -> Any:
    """All tensors in one float64 tensor on the CPU, with -0 as 0: the sign of a zero sum depends on the order."""
    return torch.cat([tensor.detach().cpu().double().flatten() for tensor in tensors]) + 0.0


# ---- Precision: automatic mixed precision by whichever API this torch has ----


_BF16_SINCE = (8, 0)
"""Compute capability: CUDA C++ Programming Guide, arithmetic instructions and features by compute capability, 2026."""


def use_full_fp32(torch: Any) -> None:
    """Switch TF32 off for fp32 products in this process; a variable of NVIDIA's containers switches it on."""
    torch.set_float32_matmul_precision("highest")


def gradient_scaler(torch: Any, kind: str) -> Any:
    """A GradScaler for that kind of device, ``cuda`` or ``cpu``; None where this torch has none."""
    if hasattr(getattr(torch, "amp", None), "GradScaler"):
        return torch.amp.GradScaler(kind)
    return torch.cuda.amp.GradScaler() if kind == "cuda" else None


def native_bf16(context: Context) -> bool:
    """True if bf16 is native: on GPUs from compute capability 8.0, ROCm and CPUs; others compute it in fp32."""
    return (
        context.on_cpu or getattr(context.torch.version, "hip", None) is not None or context.capability() >= _BF16_SINCE
    )


def training_dtype(context: Context) -> Any:
    """The 16-bit type to train in on this device: bfloat16 where it is native, else float16."""
    return context.torch.bfloat16 if native_bf16(context) else context.torch.float16
