"""Whether TensorFlow sees the GPU, and one product."""

from __future__ import annotations

from typing import Any, Callable

from .._framework import SIZE, Context
from .._kernel import Outcome, Spec

KERNELS = (
    Spec("tensorflow.device", "TensorFlow: device seen", seconds=30.0),
    Spec("tensorflow.matmul", "TensorFlow: fp32 matmul, with the way back", "µs", SIZE, seconds=60.0),
)
_ADVICE = "pip install 'tensorflow[and-cuda]==%s', which brings the CUDA libraries of that release along"


def run(context: Context, spec: Spec) -> Outcome:
    """Check that TensorFlow sees the GPU, or check and time a product, in µs including the copy back, by its id."""
    if spec.id == "tensorflow.device":
        return context.check(_ADVICE % context.version, lambda _: {})
    tensorflow = context.module

    def multiply(left: Any, right: Any) -> Callable[[], Any]:
        """A function that computes the product of two matrices and brings it back."""
        with tensorflow.device("/CPU:0" if context.on_cpu else "/GPU:0"):
            on_device = [tensorflow.constant(matrix) for matrix in (left, right)]

        def compute() -> Any:
            """The product as a numpy array."""
            with tensorflow.device("/CPU:0" if context.on_cpu else "/GPU:0"):
                return tensorflow.linalg.matmul(*on_device).numpy()

        return compute

    return context.product(multiply)
