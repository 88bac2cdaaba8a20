"""Whether JAX sees the GPU, and one product."""

from __future__ import annotations

from typing import Any, Callable

from .._framework import SIZE, product, warnings
from .._kernel import Broken, CannotRun, Outcome, Spec
from . import Context

KERNELS = (
    Spec("jax.device", "JAX: device seen", seconds=30.0),
    Spec("jax.matmul", "JAX: fp32 matmul, with the way back", "µs", SIZE, seconds=60.0),
)


def run(context: Context, spec: Spec) -> Outcome:
    """Check that JAX sees the GPU, or check and time a product, by the kernel's id."""
    return _check_device(context) if spec.id == "jax.device" else _product(context)


def _check_device(context: Context) -> Outcome:
    """An outcome with the device JAX sees; raises `Broken` with JAX's messages if it sees none."""
    if not context.devices:
        reason = context.why or warnings(context.stderr_lines) or "it does not say why"
        raise Broken(
            "jax %s sees no GPU: %s" % (context.jax.__version__, reason),
            "pip install -U 'jax[cuda12]' (jax[cuda13] for drivers of 580 and newer); unset JAX_PLATFORMS",
        )
    device = context.devices[0]
    details = {"device": str(device), "kind": str(device.device_kind), "jax": str(context.jax.__version__)}
    return Outcome(right=True, words=warnings(context.stderr_lines), details=details)


def _product(context: Context) -> Outcome:
    """The checked product, in µs including the copy back; raises `CannotRun` without a GPU."""
    if not context.devices:
        raise CannotRun("JAX sees no GPU")
    jax = context.jax

    def multiply(left: Any, right: Any) -> Callable[[], Any]:
        """A function that computes the product of two matrices and brings it back."""
        on_device = [jax.device_put(matrix, context.devices[0]) for matrix in (left, right)]
        compiled = jax.jit(jax.numpy.matmul)
        return lambda: jax.device_get(compiled(*on_device))

    return product(context.seed, context.on_cpu, multiply)
