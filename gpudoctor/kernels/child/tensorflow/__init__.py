"""TensorFlow in the target interpreter, where it is installed: it sees one GPU and takes memory only as it needs it."""

from __future__ import annotations

import importlib.util
import os
from typing import Any, Mapping

from .._framework import Context, captured_stderr, restrict_visible_devices
from .._kernel import CannotRun


def opened(ask: Mapping[str, Any]) -> Context:
    """TensorFlow imported and restricted to the device in `ask`; raises `CannotRun` where it or its CUDA is missing."""
    if importlib.util.find_spec("tensorflow") is None:
        raise CannotRun("tensorflow is not installed in this interpreter")
    on_gpu = restrict_visible_devices(str(ask["device"]))
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"  # what it warns of is what we ask for
    with captured_stderr() as stderr_lines:
        import tensorflow  # type: ignore[import-untyped,import-not-found,unused-ignore]

        if on_gpu and not tensorflow.test.is_built_with_cuda():
            raise CannotRun("tensorflow %s is built without CUDA" % tensorflow.__version__)
        devices = list(tensorflow.config.list_physical_devices("GPU" if on_gpu else "CPU"))
        for device in devices if on_gpu else ():
            tensorflow.config.experimental.set_memory_growth(device, True)
    return Context(tensorflow, "TensorFlow", ask, {str(device.name): device for device in devices}, stderr_lines, "")
