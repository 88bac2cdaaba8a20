"""A small network of whole numbers, whose loss and gradients are exact in float32 in whatever order they are summed.

Weights, inputs and goals are whole numbers, all sums stay below 2**24, and the mean divides by powers of two alone. So
however a batch is cut up, over steps, processes or devices, its gradients are the same to the last bit.
"""

from __future__ import annotations

import copy
from typing import Any, List, Tuple

from ..eager._check import Judged, exact

WIDTH = 256
"""Every sum stays fifty times below 2**24 at this width; a test reckons that anew."""
SAMPLES = 16
"""Of one replica. A power of two, as the mean divides by it."""
_NEAR = 2.0**-20


def network(torch: Any, generator: Any) -> Any:
    """Two linear layers with a ReLU between them, on the CPU in float32."""
    made = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape, generator=generator))
    return made


def batch(torch: Any, generator: Any, replicas: int) -> Tuple[Any, Any]:
    """Inputs and goals for that many replicas, on the CPU in float32."""
    inputs, goals = (
        torch.randint(-most, most + 1, (SAMPLES * replicas, WIDTH), generator=generator).float() for most in (1, 4)
    )
    return inputs, goals


def loss(outputs: Any, goals: Any) -> Any:
    """Half the squared error, the mean over the samples."""
    return ((outputs - goals) ** 2).sum() / (2 * goals.shape[0])


def reference(network: Any, inputs: Any, goals: Any) -> List[Any]:
    """Gradients of the whole batch at once, in float64 on the CPU."""
    twin = copy.deepcopy(network).double().cpu()
    loss(twin(inputs.double()), goals.double()).backward()
    return gradients(twin)


def gradients(network: Any) -> List[Any]:
    """As the backward pass left them; raises `RuntimeError` where a parameter has none."""
    found = [parameter.grad for parameter in network.parameters()]
    if any(gradient is None for gradient in found):
        raise RuntimeError("%d of %d parameters have no gradient" % (found.count(None), len(found)))
    return found


def judged(torch: Any, network: Any, wanted: List[Any], replicas: int = 1) -> Judged:
    """Its gradients against the reference, bit for bit.

    Where they are averaged over a number of replicas that is no power of two, that division rounds: then to 2**-20 of
    the largest.
    """
    ours, theirs = (_flat(torch, side) for side in (gradients(network), wanted))
    if replicas & (replicas - 1):
        near = (ours - theirs).abs() <= _NEAR * theirs.abs().max()
        ours = torch.where(near, theirs, ours)
    return exact(torch, ours, theirs)


def _flat(torch: Any, tensors: List[Any]) -> Any:
    """All in one in float64, where zero has no sign: that of a sum of zeros depends on their order."""
    return torch.cat([tensor.detach().cpu().double().flatten() for tensor in tensors]) + 0.0
