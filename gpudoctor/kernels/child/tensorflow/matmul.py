"""Whether TensorFlow sees the GPU, and one product."""

from __future__ import annotations

from typing import Any, Callable

from .._framework import SIZE, product, warnings
from .._kernel import Broken, CannotRun, Outcome, Spec
from . import Context

KERNELS = (
    Spec("tensorflow.device", "TensorFlow: device seen", seconds=30.0),
    Spec("tensorflow.matmul", "TensorFlow: fp32 matmul, with the way back", "µs", SIZE, seconds=60.0),
)


def run(context: Context, spec: Spec) -> Outcome:
    """Check that TensorFlow sees the GPU, or check and time a product, by the kernel's id."""
    return _check_device(context) if spec.id == "tensorflow.device" else _product(context)


def _check_device(context: Context) -> Outcome:
    """An outcome with the device TensorFlow sees; raises `Broken` with its messages if it sees none."""
    version = str(context.tensorflow.__version__)
    if not context.devices:
        reason = warnings(context.stderr_lines) or "it does not say why"
        raise Broken(
            "tensorflow %s sees no GPU: %s" % (version, reason),
            "pip install 'tensorflow[and-cuda]==%s', which brings the CUDA libraries of that release along" % version,
        )
    details = {"device": str(context.devices[0].name), "tensorflow": version}
    return Outcome(right=True, words=warnings(context.stderr_lines), details=details)


def _product(context: Context) -> Outcome:
    """The checked product, in µs including the copy back; raises `CannotRun` without a GPU."""
    if not context.devices:
        raise CannotRun("TensorFlow sees no GPU")
    tensorflow = context.tensorflow

    def multiply(left: Any, right: Any) -> Callable[[], Any]:
        """A function that computes the product of two matrices and brings it back."""
        with tensorflow.device("/CPU:0" if context.on_cpu else "/GPU:0"):
            on_device = [tensorflow.constant(matrix) for matrix in (left, right)]

        def compute() -> Any:
            """The product as a numpy array."""
            with tensorflow.device("/CPU:0" if context.on_cpu else "/GPU:0"):
                return tensorflow.linalg.matmul(*on_device).numpy()

        return compute

    return product(context.seed, context.on_cpu, multiply)
