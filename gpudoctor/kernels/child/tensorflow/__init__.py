"""TensorFlow in the target interpreter, where it is installed: it sees one GPU and takes memory only as it needs it."""

from __future__ import annotations

import importlib.util
import os
from typing import Any, Dict, List, Mapping

from .._framework import captured_stderr, restrict_visible_devices
from .._kernel import CannotRun


class Context:
    """TensorFlow with its devices, and the lines it wrote to standard error while it looked for them."""

    def __init__(self, tensorflow: Any, seed: int, on_cpu: bool, devices: List[Any], stderr_lines: List[str]) -> None:
        self.tensorflow = tensorflow
        self.seed = seed
        self.on_cpu = on_cpu
        self.devices = devices
        self.stderr_lines = stderr_lines

    def description(self) -> Dict[str, Any]:
        """Version and devices for the protocol's ``opened`` line."""
        version = str(self.tensorflow.__version__)
        return {"tensorflow": version, "devices": [str(device.name) for device in self.devices]}


def opened(ask: Mapping[str, Any]) -> Context:
    """TensorFlow restricted to that device, with memory growth. Raises `CannotRun` where it or its CUDA is missing."""
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
    return Context(tensorflow, int(ask.get("seed", 1)), not on_gpu, devices, stderr_lines)
