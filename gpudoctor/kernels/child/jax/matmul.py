"""Whether JAX sees the GPU, and one product."""

from __future__ import annotations

from typing import Any, Callable

from .._framework import SIZE, product, warnings
from .._kernel import Broken, CannotRun, Outcome, Spec
from ._rung import Context

KERNELS = (
    Spec("jax.device", "JAX: device seen", seconds=30.0),
    Spec("jax.matmul", "JAX: fp32 matmul, with the way back", "µs", SIZE, seconds=60.0),
)


def run(context: Context, spec: Spec) -> Outcome:
    """Seen first, then used."""
    return _seen(context) if spec.id == "jax.device" else _product(context)


def _seen(context: Context) -> Outcome:
    if not context.devices:
        said = context.why or warnings(context.heard) or "it does not say why"
        raise Broken(
            "jax %s sees no GPU: %s" % (context.jax.__version__, said),
            "pip install -U 'jax[cuda12]' (jax[cuda13] for drivers of 580 and newer); unset JAX_PLATFORMS",
        )
    device = context.devices[0]
    details = {"device": str(device), "kind": str(device.device_kind), "jax": str(context.jax.__version__)}
    return Outcome(right=True, words=warnings(context.heard), details=details)


def _product(context: Context) -> Outcome:
    if not context.devices:
        raise CannotRun("JAX sees no GPU")
    jax = context.jax

    def multiply(left: Any, right: Any) -> Callable[[], Any]:
        there = [jax.device_put(matrix, context.devices[0]) for matrix in (left, right)]
        compiled = jax.jit(jax.numpy.matmul)
        return lambda: jax.device_get(compiled(*there))

    return product(context.seed, context.on_cpu, multiply)
