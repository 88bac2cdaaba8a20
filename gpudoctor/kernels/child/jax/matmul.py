"""Whether JAX sees the GPU, and one product."""

from __future__ import annotations

from typing import Any, Callable

from .._framework import SIZE, Context
from .._kernel import Outcome, Spec

KERNELS = (
    Spec("jax.device", "JAX: device seen", seconds=30.0),
    Spec("jax.matmul", "JAX: fp32 matmul, with the way back", "µs", SIZE, seconds=60.0),
)
_ADVICE = "pip install -U 'jax[cuda12]' (jax[cuda13] for drivers of 580 and newer); unset JAX_PLATFORMS"


def run(context: Context, spec: Spec) -> Outcome:
    """Check that JAX sees the GPU, or check and time a product, in µs including the copy back, by the kernel's id."""
    if spec.id == "jax.device":
        return context.check(_ADVICE, lambda device: {"kind": str(device.device_kind)})
    jax = context.module

    def multiply(left: Any, right: Any) -> Callable[[], Any]:
        """A function that computes the product of two matrices and brings it back."""
        on_device = [jax.device_put(matrix, next(iter(context.devices.values()))) for matrix in (left, right)]
        compiled = jax.jit(jax.numpy.matmul)
        return lambda: jax.device_get(compiled(*on_device))

    return context.product(multiply)
