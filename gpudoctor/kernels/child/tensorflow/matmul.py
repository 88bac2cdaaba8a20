"""Whether TensorFlow sees the GPU, and one product."""

from __future__ import annotations

from typing import Any, Callable

from .._framework import SIZE, product, warnings
from .._kernel import Broken, CannotRun, Outcome, Spec
from ._rung import Context

KERNELS = (
    Spec("tensorflow.device", "TensorFlow: device seen", seconds=30.0),
    Spec("tensorflow.matmul", "TensorFlow: fp32 matmul, with the way back", "µs", SIZE, seconds=60.0),
)


def run(context: Context, spec: Spec) -> Outcome:
    """Seen first, then used."""
    return _seen(context) if spec.id == "tensorflow.device" else _product(context)


def _seen(context: Context) -> Outcome:
    version = str(context.tensorflow.__version__)
    if not context.devices:
        said = warnings(context.heard) or "it does not say why"
        raise Broken(
            "tensorflow %s sees no GPU: %s" % (version, said),
            "pip install 'tensorflow[and-cuda]==%s', which brings the CUDA libraries of that release along" % version,
        )
    details = {"device": str(context.devices[0].name), "tensorflow": version}
    return Outcome(right=True, words=warnings(context.heard), details=details)


def _product(context: Context) -> Outcome:
    if not context.devices:
        raise CannotRun("TensorFlow sees no GPU")
    tensorflow = context.tensorflow

    def multiply(left: Any, right: Any) -> Callable[[], Any]:
        with tensorflow.device("/CPU:0" if context.on_cpu else "/GPU:0"):
            there = [tensorflow.constant(matrix) for matrix in (left, right)]

        def once() -> Any:
            with tensorflow.device("/CPU:0" if context.on_cpu else "/GPU:0"):
                return tensorflow.linalg.matmul(*there).numpy()

        return once

    return product(context.seed, context.on_cpu, multiply)
